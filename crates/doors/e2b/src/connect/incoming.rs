//! Messages that a client streams to us.

use std::time::Duration;

use axum::body::BodyDataStream;
use axum::extract::Request;
use box_core::service::Buffered;
use box_e2b_wire::{Code, Decoder, EnvelopeKind, RpcError, limits};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{told, unreadable};
use door_http::body::{ChargedTo, next_piece};

/// How long the end of a request may come after its message.
const END_TIME_MAX: Duration = Duration::from_secs(1);

/// The messages of a request, one after the other. At most one is held.
#[derive(Debug)]
pub(crate) struct Incoming {
    body: BodyDataStream,
    decoder: Decoder,
    /// What the message counts against, from its first byte until the next one is asked for.
    held: Option<Buffered>,
}

impl Incoming {
    /// Those of a request.
    pub(crate) fn new(request: Request) -> Self {
        Self::taking(request, limits::MESSAGE_BYTES_MAX)
    }

    /// Those of a request with input for a process.
    pub(crate) fn with_input(request: Request) -> Self {
        Self::taking(request, limits::INPUT_MESSAGE_BYTES_MAX)
    }

    fn taking(request: Request, bytes_max: usize) -> Self {
        let held = ChargedTo::held(request.extensions());
        Self { body: request.into_body().into_data_stream(), decoder: Decoder::taking(bytes_max), held }
    }

    /// Reads what follows the last message, which is the end of the body. hyper closes a connection whose request was not read to its
    /// end, and the client's pool may have taken the connection for the next request by then.
    pub(crate) async fn read_to_end(&mut self) {
        // A client that keeps its request open gets its answer all the same.
        let _ = timeout(END_TIME_MAX, async { while let Some(Ok(_)) = self.body.next().await {} }).await;
    }

    /// The next message; nothing when the client has said everything.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, RpcError> {
        let wrong = |error: box_e2b_wire::EnvelopeError| RpcError::new(Code::InvalidArgument, error.to_string());
        self.hold(0)?;
        loop {
            match self.decoder.next_envelope().map_err(wrong)? {
                Some(envelope) if envelope.kind == EnvelopeKind::End => return Ok(None),
                Some(envelope) => return super::parse(&envelope.bytes).map(Some),
                None => {}
            }
            match self.piece().await? {
                Some(piece) => {
                    self.hold(piece.len())?;
                    self.decoder.push(&piece);
                }
                None => return self.decoder.finish().map(|()| None).map_err(wrong),
            }
        }
    }

    /// Counts what is held, and so many bytes more.
    fn hold(&mut self, more: usize) -> Result<(), RpcError> {
        let bytes = self.decoder.held_bytes() + more;
        self.held.as_mut().map_or(Ok(()), |held| held.resize(bytes).map_err(told))
    }

    /// The next piece of the body. A client may be silent between messages, but not for long within one.
    async fn piece(&mut self) -> Result<Option<Bytes>, RpcError> {
        if self.decoder.held_bytes() > 0 {
            return next_piece(&mut self.body).await.map_err(|failure| unreadable(&failure));
        }
        let broken = |error| RpcError::new(Code::InvalidArgument, format!("the request broke off: {error}"));
        self.body.next().await.transpose().map_err(broken)
    }
}
