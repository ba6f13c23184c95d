//! Messages that a client streams to us.

use axum::body::{Body, BodyDataStream};
use box_e2b_wire::{Code, Decoder, EnvelopeKind, RpcError};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;

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
                Some(Err(error)) => return Err(super::unreadable(&error)),
                None => return self.decoder.finish().map(|()| None).map_err(wrong),
            }
        }
    }
}
