//! What the key of a log proves, and what becomes of logs from before there were keys.

use std::fs;

use crate::scratch::{SMALL, Scratch};

#[tokio::test]
async fn who_has_no_key_cannot_seal_a_log_again() {
    let log = Scratch::with_entries(6).await;
    assert_eq!((log.verify().problem, log.verify().sealed_from), (None, Some(1)));
    for file in log.files() {
        log.write(&file, &log.read(&file).replace("command 1", "command x"));
    }
    log.rewrite_without_key();
    let problem = log.verify().problem.unwrap();
    assert!(problem.what.contains("cut off or replaced"), "{problem:?}");
    let error = log.try_open(SMALL).unwrap_err();
    assert!(error.code() == "unavailable" && error.to_string().contains("not sealed"), "{error}");
}

#[tokio::test]
async fn lines_without_a_seal_are_not_accepted_behind_sealed_ones() {
    let log = Scratch::with_entries(2).await;
    let sealed = log.read("audit-000001.jsonl");
    log.rewrite_without_key();
    let forged = log.lines("audit-000001.jsonl").pop().unwrap();
    log.write("audit-000001.jsonl", &format!("{sealed}{forged}\n"));
    let problem = log.verify().problem.unwrap();
    assert!(problem.line == 4 && problem.what.contains("put there without the key"), "{problem:?}");
}

#[tokio::test]
async fn a_log_from_before_keys_is_good_and_is_continued_with_seals() {
    let log = Scratch::with_entries(6).await;
    log.rewrite_without_key();
    fs::remove_file(log.key()).unwrap();
    assert_eq!((log.verify().problem, log.verify().entries, log.verify().sealed_from), (None, 6, None));
    log.append(SMALL, [7]).await;
    let verdict = log.verify();
    assert_eq!((verdict.problem, verdict.entries, verdict.sealed_from), (None, 8, Some(7)));
    assert_eq!(log.entries()[6]["operation"], "key");
    // The first seal holds what is before it, too.
    for file in log.files() {
        let (old, new) = ("\"command 1\"", "\"command x\"");
        log.write(&file, &log.read(&file).replace(old, new));
    }
    assert!(log.verify().problem.unwrap().what.contains("it was changed"));
}

#[tokio::test]
async fn a_missing_or_changed_key_is_told() {
    let (log, other) = (Scratch::with_entries(2).await, Scratch::with_entries(0).await);
    let aside = log.key().with_extension("aside");
    fs::rename(log.key(), &aside).unwrap();
    assert!(log.verify().problem.unwrap().what.contains("the key file is missing"));
    let error = log.try_open(SMALL).unwrap_err().to_string();
    assert!(error.contains("the key file is missing") && error.contains("audit.key"), "{error}");
    fs::copy(other.key(), log.key()).unwrap();
    assert!(log.verify().problem.unwrap().what.contains("names another key"));
    let error = log.try_open(SMALL).unwrap_err().to_string();
    assert!(error.contains("names another key") && error.contains("restore the key file"), "{error}");
    fs::rename(&aside, log.key()).unwrap();
    log.append(SMALL, [3]).await;
    assert_eq!((log.verify().problem, log.verify().entries), (None, 3));
}

#[tokio::test]
async fn a_crash_while_the_first_key_is_made_loses_neither_key_nor_log() {
    let log = Scratch::with_entries(2).await;
    let waiting = log.key().with_added_extension("new");
    // The log is sealed, but the key has not got its name yet.
    fs::rename(log.key(), &waiting).unwrap();
    log.append(SMALL, [3]).await;
    assert_eq!((log.verify().problem, log.verify().entries, waiting.exists()), (None, 3, false));
    // Half of a key, with which nothing was sealed.
    let log = Scratch::with_entries(2).await;
    log.rewrite_without_key();
    fs::remove_file(log.key()).unwrap();
    fs::write(log.key().with_added_extension("new"), "00").unwrap();
    log.append(SMALL, [3]).await;
    assert_eq!((log.verify().problem, log.verify().entries), (None, 4));
}
