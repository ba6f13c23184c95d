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
use crate::testing::{MemoryStore, service, token};

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
fn config() -> ServerConfig {
    ServerConfig {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        unix_socket: None,
        tls: None,
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        langbot: LangBotConfig::default(),
        skills: SkillsConfig::default(),
        e2b: E2bConfig::default(),
        mcp: None,
    }
}

/// Starts a server without boxes.
async fn start(config: ServerConfig, store: MemoryStore) -> Result<Running, Error> {
    let store: Arc<dyn Store> = Arc::new(store);
    let bound = bind(config, service(Arc::clone(&store)).await, store).await?;
    let addresses = bound.addresses().to_vec();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move { bound.run(async move { drop(stopped.await) }).await.unwrap() });
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
    let open = ServerConfig { listen: Some("0.0.0.0:0".parse().unwrap()), ..config() };
    let message = message_of(start(open.clone(), MemoryStore::default()).await);
    assert!(message.contains("strongbox token create --name"), "{message}");
    let six = ServerConfig { listen: Some("[::]:0".parse().unwrap()), ..config() };
    assert!(message_of(start(six, MemoryStore::default()).await).contains("token"));
    let running = start(open, MemoryStore::with(&[token("alice").1])).await.unwrap();
    assert!(running.addresses[0].starts_with("http://0.0.0.0:"), "{:?}", running.addresses);
}

#[tokio::test]
async fn a_server_that_listens_nowhere_is_refused() {
    let message = message_of(start(ServerConfig { listen: None, ..config() }, MemoryStore::default()).await);
    assert!(message.contains("nothing to listen on"), "{message}");
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let running = start(config(), MemoryStore::default()).await.unwrap();
    let again = ServerConfig { listen: Some(running.address()), ..config() };
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
    let running = start(ServerConfig { mcp: Some(door), ..config() }, MemoryStore::default()).await.unwrap();
    let stream = TcpStream::connect(running.address()).await.unwrap();
    assert_eq!(get(stream, "/mcp", None).await, (404, body));
    running.stop().await;
}

#[tokio::test]
async fn the_unix_socket_is_its_owners_and_needs_no_token() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("door");
    let config = ServerConfig { listen: None, unix_socket: Some(path.clone()), ..config() };
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
    let running = start(ServerConfig { tls: Some(files), ..config() }, MemoryStore::default()).await.unwrap();
    assert!(running.addresses[0].starts_with("https://"), "{:?}", running.addresses);
    let stream = encrypted(running.address(), made.cert.der()).await;
    assert_eq!(get(stream, "/v1/health", None).await.0, 200);
    let plain = TcpStream::connect(running.address()).await.unwrap();
    assert_eq!(get(plain, "/v1/health", None).await.0, 0, "nothing is said in the clear");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let files = TlsFiles { certificate: directory.path().join("cert.pem"), key: directory.path().join("key.pem") };
    let with = |files: &TlsFiles| ServerConfig { tls: Some(files.clone()), ..config() };
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
