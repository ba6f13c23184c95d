//! Sessions from the command line, with a real server and real boxes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use support::server::{Server, strongbox};

/// Exit code, standard output and standard error.
fn told(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The session's own options must stand before the command, so the place of the state comes first.
fn exec(server: &Server, arguments: &[&str]) -> Output {
    strongbox(server.place.path()).arg("exec").arg("--state-dir").arg(server.state()).args(arguments).output().unwrap()
}

#[test]
fn a_session_keeps_its_files_between_commands() {
    let server = Server::start("");
    assert_eq!(told(&exec(&server, &["s", "--", "sh", "-c", "echo words > note; echo bad >&2; exit 3"])).0, Some(3));
    assert_eq!(told(&exec(&server, &["s", "cat", "note"])), (Some(0), "words\n".to_owned(), String::new()));
    let sessions = parsed(&server.ask(&["session", "ls", "--json"]));
    assert_eq!((sessions[0]["session_id"].as_str(), sessions[1].as_object()), (Some("s"), None));
    assert_eq!(told(&server.ask(&["session", "rm", "s"])).1, "s\n");
    assert_eq!(parsed(&server.ask(&["session", "ls", "--json"])), json!([]));
}

#[test]
fn all_sessions_are_removed_with_their_boxes() {
    let server = Server::start("");
    for id in ["one", "two"] {
        assert_eq!(told(&exec(&server, &[id, "--", "true"])).0, Some(0));
    }
    let (code, stdout, stderr) = told(&server.ask(&["session", "rm", "--all"]));
    let mut removed: Vec<&str> = stdout.lines().collect();
    removed.sort_unstable();
    assert_eq!((code, removed, stderr.as_str()), (Some(0), vec!["one", "two"], ""));
    assert_eq!(parsed(&server.ask(&["session", "ls", "--json"])), json!([]));
    assert_eq!(told(&server.ask(&["session", "rm", "--all"])), (Some(0), String::new(), String::new()));
}

#[test]
fn sessions_share_a_volume() {
    let server = Server::start("");
    assert_eq!(told(&server.ask(&["volume", "create", "data"])), (Some(0), "data\n".to_owned(), String::new()));
    let write = ["w", "--volume=data:/mnt/d", "--", "sh", "-c", "echo words > /mnt/d/f"];
    assert_eq!(told(&exec(&server, &write)).0, Some(0));
    let read = ["r", "--volume=data:/mnt/e:ro", "--", "sh", "-c", "cat /mnt/e/f; echo x > /mnt/e/f"];
    let (code, stdout, _) = told(&exec(&server, &read));
    assert_ne!(code, Some(0), "it is read-only");
    assert_eq!(stdout, "words\n");
    let shown = told(&server.ask(&["session", "show", "r"])).1;
    assert!(shown.contains("data:/mnt/e:ro"), "{shown}");
    assert!(told(&server.ask(&["volume", "ls"])).1.contains("r w"));
    let (code, _, stderr) = told(&server.ask(&["volume", "rm", "data"]));
    assert!(code == Some(125) && stderr.contains("mounted in sessions r, w"), "{code:?} {stderr}");
    assert_eq!(told(&server.ask(&["session", "rm", "r", "w"])).0, Some(0));
    let shown = parsed(&server.ask(&["volume", "show", "data", "--json"]));
    assert_eq!((&shown["name"], &shown["sessions"]), (&json!("data"), &json!([])));
    assert_eq!(told(&server.ask(&["volume", "rm", "data"])).1, "data\n");
    assert_eq!(parsed(&server.ask(&["volume", "ls", "--json"])), json!([]));
}

#[test]
fn exit_codes_are_those_of_run() {
    let server = Server::start("");
    let table: [(&[&str], i32, &str); 6] = [
        (&["s", "--", "true"], 0, ""),
        (&["s", "--", "no-such-program"], 127, "no-such-program"),
        (&["s", "--", "/etc/passwd"], 126, "/etc/passwd"),
        (&["s", "--timeout=0.3", "--", "sleep", "30"], 124, "deadline"),
        (&["s", "--", "sh", "-c", "kill -TERM $$"], 143, ""),
        (&["s", "--memory=64", "--", "true"], 125, "memory_mb=512 (asked: 64)"),
    ];
    for (arguments, code, says) in table {
        let (exit_code, _, stderr) = told(&exec(&server, arguments));
        assert_eq!(exit_code, Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    }
}

#[test]
fn code_keeps_its_names_and_tells_its_errors() {
    let server = Server::start("");
    let code = |arguments: &[&str]| {
        let mut command = strongbox(server.place.path());
        told(&command.arg("code").arg("--state-dir").arg(server.state()).args(arguments).output().unwrap())
    };
    assert_eq!(code(&["s", "-c", "x = 6 * 7; print('set')"]), (Some(0), "set\n".to_owned(), String::new()));
    assert_eq!(code(&["s", "-c", "x + 1"]), (Some(0), "43\n".to_owned(), String::new()));
    let (exit_code, stdout, stderr) = code(&["s", "-c", "print('before')\n1 / 0"]);
    assert_eq!((exit_code, stdout.as_str()), (Some(1), "before\n"));
    assert!(stderr.contains("Traceback") && stderr.contains("ZeroDivisionError: division by zero"), "{stderr}");
    assert_eq!(code(&["s", "--timeout=0.5", "-c", "while True: pass"]).0, Some(124));
    assert_eq!(code(&["s", "-l", "bash", "-c", "echo out; echo err >&2"]), (Some(0), "out\n".into(), "err\n".into()));
    let (exit_code, _, stderr) = code(&["s", "-l", "cobol", "-c", "x"]);
    assert!(exit_code == Some(125) && stderr.contains("python, javascript, typescript, bash"), "{stderr}");
    let script = server.place.path().join("script.py");
    std::fs::write(&script, "x").unwrap();
    assert_eq!(code(&["s", script.to_str().unwrap()]).1, "42\n");
    let result = code(&["s", "--json", "-c", "x"]).1;
    assert_eq!(serde_json::from_str::<Value>(&result).unwrap()["results"][0]["text"], "42");
}

#[test]
fn large_input_and_output_arrive_whole() {
    let server = Server::start("");
    let input = "line of words\n".repeat(100_000);
    let mut command = strongbox(server.place.path());
    command.arg("exec").arg("--state-dir").arg(server.state()).args(["s", "--", "cat"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sent = input.clone();
    let feeder = std::thread::spawn(move || stdin.write_all(sent.as_bytes()));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap().unwrap();
    assert!(output.stdout == input.as_bytes(), "{} of {} bytes", output.stdout.len(), input.len());
    let logged = server.ask(&["logs", "s"]);
    assert!(logged.stdout == input.as_bytes(), "{} of {} bytes", logged.stdout.len(), input.len());
}

#[test]
fn a_command_and_its_output_outlive_a_killed_server() {
    let server = Server::start("");
    // Both servers listen on the same socket, which is how the client finds the second.
    let mut command = strongbox(server.place.path());
    command.arg("exec").arg("--state-dir").arg(server.state());
    command.args(["s", "--", "sh", "-c", "echo first; while test ! -e go; do sleep 0.05; done; echo second; exit 7"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    let server = server.killed_and_started_again();
    assert_eq!(told(&exec(&server, &["s", "touch", "go"])).0, Some(0));
    assert_eq!(lines.next().unwrap().unwrap(), "second");
    assert!(lines.next().is_none());
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

#[test]
fn managed_processes_are_started_listed_fed_and_stopped() {
    let server = Server::start("");
    let started = strongbox(server.place.path())
        .args(["process", "start", "s", "echo", "--state-dir"])
        .arg(server.state())
        .args(["--", "sh", "-c", "while read line; do echo got $line; done"])
        .output()
        .unwrap();
    assert_eq!(told(&started), (Some(0), "echo\n".to_owned(), String::new()));
    let listed = parsed(&server.ask(&["ps", "--json"]));
    assert_eq!(listed[0]["processes"][0]["process_id"], "echo");
    let mut command = strongbox(server.place.path());
    command.args(["attach", "s", "echo", "--state-dir"]).arg(server.state());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"words\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "got words");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "detached");
    drop(stdin);
    assert_eq!(parsed(&server.ask(&["process", "show", "s", "echo", "--json"]))["status"], "running");
    assert_eq!(told(&server.ask(&["logs", "s", "echo"])).1, "got words\n");
    assert_eq!(told(&server.ask(&["process", "stop", "s", "echo"])).0, Some(0));
    assert_eq!(parsed(&server.ask(&["ps", "--json"])), json!([]));
}

#[test]
fn a_detached_command_can_be_followed() {
    let server = Server::start("");
    let (code, id, _) = told(&exec(&server, &["-d", "s", "--", "sh", "-c", "echo out; echo bad >&2; exit 4"]));
    assert_eq!(code, Some(0));
    let followed = server.ask(&["logs", "-f", "s", id.trim()]);
    assert_eq!(told(&followed), (Some(4), "out\n".to_owned(), "bad\n".to_owned()));
    let only_errors = server.ask(&["logs", "--stderr", "s"]);
    assert_eq!(told(&only_errors), (Some(0), "bad\n".to_owned(), String::new()));
}

#[test]
fn what_was_done_is_in_the_audit_log() {
    let server = Server::start("[audit]\ncommands = \"text\"\n");
    exec(&server, &["s", "--", "echo", "seen"]);
    let shown = told(&server.ask(&["audit", "tail", "-n", "50"])).1;
    assert!(shown.lines().any(|line| line.contains("\"operation\":\"exec\"") && line.contains("echo seen")), "{shown}");
    assert_eq!(told(&server.ask(&["audit", "verify"])).0, Some(0));
    let file = server.state().join("audit/audit-000001.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("echo seen", "echo fake")).unwrap();
    let (code, _, stderr) = told(&server.ask(&["audit", "verify"]));
    assert!(code == Some(1) && stderr.contains("audit-000001.jsonl:"), "{stderr}");
}

#[test]
fn a_command_is_ended_by_its_id_and_its_last_lines_are_shown() {
    let server = Server::start("");
    let marker = support::marker();
    let line = format!("seq 200; echo last-of-errors >&2; sleep {marker} & sleep {marker}");
    let started = exec(&server, &["s", "--detach", "--timeout=100", "--", "sh", "-c", &line]);
    let id = told(&started).1.trim().to_owned();
    while !told(&server.ask(&["logs", "s", &id])).1.ends_with("200\n") {}
    let (code, out, error) = told(&server.ask(&["logs", "--tail", "2", "s", &id]));
    assert_eq!((code, out.as_str(), error.as_str()), (Some(0), "199\n200\n", "last-of-errors\n"));
    let (code, _, error) = told(&server.ask(&["kill", "s", "no-such-exec"]));
    assert!(code == Some(125) && error.contains("no-such-exec"), "{error}");
    let (code, _, error) = told(&server.ask(&["kill", "--signal", "NOTHING", "s", &id]));
    assert!(code == Some(125) && error.contains("such as TERM"), "{error}");
    let (code, out, error) = told(&server.ask(&["kill", "s", &id]));
    assert!(code == Some(0) && out.contains(&id), "{out}{error}");
    assert_eq!(told(&server.ask(&["logs", "-f", "--tail=1", "s", &id])).0, Some(137));
    assert!(support::is_gone(&marker));
    let mut process = strongbox(server.place.path());
    process.args(["process", "start", "--state-dir"]).arg(server.state()).args(["s", "web", "--", "sleep", "1000"]);
    assert!(process.output().unwrap().status.success());
    let (code, _, error) = told(&server.ask(&["kill", "s", "web"]));
    assert!(code == Some(125) && error.contains("process stop s web"), "{error}");
}

#[test]
fn what_is_asked_of_a_session_that_exists_is_not_ignored() {
    let server = Server::start("");
    assert!(server.ask(&["session", "create", "s"]).status.success());
    let (code, _, error) = told(&exec(&server, &["s", "--profile=debug", "--", "true"]));
    assert!(code == Some(125) && error.contains("profile=default (asked: debug)"), "{error}");
    assert_eq!(told(&exec(&server, &["s", "--ttl=10m", "--", "true"])).0, Some(0));
    assert_eq!(parsed(&server.ask(&["session", "show", "s", "--json"]))["ttl_sec"], 600);
}
