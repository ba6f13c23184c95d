//! Single files and directories.

use std::sync::Arc;

use anyhow::{Result, ensure};
use box_tests::{Difference, Ground};
use box_wire::FileOp;
use box_wire::file_op::EntryKind;

use super::asked::{Tree, path, refused};

pub(super) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        files_are_told_as_they_are,
        files_are_read_from_anywhere_to_anywhere,
        what_cannot_be_read_is_refused_by_kind,
        a_hole_of_a_terabyte_is_read_in_part,
        directories_are_made_with_those_above,
        things_get_other_names,
        files_move_between_file_systems,
    ]
}

async fn files_are_told_as_they_are(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check(
        "cd /workspace; printf text > file; chmod 640 file; touch -d @1000000000.5 file; ln -s file link; mkfifo pipe",
    )
    .await?;
    let tree = Tree::new(&one, "/workspace");
    let file = tree.stat("/workspace/file").await?;
    ensure!(file.kind == EntryKind::File && file.size == 4 && file.mode == 0o640, "{file:?}");
    ensure!(file.path == "/workspace/file" && file.modified_ns == 1_000_000_000_500_000_000, "{file:?}");
    ensure!((file.uid, file.gid) == (ground.user().uid, ground.user().gid) && file.target.is_none(), "{file:?}");
    let link = tree.stat("/workspace/link").await?;
    ensure!(link.kind == EntryKind::Symlink && link.target.as_deref() == Some("file"), "{link:?}");
    ensure!(tree.stat("/workspace").await?.kind == EntryKind::Directory);
    ensure!(tree.stat("/workspace/pipe").await?.kind == EntryKind::Other);
    refused(tree.stat("/workspace/none").await, "not_found", "/workspace/none")?;
    refused(tree.stat("/workspace/file/x").await, "not_directory", "/workspace/file/x")
}

async fn files_are_read_from_anywhere_to_anywhere(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; seq 200000 > numbers; ln -s numbers link; : > empty").await?;
    let tree = Tree::new(&one, "/workspace");
    let numbers: String = (1..=200_000).flat_map(|number| [number.to_string(), "\n".to_owned()]).collect();
    ensure!(tree.read("/workspace/link").await? == numbers, "it is not what was written");
    ensure!(tree.read("/workspace/empty").await?.is_empty());
    for (offset, bytes_max, expected) in
        [(5, Some(3), &numbers[5..8]), (numbers.len() as u64 - 2, Some(99), "0\n"), (1 << 40, None, "")]
    {
        let op = FileOp::Read { path: path("/workspace/numbers"), offset, bytes_max };
        let (_, bytes) = tree.collect(op).await?;
        ensure!(bytes == expected.as_bytes(), "{offset} {bytes_max:?}: {:?}", String::from_utf8_lossy(&bytes));
    }
    Ok(())
}

async fn what_cannot_be_read_is_refused_by_kind(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; mkfifo pipe; ln -s /dev/zero zero; ln -s loop loop; mkdir d; : > closed; chmod 0 closed")
        .await?;
    let tree = Tree::new(&one, "/");
    for (name, code) in [
        ("/workspace/d", "is_directory"),
        ("/workspace/pipe", "not_regular"),
        ("/workspace/zero", "not_regular"),
        ("/workspace/loop", "symlink_refused"),
        ("/workspace/closed", "denied"),
        ("/workspace/none", "not_found"),
    ] {
        refused(tree.read(name).await, code, name)?;
    }
    let nowhere = Tree::new(&one, "/workspace/none");
    refused(nowhere.read("/workspace/d").await, "not_found", "/workspace/none")
}

async fn a_hole_of_a_terabyte_is_read_in_part(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("truncate -s 1T /workspace/hole").await?;
    let tree = Tree::new(&one, "/workspace");
    let op = FileOp::Read { path: path("/workspace/hole"), offset: 1 << 39, bytes_max: Some(3 << 20) };
    let (_, bytes) = tree.collect(op).await?;
    ensure!(bytes.len() == 3 << 20 && bytes.iter().all(|&byte| byte == 0), "{} bytes", bytes.len());
    let op = FileOp::Read { path: path("/workspace/hole"), offset: 0, bytes_max: None };
    let (_, mut output) = tree.open(op).await?;
    ensure!(output.next().await?.is_some());
    drop(output);
    tree.quiet().await
}

async fn directories_are_made_with_those_above(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let tree = Tree::new(&one, "/workspace");
    let made = tree.make_directory("/workspace/a/b/c", true).await?;
    ensure!(made.kind == EntryKind::Directory && made.path == "/workspace/a/b/c" && made.mode == 0o755, "{made:?}");
    tree.make_directory("/workspace/a/b", false).await?;
    tree.make_directory("/workspace", false).await?;
    one.check("cd /workspace; : > file; ln -s none dangling; ln -s a link").await?;
    tree.make_directory("/workspace/link/new/deep", false).await?;
    ensure!(one.check("ls -d /workspace/a/new/deep").await? == "/workspace/a/new/deep");
    for (name, exclusive, code) in [
        ("/workspace/a", true, "exists"),
        ("/workspace", true, "exists"),
        ("/workspace/file", true, "exists"),
        ("/workspace/file", false, "not_directory"),
        ("/workspace/file/x", false, "not_directory"),
        ("/workspace/dangling", true, "exists"),
        ("/workspace/dangling", false, "not_found"),
    ] {
        refused(tree.make_directory(name, exclusive).await, code, name)?;
    }
    let everywhere = Tree::new(&one, "/");
    let code = if ground.differs(Difference::MachineOfProvider) { "denied" } else { "read_only" };
    refused(everywhere.make_directory("/usr/x", true).await, code, "/usr/x")
}

async fn things_get_other_names(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; echo one > one; echo two > two; mkdir -p d/x e; ln -s none link").await?;
    let tree = Tree::new(&one, "/workspace");
    let moved = tree.rename("/workspace/one", "/workspace/d/one", false).await?;
    ensure!(moved.path == "/workspace/d/one" && moved.size == 4, "{moved:?}");
    ensure!(tree.rename("/workspace/link", "/workspace/moved", false).await?.kind == EntryKind::Symlink);
    let w = |name: &str| format!("/workspace/{name}");
    for (from, to, replace, code, about) in [
        ("two", "d/one", false, "exists", "d/one"),
        ("none", "new", true, "not_found", "none"),
        ("two", "none/new", true, "not_found", "none"),
        ("d", "d/x/d", true, "invalid_path", "d/x/d"),
        ("two", "d", true, "is_directory", "d"),
        ("e", "d", true, "not_empty", "d"),
        ("two", "", true, "invalid_path", ""),
    ] {
        let to = if to.is_empty() { "/workspace".to_owned() } else { w(to) };
        refused(tree.rename(&w(from), &to, replace).await, code, about)?;
    }
    tree.rename("/workspace/two", "/workspace/d/one", true).await?;
    tree.rename("/workspace/d", "/workspace/new", false).await?;
    ensure!(one.check("cd /workspace; cat new/one; ls").await? == "two\ne\nmoved\nnew");
    Ok(())
}

async fn files_move_between_file_systems(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /dev/shm; echo far > file; chmod 751 file; mkdir d; echo old > /workspace/old").await?;
    let tree = Tree::new(&one, "/");
    refused(tree.rename("/dev/shm/file", "/workspace/old", false).await, "exists", "/workspace/old")?;
    ensure!(tree.rename("/dev/shm/file", "/workspace/old", true).await?.mode == 0o751);
    ensure!(one.check("cat /workspace/old; ls -A /dev/shm; ls -A /workspace").await? == "far\nd\nold");
    if let Err(error) = tree.rename("/dev/shm/d", "/workspace/d", false).await {
        refused::<()>(Err(error), "not_regular", "/dev/shm/d")?;
    }
    Ok(())
}
