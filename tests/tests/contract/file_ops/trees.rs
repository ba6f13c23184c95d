//! Directories with all that is in them.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use box_core::{BoxSpec, MountMode, Profile};
use box_tests::ground::mount;
use box_tests::{Difference, Ground};
use box_wire::file_op::{Entry, EntryKind};
use box_wire::{Answer, FileOp, limits};

use super::asked::{Tree, path, refused};

pub(super) fn cases() -> Vec<crate::ContractCase> {
    let mut cases = crate::cases![
        directories_are_listed_level_by_level,
        a_listing_is_bounded,
        things_are_removed_and_links_not_followed,
        what_is_mounted_is_not_removed,
        trees_are_measured_as_they_are_allocated,
    ];
    let deep = crate::cases![a_tree_deeper_than_any_path_overflows_nothing];
    cases.extend(deep.into_iter().map(|case| case.within_seconds(180)));
    cases
}

async fn list(tree: &Tree, name: &str, depth: u32, entries_max: u32) -> box_core::Result<(Vec<Entry>, bool)> {
    match tree.ask(FileOp::List { path: path(name), depth, entries_max }).await? {
        Answer::Entries { entries, truncated } => Ok((entries, truncated)),
        other => Err(box_core::Error::Gone { reason: format!("{other:?}") }),
    }
}

fn names(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.path.as_str()).collect()
}

async fn directories_are_listed_level_by_level(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check(
        "cd /workspace; mkdir -p a/b/c closed/x; printf text > a/file; ln -s /etc link; mkfifo pipe; chmod 0 closed",
    )
    .await?;
    one.check("cd /workspace; mkdir odd; touch \"$(printf 'odd/\\377')\" 'odd/two\nlines'").await?;
    let tree = Tree::new(&one, "/workspace");
    let (entries, truncated) = list(&tree, "/workspace", 1, 100).await?;
    ensure!(!truncated);
    let told: Vec<_> = entries.iter().map(|entry| (entry.path.as_str(), entry.kind)).collect();
    let expected = [
        ("/workspace/a", EntryKind::Directory),
        ("/workspace/closed", EntryKind::Directory),
        ("/workspace/link", EntryKind::Symlink),
        ("/workspace/odd", EntryKind::Directory),
        ("/workspace/pipe", EntryKind::Other),
    ];
    ensure!(told == expected, "{told:?}");
    ensure!(entries[2].target.as_deref() == Some("/etc"), "{:?}", entries[2]);
    let (entries, _) = list(&tree, "/workspace/a", 2, 100).await?;
    ensure!(names(&entries) == ["/workspace/a/b", "/workspace/a/b/c", "/workspace/a/file"], "{entries:?}");
    let (entries, _) = list(&tree, "/workspace/odd", 1, 100).await?;
    ensure!(names(&entries) == ["/workspace/odd/two\nlines", "/workspace/odd/\u{fffd}"], "{entries:?}");
    refused(list(&tree, "/workspace/a/file", 1, 9).await, "not_directory", "/workspace/a/file")?;
    refused(list(&tree, "/workspace/none", 1, 9).await, "not_found", "/workspace/none")?;
    refused(list(&tree, "/workspace/closed", 1, 9).await, "denied", "/workspace/closed")
}

async fn a_listing_is_bounded(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("mkdir /workspace/many; cd /workspace/many; seq -w 12000 | xargs touch").await?;
    let tree = Tree::new(&one, "/workspace");
    let (entries, truncated) = list(&tree, "/workspace/many", 1, limits::ENTRIES_MAX).await?;
    ensure!(truncated && entries.len() == limits::ENTRIES_MAX as usize, "{} {truncated}", entries.len());
    ensure!(entries.last().is_some_and(|entry| entry.path == "/workspace/many/10000"), "the first ones are listed");
    let (entries, truncated) = list(&tree, "/workspace/many", 1, 2).await?;
    ensure!(truncated && names(&entries) == ["/workspace/many/00001", "/workspace/many/00002"], "{entries:?}");
    let refused = list(&tree, "/workspace", 1, limits::ENTRIES_MAX + 1).await;
    ensure!(refused.is_err_and(|error| error.code() == "invalid"));
    Ok(())
}

async fn things_are_removed_and_links_not_followed(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; mkdir -p kept full/a/b; : > kept/file; : > full/a/x; ln -s /workspace/kept full/link; mkfifo full/pipe")
        .await?;
    one.check("cd /workspace; ln -s kept link; : > file; mkdir empty -p closed/d; : > closed/d/x; chmod 500 closed/d")
        .await?;
    let tree = Tree::new(&one, "/workspace");
    for (name, recursive, code, about) in [
        ("/workspace/none", true, "not_found", "/workspace/none"),
        ("/workspace/full", false, "not_empty", "/workspace/full"),
        ("/workspace", true, "invalid_path", "/workspace"),
        ("/workspace/closed", true, "denied", "/workspace/closed/d/x"),
    ] {
        refused(tree.remove(name, recursive).await, code, about)?;
    }
    for (name, recursive) in [("file", false), ("link", true), ("empty", false), ("full", true)] {
        tree.remove(&format!("/workspace/{name}"), recursive).await?;
    }
    ensure!(one.check("cd /workspace; ls -A . kept").await? == ".:\nclosed\nkept\n\nkept:\nfile");
    Ok(())
}

async fn what_is_mounted_is_not_removed(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    std::fs::write(source.join("file"), "kept")?;
    let mounts = vec![mount(&source, "/workspace/a/mounted", MountMode::Rw)?];
    let one = ground.make(&BoxSpec { mounts, ..Profile::default().spec() }).await?;
    let tree = Tree::new(&one, "/workspace");
    refused(tree.remove("/workspace/a", true).await, "denied", "/workspace/a/mounted")?;
    refused(tree.remove("/workspace/a/mounted", true).await, "denied", "/workspace/a/mounted")?;
    ensure!(std::fs::read_to_string(source.join("file"))? == "kept");
    Ok(())
}

async fn trees_are_measured_as_they_are_allocated(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let source = ground.mount_source()?;
    std::fs::write(source.join("file"), vec![1; 1 << 20])?;
    let mounts = vec![mount(&source, "/workspace/t/mounted", MountMode::Rw)?];
    let one = ground.make(&BoxSpec { mounts, ..Profile::default().spec() }).await?;
    one.check("mkdir -p /workspace/t/a; cd /workspace/t; head -c 300000 /dev/zero > a/file; ln a/file second; truncate -s 1T hole; ln -s a link")
        .await?;
    let tree = Tree::new(&one, "/workspace");
    let expected: u64 = one.check("du -x -s -B1 /workspace/t | cut -f1").await?.parse()?;
    let inodes: u64 = one.check("du -x -s --inodes /workspace/t | cut -f1").await?.parse()?;
    let Answer::Size { bytes, inodes: told, partial } =
        tree.ask(FileOp::Measure { path: path("/workspace/t") }).await?
    else {
        bail!("no size")
    };
    ensure!(!partial && (300_000..600_000).contains(&bytes), "{bytes}");
    // The point where something is mounted is counted by one and not by the other; the tree has 5 others.
    ensure!(bytes <= expected && expected - bytes <= 8192, "{bytes} instead of {expected}");
    ensure!(told == 5 && inodes - told <= 1, "{told} instead of {inodes}");
    refused(tree.ask(FileOp::Measure { path: path("/workspace/none") }).await, "not_found", "/workspace/none")
}

async fn a_tree_deeper_than_any_path_overflows_nothing(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let script = "import os\n\
        fd = os.open('/workspace', os.O_PATH)\n\
        for level in range(4000):\n\
        \x20os.mkdir('d', dir_fd=fd)\n\
        \x20down = os.open('d', os.O_PATH, dir_fd=fd)\n\
        \x20os.close(fd)\n\
        \x20fd = down";
    let made = one.argv(&["python3", "-c", script]).await?;
    ensure!(made.succeeded(), "{:?} {}", made.outcome, made.errors());
    let tree = Tree { deadline_ms: 170_000, ..Tree::new(&one, "/workspace") };
    let Answer::Size { inodes, partial, .. } = tree.ask(FileOp::Measure { path: path("/workspace/d") }).await? else {
        bail!("no size")
    };
    ensure!(inodes == 4000 && !partial, "{inodes} {partial}");
    ensure!(list(&tree, "/workspace", limits::DEPTH_MAX, 10_000).await?.0.len() == limits::DEPTH_MAX as usize);
    let packed = tree.pack("/workspace").await;
    ensure!(packed.as_ref().is_err_and(|error| error.to_string().contains("deeper")), "{:?}", packed.map(|b| b.len()));
    let (_, output) = tree.open(FileOp::Watch { path: path("/workspace"), recursive: true }).await?;
    drop(output);
    tree.remove("/workspace/d", true).await?;
    ensure!(one.check("ls -A /workspace").await?.is_empty());
    Ok(())
}
