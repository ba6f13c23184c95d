//! Several processes and one file: what one of them committed survives its `kill -9`, and the others see it.
//!
//! Each test is its own second process: it starts the test program again with a variable that says where the file is.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use box_core::Store;
use box_core::session::SessionState::Running;
use box_core::store::{Change, LastToken, Wait};
use box_store::SqliteStore;

use crate::rows::{exec, key, session, token};

/// Set in a second process only.
const PATH: &str = "BOX_STORE_TEST_PATH";

/// What a second process writes before everything that the first one should read.
const TOLD: &str = "told:";

/// This program once more, running one test as the second process.
fn second_process(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(PATH, path).stdout(Stdio::piped());
    command
}

fn is_second_process() -> Option<PathBuf> {
    std::env::var_os(PATH).map(PathBuf::from)
}

fn tell(text: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "\n{TOLD}{text}").unwrap();
    output.flush().unwrap();
}

#[tokio::test]
async fn what_was_committed_survives_a_kill() {
    if let Some(path) = is_second_process() {
        return write_until_killed(&path).await;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let mut writer = second_process("processes::what_was_committed_survives_a_kill", &path).spawn().unwrap();
    let output = BufReader::new(writer.stdout.take().unwrap());
    let lines = output.lines().map(Result::unwrap);
    let mut told: Vec<_> = lines.filter_map(|line| line.strip_prefix(TOLD).map(str::to_owned)).take(200).collect();
    // The writer goes on all the time, so this comes in the middle of something.
    writer.kill().unwrap();
    assert_eq!(writer.wait().unwrap().signal(), Some(9));
    assert_eq!(told.len(), 200);

    let loaded = SqliteStore::open(&path).unwrap().load().await.unwrap();
    let mut found: Vec<_> = loaded.execs.iter().map(|exec| exec.info.exec_id.to_string()).collect();
    found.sort();
    told.retain(|id| found.binary_search(id).is_err());
    assert!(told.is_empty(), "forgotten: {told:?}");
}

async fn write_until_killed(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    let key = key("acme", "a");
    store.write(Change::PutSession(Box::new(session(&key, Running))), Wait::Queued).await.unwrap();
    for number in 0_u64.. {
        let id = format!("e-{number}");
        let change = |id: &str| Change::PutExec(Box::new(exec(&key, id, 0)));
        store.write(change(&format!("{id}-queued")), Wait::Queued).await.unwrap();
        store.write(change(&id), Wait::Committed).await.unwrap();
        tell(&id);
    }
}

#[tokio::test]
async fn a_token_that_another_process_adds_is_seen_at_once() {
    if let Some(path) = is_second_process() {
        let store = SqliteStore::open(&path).unwrap();
        store.write(Change::PutToken(Box::new(token("a2", "second"))), Wait::Committed).await.unwrap();
        store.write(Change::DeleteTokens(vec!["a1".into()], LastToken::Deleted), Wait::Committed).await.unwrap();
        return tell(&store.instance_id().await.unwrap());
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    let store = SqliteStore::open(&path).unwrap();
    store.write(Change::PutToken(Box::new(token("a1", "first"))), Wait::Committed).await.unwrap();
    assert_eq!(store.tokens().await.unwrap(), [token("a1", "first")]);

    let other = second_process("processes::a_token_that_another_process_adds_is_seen_at_once", &path).output().unwrap();
    assert!(other.status.success(), "{other:?}");
    assert_eq!(store.tokens().await.unwrap(), [token("a2", "second")]);
    let told = String::from_utf8(other.stdout).unwrap();
    let name = told.lines().find_map(|line| line.strip_prefix(TOLD)).unwrap();
    assert_eq!(store.instance_id().await.unwrap(), name, "both are the same instance");
}
