//! `prepare`: the Debian packages that the suites use.

use super::{Proof, Verdict};
use crate::packages;

/// Each package and what is not proved without it.
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
];

/// Installs what is missing when root; otherwise says what is missing and which command would help.
pub(super) fn run(proof: &mut Proof) -> Verdict {
    let names: Vec<&str> = PACKAGES.iter().map(|(name, _)| *name).collect();
    let missing = packages::install(&names);
    for package in &missing {
        let needed_for = PACKAGES.iter().find(|(name, _)| *name == package.package).map_or("", |(_, what)| what);
        proof.skip(format!("package {} (for {needed_for}): {}", package.package, package.reason));
    }
    Verdict::Passed
}
