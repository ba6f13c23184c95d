//! Commands with a conversation, against a peer that follows a script: what no real server does on demand is to break off at a
//! chosen place.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

/// A peer on a port of its own.
struct Peer {
    listener: TcpListener,
}

/// A connection to the program.
struct Socket(WebSocket<TcpStream>);

impl Peer {
    fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    /// Starts the program so that it talks to this peer.
    fn start(&self, arguments: &[&str], stdin: Stdio) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strongbox"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("STRONGBOX_")) {
            command.env_remove(name);
        }
        command.env("STRONGBOX_URL", format!("http://{}", self.listener.local_addr().unwrap())).args(arguments);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Takes the next connection as a WebSocket; gives what was asked for.
    #[expect(clippy::result_large_err, reason = "the shape of the callback is given")]
    fn accept(&self) -> (String, Socket) {
        let (stream, _) = self.listener.accept().unwrap();
        let mut asked = String::new();
        let note = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
            asked = request.uri().to_string();
            Ok(response)
        };
        let socket = tungstenite::accept_hdr(stream, note).unwrap();
        (asked, Socket(socket))
    }

    /// Takes the next connection as a plain request and answers it; gives its first line and its body.
    fn answer(&self, body: &Value) -> (String, String) {
        let (stream, _) = self.listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).unwrap();
        }
        let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        let mut asked = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut asked).unwrap();
        let body = body.to_string();
        let answer = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        reader.into_inner().write_all(answer.as_bytes()).unwrap();
        (head.lines().next().unwrap().to_owned(), String::from_utf8(asked).unwrap())
    }
}

impl Socket {
    fn say(&mut self, event: &Value) {
        self.0.send(Message::text(event.to_string())).unwrap();
    }

    fn output(&mut self, stream: u8, text: &str) {
        self.0.send(Message::binary([&[stream], text.as_bytes()].concat())).unwrap();
    }

    fn started(&mut self) {
        self.say(&json!({ "type": "started", "exec": info(None, "running"), "cursor": "0.0.0" }));
    }

    fn ended(&mut self, exit_code: Option<i32>, status: &str) {
        self.say(&json!({ "type": "ended", "exec": info(exit_code, status), "cursor": "0.0.0" }));
        self.0.close(None).unwrap();
        while self.0.read().is_ok() {}
    }

    /// The next message that is not for keeping the connection alive; nothing when the program has gone.
    fn hear(&mut self) -> Option<Message> {
        loop {
            match self.0.read() {
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Ok(message) => return Some(message),
                Err(_) => return None,
            }
        }
    }

    fn hear_json(&mut self) -> Value {
        serde_json::from_str(self.hear().unwrap().to_text().unwrap()).unwrap()
    }

    /// Breaks the connection off without a word.
    fn break_off(mut self) {
        self.0.flush().unwrap();
        self.0.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
    }
}

fn info(exit_code: Option<i32>, status: &str) -> Value {
    json!({
        "exec_id": "e1", "session_id": "s", "backend_name": "native", "status": status, "exit_code": exit_code,
        "signal": null, "oom_killed": false, "duration_ms": 5, "started_at": "2026-01-01T00:00:00Z", "ended_at": null,
        "stdout_bytes": 0, "stderr_bytes": 0, "receipt": null,
    })
}

fn texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn streams_and_exit_code_are_passed_on() {
    let peer = Peer::new();
    let child = peer.start(&["exec", "s", "--memory=64", "--", "true"], Stdio::null());
    let (asked, mut socket) = peer.accept();
    assert_eq!(asked, "/v1/sessions/s/exec/ws");
    assert_eq!(socket.hear_json(), json!({ "command": ["true"], "env": {}, "memory_mb": 64, "stdin": "" }));
    socket.started();
    socket.output(1, "out");
    socket.output(2, "error");
    socket.output(1, "\u{1b}[1m\0");
    socket.ended(Some(7), "completed");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(texts(&ended), (Some(7), "out\u{1b}[1m\0".to_owned(), "error".to_owned()));
}

#[test]
fn a_passed_deadline_and_a_lost_box_are_told() {
    for (status, code, says) in [("timed_out", 124, "strongbox: killed: its deadline passed"), ("lost", 125, "lost")] {
        let peer = Peer::new();
        let child = peer.start(&["exec", "s", "--", "true"], Stdio::null());
        let (_, mut socket) = peer.accept();
        socket.hear();
        socket.started();
        socket.ended(None, status);
        let (exit_code, _, stderr) = texts(&child.wait_with_output().unwrap());
        assert!(exit_code == Some(code) && stderr.contains(says), "{exit_code:?} {stderr}");
    }
}

#[test]
fn a_command_that_is_not_there_has_its_own_exit_code() {
    let peer = Peer::new();
    let child = peer.start(&["exec", "s", "--", "nowhere"], Stdio::null());
    let (_, mut socket) = peer.accept();
    socket.hear();
    let error = json!({ "code": "refused", "detail_code": "program_not_found", "message": "nowhere: not found" });
    socket.say(&json!({ "type": "error", "error": error }));
    let (code, _, stderr) = texts(&child.wait_with_output().unwrap());
    assert_eq!((code, stderr.as_str()), (Some(127), "strongbox: nowhere: not found\n"));
}

#[test]
fn input_is_passed_on_until_its_end() {
    let peer = Peer::new();
    let mut child = peer.start(&["exec", "s", "--", "cat"], Stdio::piped());
    let input = "words\n".repeat(50_000);
    let mut stdin = child.stdin.take().unwrap();
    let (_, mut socket) = peer.accept();
    assert_eq!(socket.hear_json().get("stdin"), None, "the input is a stream");
    socket.started();
    let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()).map(|()| input));
    let mut heard = Vec::new();
    let end = loop {
        match socket.hear().unwrap() {
            Message::Binary(bytes) => heard.extend_from_slice(&bytes),
            other => break other,
        }
    };
    assert_eq!(end.to_text().unwrap(), "{\"type\":\"stdin_end\"}");
    assert_eq!(heard, feeder.join().unwrap().unwrap().into_bytes());
    socket.ended(Some(0), "completed");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn after_a_lost_connection_the_output_goes_on_where_it_was() {
    let peer = Peer::new();
    let child = peer.start(&["exec", "s", "--", "true"], Stdio::null());
    let (_, mut socket) = peer.accept();
    socket.hear();
    socket.started();
    socket.output(1, "first ");
    socket.output(2, "bad");
    socket.break_off();
    let (asked, mut socket) = peer.accept();
    assert_eq!(asked, "/v1/sessions/s/execs/e1/ws?cursor=0.6.3");
    socket.say(&json!({ "type": "started", "exec": info(None, "running"), "cursor": "0.6.3" }));
    socket.output(1, "second ");
    socket.break_off();
    let (asked, mut socket) = peer.accept();
    assert_eq!(asked, "/v1/sessions/s/execs/e1/ws?cursor=0.13.3");
    socket.output(1, "third");
    socket.ended(Some(3), "completed");
    let ended = child.wait_with_output().unwrap();
    assert_eq!(texts(&ended), (Some(3), "first second third".to_owned(), "bad".to_owned()));
}

#[test]
fn input_that_may_be_lost_is_never_passed_over_in_silence() {
    let peer = Peer::new();
    let mut child = peer.start(&["exec", "s", "--", "cat"], Stdio::piped());
    let (_, mut socket) = peer.accept();
    socket.hear();
    socket.started();
    child.stdin.as_mut().unwrap().write_all(b"words").unwrap();
    socket.hear();
    socket.output(1, "w");
    socket.break_off();
    let (code, stdout, stderr) = texts(&child.wait_with_output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(125), "w"));
    assert!(stderr.contains("was lost") && stderr.contains("strongbox logs -f --since-cursor 0.1.0 s e1"), "{stderr}");
}

#[test]
fn input_that_arrived_as_a_whole_does_not_keep_from_going_on() {
    let peer = Peer::new();
    let mut child = peer.start(&["exec", "s", "--", "cat"], Stdio::piped());
    let (_, mut socket) = peer.accept();
    socket.hear();
    socket.started();
    drop(child.stdin.take());
    assert_eq!(socket.hear_json(), json!({ "type": "stdin_end" }));
    // The ping that follows is answered by reading on; what is said after that comes behind the answer.
    let ping = socket.0.read().unwrap();
    assert!(ping.is_ping());
    socket.output(1, "a");
    socket.break_off();
    let (asked, mut socket) = peer.accept();
    assert_eq!(asked, "/v1/sessions/s/execs/e1/ws?cursor=0.1.0");
    socket.ended(Some(0), "completed");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn the_first_signal_is_passed_on_and_the_second_kills() {
    let peer = Peer::new();
    let child = peer.start(&["exec", "s", "--", "sleep"], Stdio::null());
    let (_, mut socket) = peer.accept();
    socket.hear();
    socket.started();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(socket.hear_json(), json!({ "type": "signal", "signal": 15 }));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let (asked, _) = peer.answer(&json!({}));
    assert_eq!(asked, "POST /v1/sessions/s/execs/e1/cancel HTTP/1.1");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(128 + 2));
}

#[test]
fn a_reader_that_goes_away_ends_the_command() {
    let peer = Peer::new();
    let mut child = peer.start(&["exec", "s", "--", "yes"], Stdio::null());
    let (_, mut socket) = peer.accept();
    socket.hear();
    socket.started();
    drop(child.stdout.take());
    socket.output(1, "y\n");
    let (asked, _) = peer.answer(&json!({}));
    assert_eq!(asked, "POST /v1/sessions/s/execs/e1/cancel HTTP/1.1");
    let (code, _, stderr) = texts(&child.wait_with_output().unwrap());
    assert_eq!((code, stderr.as_str()), (Some(141), ""));
}

#[test]
fn following_shows_one_stream_or_both_and_ends_with_a_signal() {
    let process = json!({
        "process_id": "web", "status": "running", "command": "serve", "started_at": "2026-01-01T00:00:00Z",
        "cursor": "2.5.6",
    });
    for (arguments, cursor, shown) in [
        (&["logs", "-f", "s", "web"][..], "0.0.0", ("out", "error")),
        (&["logs", "-f", "--stderr", "--since-cursor", "1.2.3", "s", "web"], "1.2.3", ("error", "")),
    ] {
        let peer = Peer::new();
        let mut child = peer.start(arguments, Stdio::null());
        assert_eq!(peer.answer(&json!([process])).0, "GET /v1/sessions/s/processes HTTP/1.1");
        assert_eq!(peer.answer(&json!([])).0, "GET /v1/sessions/s/execs HTTP/1.1");
        let (asked, mut socket) = peer.accept();
        assert_eq!(asked, format!("/v1/sessions/s/processes/web/ws?cursor={cursor}"));
        socket.output(1, "out");
        socket.output(2, "error");
        let mut first = vec![0; shown.0.len()];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        assert_eq!(String::from_utf8(first).unwrap(), shown.0);
        if !shown.1.is_empty() {
            let mut second = vec![0; shown.1.len()];
            child.stderr.as_mut().unwrap().read_exact(&mut second).unwrap();
            assert_eq!(String::from_utf8(second).unwrap(), shown.1);
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn attaching_starts_with_what_is_new_and_passes_input_on() {
    let peer = Peer::new();
    let mut child = peer.start(&["attach", "s"], Stdio::piped());
    let process = json!({
        "process_id": "default", "status": "running", "command": "cat", "started_at": "2026-01-01T00:00:00Z",
        "cursor": "2.5.6",
    });
    assert_eq!(peer.answer(&process).0, "GET /v1/sessions/s/processes/default HTTP/1.1");
    let (asked, mut socket) = peer.accept();
    assert_eq!(asked, "/v1/sessions/s/processes/default/ws?cursor=2.5.6");
    child.stdin.as_mut().unwrap().write_all(b"ask\n").unwrap();
    assert_eq!(socket.hear().unwrap().into_data().as_ref(), b"ask\n");
    socket.output(1, "answer\n");
    socket.say(&json!({ "type": "restarted", "cursor": "3.0.0" }));
    socket.ended(Some(4), "completed");
    let (code, stdout, stderr) = texts(&child.wait_with_output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(4), "answer\n"));
    assert_eq!(stderr, "strongbox: the process was started again\n");
}

#[test]
fn a_detached_command_is_only_started() {
    let peer = Peer::new();
    let child = peer.start(&["exec", "-d", "s", "--", "make"], Stdio::null());
    let (asked, body) = peer.answer(&info(None, "running"));
    assert_eq!(asked, "POST /v1/sessions/s/exec?wait=false HTTP/1.1");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), json!({ "command": ["make"], "env": {} }));
    assert_eq!(texts(&child.wait_with_output().unwrap()), (Some(0), "e1\n".to_owned(), String::new()));
}
