//! WebSockets as a stranger opens them.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message, http};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// How long a message may take. Only a guard against hanging.
const LIMIT: Duration = Duration::from_secs(30);

/// An open WebSocket.
pub(crate) struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// The subprotocol that was agreed on.
    pub(crate) protocol: String,
}

/// What the server says on a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Said {
    /// Output: the number of the stream, and bytes.
    Output(u8, Vec<u8>),
    /// A message.
    Text(String),
    /// The end, with its code.
    Closed(Option<u16>),
}

/// The status of an upgrade that was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) u16);

fn request(url: &str, path: &str, headers: &[(&str, &str)]) -> Result<http::Request<()>> {
    box_tests::http::note("GET", path);
    let mut request = format!("{}{path}", url.replacen("http", "ws", 1)).into_client_request()?;
    for (name, value) in headers {
        request.headers_mut().insert(http::HeaderName::from_bytes(name.as_bytes())?, value.parse()?);
    }
    Ok(request)
}

/// Holds that an upgrade is refused, and returns with which status.
pub(crate) async fn refused(url: &str, path: &str, headers: &[(&str, &str)]) -> Result<Refused> {
    match tokio_tungstenite::connect_async(request(url, path, headers)?).await {
        Err(Error::Http(response)) => Ok(Refused(response.status().as_u16())),
        Err(error) => bail!("{path}: {error}"),
        Ok(_) => bail!("{path} was upgraded"),
    }
}

impl Socket {
    /// Opens a WebSocket.
    pub(crate) async fn open(url: &str, path: &str, headers: &[(&str, &str)]) -> Result<Self> {
        // Output comes in messages of 64 KiB; a line of the relay may be 16 MiB.
        let config = WebSocketConfig::default().max_message_size(Some(32 << 20)).max_frame_size(Some(32 << 20));
        let request = request(url, path, headers)?;
        let (stream, response) = tokio_tungstenite::connect_async_with_config(request, Some(config), true).await?;
        let protocol = response.headers().get("sec-websocket-protocol").and_then(|value| value.to_str().ok());
        Ok(Self { stream, protocol: protocol.unwrap_or_default().to_owned() })
    }

    /// Sends a text.
    pub(crate) async fn text(&mut self, text: impl Into<String>) -> Result<()> {
        Ok(self.stream.send(Message::text(text.into())).await?)
    }

    /// Sends bytes.
    pub(crate) async fn bytes(&mut self, bytes: impl Into<Vec<u8>>) -> Result<()> {
        Ok(self.stream.send(Message::binary(bytes.into())).await?)
    }

    /// Sends bytes below the protocol: what no honest client would.
    pub(crate) async fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes).await?;
        Ok(stream.flush().await?)
    }

    /// The next thing that the server says.
    pub(crate) async fn next(&mut self) -> Result<Said> {
        loop {
            let message = tokio::time::timeout(LIMIT, self.stream.next()).await.context("nothing more was said")?;
            match message {
                None | Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => return Ok(Said::Closed(None)),
                Some(Ok(Message::Close(frame))) => return Ok(Said::Closed(frame.map(|frame| frame.code.into()))),
                Some(Ok(Message::Text(text))) => return Ok(Said::Text(text.to_string())),
                Some(Ok(Message::Binary(bytes))) => {
                    ensure!(!bytes.is_empty(), "an empty message");
                    return Ok(Said::Output(bytes[0], bytes[1..].to_vec()));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
            }
        }
    }

    /// The next thing, which must be a text that is JSON of this type.
    pub(crate) async fn told(&mut self, kind: &str) -> Result<Value> {
        match self.next().await? {
            Said::Text(text) => {
                let value: Value = serde_json::from_str(&text)?;
                ensure!(value["type"] == kind, "{value} instead of {kind}");
                Ok(value)
            }
            other => bail!("{other:?} instead of {kind}"),
        }
    }

    /// The next thing, which must be a text.
    pub(crate) async fn line(&mut self) -> Result<String> {
        match self.next().await? {
            Said::Text(text) => Ok(text),
            other => bail!("{other:?} instead of a line"),
        }
    }

    /// Collects output of a stream until it holds `text`.
    pub(crate) async fn until(&mut self, text: &str) -> Result<String> {
        let mut seen = Vec::new();
        loop {
            match self.next().await? {
                Said::Output(_, bytes) => seen.extend(bytes),
                other => bail!("{other:?} instead of {text:?} after {:?}", String::from_utf8_lossy(&seen)),
            }
            let so_far = String::from_utf8_lossy(&seen);
            if so_far.contains(text) {
                return Ok(so_far.into_owned());
            }
        }
    }

    /// Collects output until the command ends: standard output, standard error, and the message about the end.
    pub(crate) async fn drain(&mut self) -> Result<(Vec<u8>, Vec<u8>, Value)> {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            match self.next().await? {
                Said::Output(1, bytes) => out.extend(bytes),
                Said::Output(2, bytes) => err.extend(bytes),
                Said::Text(text) => {
                    let value: Value = serde_json::from_str(&text)?;
                    if value["type"] == "ended" {
                        return Ok((out, err, value));
                    }
                }
                other => bail!("{other:?} before the end"),
            }
        }
    }

    /// Vanishes without a word.
    pub(crate) fn vanish(self) {
        drop(self);
    }
}
