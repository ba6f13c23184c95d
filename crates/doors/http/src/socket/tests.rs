//! Real WebSockets to commands that are played from a script.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::response::IntoResponse;
use axum::routing::get;
use box_core::TenantId;
use box_core::call::{Cursor, ExecInfo, FollowEvent, ProcessId, ProcessInfo, StdinChunk, StreamName};
use box_wire::WindowSize;
use futures_util::{SinkExt, StreamExt};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Message, protocol::Role};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::feed::{Feed, Inlet};
use crate::testing::{ended_exec, process};

type Client = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Scripted output of a command, one event at a time.
struct Script(mpsc::UnboundedReceiver<FollowEvent>);

impl Feed for Script {
    async fn next(&mut self) -> box_core::Result<Option<FollowEvent>> {
        Ok(self.0.recv().await)
    }
}

/// A message that a command received.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Heard {
    Stdin(StdinChunk),
    Resize(WindowSize),
    Signal(i32),
}

/// Takes everything, or nothing.
#[derive(Clone)]
enum TestInput {
    Open(mpsc::UnboundedSender<Heard>),
    Blocked,
}

impl TestInput {
    async fn hear(&self, heard: Heard) -> box_core::Result<()> {
        match self {
            Self::Open(sender) => sender.send(heard).map_err(|_| box_core::Error::Stopping),
            Self::Blocked => std::future::pending().await,
        }
    }
}

impl Inlet for TestInput {
    async fn stdin(&self, chunk: StdinChunk) -> box_core::Result<()> {
        self.hear(Heard::Stdin(chunk)).await
    }

    async fn resize(&self, size: WindowSize) -> box_core::Result<()> {
        self.hear(Heard::Resize(size)).await
    }

    async fn signal(&self, number: i32) -> box_core::Result<()> {
        self.hear(Heard::Signal(number)).await
    }
}

/// A server with one command at `/talk` and one managed process at `/relay`. Each connection takes the next script.
struct Stage {
    address: String,
    scripts: mpsc::UnboundedSender<(Script, TestInput)>,
    closing: CancellationToken,
    withdrawn: CancellationToken,
    /// The managed process, until it is gone.
    found: Arc<Mutex<Option<ProcessInfo>>>,
    starts: mpsc::UnboundedReceiver<Cursor>,
}

#[derive(Clone)]
struct Backstage {
    scripts: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<(Script, TestInput)>>>,
    closing: CancellationToken,
    withdrawn: CancellationToken,
    found: Arc<Mutex<Option<ProcessInfo>>>,
    relays: Arc<Relays>,
    starts: mpsc::UnboundedSender<Cursor>,
}

impl Backstage {
    async fn next(&self) -> (Script, TestInput) {
        self.scripts.lock().await.recv().await.unwrap()
    }
}

async fn talk(State(stage): State<Backstage>, upgrade: WebSocketUpgrade) -> axum::response::Response {
    let upgrade =
        upgrade.max_message_size(limits::SOCKET_MESSAGE_BYTES_MAX).max_frame_size(limits::SOCKET_MESSAGE_BYTES_MAX);
    upgrade.on_upgrade(async move |socket| {
        let (feed, input) = stage.next().await;
        converse(socket, feed, input, json!({ "type": "started", "cursor": "0.0.0" }), stage.closing.clone()).await;
    })
}

async fn relay_route(
    State(stage): State<Backstage>,
    uri: axum::http::Uri,
    upgrade: WebSocketUpgrade,
) -> axum::response::Response {
    let entry = if uri.query() == Some("takeover") { Entry::TakeOver } else { Entry::Wait };
    let key = (TenantId::default(), "s".parse().unwrap(), ProcessId::default());
    let Ok(place) = RelaySlot::join(&stage.relays, key, process(), entry) else {
        return axum::http::StatusCode::CONFLICT.into_response();
    };
    upgrade.protocols(["mcp"]).on_upgrade(async move |socket| {
        let ends = Ends { closing: stage.closing.clone(), withdrawn: stage.withdrawn.clone() };
        let relays = Arc::clone(&stage.relays);
        relay(socket, &relays, place, stage, ends).await;
    })
}

impl Opening for Backstage {
    type Output = Script;
    type Input = TestInput;

    async fn find(&self) -> Option<ProcessInfo> {
        self.found.lock().unwrap().clone()
    }

    async fn open(self, from: Cursor) -> Option<(Script, TestInput)> {
        self.starts.send(from).unwrap();
        Some(self.next().await)
    }
}

async fn stage() -> Stage {
    let (scripts, waiting) = mpsc::unbounded_channel();
    let (starts, seen) = mpsc::unbounded_channel();
    let backstage = Backstage {
        scripts: Arc::new(tokio::sync::Mutex::new(waiting)),
        closing: CancellationToken::new(),
        withdrawn: CancellationToken::new(),
        found: Arc::new(Mutex::new(Some(process()))),
        relays: Arc::new(Relays::default()),
        starts,
    };
    let (closing, withdrawn) = (backstage.closing.clone(), backstage.withdrawn.clone());
    let found = Arc::clone(&backstage.found);
    let router = Router::new().route("/talk", get(talk)).route("/relay", get(relay_route)).with_state(backstage);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(axum::serve(listener, router).into_future());
    Stage { address, scripts, closing, withdrawn, found, starts: seen }
}

impl Stage {
    /// Prepares a command: what it will say, and what it hears.
    fn command(&self) -> (mpsc::UnboundedSender<FollowEvent>, mpsc::UnboundedReceiver<Heard>) {
        let (say, said) = mpsc::unbounded_channel();
        let (hear, heard) = mpsc::unbounded_channel();
        assert!(self.scripts.send((Script(said), TestInput::Open(hear))).is_ok());
        (say, heard)
    }

    async fn connect(&self, path: &str) -> Client {
        connect_async(format!("ws://{}{path}", self.address)).await.unwrap().0
    }
}

fn output(stream: StreamName, bytes: &[u8], stdout: u64) -> FollowEvent {
    FollowEvent::Output { stream, bytes: bytes.to_vec(), cursor: Cursor { run: 0, stdout, stderr: 0 } }
}

fn ended() -> FollowEvent {
    let info = ExecInfo { ended_at: Some(Timestamp::UNIX_EPOCH), ..ended_exec() };
    FollowEvent::Ended { info: Box::new(info), cursor: Cursor::default() }
}

async fn json_of(client: &mut Client) -> Value {
    match client.next().await.unwrap().unwrap() {
        Message::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("not text: {other:?}"),
    }
}

async fn text_of(client: &mut Client) -> String {
    client.next().await.unwrap().unwrap().into_text().unwrap().to_string()
}

async fn close_of(client: &mut Client) -> Option<CloseFrame> {
    loop {
        match client.next().await {
            Some(Ok(Message::Close(frame))) => return frame,
            Some(Ok(_)) => {}
            other => panic!("no close frame but {other:?}"),
        }
    }
}

#[tokio::test]
async fn output_comes_as_bytes_and_what_happened_as_json() {
    let stage = stage().await;
    let (say, _heard) = stage.command();
    let mut client = stage.connect("/talk").await;
    assert_eq!(json_of(&mut client).await["type"], "started");
    say.send(output(StreamName::Stdout, b"out\xff", 4)).unwrap();
    assert_eq!(client.next().await.unwrap().unwrap().into_data().as_ref(), b"\x01out\xff");
    say.send(output(StreamName::Stderr, b"err", 4)).unwrap();
    assert_eq!(client.next().await.unwrap().unwrap().into_data().as_ref(), b"\x02err");
    let cursor = Cursor { run: 0, stdout: 9, stderr: 3 };
    say.send(FollowEvent::Gap { stream: StreamName::Stdout, bytes: 5, cursor }).unwrap();
    assert_eq!(json_of(&mut client).await, json!({ "type": "gap", "stream": "stdout", "bytes": 5, "cursor": "0.9.3" }));
    say.send(FollowEvent::Restarted { cursor: Cursor { run: 1, ..Cursor::default() } }).unwrap();
    assert_eq!(json_of(&mut client).await, json!({ "type": "restarted", "cursor": "1.0.0" }));
    say.send(ended()).unwrap();
    let last = json_of(&mut client).await;
    assert_eq!((&last["type"], &last["exec"]["exit_code"]), (&"ended".into(), &0.into()));
    assert_eq!(u16::from(close_of(&mut client).await.unwrap().code), 1000);
}

#[tokio::test]
async fn long_output_is_sent_in_messages_that_every_client_takes() {
    let stage = stage().await;
    let (say, _heard) = stage.command();
    let mut client = stage.connect("/talk").await;
    json_of(&mut client).await;
    say.send(output(StreamName::Stdout, &vec![7; 1 << 20], 1 << 20)).unwrap();
    let mut received = 0;
    while received < 1 << 20 {
        let message = client.next().await.unwrap().unwrap().into_data();
        assert!(message.len() <= limits::SOCKET_OUTPUT_BYTES_MAX + 1);
        received += message.len() - 1;
    }
    assert_eq!(received, 1 << 20);
}

#[tokio::test]
async fn what_the_client_says_arrives_in_order() {
    let stage = stage().await;
    let (_say, mut heard) = stage.command();
    let mut client = stage.connect("/talk").await;
    for message in [
        Message::binary(b"a\0\xff".to_vec()),
        Message::text(r#"{"type":"resize","rows":24,"columns":80}"#),
        Message::text(r#"{"type":"signal","signal":"INT"}"#),
        Message::text(r#"{"type":"stdin_end"}"#),
    ] {
        client.send(message).await.unwrap();
    }
    assert_eq!(heard.recv().await, Some(Heard::Stdin(StdinChunk::Bytes(b"a\0\xff".to_vec()))));
    assert_eq!(heard.recv().await, Some(Heard::Resize(WindowSize { rows: 24, columns: 80 })));
    assert_eq!(heard.recv().await, Some(Heard::Signal(2)));
    assert_eq!(heard.recv().await, Some(Heard::Stdin(StdinChunk::End)));
}

#[tokio::test]
async fn a_ping_is_answered_behind_what_was_said_before() {
    let stage = stage().await;
    let (_say, mut heard) = stage.command();
    let mut client = stage.connect("/talk").await;
    json_of(&mut client).await;
    client.send(Message::binary(b"input".to_vec())).await.unwrap();
    client.send(Message::Ping(b"end"[..].into())).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong(b"end"[..].into()));
    assert_eq!(heard.try_recv().ok(), Some(Heard::Stdin(StdinChunk::Bytes(b"input".to_vec()))));
}

#[tokio::test]
async fn a_message_that_means_nothing_is_answered_and_the_talk_goes_on() {
    let stage = stage().await;
    let (_say, mut heard) = stage.command();
    let mut client = stage.connect("/talk").await;
    json_of(&mut client).await;
    for (bad, field) in [
        ("nonsense", "body"),
        ("{}", "type"),
        (r#"{"type":"dance"}"#, "type"),
        (r#"{"type":"resize"}"#, "tty"),
        (r#"{"type":"signal","signal":99}"#, "signal"),
        (r#"{"type":"stdin_end","more":1}"#, "more"),
    ] {
        client.send(Message::text(bad)).await.unwrap();
        let answer = json_of(&mut client).await;
        assert_eq!((&answer["type"], &answer["error"]["field"]), (&"error".into(), &field.into()), "{bad}");
    }
    client.send(Message::binary(b"x".to_vec())).await.unwrap();
    assert!(heard.recv().await.is_some());
}

#[tokio::test]
async fn output_goes_on_while_the_command_does_not_read() {
    let stage = stage().await;
    let (say, said) = mpsc::unbounded_channel();
    assert!(stage.scripts.send((Script(said), TestInput::Blocked)).is_ok());
    let mut client = stage.connect("/talk").await;
    json_of(&mut client).await;
    client.send(Message::binary(b"x".to_vec())).await.unwrap();
    say.send(output(StreamName::Stdout, b"y", 1)).unwrap();
    assert_eq!(client.next().await.unwrap().unwrap().into_data().as_ref(), b"\x01y");
}

#[tokio::test]
async fn a_client_that_breaks_the_rules_is_told_which() {
    for (message, code) in [(Message::binary(vec![0; limits::SOCKET_MESSAGE_BYTES_MAX + 1]), 1009)] {
        let stage = stage().await;
        let (_say, _heard) = stage.command();
        let mut client = stage.connect("/talk").await;
        client.send(message).await.unwrap();
        assert_eq!(u16::from(close_of(&mut client).await.unwrap().code), code);
    }
}

/// Sends bytes that no honest client library would, and returns the code with which we close.
async fn close_code_after(raw: &[u8]) -> u16 {
    use tokio::io::AsyncWriteExt;
    let stage = stage().await;
    let (_say, _heard) = stage.command();
    let client = stage.connect("/talk").await;
    let MaybeTlsStream::Plain(mut stream) = client.into_inner() else { panic!("plain") };
    stream.write_all(raw).await.unwrap();
    let mut client = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    loop {
        match client.next().await {
            Some(Ok(Message::Close(Some(frame)))) => return frame.code.into(),
            Some(Ok(_)) => {}
            other => panic!("no close frame but {other:?}"),
        }
    }
}

#[tokio::test]
async fn broken_frames_are_answered_with_the_code_for_them() {
    assert_eq!(close_code_after(b"\x81\x82\0\0\0\0\xff\xfe").await, 1007, "a text that is not UTF-8");
    assert_eq!(close_code_after(b"\x83\x80\0\0\0\0").await, 1002, "a reserved opcode");
    assert_eq!(close_code_after(b"\xc1\x80\0\0\0\0").await, 1002, "reserved bits");
    assert_eq!(close_code_after(b"\x82\x01x").await, 1002, "not masked");
    assert_eq!(close_code_after(b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0").await, 1009, "an endless frame");
}

#[tokio::test]
async fn a_stopping_server_says_so() {
    let stage = stage().await;
    for path in ["/talk", "/relay"] {
        let (_say, _heard) = stage.command();
        let mut client = stage.connect(path).await;
        client.send(Message::text("{}")).await.unwrap();
        stage.closing.cancel();
        assert_eq!(u16::from(close_of(&mut client).await.unwrap().code), 1001, "{path}");
    }
}

#[tokio::test]
async fn each_line_of_output_is_one_message_of_the_relay() {
    let stage = stage().await;
    let (say, mut heard) = stage.command();
    let mut client = stage.connect("/relay").await;
    say.send(output(StreamName::Stdout, "{\"a\":\"€".as_bytes(), 9)).unwrap();
    say.send(output(StreamName::Stderr, b"noise\n", 9)).unwrap();
    say.send(output(StreamName::Stdout, b"\"}\n{}\nrest", 18)).unwrap();
    assert_eq!(text_of(&mut client).await, "{\"a\":\"€\"}");
    assert_eq!(text_of(&mut client).await, "{}");
    client.send(Message::text("{\"b\":1}")).await.unwrap();
    client.send(Message::binary(b"ignored".to_vec())).await.unwrap();
    client.send(Message::text("")).await.unwrap();
    assert_eq!(heard.recv().await, Some(Heard::Stdin(StdinChunk::Bytes(b"{\"b\":1}\n".to_vec()))));
    assert_eq!(heard.recv().await, Some(Heard::Stdin(StdinChunk::Bytes(b"\n".to_vec()))));
    say.send(ended()).unwrap();
    assert_eq!(text_of(&mut client).await, "rest", "an unfinished line is sent at the end");
    let frame = close_of(&mut client).await.unwrap();
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1000, ""));
}

#[tokio::test]
async fn the_relay_speaks_mcp_when_that_is_offered() {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;
    let stage = stage().await;
    let mut request = format!("ws://{}/relay", stage.address).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "mcp".parse().unwrap());
    let (_client, response) = connect_async(request).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "mcp");
}

#[tokio::test]
async fn whoever_takes_the_relay_over_misses_nothing() {
    let mut stage = stage().await;
    let (say, _first_heard) = stage.command();
    let mut first = stage.connect("/relay").await;
    assert_eq!(stage.starts.recv().await, Some(Cursor::default()));
    say.send(output(StreamName::Stdout, b"one\ntw", 6)).unwrap();
    assert_eq!(text_of(&mut first).await, "one");
    let (say, _second_heard) = stage.command();
    let mut second = stage.connect("/relay?takeover").await;
    assert_eq!(u16::from(close_of(&mut first).await.unwrap().code), 4409);
    assert_eq!(stage.starts.recv().await.unwrap().stdout, 4, "behind the last whole line");
    say.send(output(StreamName::Stdout, b"two\n", 8)).unwrap();
    assert_eq!(text_of(&mut second).await, "two");
}

#[tokio::test]
async fn a_second_client_waits_in_silence_and_what_it_said_comes_first() {
    let mut stage = stage().await;
    let (say, mut first_heard) = stage.command();
    let mut first = stage.connect("/relay").await;
    assert_eq!(stage.starts.recv().await, Some(Cursor::default()));
    let (next_say, mut second_heard) = stage.command();
    let mut second = stage.connect("/relay").await;
    second.send(Message::text("early")).await.unwrap();
    second.send(Message::binary(b"ignored".to_vec())).await.unwrap();
    second.send(Message::Ping(b"here"[..].into())).await.unwrap();
    assert_eq!(second.next().await.unwrap().unwrap(), Message::Pong(b"here"[..].into()), "it was heard");
    say.send(output(StreamName::Stdout, b"one\n", 4)).unwrap();
    assert_eq!(text_of(&mut first).await, "one");
    first.close(None).await.unwrap();
    assert_eq!(stage.starts.recv().await.unwrap().stdout, 4, "what the first was told is not told again");
    assert_eq!(second_heard.recv().await, Some(Heard::Stdin(StdinChunk::Bytes(b"early\n".to_vec()))));
    assert!(first_heard.recv().await.is_none(), "the first was never written to");
    second.send(Message::text("later")).await.unwrap();
    assert_eq!(second_heard.recv().await, Some(Heard::Stdin(StdinChunk::Bytes(b"later\n".to_vec()))));
    next_say.send(output(StreamName::Stdout, b"two\n", 8)).unwrap();
    assert_eq!(text_of(&mut second).await, "two");
}

#[tokio::test]
async fn whoever_leaves_while_waiting_gives_its_place_up() {
    let mut stage = stage().await;
    let (_say, _heard) = stage.command();
    let mut first = stage.connect("/relay").await;
    stage.starts.recv().await.unwrap();
    let mut second = stage.connect("/relay").await;
    let mut third = stage.connect("/relay").await;
    second.close(None).await.unwrap();
    while let Some(Ok(_)) = second.next().await {}
    let (say, _third_heard) = stage.command();
    first.close(None).await.unwrap();
    stage.starts.recv().await.unwrap();
    say.send(output(StreamName::Stdout, b"mine\n", 5)).unwrap();
    assert_eq!(text_of(&mut third).await, "mine");
}

#[tokio::test]
async fn only_so_much_is_kept_of_what_is_said_while_waiting() {
    let mut stage = stage().await;
    let (_say, _heard) = stage.command();
    let _first = stage.connect("/relay").await;
    stage.starts.recv().await.unwrap();
    let mut many = stage.connect("/relay").await;
    for _ in 0..=limits::RELAY_QUEUED_MAX {
        many.send(Message::text("x")).await.unwrap();
    }
    assert_eq!(u16::from(close_of(&mut many).await.unwrap().code), 1013);
    let mut much = stage.connect("/relay").await;
    much.send(Message::text("y".repeat(limits::RELAY_QUEUED_BYTES_MAX + 1))).await.unwrap();
    assert_eq!(u16::from(close_of(&mut much).await.unwrap().code), 1009);
}

#[tokio::test]
async fn only_so_many_clients_wait() {
    let mut stage = stage().await;
    let (_say, _heard) = stage.command();
    let _first = stage.connect("/relay").await;
    stage.starts.recv().await.unwrap();
    let mut line = Vec::new();
    for _ in 0..limits::RELAY_WAITING_MAX {
        line.push(stage.connect("/relay").await);
    }
    assert!(connect_async(format!("ws://{}/relay", stage.address)).await.is_err());
}

#[tokio::test]
async fn the_end_of_the_process_is_the_end_of_all_who_wait() {
    let mut stage = stage().await;
    let (say, _heard) = stage.command();
    let mut first = stage.connect("/relay").await;
    stage.starts.recv().await.unwrap();
    let (mut second, mut third) = (stage.connect("/relay").await, stage.connect("/relay").await);
    *stage.found.lock().unwrap() = None;
    say.send(ended()).unwrap();
    for client in [&mut first, &mut second, &mut third] {
        let frame = close_of(client).await.unwrap();
        assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1000, ""));
    }
}

#[tokio::test]
async fn whoever_waited_for_a_process_is_not_attached_to_another_one() {
    let mut stage = stage().await;
    let (say, _heard) = stage.command();
    let _first = stage.connect("/relay").await;
    stage.starts.recv().await.unwrap();
    let mut second = stage.connect("/relay").await;
    *stage.found.lock().unwrap() = Some(ProcessInfo { started_at: Timestamp::MAX, ..process() });
    say.send(ended()).unwrap();
    assert_eq!(u16::from(close_of(&mut second).await.unwrap().code), 1000);
}

#[tokio::test]
async fn a_right_that_is_withdrawn_ends_like_the_process_and_a_stop_in_its_own_words() {
    for is_stop in [false, true] {
        let mut stage = stage().await;
        let (_say, _heard) = stage.command();
        let mut first = stage.connect("/relay").await;
        stage.starts.recv().await.unwrap();
        let mut second = stage.connect("/relay").await;
        let (fired, end) = if is_stop {
            (&stage.closing, (1001, "Box runtime shutting down"))
        } else {
            (&stage.withdrawn, (1000, ""))
        };
        fired.cancel();
        for client in [&mut first, &mut second] {
            let frame = close_of(client).await.unwrap();
            assert_eq!((u16::from(frame.code), frame.reason.as_str()), end);
        }
    }
}

#[tokio::test]
async fn a_relay_whose_process_ended_is_forgotten() {
    let mut stage = stage().await;
    for _ in 0..2 {
        let (say, _heard) = stage.command();
        let mut client = stage.connect("/relay").await;
        assert_eq!(stage.starts.recv().await, Some(Cursor::default()));
        say.send(output(StreamName::Stdout, b"one\n", 4)).unwrap();
        say.send(ended()).unwrap();
        close_of(&mut client).await;
    }
}
