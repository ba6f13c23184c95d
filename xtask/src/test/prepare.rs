//! `prepare`: the Debian packages that the suites use, the clients from PyPI and npm, and the image for engines. It runs beside the
//! compiler. A failed installation is logged here; the stage that needs it tries again and fails.

use super::{Proof, Verdict, e2b_clients, langbot, mcp_clients, openapi_client, openapi_fuzz};
use crate::engines::{Engines, nsjail};
use crate::node::Packages;
use crate::packages;

/// Each package and what goes untested without it.
const PACKAGES: &[(&str, &str)] = &[
    ("bubblewrap", "the comparison with bwrap"),
    ("uidmap", "rootless boxes with a range of uids"),
    ("passt", "network through pasta"),
    ("slirp4netns", "network through slirp4netns"),
    ("nftables", "network through veth and masquerade"),
    ("iproute2", "network through veth and masquerade"),
    ("busybox-static", "boxes from an image, and the virtual machine"),
    ("docker-registry", "images from a registry"),
    ("e2fsprogs", "disks of ext4, and the virtual machine"),
    ("crun", "the comparison with crun"),
    ("qemu-system-x86", "the virtual machine"),
    ("cpio", "the virtual machine"),
    ("g++", "fuzz targets"),
];

/// Node.js where boxes see it, for MCP servers from npm. A machine that has it from elsewhere needs no packages.
const NODE: [&str; 2] = ["nodejs", "npm"];

/// Installs what is missing when root; otherwise says what is missing and which command would help.
pub(super) fn run(proof: &mut Proof) -> Verdict {
    let mut names: Vec<&str> = PACKAGES.iter().map(|(name, _)| *name).collect();
    if !mcp_clients::boxes_see_npx() {
        names.extend(NODE);
    }
    let missing = packages::install(&names);
    for package in &missing {
        let needed_for =
            PACKAGES.iter().find(|(name, _)| *name == package.package).map_or("MCP servers from npm", |(_, what)| what);
        proof.skip(format!("package {} (for {needed_for}): {}", package.package, package.reason));
    }
    if crate::machine::is_root() {
        for reason in clients(proof) {
            proof.log.write(&reason);
        }
    }
    Verdict::Passed
}

/// Installs the clients. Returns what went wrong.
fn clients(proof: &mut Proof) -> Vec<String> {
    let image = Engines::prepare(&proof.target).map(drop);
    let mut wanted = vec![openapi_fuzz::environment(), openapi_client::environment()];
    wanted.extend(langbot::environments(proof));
    wanted.extend(e2b_clients::environments(proof));
    wanted.extend(mcp_clients::environments(proof));
    let node = [e2b_clients::javascript(proof), mcp_clients::typescript(proof), mcp_clients::conformance(proof)];
    let installed = [langbot::install(proof, wanted), nsjail::find().map(drop), image];
    let failures = installed.into_iter().chain(node.iter().map(Packages::ensure)).filter_map(Result::err);
    failures.map(|error| format!("{error:#}")).collect()
}
