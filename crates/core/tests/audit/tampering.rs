//! Whatever is done to a log afterwards is found, and where.

use std::fs;

use crate::scratch::{SMALL, Scratch};

/// What somebody does to a log of several files, and where that is found.
struct Tampering {
    what: &'static str,
    act: fn(&Scratch),
    file: &'static str,
    line: u64,
    says: &'static str,
}

const FIRST: &str = "audit-000001.jsonl";
const SECOND: &str = "audit-000002.jsonl";
const THIRD: &str = "audit-000003.jsonl";
const FOURTH: &str = "audit-000004.jsonl";

const TABLE: &[Tampering] = &[
    Tampering {
        what: "a command is changed",
        act: |log| log.write(SECOND, &log.read(SECOND).replacen("command", "Command", 1)),
        file: SECOND,
        line: 2,
        says: "it was changed",
    },
    Tampering {
        what: "a line is changed and given a seal that fits",
        act: |log| change_lines(log, SECOND, |lines| lines[1] = resealed(log, &lines[1].replace("command", "Command"))),
        file: SECOND,
        line: 3,
        says: "does not continue",
    },
    Tampering {
        what: "an anchor is changed and given a seal that fits",
        act: |log| {
            change_lines(log, FOURTH, |lines| lines[0] = resealed(log, &lines[0].replace("\"seq\"", " \"seq\"")));
        },
        file: FOURTH,
        line: 2,
        says: "does not continue",
    },
    Tampering {
        what: "a line is removed",
        act: |log| change_lines(log, SECOND, |lines| drop(lines.remove(2))),
        file: SECOND,
        line: 3,
        says: "removed, added or moved",
    },
    Tampering {
        what: "the first entry of all is removed",
        act: |log| change_lines(log, FIRST, |lines| drop(lines.remove(1))),
        file: FIRST,
        line: 2,
        says: "its number is 2, but 1 comes next",
    },
    Tampering {
        what: "an anchor is removed",
        act: |log| change_lines(log, SECOND, |lines| drop(lines.remove(0))),
        file: SECOND,
        line: 1,
        says: "does not start with its anchor",
    },
    Tampering {
        what: "the last line of a file is removed",
        act: |log| change_lines(log, SECOND, |lines| drop(lines.pop())),
        file: THIRD,
        line: 1,
        says: "removed, added or moved",
    },
    Tampering {
        what: "two lines are swapped",
        act: |log| change_lines(log, SECOND, |lines| lines.swap(1, 2)),
        file: SECOND,
        line: 2,
        says: "removed, added or moved",
    },
    Tampering {
        what: "a line is repeated",
        act: |log| change_lines(log, SECOND, |lines| lines.insert(2, lines[1].clone())),
        file: SECOND,
        line: 3,
        says: "removed, added or moved",
    },
    Tampering {
        what: "a line is put in that fits what is before it",
        act: |log| {
            change_lines(log, SECOND, |lines| {
                let forged = resealed(log, &lines[2].replace("command", "Command"));
                lines.insert(2, forged);
            });
        },
        file: SECOND,
        line: 4,
        says: "removed, added or moved",
    },
    Tampering {
        what: "something that is no line is added",
        act: |log| change_lines(log, FOURTH, |lines| lines.push("{}".to_owned())),
        file: FOURTH,
        line: 3,
        says: "not a line of an audit log",
    },
    Tampering {
        what: "an empty line is added",
        act: |log| change_lines(log, SECOND, |lines| lines.insert(2, String::new())),
        file: SECOND,
        line: 3,
        says: "not a line of an audit log",
    },
    Tampering {
        what: "a line without an end is added",
        act: |log| log.write(SECOND, &"x".repeat(10 << 20)),
        file: SECOND,
        line: 1,
        says: "longer than",
    },
    Tampering {
        what: "a file in the middle is cut in a line",
        act: |log| log.write(SECOND, log.read(SECOND).trim_end()),
        file: SECOND,
        line: 5,
        says: "never finished",
    },
    Tampering {
        what: "a file in the middle is emptied",
        act: |log| log.write(SECOND, ""),
        file: THIRD,
        line: 1,
        says: "removed, added or moved",
    },
    Tampering {
        what: "a file in the middle is removed",
        act: |log| fs::remove_file(log.dir().join(SECOND)).unwrap(),
        file: THIRD,
        line: 1,
        says: "audit-000002.jsonl, which comes before it, is missing",
    },
    Tampering {
        what: "a file in the middle is removed and the gap closed",
        act: |log| {
            fs::rename(log.dir().join(THIRD), log.dir().join(SECOND)).unwrap();
            fs::rename(log.dir().join(FOURTH), log.dir().join(THIRD)).unwrap();
        },
        file: SECOND,
        line: 1,
        says: "renamed",
    },
    Tampering {
        what: "a file in the middle is removed, the gap closed, and the anchor renamed too",
        act: |log| {
            let text = log.read(THIRD);
            fs::remove_file(log.dir().join(THIRD)).unwrap();
            log.write(SECOND, &text);
            change_lines(log, SECOND, |lines| lines[0] = resealed(log, &lines[0].replace("000003", "000002")));
        },
        file: SECOND,
        line: 1,
        says: "removed, added or moved",
    },
    Tampering {
        what: "the oldest files are removed with the first lines of the next",
        act: |log| {
            for file in [FIRST, SECOND] {
                fs::remove_file(log.dir().join(file)).unwrap();
            }
            change_lines(log, THIRD, |lines| drop(lines.drain(..2)));
        },
        file: THIRD,
        line: 1,
        says: "does not start with its anchor",
    },
    Tampering {
        what: "a number is as large as can be",
        act: |log| {
            change_lines(log, SECOND, |lines| {
                lines[1] = resealed(log, &lines[1].replacen("\"seq\":5", "\"seq\":18446744073709551615", 1));
            });
        },
        file: SECOND,
        line: 2,
        says: "but 5 comes next",
    },
];

fn change_lines(log: &Scratch, file: &str, change: impl FnOnce(&mut Vec<String>)) {
    let mut lines = log.lines(file);
    change(&mut lines);
    log.write_lines(file, &lines);
}

/// A line with a valid seal, as an attacker with the key would make it.
fn resealed(log: &Scratch, line: &str) -> String {
    let said = line.split_once(",\"hmac\":\"").unwrap().0;
    format!("{said},\"hmac\":\"{}\"}}", log.seal(&format!("{said}}}")))
}

#[tokio::test]
async fn every_kind_of_tampering_is_found_where_it_is() {
    for Tampering { what, act, file, line, says } in TABLE {
        let log = Scratch::with_entries(13).await;
        assert_eq!((log.files().len(), log.lines(SECOND).len()), (4, 5), "what the table counts on");
        assert_eq!(log.verify().problem, None);
        act(&log);
        let problem = log.verify().problem.unwrap_or_else(|| panic!("not found: {what}"));
        assert_eq!((problem.file.as_str(), problem.line), (*file, *line), "{what}: {problem:?}");
        assert!(problem.what.contains(says), "{what}: {problem:?}");
    }
}

#[tokio::test]
async fn what_is_good_before_a_problem_is_counted() {
    let log = Scratch::with_entries(13).await;
    change_lines(&log, SECOND, |lines| drop(lines.remove(3)));
    let verdict = log.verify();
    assert_eq!((verdict.entries, verdict.first_seq, verdict.last_seq), (6, Some(1), Some(6)));
    assert_eq!(verdict.files, 2);
}

#[tokio::test]
async fn the_last_hash_tells_a_log_from_a_rewritten_one() {
    let (first, second) = (Scratch::with_entries(0).await, Scratch::with_entries(0).await);
    fs::copy(first.key(), second.key()).unwrap();
    for log in [&first, &second] {
        log.append(SMALL, 0..3).await;
    }
    assert_eq!(first.verify(), second.verify(), "the same entries make the same log");
    first.append(SMALL, [7]).await;
    second.append(SMALL, [8]).await;
    let (first, second) = (first.verify(), second.verify());
    assert_eq!(first.last_seq, second.last_seq);
    assert_ne!(first.last_hash, second.last_hash);
}

#[tokio::test]
async fn a_log_that_ends_with_what_is_not_ours_is_not_continued() {
    for added in ["{}\n", "\n", &format!("{}\n", "x".repeat(200 << 10)), &"x".repeat(200 << 10)] {
        let log = Scratch::with_entries(1).await;
        log.write(FIRST, &format!("{}{added}", log.read(FIRST)));
        let before = log.read(FIRST);
        let error = log.try_open(SMALL).unwrap_err();
        assert_eq!(error.code(), "unavailable", "{error}");
        assert_eq!(log.read(FIRST), before, "it is evidence");
        assert!(log.verify().problem.is_some());
    }
}
