//! Replies as clients read them.

use box_core::{Guarantees, SessionRequest};

use super::*;
use crate::spec::UnknownFields;
use crate::tenancy::InstanceId;
use door_http::testing;

fn place() -> TenancyScope {
    TenancyScope::workspace(&InstanceId::parse("i").unwrap(), "w", 1)
}

fn names(place: &TenancyScope) -> Names<'_> {
    Names { place, alias: None }
}

fn spec() -> BoxSpec {
    BoxSpec::read(json!({ "session_id": "a:b", "timeout_sec": 7 }).as_object().unwrap(), UnknownFields::Ignored)
        .unwrap()
}

fn session() -> SessionInfo {
    let request: SessionRequest = spec().session_request(Vec::new());
    SessionInfo {
        session_id: "g1-a:b".parse().unwrap(),
        state: SessionState::Running,
        backend_name: box_core::BackendName::Native,
        backend_session_id: "s0".into(),
        config: request.resolve(&box_core::session::SessionDefaults::default(), None).unwrap(),
        created_at: Timestamp::UNIX_EPOCH,
        last_used_at: "2026-11-15T02:21:02.599092123Z".parse().unwrap(),
        expires_at: None,
        execs_running: 0,
        processes_running: 0,
        guarantees: Guarantees::default(),
        lost_reason: None,
    }
}

fn process(id: &str) -> ProcessInfo {
    let stderr_preview = "  warn \n\n\tmore\r\n".to_owned();
    let session_id = "g1-a:b".parse().unwrap();
    ProcessInfo { process_id: id.parse().unwrap(), session_id, stderr_preview, ..testing::process() }
}

fn result(stdout: &str, stderr: &str) -> ExecResult {
    let mut info = testing::ended_exec();
    (info.stdout_bytes, info.stderr_bytes) = (stdout.len() as u64, stderr.len() as u64);
    ExecResult { info, stdout: stdout.into(), stderr: stderr.into(), stdout_truncated: false, stderr_truncated: false }
}

#[test]
fn replies_have_every_field_of_every_version() {
    let place = place();
    let names = names(&place);
    let exited = ProcessInfo {
        status: ProcessStatus::Exited,
        exited_at: Some(Timestamp::UNIX_EPOCH),
        exit_code: Some(7),
        ..process("p")
    };
    let replies = json!({
        "session": names.session(&session()),
        "session with processes": names.session_with_processes(&session(), &[process("default"), exited]),
        "result": names.result(&spec(), &result(" out\n", "err"), 16 << 20),
    });
    insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "../../snapshots" }, {
        insta::assert_snapshot!("langbot_replies", serde_json::to_string_pretty(&replies).unwrap());
    });
}

#[test]
fn processes_are_mentioned_only_where_there_are_some() {
    let place = place();
    let shown = names(&place).session_with_processes(&session(), &[]);
    assert!(!shown.contains_key("managed_processes") && !shown.contains_key("managed_process"));
    let shown = names(&place).session_with_processes(&session(), &[process("p")]);
    assert!(shown.contains_key("managed_processes") && !shown.contains_key("managed_process"));
}

#[test]
fn the_status_of_a_session_has_three_words() {
    let place = place();
    for (state, execs_running, word) in [
        (SessionState::Running, 0, "idle"),
        (SessionState::Paused, 0, "idle"),
        (SessionState::Running, 1, "running"),
        (SessionState::Destroying, 1, "closing"),
    ] {
        let shown = names(&place).session(&SessionInfo { state, execs_running, ..session() });
        assert_eq!(shown["status"], word);
    }
}

#[test]
fn a_passed_deadline_is_told_in_place_of_a_code() {
    let place = place();
    let mut late = result("partial\n", "");
    (late.info.status, late.info.exit_code, late.info.signal) = (ExecStatus::TimedOut, None, Some(9));
    late.info.timeout_ms = Some(3000);
    let shown = names(&place).result(&spec(), &late, 16 << 20);
    assert_eq!((&shown["status"], &shown["exit_code"]), (&json!("timed_out"), &json!(null)));
    assert_eq!((&shown["stdout"], &shown["stderr"]), (&json!("partial"), &json!("Command timed out after 3 seconds.")));
    late.stderr = "said".into();
    assert_eq!(names(&place).result(&spec(), &late, 16 << 20)["stderr"], "said");
    late.info.timeout_limit = Some("a limit".into());
    let told = "said\nThe deadline cannot be longer: a limit.";
    assert_eq!(names(&place).result(&spec(), &late, 16 << 20)["stderr"], told);
    late.info.status = ExecStatus::Completed;
    assert_eq!(names(&place).result(&spec(), &late, 16 << 20)["stderr"], "said", "only when time ran out");
    let mut killed = result("", "");
    (killed.info.exit_code, killed.info.signal) = (None, Some(9));
    assert_eq!(names(&place).result(&spec(), &killed, 16 << 20)["exit_code"], 137);
}

#[test]
fn a_lack_of_memory_is_told_behind_what_the_command_said() {
    let place = place();
    let stderr = |said: &str| {
        let mut killed = result("", said);
        (killed.info.exit_code, killed.info.signal, killed.info.oom_killed) = (None, Some(9), true);
        names(&place).result(&spec(), &killed, 16 << 20)["stderr"].as_str().unwrap().to_owned()
    };
    assert!(stderr("").starts_with("Out of memory: "), "{}", stderr(""));
    assert!(stderr("said").starts_with("said\nOut of memory: "), "{}", stderr("said"));
    let killed = ProcessInfo { oom_killed: true, stderr_preview: "warn\n".repeat(2000), ..process("p") };
    let shown = names(&place).process(&killed)["stderr_preview"].as_str().unwrap().to_owned();
    assert!(shown.contains("\nwarn\nOut of memory: ") && shown.ends_with("a session with more."), "{shown}");
}

#[test]
fn output_that_is_too_long_ends_with_a_notice() {
    let place = place();
    let mut long = result(&"x".repeat(STREAM_BYTES_MAX), "");
    (long.stdout_truncated, long.info.stdout_bytes) = (true, STREAM_BYTES_MAX as u64 + 5);
    let shown = names(&place).result(&spec(), &long, 16 << 20);
    let notice = "x\n... [raw output clipped at 1048576 bytes, 5 bytes discarded]";
    assert!(shown["stdout"].as_str().unwrap().ends_with(notice));
    assert_eq!(shown["stderr"], "");
}

#[test]
fn a_reply_to_a_client_that_takes_little_fits_whatever_is_in_it() {
    let place = place();
    let max = 1 << 20;
    for (stdout, stderr) in [("\u{1}", "\\"), ("\"", ""), ("", "é"), ("x", "\u{1}"), ("\u{fffd}", "\u{fffd}")] {
        let long = |piece: &str| piece.repeat(if piece.is_empty() { 0 } else { STREAM_BYTES_MAX / piece.len() });
        let shown = names(&place).result(&spec(), &result(&long(stdout), &long(stderr)), max);
        let bytes = serde_json::to_string(&shown).unwrap().len();
        assert!(bytes + 200 < max, "{stdout:?} {stderr:?}: {bytes}");
        assert!(bytes > max - 2 * REPLY_REST_BYTES, "{stdout:?} {stderr:?}: {bytes} is less than there is room for");
    }
}

#[test]
fn a_preview_keeps_the_end() {
    let long = (0..3000).map(|line| format!("line {line}")).collect::<Vec<_>>().join("\n");
    let shown = preview(&long);
    assert!(shown.chars().count() <= STDERR_PREVIEW_CHARS && shown.ends_with("line 2999"));
}
