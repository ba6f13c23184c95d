//! One request over one connection.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::Error;

/// A connection of any kind.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection whose two ends have agreed on another protocol than HTTP.
pub type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

/// The error of a body.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The body of a request. One type for all, so that the protocol is compiled once.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body of any kind as a [`Body`].
pub fn body<B>(body: B) -> Body
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// A body without bytes.
pub fn empty() -> Body {
    body(Empty::new())
}

/// A body that is in memory.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    body(Full::new(bytes.into()))
}

/// Sends a request over a connection that is used for nothing else, and waits for the head of the answer.
pub async fn send(stream: Box<dyn Io>, request: Request<Body>) -> hyper::Result<Answer> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The sender and the body report errors of the connection.
    let connection = tokio::spawn(async move { drop(connection.with_upgrades().await) });
    let connection = AbortOnDropHandle::new(connection);
    let response = sender.send_request(request).await?;
    Ok(Answer { response, connection })
}

/// An answer whose body is still on its way. Dropping it closes the connection.
pub struct Answer {
    response: Response<Incoming>,
    connection: AbortOnDropHandle<()>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl Answer {
    /// The status.
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The next piece of the body; `None` at its end. Waits no longer than `silence`, if there is a bound.
    pub async fn piece(&mut self, silence: Option<Duration>) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = self.response.body_mut().frame();
            let frame = match silence {
                Some(silence) => timeout(silence, frame).await.map_err(|_| Error::Timeout)?,
                None => frame.await,
            };
            let Some(frame) = frame else { return Ok(None) };
            match frame?.into_data() {
                Ok(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                _ => {}
            }
        }
    }

    /// The whole body.
    pub async fn read(&mut self, bytes_max: u64, silence: Option<Duration>) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(silence).await? {
            if (bytes.len() + piece.len()) as u64 > bytes_max {
                return Err(Error::TooLarge { bytes_max });
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// The connection after the server has switched to another protocol.
    pub async fn upgraded(mut self) -> hyper::Result<Upgraded> {
        hyper::upgrade::on(&mut self.response).await.map(TokioIo::new)
    }

    /// The answer as hyper has it. Its connection ends with the body.
    pub fn into_response(self) -> Response<Incoming> {
        drop(self.connection.detach());
        self.response
    }
}
