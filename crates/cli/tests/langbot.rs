//! `strongbox box`: how it starts, talks over standard input and output, and stops.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::server::{Server, strongbox};

fn command(place: &Path, arguments: &[&str]) -> Command {
    let mut command = strongbox(place);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LANGBOT_")) {
        command.env_remove(name);
    }
    command.arg("box").args(arguments).env("STRONGBOX_STATE_DIR", place.join("state"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn ended(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

/// A box runtime that talks over standard input and output.
struct Runtime {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Runtime {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { input: child.stdin.take(), output, child }
    }

    fn write(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn ask(&mut self, seq_id: usize) -> Value {
        self.write(&format!("{{\"seq_id\": {seq_id}, \"action\": \"__ping\", \"data\": {{}}}}\n"));
        serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap()
    }

    /// Ends its input, and gives its exit code.
    fn leave(&mut self) -> Option<i32> {
        self.input = None;
        let code = self.child.wait().unwrap().code();
        assert!(self.output.next().is_none(), "nothing but replies");
        code
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.input = None;
        drop(self.child.wait());
    }
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

#[test]
fn a_child_answers_line_by_line_and_ends_with_its_input() {
    let place = tempfile::tempdir().unwrap();
    let mut runtime = Runtime::start(&mut command(place.path(), &["-s", "--ws-control-port", &free_port()]));
    assert_eq!(runtime.ask(7)["seq_id"], 7);
    assert_eq!(runtime.ask(8)["code"], 0);
    assert_eq!(runtime.leave(), Some(0));
}

#[test]
fn the_end_of_input_removes_all_boxes_even_persistent_ones_and_does_not_wait_for_commands() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("own");
    let arguments = ["-s", "--ws-control-port", "0", "--state-dir", state.to_str().unwrap()];
    let mut runtime = Runtime::start(&mut command(place.path(), &arguments));
    runtime.ask(1);
    let ask = |arguments: &[&str]| {
        let mut command = strongbox(place.path());
        command.args(arguments).arg("--state-dir").arg(&state);
        command
    };
    let made = ask(&["session", "create", "kept", "--persistent"]).output().unwrap();
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    let marker = support::marker();
    let mut waiting = strongbox(place.path())
        .args(["exec", "--state-dir"])
        .arg(&state)
        .args(["kept", "--", "sh", "-c", "echo begun; exec sleep \"$0\"", &marker])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(waiting.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "begun");
    assert_eq!(runtime.leave(), Some(0));
    // It would look for the server for a while.
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert!(support::is_gone(&marker));
}

#[test]
fn a_child_that_is_terminated_ends_well() {
    let place = tempfile::tempdir().unwrap();
    for signal in [Signal::TERM, Signal::INT] {
        let mut runtime = Runtime::start(&mut command(place.path(), &["-s", "--ws-control-port", &free_port()]));
        runtime.ask(1);
        kill_process(Pid::from_child(&runtime.child), signal).unwrap();
        assert_eq!(runtime.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_log_that_nobody_reads_holds_no_request_up() {
    let place = tempfile::tempdir().unwrap();
    let mut command = command(place.path(), &["-s", "--ws-control-port", &free_port()]);
    let mut runtime = Runtime::start(command.env("STRONGBOX_LOG", "trace"));
    // Each request is logged with more than 60 bytes, and a pipe holds 64 KiB.
    for seq_id in 0..2000 {
        assert_eq!(runtime.ask(seq_id)["seq_id"], seq_id);
    }
    assert_eq!(runtime.leave(), Some(0));
}

#[test]
fn a_child_works_without_its_port_and_a_server_does_not() {
    let place = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut runtime = Runtime::start(&mut command(place.path(), &["-s", "--ws-control-port", &port]));
    assert_eq!(runtime.ask(1)["code"], 0);
    assert_eq!(runtime.leave(), Some(0));
    let refused = ended(&mut command(place.path(), &["--ws-control-port", &port]));
    assert_eq!(refused.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use"), "{refused:?}");
}

#[test]
fn two_children_of_the_same_port_both_work() {
    let place = tempfile::tempdir().unwrap();
    let port = free_port();
    let start = || Runtime::start(&mut command(place.path(), &["-s", "--ws-control-port", &port]));
    let mut first = start();
    assert_eq!(first.ask(1)["code"], 0);
    let mut second = start();
    assert_eq!(second.ask(2)["code"], 0);
    assert_eq!(first.ask(3)["code"], 0);
    assert_eq!((first.leave(), second.leave()), (Some(0), Some(0)));
}

#[test]
fn what_cannot_be_meant_is_refused_at_the_start() {
    let place = tempfile::tempdir().unwrap();
    for (name, value, arguments, says) in [
        ("LANGBOT_BOX_CONTROL_TOKEN", "short", &["-s"][..], "LANGBOT_BOX_CONTROL_TOKEN"),
        ("LANGBOT_BOX_TRUSTED_INSTANCE_UUID", "-", &[], "LANGBOT_BOX_TRUSTED_INSTANCE_UUID"),
        (
            "LANGBOT_BOX_CONTROL_TOKEN",
            "0123456789abcdef0123456789abcdef",
            &["-s"],
            "LANGBOT_BOX_TRUSTED_INSTANCE_UUID is required",
        ),
        ("NOTHING", "", &["--host", "0.0.0.0"], "LANGBOT_BOX_CONTROL_TOKEN"),
        ("NOTHING", "", &["--host", "somewhere"], "127.0.0.1"),
    ] {
        let refused = ended(command(place.path(), arguments).env(name, value));
        assert_eq!(refused.status.code(), Some(125), "{name} {arguments:?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(says), "{refused:?}");
        assert!(refused.stdout.is_empty());
    }
}

#[test]
fn settings_that_cannot_be_read_are_told_of_and_ignored() {
    let place = tempfile::tempdir().unwrap();
    let mut command = command(place.path(), &["-s", "--ws-control-port", &free_port()]);
    let ended = ended(command.env("LANGBOT_BOX_CONFIG", "{nonsense"));
    assert_eq!(ended.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("LANGBOT_BOX_CONFIG is not a JSON object"), "{ended:?}");
}

#[test]
fn a_server_says_what_to_set_in_langbot_and_answers_there() {
    let place = tempfile::tempdir().unwrap();
    let mut runtime = Runtime::start(&mut command(place.path(), &["--ws-control-port", "0"]));
    let said: Vec<String> = (0..3).map(|_| runtime.output.next().unwrap().unwrap()).collect();
    assert!(said[0].contains("/state/langbot-0/strongbox.sock"), "{said:?}");
    let url = said[1].rsplit(' ').next().unwrap().to_owned();
    assert_eq!(ping(&url), Some(1));
    kill_process(Pid::from_child(&runtime.child), Signal::TERM).unwrap();
    assert_eq!(runtime.child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_ordinary_server_serves_langbot_as_well() {
    let mut server = Server::start("");
    let first = server.said.next().unwrap().unwrap();
    let address = first.split_whitespace().find_map(|word| word.strip_prefix("http://")).unwrap().to_owned();
    assert_eq!(ping(&format!("ws://{address}")), Some(1));
}

/// The number of the answer to a request with the number 1.
fn ping(url: &str) -> Option<i64> {
    use futures_util::{SinkExt, StreamExt};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut socket, _) = tokio_tungstenite::connect_async(format!("{url}/rpc/ws")).await.unwrap();
        let request = r#"{"seq_id": 1, "action": "__ping", "data": {}}"#;
        socket.send(tokio_tungstenite::tungstenite::Message::text(request)).await.unwrap();
        let reply = socket.next().await.unwrap().unwrap().into_text().unwrap();
        serde_json::from_str::<Value>(&reply).unwrap()["seq_id"].as_i64()
    })
}
