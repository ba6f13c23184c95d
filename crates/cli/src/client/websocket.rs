//! A WebSocket to a server, made by an ordinary request so that a refusal is an ordinary error.

use ::http::{Method, StatusCode, header};
use box_http_client::Upgraded;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::failure;
use super::http::{Client, read};
use crate::fault::Fault;

/// Largest message that a server may send. Output comes in pieces of at most 1 MiB.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// A WebSocket.
pub(crate) type Socket = WebSocketStream<Upgraded>;

/// A WebSocket that was just opened.
#[derive(Debug)]
pub(crate) struct OpenedSocket {
    /// The connection.
    pub(crate) socket: Socket,
    /// By which the server's log knows it.
    pub(crate) request_id: Option<String>,
}

impl Client {
    /// Opens a WebSocket.
    pub(crate) async fn upgrade(&self, path: &str) -> Result<OpenedSocket, Fault> {
        let key = generate_key();
        let mut request = self.request(Method::GET, path)?;
        let headers = request.headers_mut();
        for (name, value) in [
            (header::CONNECTION, "Upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_VERSION, "13"),
            (header::SEC_WEBSOCKET_KEY, key.as_str()),
        ] {
            let value = value.parse().map_err(|error| Fault::new(format!("{name} cannot be sent: {error}")))?;
            headers.insert(name, value);
        }
        let opened = self.open(request).await?;
        if opened.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(failure::fault_of(&read(opened).await?));
        }
        let request_id = failure::request_id(opened.headers());
        let accept = opened.headers().get(header::SEC_WEBSOCKET_ACCEPT);
        if accept.and_then(|accept| accept.to_str().ok()) != Some(derive_accept_key(key.as_bytes()).as_str()) {
            return Err(Fault::new(format!("{} does not speak WebSocket", self.address)).hint("check --url"));
        }
        let broke =
            |error| Fault::new(format!("the connection to {} broke: {error}", self.address)).code("unreachable");
        let upgraded = opened.upgraded().await.map_err(broke)?;
        let config = WebSocketConfig::default().max_message_size(Some(MESSAGE_BYTES_MAX));
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await;
        Ok(OpenedSocket { socket, request_id })
    }
}
