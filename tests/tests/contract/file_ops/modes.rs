//! Bits of files that would lend rights on the host.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_core::{BoxSpec, MountMode, Profile};
use box_tests::ground::mount;
use box_tests::{Difference, Ground};
use box_wire::FileOp;
use box_wire::file_op::WriteHow;
use tar::EntryType;

use super::asked::{Tree, path};
use crate::mounts::dangerous;

pub(super) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        no_file_op_leaves_a_set_id_file_on_the_host,
        no_archive_leaves_more_than_plain_files_on_the_host,
        file_operations_have_the_filter_on_modes_where_files_are_the_hosts
    ]
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

async fn no_file_op_leaves_a_set_id_file_on_the_host(ground: Arc<Ground>) -> Result<()> {
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
    let adjust = |path, mode| FileOp::Adjust { path, mode: Some(mode), uid: None, gid: None };
    let write = |name: &str, how| FileOp::Write { path: at(name), how, mode: Some(MODE), bytes_max: 100 };
    for (name, how) in [
        ("made", WriteHow::Create),
        ("new", WriteHow::Replace),
        ("begun", WriteHow::From(0)),
        ("replaced", WriteHow::Replace),
        ("continued", WriteHow::From(1)),
    ] {
        tree.send(write(name, how), &b"text"[..]).await?;
    }
    let edit = FileOp::Edit { path: at("edited"), old: "old".to_owned(), new: "new".to_owned(), all: false };
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

/// Entries of every kind, each as root would pack it. What can be refused is, and the rest is unpacked without its bits.
async fn no_archive_leaves_more_than_plain_files_on_the_host(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let (source, outside) = (ground.mount_source()?, ground.mount_source()?);
    fs::set_permissions(&source, fs::Permissions::from_mode(0o777))?;
    let spec = BoxSpec { mounts: vec![mount(&source, "/workspace", MountMode::Rw)?], ..Profile::default().spec() };
    let one = ground.make(&spec).await?;
    // The host gives bits to a file of the workload, and has one elsewhere.
    one.check("echo old > /workspace/given").await?;
    for given in [source.join("given"), outside.join("given")] {
        fs::write(&given, "old")?;
        fs::set_permissions(&given, fs::Permissions::from_mode(MODE))?;
    }
    let (given, elsewhere) = (fs::metadata(source.join("given"))?.ino(), outside.join("given").display().to_string());
    let tree = Tree::new(&one, "/workspace");
    for (kind, name, link) in [
        (EntryType::Regular, "regular", None),
        (EntryType::Link, "linked", Some("given")),
        (EntryType::Link, "linked-absolute", Some("/workspace/given")),
        (EntryType::Link, "linked-elsewhere", Some(elsewhere.as_str())),
        (EntryType::Link, "linked-up", Some("../usr/bin/su")),
        (EntryType::Symlink, "to-given", Some("given")),
        (EntryType::Char, "character", None),
        (EntryType::Block, "block", None),
        (EntryType::Fifo, "fifo", None),
        (EntryType::Directory, "directory", None),
        (EntryType::Regular, "given", None),
    ] {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_path(name)?;
        header.set_mode(MODE);
        header.set_uid(0);
        header.set_gid(0);
        header.set_device_major(1)?;
        header.set_device_minor(3)?;
        header.set_size(0);
        if let Some(link) = link {
            header.set_link_name(link)?;
        }
        header.set_cksum();
        archive.append(&header, std::io::empty())?;
        // Whether it is refused is not the question here.
        let _answer = tree.unpack("/workspace", &archive.into_inner()?, 100).await;
        let mut found = dangerous(&source)?;
        // A link to the host's file is that file, whose bits the host gave.
        let is_given = |name: &str| fs::symlink_metadata(source.join(name)).is_ok_and(|it| it.ino() == given);
        found.retain(|entry| !is_given(entry.split_once(' ').map_or(entry.as_str(), |(name, _)| name)));
        ensure!(found.is_empty(), "{name} {kind:?}: {found:?}");
    }
    ensure!(fs::metadata(outside.join("given"))?.nlink() == 1, "a file elsewhere got another name");
    ensure!(fs::metadata(source.join("given"))?.mode() & 0o6000 == 0, "what replaces a file takes its bits");
    ensure!(fs::metadata(source.join("regular"))?.is_file() && fs::metadata(source.join("directory"))?.is_dir());
    Ok(())
}

/// A file operation reads its own process status.
async fn file_operations_have_the_filter_on_modes_where_files_are_the_hosts(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let filters = async |mounts| {
        let one = ground.make(&BoxSpec { mounts, ..Profile::default().spec() }).await?;
        let op = FileOp::Read { path: path("/proc/self/status"), offset: 0, bytes_max: None };
        let (_, bytes) = Tree::new(&one, "/").collect(op).await?;
        let text = String::from_utf8(bytes)?;
        let count = text.lines().find_map(|line| line.strip_prefix("Seccomp_filters:")).map(str::trim).map(str::parse);
        anyhow::Ok(count.context("the kernel does not tell how many filters there are")??)
    };
    let alone: u32 = filters(Vec::new()).await?;
    let source = ground.mount_source()?;
    ensure!(filters(vec![mount(&source, "/workspace", MountMode::Rw)?]).await? == alone + 1);
    ensure!(filters(vec![mount(&source, "/workspace", MountMode::Ro)?]).await? == alone);
    Ok(())
}
