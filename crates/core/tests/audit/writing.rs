//! What is appended is in the log, in order, in files of bounded size and number.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use box_core::audit::{AuditEntry, AuditOptions, CommandText, Outcome, verify};
use box_core::call::Receipt;
use box_core::mcp::McpAccess;
use box_core::{Caller, Scope};
use serde_json::json;

use crate::scratch::{SMALL, Scratch, entry};

#[tokio::test]
async fn an_entry_says_who_asked_for_what_and_how_it_ended() {
    let scratch = Scratch::new();
    let caller = Caller {
        subject: "token:ci".into(),
        token_id: None,
        tenant: "acme".parse().unwrap(),
        scopes: [Scope::Exec].into(),
        ceiling: None,
        profile: None,
        session: None,
        mcp: McpAccess::default(),
        opens_server_boxes: true,
        query_id: None,
    };
    let at = "2026-01-02T03:04:05Z".parse().unwrap();
    let log = scratch.open(AuditOptions { commands: CommandText::Text, ..AuditOptions::default() });
    let entry = AuditEntry {
        session: Some("s 1".parse().unwrap()),
        target: Some("e-1".into()),
        command: Some("echo \"hello\"\n".into()),
        detail: Some("killed".into()),
        receipt: Some(Receipt { cpu_ms: 5, ..Receipt::default() }),
        ..AuditEntry::new(&caller, "exec", Outcome::TimedOut, at)
    };
    log.append(entry).await.unwrap();
    log.flush().await.unwrap();
    let mut line = scratch.entries().remove(0);
    for field in ["prev", "hmac"] {
        let hash = line.as_object_mut().unwrap().remove(field).unwrap();
        assert_eq!(hash.as_str().unwrap().len(), 64, "{field}");
    }
    assert_eq!(line.as_object_mut().unwrap().remove("key").unwrap().as_str().unwrap().len(), 16);
    let expected = json!({
        "seq": 1, "at": "2026-01-02T03:04:05Z", "subject": "token:ci", "tenant": "acme", "session": "s 1",
        "operation": "exec", "target": "e-1", "command": "echo \"hello\"\n", "verdict": "timed_out", "detail": "killed",
        "receipt": { "cpu_ms": 5, "memory_peak_bytes": 0, "io_read_bytes": 0, "io_write_bytes": 0 },
    });
    assert_eq!(line, expected);
}

#[tokio::test]
async fn commands_are_in_the_log_only_when_the_operator_wants_them_there() {
    for (commands, is_there) in [(CommandText::Text, true), (CommandText::Hash, false)] {
        let scratch = Scratch::new();
        let log = scratch.open(AuditOptions { commands, ..AuditOptions::default() });
        log.append(entry("curl -H password")).await.unwrap();
        drop(log);
        let text = scratch.read("audit-000001.jsonl");
        assert_eq!(text.contains("password"), is_there, "{text}");
        assert_eq!(text.contains("\"command\":\"sha256:"), !is_there, "{text}");
    }
}

#[tokio::test]
async fn a_log_goes_on_where_it_ended() {
    let scratch = Scratch::new();
    assert_eq!(verify(scratch.dir().parent().unwrap(), &scratch.key()).unwrap().entries, 0, "no log is a good log");
    for start in [0, 10, 20] {
        scratch.append(AuditOptions { file_bytes_max: 1 << 20, ..SMALL }, start..start + 10).await;
    }
    let verdict = scratch.verify();
    assert_eq!((verdict.entries, verdict.files, verdict.problem), (30, 1, None));
    assert_eq!((verdict.first_seq, verdict.last_seq), (Some(1), Some(30)));
    let commands: Vec<_> =
        scratch.entries().iter().map(|entry| entry["command"].as_str().unwrap().to_owned()).collect();
    assert_eq!(commands, (0..30).map(|number| format!("command {number}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn files_have_a_bounded_size_and_the_oldest_are_removed() {
    let scratch = Scratch::new();
    let options = AuditOptions { files_max: 3, ..SMALL };
    scratch.append(options, 0..40).await;
    let files = scratch.files();
    assert_eq!(files.len(), 3);
    assert!(!files.contains(&"audit-000001.jsonl".to_owned()), "{files:?}");
    for file in &files {
        assert!(scratch.read(file).len() as u64 <= SMALL.file_bytes_max, "{file}");
        assert!(scratch.lines(file).len() > 2, "{file} is not begun for one entry");
    }
    let verdict = scratch.verify();
    assert_eq!((verdict.files, verdict.last_seq, verdict.problem), (3, Some(40), None));
    assert_eq!(verdict.first_seq, Some(41 - verdict.entries));

    // An operator who wants fewer gets fewer, and the log goes on.
    scratch.append(AuditOptions { files_max: 1, ..SMALL }, [40]).await;
    let verdict = scratch.verify();
    assert_eq!((verdict.files, verdict.last_seq, verdict.problem), (1, Some(41), None));
}

#[tokio::test]
async fn an_entry_that_is_larger_than_a_file_gets_one_of_its_own() {
    let scratch = Scratch::new();
    let log = scratch.open(SMALL);
    for command in ["small", &"x".repeat(4000), &"y".repeat(4000), "small"] {
        log.append(entry(command)).await.unwrap();
    }
    drop(log);
    let counts: Vec<_> = scratch.files().iter().map(|file| scratch.lines(file).len()).collect();
    assert_eq!(counts, [2, 2, 2, 2], "an anchor and an entry each");
    assert_eq!(scratch.verify().problem, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_can_append_at_once_and_each_keeps_its_order() {
    let scratch = Scratch::new();
    let log = Arc::new(scratch.open(AuditOptions { file_bytes_max: 64 << 10, ..SMALL }));
    let writers = [0, 1, 2, 3].map(|writer| {
        let log = Arc::clone(&log);
        tokio::spawn(async move {
            for number in 0..500 {
                log.append(entry(&format!("{writer} {number}"))).await.unwrap();
            }
        })
    });
    for writer in writers {
        writer.await.unwrap();
    }
    drop(log);
    let verdict = scratch.verify();
    assert_eq!((verdict.entries, verdict.problem), (2000, None));
    assert!(verdict.files > 1);
    let entries = scratch.entries();
    for writer in 0..4 {
        let prefix = format!("{writer} ");
        let commands = entries.iter().map(|entry| entry["command"].as_str().unwrap());
        let numbers: Vec<u32> = commands
            .filter_map(|command| command.strip_prefix(&prefix))
            .map(|number| number.parse().unwrap())
            .collect();
        assert_eq!(numbers, (0..500).collect::<Vec<_>>(), "{writer}");
    }
}

#[tokio::test]
async fn a_log_is_for_its_owner_and_for_one_process_at_a_time() {
    let scratch = Scratch::new();
    let log = scratch.open(SMALL);
    log.append(entry("a")).await.unwrap();
    log.flush().await.unwrap();
    let mode = |name: &str| fs::metadata(scratch.dir().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("."), mode("audit-000001.jsonl")), (0o700, 0o600));
    let error = scratch.try_open(SMALL).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    assert_eq!(scratch.verify().entries, 1, "reading needs no lock");
    drop(log);
    drop(scratch.open(SMALL));
    for mode in [0o720, 0o702] {
        fs::set_permissions(scratch.dir(), Permissions::from_mode(mode)).unwrap();
        assert_eq!(scratch.try_open(SMALL).unwrap_err().code(), "unavailable");
    }
}

#[tokio::test]
async fn entries_that_cannot_be_written_are_told_and_later_noted() {
    let scratch = Scratch::with_entries(0).await;
    let log = scratch.open(SMALL);
    let aside = scratch.dir().with_file_name("aside");
    fs::rename(scratch.dir(), &aside).unwrap();
    // The file that is open can still be written; the next one cannot be made.
    let mut written = 0;
    while log.flush().await.is_ok() {
        written += 1;
        // The writer may be quick enough to tell already here.
        drop(log.append(entry(&format!("{written}"))).await);
    }
    assert!(written > 1);
    assert!(log.append(entry("unseen")).await.is_err(), "whoever must not act unseen is told");
    log.flush().await.unwrap_err();
    fs::rename(&aside, scratch.dir()).unwrap();
    // Tried now, although the log does not know yet that it can be written.
    drop(log.append(entry("seen")).await);
    log.flush().await.unwrap();
    log.append(entry("seen again")).await.unwrap();
    drop(log);
    assert_eq!(scratch.verify().problem, None);
    let entries = scratch.entries();
    let [.., note, seen, again] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!(note["operation"], "repair");
    assert!(note["detail"].as_str().unwrap().starts_with("2 entries"), "{note}");
    assert_eq!((&seen["command"], &again["command"]), (&json!("seen"), &json!("seen again")));
}

#[test]
fn options_that_make_no_sense_are_refused_by_name() {
    let scratch = Scratch::new();
    let table = [
        ("file_bytes_max", AuditOptions { file_bytes_max: 0, ..SMALL }),
        ("files_max", AuditOptions { files_max: 0, ..SMALL }),
    ];
    for (field, options) in table {
        let error = scratch.try_open(options).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
    assert!(!scratch.dir().exists(), "nothing was made");
}

#[tokio::test]
async fn whoever_must_not_act_unseen_is_told_that_an_entry_is_not_written() {
    let scratch = Scratch::new();
    let log = scratch.open(AuditOptions { file_bytes_max: 1024, ..AuditOptions::default() });
    log.record(entry("one")).await.unwrap();
    assert_eq!(scratch.entries().len(), 1, "it is in the file before anybody acts");
    // The next file cannot be begun.
    let aside = scratch.dir().with_extension("aside");
    fs::rename(scratch.dir(), &aside).unwrap();
    let mut refused = 0;
    for number in 0..10 {
        match log.record(entry(&format!("more {number}"))).await {
            Ok(()) => assert_eq!(refused, 0),
            Err(error) => {
                assert_eq!(error.code(), "audit_unavailable", "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 0 && log.file_error().is_some());
    fs::rename(&aside, scratch.dir()).unwrap();
    log.retry().await;
    log.flush().await.unwrap();
    assert_eq!(log.file_error(), None);
    drop(log);
    let missing = format!("{refused} entries before this one");
    assert!(scratch.entries().iter().any(|entry| entry["detail"].as_str().is_some_and(|it| it.contains(&missing))));
    assert_eq!(scratch.verify().problem, None);
}

#[tokio::test]
async fn reasons_that_can_repeat_a_command_are_kept_only_where_commands_are() {
    for (commands, expected) in [(CommandText::Text, "there is no /opt/secret"), (CommandText::Hash, "refused")] {
        let scratch = Scratch::new();
        let log = scratch.open(AuditOptions { commands, ..AuditOptions::default() });
        let (detail, reason) = (Some("refused".to_owned()), Some("there is no /opt/secret".to_owned()));
        log.record(AuditEntry { detail, reason, ..entry("/opt/secret") }).await.unwrap();
        assert_eq!(scratch.entries()[0]["detail"], expected);
        assert_eq!(scratch.read("audit-000001.jsonl").contains("/opt/secret"), commands == CommandText::Text);
    }
}
