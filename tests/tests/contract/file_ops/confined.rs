//! A file operation stays in its tree, whatever the workload does with it meanwhile.

use std::sync::Arc;

use anyhow::{Result, ensure};
use box_core::Error;
use box_tests::{Difference, Ground, TestBox};
use box_wire::FileOp;
use box_wire::file_op::WriteHow;

use super::asked::{Tree, path, refused};

pub(super) fn cases() -> Vec<crate::ContractCase> {
    let mut cases = crate::cases![links_lead_no_file_op_out_of_its_tree, file_ops_have_the_rights_of_the_workload];
    let races = crate::cases![exchanged_directories_lead_no_file_op_out_of_its_tree];
    cases.extend(races.into_iter().map(|case| case.within_seconds(300)));
    cases
}

/// A tree in which every kind of link leads out to a directory with a file and a directory.
async fn with_links(one: &TestBox) -> Result<()> {
    one.check(
        "mkdir -p /workspace/in /workspace/out/d; cd /workspace/in; echo out > ../out/file; echo in > own; mkdir real",
    )
    .await?;
    one.check("cd /workspace/in; ln -s /workspace/out absolute; ln -s ../out relative; ln -s /proc/self/root/workspace/out magic; ln -s absolute chain").await?;
    one.check("cd /workspace/in; ln -s /proc/self/cwd cwd; ln -s /proc/1/root agent; ln -s ../out/file file; ln -s ../out/new new; ln -s real inside")
        .await
        .map(drop)
}

async fn links_lead_no_file_op_out_of_its_tree(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    with_links(&one).await?;
    let look = "cd /workspace; find out -printf '%p %s %m %T@\\n' | sort; cat out/file";
    let before = one.check(look).await?;
    let tree = Tree::new(&one, "/workspace/in");
    let archive = tree.pack("/workspace/in/real").await?;
    let through = ["absolute", "relative", "chain", "magic", "cwd", "agent"];
    for link in through {
        let below = |name: &str| format!("/workspace/in/{link}/{name}");
        let (file, directory, new) = (below("file"), below("d"), below("new"));
        let list = |name: &str| FileOp::List { path: path(name), depth: 2, entries_max: 10 };
        escapes(tree.stat(&file).await, link)?;
        escapes(tree.read(&file).await, link)?;
        escapes(tree.ask(list(&directory)).await, link)?;
        escapes(tree.ask(list(&format!("/workspace/in/{link}"))).await, link)?;
        for how in [WriteHow::Replace, WriteHow::Create, WriteHow::From(0)] {
            escapes(tree.write(&file, how, "x").await, link)?;
            escapes(tree.write(&new, how, "x").await, link)?;
        }
        escapes(tree.make_directory(&new, false).await, link)?;
        escapes(tree.make_directory(&new, true).await, link)?;
        escapes(tree.rename(&file, "/workspace/in/stolen", true).await, link)?;
        escapes(tree.rename("/workspace/in/own", &new, true).await, link)?;
        escapes(tree.remove(&file, false).await, link)?;
        escapes(tree.remove(&directory, true).await, link)?;
        escapes(tree.pack(&directory).await, link)?;
        escapes(tree.unpack(&new, &archive, 100).await, link)?;
        escapes(tree.ask(FileOp::Measure { path: path(&directory) }).await, link)?;
        escapes(tree.open(FileOp::Watch { path: path(&directory), recursive: true }).await, link)?;
    }
    refused(tree.read("/workspace/in/file").await, "path_escapes", "/workspace/in/file")?;
    refused(tree.write("/workspace/in/file", WriteHow::Replace, "x").await, "path_escapes", "/workspace/in/file")?;
    refused(tree.write("/workspace/in/new", WriteHow::Replace, "x").await, "symlink_refused", "/workspace/in/new")?;
    refused(tree.read("/workspace/out/file").await, "path_escapes", "/workspace/out/file")?;
    refused(tree.rename("/workspace/in/own", "/workspace/out/x", true).await, "path_escapes", "/workspace/out")?;
    ensure!(one.check(look).await? == before, "something outside was touched");
    tree.write("/workspace/in/inside/file", WriteHow::Replace, "fine").await?;
    ensure!(one.check("cat /workspace/in/real/file").await? == "fine");
    Ok(())
}

/// Holds that a path was not followed out of the tree.
fn escapes<T: std::fmt::Debug>(done: box_core::Result<T>, about: &str) -> Result<()> {
    let code = match &done {
        Err(error) => error.code(),
        Ok(_) => "path_escapes",
    };
    // A link of /proc is not followed at all; what is behind the agent's may not even be looked at.
    let code = if matches!(code, "symlink_refused" | "denied" | "not_found" | "not_directory") {
        code
    } else {
        "path_escapes"
    };
    refused(done, code, about)
}

async fn file_ops_have_the_rights_of_the_workload(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let tree = Tree::new(&one, "/");
    refused(tree.read("/proc/1/environ").await, "denied", "/proc/1/environ")?;
    let written = tree.write("/proc/sys/kernel/hostname", WriteHow::From(0), "x").await;
    ensure!(written.as_ref().is_err_and(|error| matches!(error, Error::File(_))), "{written:?}");
    ensure!(tree.read("/etc/passwd").await?.contains("root"));
    refused(tree.remove("/etc/passwd", false).await.map_err(as_denied), "denied", "/etc/passwd")
}

/// The system's files are protected by a mount or by rights.
fn as_denied(error: Error) -> Error {
    match error {
        Error::File(mut error) if matches!(error.code.as_str(), "read_only" | "failed") => {
            error.code = box_wire::FileErrorCode::Denied;
            Error::File(error)
        }
        other => other,
    }
}

/// Exchanges a directory of the tree and a link that leads out of it, as fast as it can, until stopped.
const EXCHANGE: &str = "import ctypes, os\n\
    os.chdir('/workspace/in')\n\
    rename = ctypes.CDLL(None).renameat2\n\
    turns = 0\n\
    while not os.path.exists('/workspace/stop'):\n\
    \x20if rename(-100, b'd', -100, b'link', 2) != 0: raise SystemExit('not exchanged')\n\
    \x20turns += 1\n\
    print(turns)";

const ROUNDS: usize = 500;

async fn exchanged_directories_lead_no_file_op_out_of_its_tree(ground: Arc<Ground>) -> Result<()> {
    // Thousands of file operations, each over the streams of a provider, take too long.
    ground.unless(Difference::MachineOfProvider)?;
    let one = ground.plain().await?;
    one.check("mkdir -p /workspace/in/d /workspace/in/packed /workspace/out; cd /workspace; echo in > in/d/file; echo x > in/packed/a; echo out > out/file; ln -s /workspace/out in/link").await?;
    let mut exchange =
        box_tests::ground::request(box_wire::Program::Argv(["python3", "-c", EXCHANGE].map(str::to_owned).to_vec()));
    exchange.timeout_ms = Some(280_000);
    let tree = Tree::new(&one, "/workspace/in");
    let (exchanged, hits) = tokio::join!(one.run(&exchange), async {
        let hits = race(&tree).await;
        one.check("touch /workspace/stop").await.and(hits)
    });
    let (hits, exchanged) = (hits?, exchanged?);
    ensure!(exchanged.succeeded(), "{}", exchanged.errors());
    let turns: u64 = exchanged.text().parse()?;
    ensure!(turns > 100 && hits > 0, "nothing was raced: {turns} exchanges, {hits} file operations that were done");
    ensure!(one.check("cd /workspace/out; ls -A; cat file").await? == "file\nout", "something outside was touched");
    Ok(())
}

/// Reads, writes and removes below what is exchanged; answers how often that was done.
async fn race(tree: &Tree) -> Result<u32> {
    let archive = tree.pack("/workspace/in/packed").await?;
    let mut hits = 0;
    for round in 0..ROUNDS {
        if let Ok(text) = tree.read("/workspace/in/d/file").await {
            ensure!(text == "in\n", "round {round}: {text:?} was read");
            hits += 1;
        }
        let new = format!("/workspace/in/d/new/{round}");
        let how = if round % 2 == 0 { WriteHow::Replace } else { WriteHow::From(0) };
        hits += u32::from(tree.write(&new, how, "x").await.is_ok());
        hits += u32::from(tree.remove("/workspace/in/d/new", true).await.is_ok());
        if round % 5 == 0 {
            hits += u32::from(tree.unpack("/workspace/in/d/unpacked", &archive, 100).await.is_ok());
            hits += u32::from(tree.make_directory("/workspace/in/d/made/deep", false).await.is_ok());
            hits += u32::from(tree.rename("/workspace/in/d/made", "/workspace/in/d/moved", true).await.is_ok());
            hits += u32::from(tree.remove("/workspace/in/d/moved", true).await.is_ok());
        }
        // In the tree it is needed again, and outside of it it must stay.
        let _ = tree.write("/workspace/in/d/file", WriteHow::Create, "in\n").await;
        if round % 2 == 0 {
            let _ = tree.remove("/workspace/in/d/file", false).await;
        }
    }
    Ok(hits)
}
