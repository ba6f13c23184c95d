//! What a killed writer leaves is a log that goes on.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use box_core::audit::{AuditOptions, CommandText};

use crate::scratch::{SMALL, Scratch, entry};

/// A machine's last moments: the end of a file is cut off anywhere, down to nothing.
#[tokio::test]
async fn a_line_that_was_never_finished_is_cut_off_and_noted() {
    let log = Scratch::with_entries(5).await;
    let newest = log.files().pop().unwrap();
    assert_eq!(newest, "audit-000002.jsonl", "an anchor and an entry");
    let whole = log.read(&newest);
    let anchor_bytes = whole.find('\n').unwrap() + 1;
    for cut in 0..whole.len() {
        log.write(&newest, &whole[..cut]);
        let is_whole = cut == 0 || cut == anchor_bytes;
        assert_eq!(log.verify().problem.is_none(), is_whole, "cut at {cut}");
        log.append(SMALL, [7]).await;
        let verdict = log.verify();
        assert_eq!(verdict.problem, None, "cut at {cut}");
        let entries = log.entries();
        let notes = entries.iter().map(|entry| u64::from(entry["operation"] == "repair")).sum::<u64>();
        assert_eq!(notes, u64::from(!is_whole), "cut at {cut}");
        assert_eq!(entries.last().unwrap()["command"], "command 7");
        assert_eq!(verdict.last_seq, Some(4 + notes + 1), "cut at {cut}: what was whole is still there");
        assert_eq!(verdict.last_seq, Some(verdict.entries));
    }
}

#[tokio::test]
async fn a_line_that_is_being_written_is_no_problem_until_its_writer_is_gone() {
    let log = Scratch::with_entries(1).await;
    let open = log.open(SMALL);
    log.write("audit-000001.jsonl", &format!("{}{{\"seq\":2", log.read("audit-000001.jsonl")));
    assert_eq!(log.verify().problem, None);
    assert_eq!(log.verify().entries, 1);
    drop(open);
    assert_eq!(log.verify().problem.unwrap().line, 3);
}

#[tokio::test]
async fn a_crash_while_the_only_file_is_replaced_loses_nothing() {
    let log = Scratch::with_entries(4).await;
    fs::write(log.dir().join("audit-000002.jsonl"), "").unwrap();
    log.append(AuditOptions { files_max: 1, ..SMALL }, [7]).await;
    let verdict = log.verify();
    assert_eq!((verdict.files, verdict.first_seq, verdict.last_seq), (1, Some(5), Some(5)));
    assert_eq!(verdict.problem, None);
}

/// Set in a second process only, which is this program once more.
const DIR: &str = "BOX_CORE_TEST_AUDIT_DIR";

#[tokio::test]
async fn what_was_flushed_survives_a_kill() {
    const OPTIONS: AuditOptions =
        AuditOptions { file_bytes_max: 16 << 10, files_max: 1000, commands: CommandText::Text };
    if let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) {
        let log = box_core::audit::AuditLog::open(&dir, &dir.with_file_name("audit.key"), OPTIONS).unwrap();
        for number in 1_u64.. {
            log.append(entry("command")).await.unwrap();
            log.flush().await.unwrap();
            let mut output = std::io::stdout().lock();
            writeln!(output, "\ntold:{number}").unwrap();
        }
    }
    let log = Scratch::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["crash::what_was_flushed_survives_a_kill", "--exact", "--nocapture"]).env(DIR, log.dir());
    let mut writer = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(writer.stdout.take().unwrap());
    let lines = output.lines().map(Result::unwrap);
    let told = lines.filter_map(|line| line.strip_prefix("told:").map(|number| number.parse::<u64>().unwrap()));
    let told = told.take(200).last().unwrap();
    // The writer goes on all the time, so this comes in the middle of something.
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert!(told >= 200);
    drop(log.open(OPTIONS));
    let verdict = log.verify();
    assert_eq!(verdict.problem, None);
    assert!(verdict.entries >= told, "{} of {told} entries", verdict.entries);
}
