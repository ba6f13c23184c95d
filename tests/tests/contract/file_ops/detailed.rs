//! Details of files that only the box knows, and writes that behave like those of a program.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use box_core::{Account, BoxSpec, Error, Network, Profile};
use box_tests::suite::skip;
use box_tests::{Difference, Ground};
use box_wire::file_op::{Attributes, ChangeKind, Detail, EntryKind, Happening};
use box_wire::{Answer, FileOp, User, limits};

use super::asked::{Tree, one_entry, path, refused};

pub(super) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        owners_have_the_names_that_the_box_has_for_them,
        links_are_told_with_where_they_lead,
        attributes_come_with_a_file_and_are_replaced_with_it,
        a_file_is_filled_as_a_program_fills_it,
        things_are_moved_to_directories_that_are_not_there_yet,
        files_become_one,
        room_is_told_and_becomes_less,
        who_follows_is_told_old_and_new_names_apart,
        root_gives_what_it_makes_to_the_user_who_may_not,
        bits_are_changed_by_the_owner_and_links_lead_to_what_is_meant,
    ]
}

/// How the names of the attributes of these cases begin.
const PREFIX: &str = "user.strongbox.";

fn in_detail(op: FileOp) -> FileOp {
    FileOp::InDetail { op: Box::new(op), attributes: Some(PREFIX.to_owned()) }
}

fn one_detail(answer: Answer) -> box_core::Result<Detail> {
    match answer {
        Answer::Detail(detail) => Ok(*detail),
        other => Err(Error::Gone { reason: format!("not a detail: {other:?}") }),
    }
}

async fn stat(tree: &Tree, name: &str) -> box_core::Result<Detail> {
    tree.ask(in_detail(FileOp::Stat { path: path(name) })).await.and_then(one_detail)
}

/// Fills a file with bytes and attributes.
async fn fill(tree: &Tree, name: &str, bytes: &str, values: &[(&str, &str)]) -> box_core::Result<Detail> {
    let values = values.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    let attributes = Some(Attributes { prefix: PREFIX.to_owned(), values });
    let op = in_detail(FileOp::Fill { path: path(name), bytes_max: 1 << 20, attributes });
    tree.send(op, bytes.as_bytes()).await.and_then(one_detail)
}

async fn owners_have_the_names_that_the_box_has_for_them(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check(": > /workspace/file").await?;
    let tree = Tree::new(&one, "/");
    for name in ["/workspace/file", "/usr"] {
        let detail = stat(&tree, name).await?;
        let told = |name: &Option<String>| name.clone().unwrap_or_else(|| "UNKNOWN".to_owned());
        let expected = one.check(&format!("stat -c '%U %G' {name}")).await?;
        ensure!(format!("{} {}", told(&detail.owner), told(&detail.group)) == expected, "{expected}: {detail:?}");
    }
    Ok(())
}

async fn links_are_told_with_where_they_lead(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; mkdir d; : > d/file; chmod 640 d/file; ln -s d/file one; ln -s one two; ln -s none dead")
        .await?;
    let tree = Tree::new(&one, "/workspace");
    let listed = tree.ask(in_detail(FileOp::List { path: path("/workspace"), depth: 1, entries_max: 10 })).await?;
    let Answer::Details { entries, truncated: false } = listed else { bail!("{listed:?}") };
    let names: Vec<_> = entries.iter().map(|detail| detail.entry.path.as_str()).collect();
    ensure!(names == ["/workspace/d", "/workspace/dead", "/workspace/one", "/workspace/two"], "{names:?}");
    let [_, dead, _, two] = &entries[..] else { bail!("{entries:?}") };
    ensure!(dead.entry.kind == EntryKind::Symlink && dead.leads_to.is_none(), "{dead:?}");
    let Some(target) = &two.leads_to else { bail!("{two:?}") };
    ensure!(target.path == "/workspace/d/file" && target.kind == EntryKind::File && target.mode == 0o640, "{two:?}");
    Ok(())
}

async fn attributes_come_with_a_file_and_are_replaced_with_it(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let tree = Tree::new(&one, "/workspace");
    let filled = match fill(&tree, "/workspace/file", "text", &[("author", "me"), ("a.b", "x y")]).await {
        // Not every file system has them, and then that is said and nothing is made.
        Err(error) if error.code() == "unsupported" => {
            refused(tree.stat("/workspace/file").await, "not_found", "/workspace/file")?;
            ensure!(fill(&tree, "/workspace/file", "text", &[]).await?.attributes.is_empty());
            return skip(format!("files of this box have no attributes: {error}"));
        }
        filled => filled?,
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    ensure!(filled.attributes == [pair("a.b", "x y"), pair("author", "me")], "{filled:?}");
    ensure!(stat(&tree, "/workspace/file").await?.attributes == filled.attributes);
    fill(&tree, "/workspace/file", "other", &[("new", "1")]).await?;
    ensure!(stat(&tree, "/workspace/file").await?.attributes == [pair("new", "1")]);
    one.check("mv /workspace/file /workspace/moved").await?;
    ensure!(stat(&tree, "/workspace/moved").await?.attributes == [pair("new", "1")]);
    fill(&tree, "/workspace/moved", "", &[]).await?;
    ensure!(stat(&tree, "/workspace/moved").await?.attributes.is_empty());
    Ok(())
}

async fn a_file_is_filled_as_a_program_fills_it(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let tree = Tree::new(&one, "/workspace");
    let made = fill(&tree, "/workspace/a/b/file", "a longer text", &[]).await?;
    ensure!(made.entry.size == 13 && made.entry.mode == 0o644, "{made:?}");
    one.check("cd /workspace; ln a/b/file same; chmod 751 same").await?;
    let filled = fill(&tree, "/workspace/a/b/file", "short", &[]).await?;
    ensure!(filled.entry.mode == 0o751 && filled.entry.size == 5, "{filled:?}");
    ensure!(one.check("cat /workspace/same").await? == "short", "it is another file now");
    refused(fill(&tree, "/workspace/a", "x", &[]).await, "is_directory", "/workspace/a")?;
    refused(fill(&tree, "/workspace/same/x", "x", &[]).await, "not_directory", "/workspace/same")
}

async fn things_are_moved_to_directories_that_are_not_there_yet(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; echo one > one; echo two > two; mkdir d").await?;
    let tree = Tree::new(&one, "/workspace");
    let relocate = |from: &str, to: &str| FileOp::Relocate { from: path(from), to: path(to) };
    let moved = tree.ask(relocate("/workspace/one", "/workspace/x/y/new")).await.and_then(one_entry)?;
    ensure!(moved.path == "/workspace/x/y/new", "{moved:?}");
    tree.ask(relocate("/workspace/two", "/workspace/x/y/new")).await?;
    ensure!(one.check("cat /workspace/x/y/new").await? == "two", "what was there is replaced");
    refused(tree.ask(relocate("/workspace/none", "/workspace/z/new")).await, "not_found", "/workspace/none")?;
    refused(tree.ask(relocate("/workspace/x/y/new", "/workspace/d")).await, "is_directory", "/workspace/d")?;
    ensure!(one.check("ls /workspace").await? == "d\nx", "a missing source creates no directories");
    Ok(())
}

async fn files_become_one(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; printf one > 1; printf two > 2; printf 3 > 3").await?;
    let tree = Tree::new(&one, "/workspace");
    let join = |sources: &[&str], name: &str| FileOp::Join {
        sources: sources.iter().map(|name| path(name)).collect(),
        path: path(name),
        bytes_max: 100,
    };
    let parts = ["/workspace/2", "/workspace/1", "/workspace/none"];
    refused(tree.ask(join(&parts, "/workspace/all")).await, "not_found", "/workspace/none")?;
    let whole = tree.ask(join(&parts[..2], "/workspace/new/all")).await.and_then(one_entry)?;
    ensure!(whole.size == 6 && whole.path == "/workspace/new/all", "{whole:?}");
    ensure!(one.check("cd /workspace; cat new/all; ls").await? == "twoone3\nnew");
    Ok(())
}

async fn room_is_told_and_becomes_less(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let tree = Tree::new(&one, "/");
    let answer = tree.ask(FileOp::Space { path: path("/workspace") }).await?;
    let Answer::Space { total_bytes, free_bytes } = answer else { bail!("{answer:?}") };
    ensure!(total_bytes > 0 && free_bytes <= total_bytes, "{answer:?}");
    let told = one.check("df -B1 --output=size /workspace | tail -n 1").await?;
    ensure!(told.trim() == total_bytes.to_string(), "{told} instead of {total_bytes}");
    refused(tree.ask(FileOp::Space { path: path("/none") }).await, "not_found", "/none")
}

async fn who_follows_is_told_old_and_new_names_apart(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; mkdir d; : > old").await?;
    let tree = Tree::new(&one, "/workspace");
    let follow = |name: &str| FileOp::Follow { path: path(name), recursive: true, entries: true, attributes: None };
    refused(tree.open(follow("/workspace/old")).await, "not_directory", "/workspace/old")?;
    refused(tree.open(follow("/workspace/none")).await, "not_found", "/workspace/none")?;
    let (answer, mut output) = tree.open(follow("/workspace")).await?;
    ensure!(answer == Answer::Done, "{answer:?}");
    one.check("cd /workspace; mv old d/new; chmod 600 d/new; mkdir e; rm d/new").await?;
    let mut told = Vec::new();
    while told.last().is_none_or(|(what, _, _)| *what != ChangeKind::Removed) {
        let Some(happening) = output.message::<Happening>(limits::BOX_MESSAGE_BYTES_MAX).await? else { break };
        let name = happening.change.path.trim_start_matches("/workspace/").to_owned();
        told.push((happening.change.what, name, happening.detail));
    }
    let expected = [
        (ChangeKind::Left, "old"),
        (ChangeKind::Arrived, "d/new"),
        (ChangeKind::Attributes, "d/new"),
        (ChangeKind::Created, "e"),
        (ChangeKind::Removed, "d/new"),
    ];
    let names: Vec<_> = told.iter().map(|(what, name, _)| (*what, name.as_str())).collect();
    ensure!(names == expected, "{names:?}");
    let made = told.iter().find(|(what, _, _)| *what == ChangeKind::Created);
    let is_directory = |detail: &Detail| detail.entry.kind == EntryKind::Directory;
    ensure!(made.is_some_and(|(_, _, detail)| detail.as_deref().is_some_and(is_directory)), "{told:?}");
    Ok(())
}

async fn root_gives_what_it_makes_to_the_user_who_may_not(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::OneUser)?;
    let owner = Account::User.user();
    if ground.backend.workload(owner) == User::ROOT {
        return skip("an ordinary user without subordinate ids has boxes of one user".to_owned());
    }
    let profile = Profile::built_in("e2b").context("the profile e2b is missing")?;
    let spec = BoxSpec { network: Network::Off, home: "/home/user".parse()?, ..profile.spec() };
    let one = ground.make(&spec).await?;
    let user = Tree { user: Some(owner), ..Tree::new(&one, "/") };
    let root = Tree { user: Some(User::ROOT), ..Tree::new(&one, "/") };
    let reach = |name: &str| FileOp::Reach { path: path(name) };
    refused(user.ask(reach("/opt/app/file")).await, "denied", "/opt/app/file")?;
    ensure!(
        user.ask(reach("/tmp/a/b")).await? == Answer::Done && root.ask(reach("/opt/app/file")).await? == Answer::Done
    );
    let fill = FileOp::Fill { path: path("/opt/app/file"), bytes_max: 100, attributes: None };
    let op = FileOp::OnBehalf { op: Box::new(in_detail(fill)), owner };
    let filled = root.send(op, &b"text"[..]).await.and_then(one_detail)?;
    ensure!(filled.owner.as_deref() == Some("user") && filled.entry.uid == owner.uid, "{filled:?}");
    let made = stat(&root, "/opt/app").await?;
    ensure!(made.entry.uid == owner.uid && stat(&root, "/opt").await?.entry.uid == 0, "{made:?}");
    user.ask(reach("/opt/app/other")).await?;
    ensure!(user.read("/opt/app/file").await? == "text");
    Ok(())
}

async fn bits_are_changed_by_the_owner_and_links_lead_to_what_is_meant(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("cd /workspace; : > file; ln -s file near; ln -s /etc/passwd far").await?;
    let tree = Tree::new(&one, "/workspace");
    let adjust = |name: &str, mode| FileOp::Adjust { path: path(name), mode, uid: None, gid: None };
    let changed = tree.ask(adjust("/workspace/near", Some(0o640))).await.and_then(one_entry)?;
    ensure!((changed.kind, changed.mode & 0o7777) == (EntryKind::File, 0o640), "{changed:?}");
    ensure!(one.check("stat -c %a /workspace/file").await? == "640");
    let same = tree.ask(adjust("/workspace/file", None)).await.and_then(one_entry)?;
    ensure!(same.mode & 0o7777 == 0o640, "nothing was to change: {same:?}");
    refused(tree.ask(adjust("/workspace/far", Some(0o777))).await, "path_escapes", "/workspace/far")?;
    refused(tree.ask(adjust("/workspace/none", Some(0o777))).await, "not_found", "/workspace/none")?;
    // Only root of some boxes may give files away, and never to an id that the box does not map.
    let stranger = FileOp::Adjust { path: path("/workspace/file"), mode: None, uid: Some(65_534), gid: None };
    ensure!(tree.ask(stranger).await.is_err(), "a file was given to a stranger");
    Ok(())
}
