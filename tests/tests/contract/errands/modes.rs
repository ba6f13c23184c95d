//! Bits of files that would lend rights on the host.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use anyhow::{Result, ensure};
use box_core::{BoxSpec, MountMode, Profile};
use box_tests::ground::mount;
use box_tests::{Difference, Ground};
use box_wire::Work;
use box_wire::errand::WriteHow;

use super::asked::{Tree, path};
use crate::mounts::dangerous;

pub(super) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![no_errand_leaves_a_set_id_file_on_the_host]
}

const MODE: u32 = 0o6755;

fn archive() -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(MODE);
    header.set_size(1);
    archive.append_data(&mut header, "unpacked", &b"x"[..])?;
    Ok(archive.into_inner()?)
}

async fn no_errand_leaves_a_set_id_file_on_the_host(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    fs::set_permissions(&source, fs::Permissions::from_mode(0o777))?;
    let spec = BoxSpec { mounts: vec![mount(&source, "/workspace", MountMode::Rw)?], ..Profile::default().spec() };
    let one = ground.make(&spec).await?;
    // Files of the workload that the host gave bits.
    one.check(
        "cd /workspace; for name in replaced continued edited adjusted; do echo old > $name; done; : > /tmp/moved",
    )
    .await?;
    for name in ["replaced", "continued", "edited", "adjusted"] {
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(MODE))?;
    }
    let (tree, all) = (Tree::new(&one, "/workspace"), Tree::new(&one, "/"));
    let at = |name: &str| path(&format!("/workspace/{name}"));
    let adjust = |path, mode| Work::Adjust { path, mode: Some(mode), uid: None, gid: None };
    let write = |name: &str, how| Work::Write { path: at(name), how, mode: Some(MODE), bytes_max: 100 };
    for (name, how) in [
        ("made", WriteHow::Create),
        ("new", WriteHow::Replace),
        ("begun", WriteHow::From(0)),
        ("replaced", WriteHow::Replace),
        ("continued", WriteHow::From(1)),
    ] {
        tree.send(write(name, how), &b"text"[..]).await?;
    }
    let edit = Work::Edit { path: at("edited"), old: "old".to_owned(), new: "new".to_owned(), all: false };
    tree.ask(edit).await?;
    ensure!(tree.ask(adjust(at("adjusted"), MODE)).await.is_err(), "adjusted to mode {MODE:o}");
    tree.ask(adjust(at("adjusted"), 0o755)).await?;
    tree.unpack("/workspace", &archive()?, 100).await?;
    all.rename("/tmp/moved", "/workspace/moved", false).await?;
    ensure!(fs::read_dir(&source)?.count() == 9, "{:?}", fs::read_dir(&source)?.collect::<Vec<_>>());
    let found = dangerous(&source)?;
    ensure!(found.is_empty(), "{found:?}");
    Ok(())
}
