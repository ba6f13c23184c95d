//! A store in one process: what is written is what is read, in order, whatever stands in the file.

use std::path::PathBuf;
use std::sync::Arc;

use box_core::Store;
use box_core::call::ExecStatus;
use box_core::session::SessionState::{Paused, Running};
use box_core::store::{Change, ExecRow, LastToken, SessionRow, Wait};
use box_store::SqliteStore;
use rusqlite::Connection;

use crate::rows::{exec, key, process, session, token};

struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.path()).unwrap()
    }

    /// A connection of our own, to do what a store never does.
    fn connect(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }
}

fn put_session(row: SessionRow) -> Change {
    Change::PutSession(Box::new(row))
}

fn put_exec(row: ExecRow) -> Change {
    Change::PutExec(Box::new(row))
}

async fn commit(store: &SqliteStore, changes: impl IntoIterator<Item = Change>) {
    for change in changes {
        store.write(change, Wait::Committed).await.unwrap();
    }
}

#[tokio::test]
async fn every_kind_of_row_comes_back_as_it_was_after_a_restart() {
    let scratch = Scratch::new();
    let key = key("acme", "用户 / ../1");
    let (session, exec) = (session(&key, Running), exec(&key, "e-1", -1));
    let (process, token) = (process(&key, "the server", 7), token("a1", "build"));
    let store = scratch.open();
    let changes = [
        put_session(session.clone()),
        put_exec(exec.clone()),
        Change::PutProcess(Box::new(process.clone())),
        Change::PutToken(Box::new(token.clone())),
    ];
    commit(&store, changes).await;
    drop(store);
    let store = scratch.open();
    let loaded = store.load().await.unwrap();
    assert_eq!(loaded.sessions, [session]);
    assert_eq!(loaded.execs, [exec]);
    assert_eq!(loaded.processes, [process]);
    assert_eq!(store.tokens().await.unwrap(), [token]);
}

#[tokio::test]
async fn a_changed_row_replaces_the_one_before_and_nothing_else() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let (first, second) = (key("acme", "a"), key("other", "a"));
    let mut later = exec(&first, "e-1", 0);
    later.info.status = ExecStatus::TimedOut;
    let changes = [
        put_session(session(&first, Running)),
        put_session(session(&second, Running)),
        put_exec(exec(&first, "e-1", 0)),
        put_exec(exec(&first, "e-2", 0)),
        put_exec(exec(&second, "e-1", 0)),
        Change::PutProcess(Box::new(process(&first, "p", 0))),
        Change::PutToken(Box::new(token("a1", "before"))),
        put_session(session(&first, Paused)),
        put_exec(later.clone()),
        Change::PutProcess(Box::new(process(&first, "p", 1))),
        Change::PutToken(Box::new(token("a1", "after"))),
    ];
    commit(&store, changes).await;
    let loaded = store.load().await.unwrap();
    assert_eq!(loaded.sessions, [session(&first, Paused), session(&second, Running)]);
    assert_eq!(loaded.execs, [later, exec(&first, "e-2", 0), exec(&second, "e-1", 0)]);
    assert_eq!(loaded.processes, [process(&first, "p", 1)]);
    assert_eq!(store.tokens().await.unwrap(), [token("a1", "after")]);
    let states = "SELECT group_concat(state) FROM execs";
    let states: String = scratch.connect().query_row(states, [], |row| row.get(0)).unwrap();
    assert_eq!(states, "timed_out,completed,completed");
}

#[tokio::test]
async fn deletions_take_what_they_name_and_a_session_takes_what_is_in_it() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let (gone, kept) = (key("acme", "gone"), key("acme", "kept"));
    for key in [&gone, &kept] {
        let changes = [
            put_session(session(key, Running)),
            put_exec(exec(key, "e-1", 0)),
            put_exec(exec(key, "e-2", 0)),
            Change::PutProcess(Box::new(process(key, "p", 0))),
            Change::PutProcess(Box::new(process(key, "q", 0))),
        ];
        commit(&store, changes).await;
    }
    let changes = [
        Change::PutToken(Box::new(token("a1", "a"))),
        Change::DeleteSession(gone.clone()),
        Change::DeleteExec(kept.clone(), "e-1".parse().unwrap()),
        Change::DeleteProcess(kept.clone(), "q".parse().unwrap()),
        Change::DeleteTokens(vec!["a1".into()], LastToken::Deleted),
        // What is not there is not there.
        Change::DeleteSession(gone),
        Change::DeleteTokens(vec!["a1".into()], LastToken::Deleted),
    ];
    commit(&store, changes).await;
    let loaded = store.load().await.unwrap();
    assert_eq!(loaded.sessions, [session(&kept, Running)]);
    assert_eq!(loaded.execs, [exec(&kept, "e-2", 0)]);
    assert_eq!(loaded.processes, [process(&kept, "p", 0)]);
    assert!(store.tokens().await.unwrap().is_empty());
}

#[tokio::test]
async fn two_deletions_of_tokens_leave_the_last_one() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let delete = |ids: &[&str], last| Change::DeleteTokens(ids.iter().map(|id| (*id).to_owned()).collect(), last);
    commit(&store, ["a", "b", "c"].map(|id| Change::PutToken(Box::new(token(id, id))))).await;
    let ids = async || store.tokens().await.unwrap().into_iter().map(|row| row.id).collect::<Vec<_>>();
    commit(&store, [delete(&["a", "b", "c"], LastToken::Kept)]).await;
    assert_eq!(ids().await, ["a", "b", "c"], "all or none");
    // Each was decided while the token of the other was there.
    commit(&store, [delete(&["a", "b"], LastToken::Kept), delete(&["c"], LastToken::Kept)]).await;
    assert_eq!(ids().await, ["c"]);
    commit(&store, [delete(&["c", "x"], LastToken::Deleted)]).await;
    assert!(ids().await.is_empty());
}

#[tokio::test]
async fn what_comes_late_for_a_session_that_is_gone_is_ignored() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let key = key("acme", "a");
    let changes = [
        put_session(session(&key, Running)),
        Change::DeleteSession(key.clone()),
        put_exec(exec(&key, "e-1", 0)),
        Change::PutProcess(Box::new(process(&key, "p", 0))),
        put_session(session(&key, Running)),
    ];
    commit(&store, changes).await;
    let loaded = store.load().await.unwrap();
    assert_eq!((loaded.sessions.len(), loaded.execs.len(), loaded.processes.len()), (1, 0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_are_applied_in_the_order_in_which_each_writer_gave_them() {
    let scratch = Scratch::new();
    let store = Arc::new(scratch.open());
    let note = "BEGIN INSERT INTO notes VALUES (new.id, new.row ->> 'name'); END;";
    let notes = format!(
        "CREATE TABLE notes (id TEXT, name TEXT);
        CREATE TRIGGER added AFTER INSERT ON tokens {note}
        CREATE TRIGGER changed AFTER UPDATE ON tokens {note}"
    );
    scratch.connect().execute_batch(&notes).unwrap();
    let writers = ["a", "b", "c", "d"].map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for number in 0..500 {
                let wait = if number % 100 == 0 { Wait::Committed } else { Wait::Queued };
                let change = Change::PutToken(Box::new(token(writer, &format!("{number}"))));
                store.write(change, wait).await.unwrap();
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    drop(store);
    let connection = scratch.connect();
    for writer in ["a", "b", "c", "d"] {
        let mut statement = connection.prepare("SELECT name FROM notes WHERE id = ?1 ORDER BY rowid").unwrap();
        let names = statement.query_map([writer], |row| row.get::<_, String>(0)).unwrap();
        let names: Vec<u32> = names.map(|name| name.unwrap().parse().unwrap()).collect();
        assert_eq!(names, (0..500).collect::<Vec<_>>(), "{writer}");
    }
}

#[tokio::test]
async fn what_was_queued_is_written_before_the_store_is_gone() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let key = key("acme", "a");
    store.write(put_session(session(&key, Running)), Wait::Queued).await.unwrap();
    for number in 0..1000 {
        store.write(put_exec(exec(&key, &format!("e-{number}"), 0)), Wait::Queued).await.unwrap();
    }
    drop(store);
    assert_eq!(scratch.open().load().await.unwrap().execs.len(), 1000);
}

#[tokio::test]
async fn a_change_that_cannot_be_written_fails_alone() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let poison =
        "CREATE TRIGGER poison BEFORE INSERT ON tokens WHEN new.id = 'bad' BEGIN SELECT RAISE(ABORT, 'poisoned'); END";
    scratch.connect().execute_batch(poison).unwrap();
    // While another process holds the lock, all of them come to wait in one batch.
    let other = scratch.connect();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let put = |id: &str, wait| store.write(Change::PutToken(Box::new(token(id, id))), wait);
    for id in ["q1", "bad", "q2"] {
        put(id, Wait::Queued).await.unwrap();
    }
    let release = async { other.execute_batch("COMMIT").unwrap() };
    let waiting = [put("c1", Wait::Committed), put("bad", Wait::Committed), put("c2", Wait::Committed)];
    let [first, bad, last] = waiting;
    let (first, bad, last, ()) = tokio::join!(first, bad, last, release);
    first.unwrap();
    last.unwrap();
    let error = bad.unwrap_err().to_string();
    assert!(error.contains("remembering token bad") && error.contains("poisoned"), "{error}");
    let ids: Vec<_> = store.tokens().await.unwrap().into_iter().map(|token| token.id).collect();
    assert_eq!(ids, ["q1", "q2", "c1", "c2"]);
}

#[tokio::test]
async fn rows_that_are_not_ours_are_left_out_and_the_rest_is_read() {
    let scratch = Scratch::new();
    let (good, bad) = (key("acme", "good"), key("acme", "bad"));
    let hostile = [
        "''",
        "'null'",
        "'{\"key\":'",
        "'{}'",
        "CAST(x'ff00fe' AS TEXT)",
        "replace(hex(zeroblob(100000)), '0', '[')",
        "replace(hex(zeroblob(9000000)), '0', ' ')",
        // A good row, of another session, of another tenant.
        "(SELECT row FROM sessions WHERE id = 'good')",
        "replace(row, '\"acme\"', '\"other\"')",
        // Ids that our own rules refuse.
        "replace(row, '\"bad\"', '\"bad\\u0000\"')",
    ];
    for text in hostile {
        let store = scratch.open();
        for key in [&good, &bad] {
            let changes = [
                put_session(session(key, Running)),
                put_exec(exec(key, "e-1", 0)),
                Change::PutProcess(Box::new(process(key, "p", 0))),
            ];
            commit(&store, changes).await;
        }
        drop(store);
        let changed = scratch.connect().execute(&format!("UPDATE sessions SET row = {text} WHERE id = 'bad'"), []);
        assert_eq!(changed.unwrap(), 1, "{text}");
        let loaded = scratch.open().load().await.unwrap();
        assert_eq!(loaded.sessions, [session(&good, Running)], "{text}");
        assert_eq!(loaded.execs, [exec(&good, "e-1", 0)], "{text}: an exec goes with its session");
        assert_eq!(loaded.processes, [process(&good, "p", 0)], "{text}: a process too");
        let unreadable: Vec<_> = loaded.unreadable.iter().map(|(key, _)| key).collect();
        assert_eq!(unreadable, [&bad], "{text}: the session is named");
    }
}

#[tokio::test]
async fn one_bad_exec_process_or_token_is_left_out_alone() {
    let scratch = Scratch::new();
    let key = key("acme", "a");
    let store = scratch.open();
    let changes = [
        put_session(session(&key, Running)),
        put_exec(exec(&key, "bad", 0)),
        put_exec(exec(&key, "good", 0)),
        Change::PutProcess(Box::new(process(&key, "bad", 0))),
        Change::PutProcess(Box::new(process(&key, "good", 0))),
        Change::PutToken(Box::new(token("bad", "b"))),
        Change::PutToken(Box::new(token("good", "g"))),
    ];
    commit(&store, changes).await;
    for table in ["execs", "processes", "tokens"] {
        scratch.connect().execute(&format!("UPDATE {table} SET row = '[]' WHERE id = 'bad'"), []).unwrap();
    }
    let loaded = store.load().await.unwrap();
    assert_eq!(loaded.execs, [exec(&key, "good", 0)]);
    assert_eq!(loaded.processes, [process(&key, "good", 0)]);
    assert_eq!(store.tokens().await.unwrap(), [token("good", "g")]);
}

#[tokio::test]
async fn a_row_that_could_not_be_read_again_is_refused() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let mut row = session(&key("acme", "a"), Running);
    row.lost_reason = Some("x".repeat(17 << 20));
    let error = store.write(put_session(row), Wait::Queued).await.unwrap_err();
    assert_eq!(error.code(), "invalid");
}

#[tokio::test]
async fn the_name_of_the_instance_is_made_once_and_stays() {
    let scratch = Scratch::new();
    let store = scratch.open();
    let name = store.instance_id().await.unwrap();
    assert!(name.len() == 16 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{name}");
    assert_eq!(store.instance_id().await.unwrap(), name);
    drop(store);
    assert_eq!(scratch.open().instance_id().await.unwrap(), name);
    assert_ne!(Scratch::new().open().instance_id().await.unwrap(), name);
    scratch.connect().execute("UPDATE meta SET value = '../../etc'", []).unwrap();
    assert_eq!(scratch.open().instance_id().await.unwrap_err().code(), "unavailable");
}

#[tokio::test]
async fn a_file_of_a_later_version_is_refused() {
    let scratch = Scratch::new();
    drop(scratch.open());
    for version in [1_000_000, -1] {
        scratch.connect().pragma_update(None, "user_version", version).unwrap();
        let error = SqliteStore::open(&scratch.path()).unwrap_err();
        assert_eq!(error.code(), "unavailable", "{error}");
    }
}
