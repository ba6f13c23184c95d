//! Real WebSockets to a server without boxes.

use std::net::SocketAddr;
use std::sync::Arc;

use box_core::Store;
use box_core::token::TokenRow;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::{Error as WireError, Message as WireMessage};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async, connect_async};

use crate::LangBotConfig;
use crate::{LangBot, limits};
use door_http::testing::{MemoryStore, service, state, token};
use door_http::{Gate, ListenConfig, ServerState};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const PING: &str = r#"{"seq_id": 5, "action": "__ping", "data": {}}"#;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

struct Running {
    address: SocketAddr,
    unix: tempfile::TempDir,
    stop: tokio_util::sync::CancellationToken,
    task: JoinHandle<()>,
}

async fn start(langbot: LangBotConfig, tokens: &[TokenRow]) -> Running {
    let unix = tempfile::tempdir().unwrap();
    let config = ListenConfig {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        unix_socket: Some(unix.path().join("s")),
        ..ListenConfig::default()
    };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with(tokens));
    let bound = door_http::bind(config, store.as_ref()).await.unwrap();
    let gate = Gate::default().with_rules(Arc::new(crate::Rules));
    let state = ServerState::new(service(Arc::clone(&store)).await, store, gate);
    let routes = LangBot::new(langbot, state.clone()).routes();
    let address = bound.addresses()[0].rsplit('/').next().unwrap().parse().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let task = tokio::spawn({
        let stop = stop.clone();
        async move { bound.serve(state, routes, stop.cancelled_owned()).await }
    });
    Running { address, unix, stop, task }
}

impl Running {
    async fn connect(&self, headers: &[(&'static str, &str)]) -> Result<Socket, WireError> {
        let mut request = format!("ws://{}/rpc/ws", self.address).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        Ok(connect_async(request).await?.0)
    }

    /// Status and body of a refusal; 101 when there is none.
    async fn refusal(&self, headers: &[(&'static str, &str)]) -> (u16, String) {
        match self.connect(headers).await {
            Ok(_) => (101, String::new()),
            Err(WireError::Http(response)) => {
                assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
                let body = response.body().clone().unwrap_or_default();
                (response.status().as_u16(), String::from_utf8(body).unwrap())
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn unauthorized() -> (u16, String) {
    (401, "Unauthorized".to_owned())
}

fn welcome() -> (u16, String) {
    (101, String::new())
}

fn with_token() -> LangBotConfig {
    LangBotConfig { control_token: Some(TOKEN.to_owned()), ..LangBotConfig::default() }
}

async fn reply(socket: &mut Socket) -> Value {
    serde_json::from_str(&text(socket).await).unwrap()
}

async fn text(socket: &mut Socket) -> String {
    futures_util::StreamExt::next(socket).await.unwrap().unwrap().into_text().unwrap().to_string()
}

async fn send(socket: &mut Socket, message: WireMessage) {
    futures_util::SinkExt::send(socket, message).await.unwrap();
}

async fn closed(socket: &mut Socket) -> CloseFrame {
    match futures_util::StreamExt::next(socket).await {
        Some(Ok(WireMessage::Close(Some(frame)))) => frame,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_are_answered() {
    let running = start(LangBotConfig::default(), &[]).await;
    let mut socket = running.connect(&[]).await.unwrap();
    send(&mut socket, WireMessage::text(PING)).await;
    let expected = r#"{"seq_id":5,"code":0,"message":"success","data":{},"chunk_status":"continue"}"#;
    assert_eq!(text(&mut socket).await, expected);
    send(&mut socket, WireMessage::text(r#"{"seq_id": 6, "action": "box_nope", "data": {}}"#)).await;
    assert_eq!(reply(&mut socket).await["message"], "ValueError: Action box_nope not found");
}

#[tokio::test]
async fn without_upgrade_there_is_nothing_but_an_explanation() {
    let running = start(LangBotConfig::default(), &[]).await;
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.write_all(b"GET /rpc/ws HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("content-type: text/plain"), "{answer}");
}

#[tokio::test]
async fn with_a_token_only_instances_that_show_it_come_in() {
    let running = start(with_token(), &[]).await;
    let (instance, shown) = (("x-langbot-instance-id", "one"), ("x-langbot-box-control-token", TOKEN));
    let long = format!("{TOKEN}0");
    let refused: [&[(&'static str, &str)]; 7] = [
        &[],
        &[shown],
        &[instance],
        &[instance, ("x-langbot-box-control-token", "0")],
        &[instance, ("x-langbot-box-control-token", &long)],
        &[instance, shown, shown],
        &[("x-langbot-instance-id", "-bad"), shown],
    ];
    for headers in refused {
        assert_eq!(running.refusal(headers).await, unauthorized(), "{headers:?}");
    }
    assert_eq!(running.refusal(&[instance, shown]).await, welcome());
}

#[tokio::test]
async fn the_first_instance_is_the_only_one_unless_another_was_chosen() {
    let running = start(LangBotConfig::default(), &[]).await;
    let named = |name| [("x-langbot-instance-id", name)];
    assert_eq!(running.refusal(&named("bad name")).await, unauthorized());
    assert_eq!(running.refusal(&named("one")).await, welcome());
    assert_eq!(running.refusal(&named("two")).await, unauthorized());
    assert_eq!(running.refusal(&named(" one ")).await, welcome());
    assert_eq!(running.refusal(&[]).await, welcome(), "old clients have a place of their own");
    let chosen = LangBotConfig { trusted_instance: Some("two".to_owned()), ..LangBotConfig::default() };
    let running = start(chosen, &[]).await;
    assert_eq!(running.refusal(&named("one")).await, unauthorized());
    assert_eq!(running.refusal(&[]).await, unauthorized(), "only that instance is served");
    assert_eq!(running.refusal(&named("two")).await, welcome());
}

#[tokio::test]
async fn where_other_doors_need_a_token_this_one_needs_one_too() {
    let (_, row) = token("alice");
    let running = start(LangBotConfig::default(), std::slice::from_ref(&row)).await;
    assert_eq!(running.refusal(&[]).await, unauthorized());
    let stream = UnixStream::connect(running.unix.path().join("s")).await.unwrap();
    assert!(client_async("ws://localhost/rpc/ws", stream).await.is_ok(), "the socket is its owner's");
    let running = start(LangBotConfig { legacy: true, ..LangBotConfig::default() }, &[row]).await;
    assert_eq!(running.refusal(&[]).await, welcome());
}

#[tokio::test]
async fn strangers_need_a_token_unless_the_operator_wants_them_served() {
    use super::identify;
    use crate::handshake::Newcomer;
    use door_http::gate::Peer;
    let far = Peer::Tcp { local: "192.0.2.1:5410".parse().unwrap(), remote: "192.0.2.9:1".parse().unwrap() };
    let legacy = LangBotConfig { legacy: true, ..LangBotConfig::default() };
    for (config, instance, comes_in) in [
        (LangBotConfig::default(), None, false),
        (LangBotConfig::default(), Some("one"), false),
        (legacy.clone(), None, true),
        (legacy, Some("one"), true),
        (with_token(), Some("one"), true),
    ] {
        let door = LangBot::new(config.clone(), state(Arc::new(MemoryStore::default())).await);
        let mut headers = http::HeaderMap::new();
        headers.insert("x-langbot-box-control-token", TOKEN.parse().unwrap());
        if let Some(instance) = instance {
            headers.insert("x-langbot-instance-id", instance.parse().unwrap());
        }
        assert_eq!(identify(&door, far, &headers, Newcomer::Pin).await.is_ok(), comes_in, "{config:?} {instance:?}");
    }
}

#[tokio::test]
async fn a_container_may_call_us_by_its_name_and_a_page_may_not() {
    let running = start(LangBotConfig::default(), &[]).await;
    let mut request = format!("ws://{}/rpc/ws", running.address).into_client_request().unwrap();
    request.headers_mut().insert("host", "langbot_box:5410".parse().unwrap());
    let stream = TcpStream::connect(running.address).await.unwrap();
    assert!(client_async(request.clone(), stream).await.is_ok());
    request.headers_mut().insert("origin", "http://langbot_box:5410".parse().unwrap());
    let stream = TcpStream::connect(running.address).await.unwrap();
    match client_async(request, stream).await {
        Err(WireError::Http(response)) => assert_eq!(response.status().as_u16(), 403),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_message_in_fragments_is_one_request() {
    let running = start(LangBotConfig::default(), &[]).await;
    let mut socket = running.connect(&[("x-langbot-instance-id", "one")]).await.unwrap();
    let text = format!(r#"{{"seq_id": 1, "action": "__ping", "data": {{"text": "{}"}}}}"#, "x".repeat(300_000));
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(65536).collect();
    for (index, piece) in pieces.iter().enumerate() {
        let code = OpCode::Data(if index == 0 { Data::Text } else { Data::Continue });
        let frame = Frame::message(piece.to_vec(), code, index + 1 == pieces.len());
        send(&mut socket, WireMessage::Frame(frame)).await;
        // A ping may come between fragments.
        send(&mut socket, WireMessage::Ping("".into())).await;
    }
    loop {
        match futures_util::StreamExt::next(&mut socket).await.unwrap().unwrap() {
            WireMessage::Pong(_) => {}
            WireMessage::Text(text) => break assert!(text.contains(r#""seq_id":1,"code":0"#), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn old_clients_may_cut_a_request_into_messages_and_new_ones_may_not() {
    let running = start(LangBotConfig::default(), &[]).await;
    for (headers, expected) in [(&[][..], [1, 5]), (&[("x-langbot-instance-id", "one")], [5, 6])] {
        let mut socket = running.connect(headers).await.unwrap();
        for piece in [r#"{"seq_id": 1, "action": "#, r#""__ping"}"#, PING, r#"{"seq_id": 6, "action": "x"}"#] {
            send(&mut socket, WireMessage::text(piece)).await;
        }
        for seq_id in expected {
            assert_eq!(reply(&mut socket).await["seq_id"], seq_id, "{headers:?}");
        }
    }
}

#[tokio::test]
async fn what_is_no_text_or_too_long_ends_the_connection() {
    let running = start(LangBotConfig::default(), &[]).await;
    let mut socket = running.connect(&[]).await.unwrap();
    send(&mut socket, WireMessage::binary(PING.as_bytes().to_vec())).await;
    assert_eq!(u16::from(closed(&mut socket).await.code), 1003);
    let mut socket = running.connect(&[]).await.unwrap();
    let fits = format!("{PING}{}", " ".repeat(limits::RPC_MESSAGE_BYTES_MAX - PING.len()));
    send(&mut socket, WireMessage::text(fits.clone())).await;
    assert_eq!(reply(&mut socket).await["seq_id"], 5);
    // It may close before everything was taken.
    let _ = futures_util::SinkExt::send(&mut socket, WireMessage::text(fits + " ")).await;
    match futures_util::StreamExt::next(&mut socket).await {
        Some(Ok(WireMessage::Close(Some(frame)))) => assert_eq!(u16::from(frame.code), 1009),
        Some(Err(_)) | None => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn clients_are_told_that_the_server_stops() {
    let running = start(LangBotConfig::default(), &[]).await;
    let mut socket = running.connect(&[]).await.unwrap();
    running.stop.cancel();
    let frame = closed(&mut socket).await;
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1001, "Box runtime shutting down"));
    drop(socket);
    running.task.await.unwrap();
}

#[test]
fn a_secret_or_instance_that_no_client_can_send_is_refused() {
    for langbot in [
        LangBotConfig { control_token: Some("short".to_owned()), ..LangBotConfig::default() },
        LangBotConfig { trusted_instance: Some("-".to_owned()), ..LangBotConfig::default() },
    ] {
        assert!(langbot.check().unwrap_err().contains("of LangBot"));
    }
}
