//! The server as its users start it: addresses, tokens, TLS, the Unix socket.

use std::os::unix::fs::MetadataExt;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::{Error as WireError, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::*;
use door_http::testing::{MemoryStore, service, token};
use door_http::{Error, TlsFiles};

/// A server that runs.
#[derive(Debug)]
struct Running {
    addresses: Vec<String>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    fn address(&self) -> SocketAddr {
        self.addresses[0].rsplit('/').next().unwrap().parse().unwrap()
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

/// Some port of the loopback, and nothing else.
fn config() -> DoorsConfig {
    DoorsConfig {
        listen: ListenConfig { listen: Some("127.0.0.1:0".parse().unwrap()), ..ListenConfig::default() },
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        langbot: LangBotConfig::default(),
        skills: SkillsConfig::default(),
        e2b: E2bConfig::default(),
        mcp: None,
    }
}

/// The same, listening elsewhere.
fn listening(listen: ListenConfig) -> DoorsConfig {
    DoorsConfig { listen, ..config() }
}

/// Starts a server without boxes.
async fn start(mut config: DoorsConfig, store: MemoryStore) -> Result<Running, Error> {
    let store: Arc<dyn Store> = Arc::new(store);
    let listeners = config.bind(store.as_ref()).await?;
    let state = config.state(service(Arc::clone(&store)).await, store)?;
    let langbot = LangBot::new(config.langbot.clone(), state.clone());
    let routes = routes(config, &state, &langbot);
    let addresses = listeners.addresses().to_vec();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(listeners.serve(state, routes, async move { drop(stopped.await) }));
    Ok(Running { addresses, stop, task })
}

/// Asks, and returns status and JSON; status 0 when there is no answer in HTTP.
async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str, token: Option<&str>) -> (u16, Value) {
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Whoever closes without good-bye has said what it wanted.
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or_default())
}

/// A connection that trusts one certificate.
async fn encrypted(address: SocketAddr, trusted: &CertificateDer<'static>) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
}

/// Opens a WebSocket.
async fn socket(
    running: &Running,
    path: &str,
    headers: &[(&'static str, String)],
) -> Result<(WebSocketStream<MaybeTlsStream<TcpStream>>, Response), WireError> {
    let mut request = format!("ws://{}{path}", running.address()).into_client_request().unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    connect_async(request).await
}

fn message_of(result: Result<Running, Error>) -> String {
    result.expect_err("must be refused").to_string()
}

#[tokio::test]
async fn other_machines_are_not_let_in_while_there_is_no_token() {
    let open = listening(ListenConfig { listen: Some("0.0.0.0:0".parse().unwrap()), ..ListenConfig::default() });
    let message = message_of(start(open.clone(), MemoryStore::default()).await);
    assert!(message.contains("strongbox token create --name"), "{message}");
    let six = listening(ListenConfig { listen: Some("[::]:0".parse().unwrap()), ..ListenConfig::default() });
    assert!(message_of(start(six, MemoryStore::default()).await).contains("token"));
    let running = start(open, MemoryStore::with(&[token("alice").1])).await.unwrap();
    assert!(running.addresses[0].starts_with("http://0.0.0.0:"), "{:?}", running.addresses);
}

#[tokio::test]
async fn a_server_that_listens_nowhere_is_refused() {
    let message = message_of(start(listening(ListenConfig::default()), MemoryStore::default()).await);
    assert!(message.contains("nothing to listen on"), "{message}");
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let running = start(config(), MemoryStore::default()).await.unwrap();
    let again = listening(ListenConfig { listen: Some(running.address()), ..ListenConfig::default() });
    let message = message_of(start(again, MemoryStore::default()).await);
    assert!(message.contains(&running.address().to_string()), "{message}");
}

#[tokio::test]
async fn the_loopback_needs_no_token_until_there_is_one() {
    let running = start(config(), MemoryStore::default()).await.unwrap();
    let stream = || async { TcpStream::connect(running.address()).await.unwrap() };
    let (status, body) = get(stream().await, "/v1/health", None).await;
    assert_eq!((status, &body["available"]), (200, &false.into()));
    let (secret, row) = token("alice");
    let running = start(config(), MemoryStore::with(&[row])).await.unwrap();
    let stream = || async { TcpStream::connect(running.address()).await.unwrap() };
    assert_eq!(get(stream().await, "/v1/health", None).await.0, 401);
    assert_eq!(get(stream().await, "/v1/health", Some(&secret)).await.0, 200);
}

#[tokio::test]
async fn errors_of_the_mcp_door_keep_their_own_form() {
    let body = serde_json::json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "why"}});
    let told = body.clone();
    let refuse = async move || (http::StatusCode::NOT_FOUND, axum::Json(told));
    let door = axum::Router::new().route("/mcp", axum::routing::get(refuse));
    let running = start(DoorsConfig { mcp: Some(door), ..config() }, MemoryStore::default()).await.unwrap();
    let stream = TcpStream::connect(running.address()).await.unwrap();
    assert_eq!(get(stream, "/mcp", None).await, (404, body));
    running.stop().await;
}

#[tokio::test]
async fn the_unix_socket_is_its_owners_and_needs_no_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("door");
    let config = listening(ListenConfig { unix_socket: Some(path.clone()), ..ListenConfig::default() });
    let running = start(config, MemoryStore::with(&[token("alice").1])).await.unwrap();
    assert_eq!(running.addresses, [format!("unix:{}", path.display())]);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let stream = UnixStream::connect(&path).await.unwrap();
    assert_eq!(get(stream, "/v1/health", None).await.0, 200);
    running.stop().await;
    assert!(!path.exists(), "it goes with the server");
}

#[tokio::test]
async fn connections_are_encrypted_when_there_is_a_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = TlsFiles { certificate: directory.path().join("cert.pem"), key: directory.path().join("key.pem") };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let running =
        start(listening(ListenConfig { tls: Some(files), ..config().listen }), MemoryStore::default()).await.unwrap();
    assert!(running.addresses[0].starts_with("https://"), "{:?}", running.addresses);
    let stream = encrypted(running.address(), made.cert.der()).await;
    assert_eq!(get(stream, "/v1/health", None).await.0, 200);
    let plain = TcpStream::connect(running.address()).await.unwrap();
    let (status, body) = get(plain, "/v1/health", None).await;
    assert_eq!(status, 400, "{body}");
    assert!(body.to_string().contains("https_required"), "only that is said in the clear: {body}");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let files = TlsFiles { certificate: directory.path().join("cert.pem"), key: directory.path().join("key.pem") };
    let with = |files: &TlsFiles| listening(ListenConfig { tls: Some(files.clone()), ..config().listen });
    assert!(message_of(start(with(&files), MemoryStore::default()).await).contains("cert.pem"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, "nonsense").unwrap();
    assert!(message_of(start(with(&files), MemoryStore::default()).await).contains("key.pem"));
    std::fs::write(&files.certificate, "").unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    assert!(message_of(start(with(&files), MemoryStore::default()).await).contains("no certificate"));
}

#[tokio::test]
async fn a_websocket_is_refused_before_it_is_one() {
    let (secret, row) = token("alice");
    let running = start(config(), MemoryStore::with(&[row])).await.unwrap();
    for (headers, status) in [
        (vec![], 401),
        (vec![("authorization", "Bearer x".to_owned())], 401),
        (vec![("sec-websocket-protocol", "bearer.x".to_owned())], 401),
        (vec![("authorization", format!("Bearer {secret}")), ("origin", "https://evil.example".to_owned())], 403),
        (vec![("authorization", format!("Bearer {secret}")), ("origin", "null".to_owned())], 403),
    ] {
        match socket(&running, "/v1/sessions/s/exec/ws", &headers).await {
            Err(WireError::Http(response)) => assert_eq!(response.status().as_u16(), status, "{headers:?}"),
            other => panic!("{headers:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_browser_comes_in_with_its_token_as_a_subprotocol_which_is_not_repeated() {
    let (secret, row) = token("alice");
    let running = start(config(), MemoryStore::with(&[row])).await.unwrap();
    let offered = [("sec-websocket-protocol", format!("strongbox.v1, bearer.{secret}"))];
    let (_socket, response) = socket(&running, "/v1/sessions/s/exec/ws", &offered).await.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "strongbox.v1");
}

#[tokio::test]
async fn a_first_message_that_is_no_command_is_explained() {
    let running = start(config(), MemoryStore::default()).await.unwrap();
    for (message, field) in [
        (Message::text("nonsense"), "body"),
        (Message::text("{}"), "cmd"),
        (Message::text(r#"{"cmd":"ls","timeout_sec":-1}"#), "timeout_sec"),
        (Message::binary(b"ls".to_vec()), "body"),
    ] {
        let (mut socket, _) = socket(&running, "/v1/sessions/s/exec/ws", &[]).await.unwrap();
        socket.send(message).await.unwrap();
        let answer: serde_json::Value =
            serde_json::from_str(&socket.next().await.unwrap().unwrap().into_text().unwrap()).unwrap();
        assert_eq!((&answer["type"], &answer["error"]["field"]), (&"error".into(), &field.into()));
        match socket.next().await {
            Some(Ok(Message::Close(Some(frame)))) => assert_eq!(u16::from(frame.code), 1008),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_websocket_is_told_that_the_server_stops() {
    let running = start(config(), MemoryStore::default()).await.unwrap();
    let (mut socket, _) = socket(&running, "/v1/sessions/s/exec/ws", &[]).await.unwrap();
    let stopping = tokio::spawn(running.stop());
    match socket.next().await {
        Some(Ok(Message::Close(Some(frame)))) => assert_eq!(u16::from(frame.code), 1001),
        other => panic!("{other:?}"),
    }
    drop(socket);
    stopping.await.unwrap();
}

#[tokio::test]
async fn the_document_is_as_it_was_recorded() {
    let running = start(config(), MemoryStore::default()).await.unwrap();
    let (_, document) = get(TcpStream::connect(running.address()).await.unwrap(), "/openapi.json", None).await;
    insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "../../../snapshots" }, {
        insta::assert_snapshot!("openapi.json", serde_json::to_string_pretty(&document).unwrap());
    });
}

/// The status with which the gate refuses a request from another machine.
fn refusal(path: &str, headers: &[(&str, &str)]) -> Option<u16> {
    let mut request = axum::extract::Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let local = "192.0.2.1:5410".parse().unwrap();
    let peer = door_http::Peer::Tcp { local, remote: "192.0.2.9:1".parse().unwrap() };
    let request = request.extension(peer).body(axum::body::Body::empty()).unwrap();
    let config = DoorsConfig { allowed_origins: vec!["https://page.example".to_owned()], ..config() };
    config.gate().unwrap().check(&request).err().map(|failure| failure.status().as_u16())
}

#[test]
fn a_program_is_let_in_by_any_name_only_where_its_request_stays_with_the_server() {
    let upgrade = ("upgrade", "websocket");
    assert_eq!(refusal("/rpc/ws", &[("host", "langbot_box:5410"), upgrade]), None);
    let led = [("host", "evil.example"), upgrade, ("e2b-sandbox-id", "abc"), ("e2b-sandbox-port", "3000")];
    assert_eq!(refusal("/rpc/ws", &led), Some(403));
    assert_eq!(refusal("/rpc/ws", &[("host", "3000-abc.evil.example"), upgrade]), Some(403));
}

#[test]
fn programs_may_call_langbots_sockets_by_any_name_and_pages_may_not() {
    let (host, upgrade) = (("host", "langbot_box:5410"), ("upgrade", "WebSocket"));
    for path in ["/rpc/ws", "/v1/sessions/s/managed-process/ws", "/v1/sessions/s/managed-process/p/ws", "/rpc/ws?x=1"] {
        assert_eq!(refusal(path, &[host, upgrade]), None, "{path}");
        assert_eq!(refusal(path, &[host]), Some(403), "{path}: any page can ask without upgrade");
        for origin in ["http://langbot_box:5410", "https://page.example", "null"] {
            assert_eq!(refusal(path, &[host, upgrade, ("origin", origin)]), Some(403), "{path} {origin}");
        }
    }
    for path in ["/rpc", "/rpc/ws/", "/v1/sessions/s/exec/ws", "/v1/sessions/s/managed-process", "/v1/sessions/ws"] {
        assert_eq!(refusal(path, &[host, upgrade]), Some(403), "{path}");
    }
}

/// Only a token earns a long time: what anybody may ask does not, whatever is shown with it.
#[tokio::test(start_paused = true)]
async fn health_and_metrics_earn_nobody_a_longer_time() {
    let (seconds, minutes) = (door_http::limits::STRANGER_IDLE_TIME_MAX, door_http::limits::IDLE_TIME_MAX);
    let (secret, row) = token("holder");
    let running = start(config(), MemoryStore::with(&[row])).await.unwrap();
    let (good, wrong) = (format!("Authorization: Bearer {secret}\r\n"), "Authorization: Bearer wrong\r\n");
    let cases = [
        (&["/healthz", "/readyz", "/openapi.json"][..], "", seconds),
        (&["/healthz", "/readyz", "/openapi.json"], &good, seconds),
        (&["/healthz", "/metrics", "/v1/status"], wrong, seconds),
        (&["/healthz", "/metrics"], "", seconds),
        (&["/v1/status", "/healthz"], &good, minutes),
    ];
    for (paths, header, expected) in cases {
        let mut stream = TcpStream::connect(running.address()).await.unwrap();
        for path in paths {
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            read_answer(&mut stream).await;
        }
        let answered = tokio::time::Instant::now();
        assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
        let kept = answered.elapsed();
        assert!(
            kept >= expected && kept <= expected + std::time::Duration::from_secs(1),
            "{paths:?} {header:?}: {kept:?}"
        );
    }
}

/// Reads one answer as far as its head says.
async fn read_answer(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    let head = loop {
        if let Some(at) = answer.windows(4).position(|part| part == b"\r\n\r\n") {
            break at + 4;
        }
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "{}", String::from_utf8_lossy(&answer));
    };
    let text = String::from_utf8_lossy(&answer[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    while answer.len() < head + length.unwrap() {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0);
    }
}
