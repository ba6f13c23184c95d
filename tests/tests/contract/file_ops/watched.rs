//! Changes that are reported while a client watches.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use box_core::link::FileOutput;
use box_tests::{Difference, Ground};
use box_wire::file_op::{Change, ChangeKind};
use box_wire::{Answer, FileOp, limits};

use super::asked::{Tree, path, refused};

pub(super) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        changes_of_a_tree_are_told,
        only_the_directory_is_watched_unless_asked_for,
        what_is_lost_in_a_flood_is_told_as_missed,
        a_watch_ends_with_what_is_watched_and_with_who_listens,
    ]
}

async fn watch(tree: &Tree, name: &str, recursive: bool) -> Result<FileOutput> {
    let (answer, output) = tree.open(FileOp::Watch { path: path(name), recursive }).await?;
    ensure!(answer == Answer::Done, "{answer:?}");
    Ok(output)
}

async fn next(output: &mut FileOutput) -> Result<Option<Change>> {
    Ok(output.message(limits::BOX_MESSAGE_BYTES_MAX).await?)
}

/// Takes changes until this one, and returns all.
async fn until(output: &mut FileOutput, what: ChangeKind, name: &str) -> Result<Vec<Change>> {
    let mut all = Vec::new();
    while let Some(change) = next(output).await? {
        let last = change.what == what && change.path == name;
        all.push(change);
        if last {
            return Ok(all);
        }
    }
    bail!("{what:?} of {name} is not told: {all:?}")
}

async fn changes_of_a_tree_are_told(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("mkdir -p /workspace/a/b; : > /workspace/a/b/old").await?;
    let tree = Tree::new(&one, "/workspace");
    let mut output = watch(&tree, "/workspace", true).await?;
    for (line, what, name, is_directory) in [
        ("echo x > a/b/new", ChangeKind::Written, "a/b/new", false),
        ("chmod 600 a/b/old", ChangeKind::Attributes, "a/b/old", false),
        ("rm a/b/old", ChangeKind::Removed, "a/b/old", false),
        ("mkdir -p a/c/d", ChangeKind::Created, "a/c/d", true),
        ("mv a z", ChangeKind::Renamed, "z", true),
        ("echo x > z/b/again", ChangeKind::Written, "z/b/again", false),
        ("rm -r z/b", ChangeKind::Removed, "z/b", true),
    ] {
        one.check(&format!("cd /workspace; {line}")).await?;
        let told = until(&mut output, what, &format!("/workspace/{name}")).await?;
        ensure!(told.last().is_some_and(|change| change.is_directory == is_directory), "{line}: {told:?}");
        ensure!(told.iter().all(|change| change.what != ChangeKind::Missed), "{line}: {told:?}");
    }
    one.check("cd /workspace/z/c; while [ ! -e d ]; do :; done; echo x > d/deep").await?;
    until(&mut output, ChangeKind::Written, "/workspace/z/c/d/deep").await.map(drop)
}

async fn only_the_directory_is_watched_unless_asked_for(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("mkdir /workspace/a; : > /workspace/file").await?;
    let tree = Tree::new(&one, "/workspace");
    let mut flat = watch(&tree, "/workspace", false).await?;
    let mut file = watch(&tree, "/workspace/file", false).await?;
    one.check("cd /workspace; echo x > a/below; echo x > other; echo x > file").await?;
    let told = until(&mut flat, ChangeKind::Written, "/workspace/file").await?;
    ensure!(told.iter().all(|change| !change.path.contains("below")), "{told:?}");
    let told = until(&mut file, ChangeKind::Written, "/workspace/file").await?;
    ensure!(told.iter().all(|change| change.path == "/workspace/file"), "{told:?}");
    let nothing = tree.open(FileOp::Watch { path: path("/workspace/none"), recursive: true }).await;
    refused(nothing, "not_found", "/workspace/none")
}

async fn what_is_lost_in_a_flood_is_told_as_missed(ground: Arc<Ground>) -> Result<()> {
    // What is on its way is held there, so that nothing is lost.
    ground.unless(Difference::MachineOfProvider)?;
    let one = ground.plain().await?;
    let tree = Tree::new(&one, "/workspace");
    let mut output = watch(&tree, "/workspace", true).await?;
    // The output is not read meanwhile, so that the kernel's queue overflows.
    let script = "import os\n\
        for turn in range(60000):\n\
        \x20name = '/workspace/a-name-that-is-somewhat-long-%d' % turn\n\
        \x20os.close(os.open(name, os.O_CREAT | os.O_WRONLY)); os.unlink(name)";
    ensure!(one.argv(&["python3", "-c", script]).await?.succeeded());
    until(&mut output, ChangeKind::Missed, "/workspace").await?;
    one.check("mkdir /workspace/after; : > /workspace/after/file").await?;
    until(&mut output, ChangeKind::Created, "/workspace/after/file").await.map(drop)
}

async fn a_watch_ends_with_what_is_watched_and_with_who_listens(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("mkdir /workspace/a /workspace/b").await?;
    let tree = Tree::new(&one, "/workspace");
    for (line, what) in [("rmdir a", ChangeKind::Removed), ("mv b c", ChangeKind::Renamed)] {
        let name = format!("/workspace/{}", if line.contains('a') { "a" } else { "b" });
        let mut output = watch(&tree, &name, true).await?;
        one.check(&format!("cd /workspace; {line}")).await?;
        until(&mut output, what, &name).await?;
        ensure!(next(&mut output).await?.is_none(), "{line}: it goes on");
    }
    let output = watch(&tree, "/workspace", true).await?;
    drop(output);
    tree.quiet().await
}
