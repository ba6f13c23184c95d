//! Files that are written: whole, or not at all.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use box_core::{BoxSpec, MountMode, Profile};
use box_tests::ground::mount;
use box_tests::{Difference, Ground};
use box_wire::FileOp;
use box_wire::file_op::WriteHow;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::asked::{Tree, path, refused};

pub(super) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        files_are_replaced_made_and_continued,
        a_large_file_arrives_whole,
        what_is_too_large_leaves_nothing,
        a_full_disk_leaves_what_was_there,
        a_write_that_is_given_up_leaves_nothing,
        what_may_not_be_written_is_refused,
        a_mounted_file_is_written_in_place,
    ]
}

async fn files_are_replaced_made_and_continued(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let tree = Tree::new(&one, "/workspace");
    let made = tree.write("/workspace/a/b/file", WriteHow::Create, "one").await?;
    ensure!(made.size == 3 && made.mode == 0o644 && made.path == "/workspace/a/b/file", "{made:?}");
    refused(tree.write("/workspace/a/b/file", WriteHow::Create, "x").await, "exists", "/workspace/a/b/file")?;
    one.check("cd /workspace; chmod 751 a/b/file; ln -s a/b/file link").await?;
    let replaced = tree.write("/workspace/link", WriteHow::Replace, "second").await?;
    ensure!(replaced.size == 6 && replaced.mode == 0o751, "{replaced:?}");
    tree.write("/workspace/link", WriteHow::From(3), "re").await?;
    ensure!(one.check("cd /workspace; cat a/b/file; readlink link; ls -A a/b").await? == "secrea/b/file\nfile");
    let op = FileOp::Write { path: path("/workspace/tool"), how: WriteHow::Replace, mode: Some(0o700), bytes_max: 100 };
    tree.send(op, &b"#!/bin/sh\necho works"[..]).await?;
    ensure!(one.check("/workspace/tool").await? == "works");
    tree.write("/workspace/empty", WriteHow::Replace, "").await?;
    ensure!(one.check("stat -c %s /workspace/empty").await? == "0");
    refused(tree.write("/workspace/empty", WriteHow::From(1), "x").await, "too_large", "/workspace/empty")?;
    refused(tree.write("/workspace/none", WriteHow::From(1), "x").await, "not_found", "/workspace/none")
}

async fn a_large_file_arrives_whole(ground: Arc<Ground>) -> Result<()> {
    const BYTES: u64 = 32 << 20;
    let one = ground.plain().await?;
    let tree = Tree::new(&one, "/workspace");
    let op = FileOp::Write { path: path("/workspace/large"), how: WriteHow::Replace, mode: None, bytes_max: BYTES };
    tree.send(op, tokio::io::repeat(b'x').take(BYTES)).await?;
    ensure!(one.check("tr -d x < /workspace/large | wc -c; stat -c %s /workspace/large").await? == "0\n33554432");
    Ok(())
}

async fn what_is_too_large_leaves_nothing(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; printf old > old").await?;
    let tree = Tree::new(&one, "/workspace");
    for (name, how) in [
        ("/workspace/new", WriteHow::Replace),
        ("/workspace/new", WriteHow::Create),
        ("/workspace/new", WriteHow::From(0)),
        ("/workspace/old", WriteHow::Replace),
        ("/workspace/old", WriteHow::From(3)),
    ] {
        let op = FileOp::Write { path: path(name), how, mode: None, bytes_max: 1 << 20 };
        let sent = tree.send(op, tokio::io::repeat(b'x').take(8 << 20)).await;
        refused(sent, "too_large", name)?;
    }
    ensure!(one.check("cd /workspace; cat old; ls -A").await? == "oldold");
    Ok(())
}

async fn a_full_disk_leaves_what_was_there(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::SizeOfProvider)?;
    let one = ground.make(&BoxSpec { disk_mb: 32, ..Profile::default().spec() }).await?;
    one.check("printf old > /workspace/old").await?;
    let tree = Tree::new(&one, "/workspace");
    let op = FileOp::Write { path: path("/workspace/old"), how: WriteHow::Replace, mode: None, bytes_max: 1 << 40 };
    refused(tree.send(op, tokio::io::repeat(b'x').take(256 << 20)).await, "no_space", "/workspace/old")?;
    ensure!(one.check("cd /workspace; cat old; ls -A").await? == "oldold");
    one.check("head -c 8M /dev/zero > /workspace/fits").await.map(drop)
}

async fn a_write_that_is_given_up_leaves_nothing(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("printf old > /workspace/old").await?;
    let tree = Tree::new(&one, "/workspace");
    for name in ["/workspace/old", "/workspace/new"] {
        let (mut giver, taker) = tokio::io::duplex(1 << 16);
        let op = FileOp::Write { path: path(name), how: WriteHow::Replace, mode: None, bytes_max: 1 << 40 };
        let half = vec![b'x'; 4 << 20];
        tokio::select! {
            ended = tree.send(op, taker) => bail!("it ended by itself: {ended:?}"),
            sent = giver.write_all(&half) => sent?,
        }
        tree.quiet().await?;
    }
    ensure!(one.check("cd /workspace; cat old; ls -A").await? == "oldold");
    Ok(())
}

async fn what_may_not_be_written_is_refused(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check(
        "cd /workspace; mkdir d closed; chmod 500 closed; mkfifo pipe; ln -s none dangling; ln -s /dev/null null",
    )
    .await?;
    let tree = Tree::new(&one, "/");
    for (name, code) in [
        ("/workspace/d", "is_directory"),
        ("/workspace/pipe", "not_regular"),
        ("/workspace/null", "not_regular"),
        ("/workspace/dangling", "symlink_refused"),
        ("/workspace/closed/x", "denied"),
        ("/usr/new", "read_only"),
        ("/usr/bin/env", "read_only"),
    ] {
        let written = tree.write(name, WriteHow::Replace, "x").await;
        match (&written, code) {
            // What protects the system's files differs: mounts, or the rights of the workload.
            (Err(error), "read_only") if error.code() == "denied" => {}
            _ => refused(written, code, name)?,
        }
    }
    Ok(())
}

async fn a_mounted_file_is_written_in_place(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::CopiedMounts)?;
    let file = ground.mount_source()?.join("file");
    fs::write(&file, "a longer text than before")?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666))?;
    let before = fs::metadata(&file)?.ino();
    let mounts = vec![mount(&file, "/workspace/file", MountMode::Rw)?];
    let one = ground.make(&BoxSpec { mounts, ..Profile::default().spec() }).await?;
    let tree = Tree::new(&one, "/workspace");
    tree.write("/workspace/file", WriteHow::Replace, "new").await?;
    ensure!(fs::read_to_string(&file)? == "new" && fs::metadata(&file)?.ino() == before);
    ensure!(one.check("ls -A /workspace").await? == "file", "something is left beside it");
    refused(tree.remove("/workspace/file", false).await, "failed", "/workspace/file")?;
    ensure!(fs::read_to_string(&file)? == "new");
    Ok(())
}
