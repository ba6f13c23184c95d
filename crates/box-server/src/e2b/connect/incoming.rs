//! Messages that a client streams to us.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use box_e2b_wire::{Code, Decoder, EnvelopeKind, RpcError, limits};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// How long the end of a request may come after its message.
const END_TIME_MAX: Duration = Duration::from_secs(1);

/// The messages of a request, one after the other. At most one is held.
#[derive(Debug)]
pub(crate) struct Incoming {
    body: BodyDataStream,
    decoder: Decoder,
}

impl Incoming {
    /// Those of a body.
    pub(crate) fn new(body: Body) -> Self {
        Self { body: body.into_data_stream(), decoder: Decoder::default() }
    }

    /// Those of a body with input for a process.
    pub(crate) fn with_input(body: Body) -> Self {
        Self { body: body.into_data_stream(), decoder: Decoder::taking(limits::INPUT_MESSAGE_BYTES_MAX) }
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
        loop {
            match self.decoder.next_envelope().map_err(wrong)? {
                Some(envelope) if envelope.kind == EnvelopeKind::End => return Ok(None),
                Some(envelope) => return super::parse(&envelope.bytes).map(Some),
                None => {}
            }
            match self.body.next().await {
                Some(Ok(piece)) => self.decoder.push(&piece),
                Some(Err(error)) => return Err(super::unreadable(&error, limits::MESSAGE_BYTES_MAX)),
                None => return self.decoder.finish().map(|()| None).map_err(wrong),
            }
        }
    }
}
