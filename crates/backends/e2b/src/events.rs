//! What a process in a sandbox says, as it comes out of a stream that a stranger writes.

use std::fmt;
use std::pin::Pin;

use box_e2b_wire::code::EndOfStream;
use box_e2b_wire::process::{Event, EventMessage};
use box_e2b_wire::{Decoder, EnvelopeKind};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use reqwest::Response;
use tokio::time::timeout;

use crate::failure::Failure;
use crate::http;
use crate::limits::SILENCE_MAX;

/// The events of one process.
pub(crate) struct Events {
    body: Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>,
    decoder: Decoder,
    is_over: bool,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl Events {
    /// Those of an answer, if it is a stream at all.
    pub(crate) async fn of(answer: Response) -> Result<Self, Failure> {
        let status = answer.status();
        if !status.is_success() {
            return Err(refused(status.as_u16(), &http::body(answer).await?));
        }
        let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.starts_with("application/connect+json") {
            return Err(Failure::Broken(format!("the sandbox answers with {kind:?} where a stream was expected")));
        }
        Ok(Self { body: Box::pin(answer.bytes_stream()), decoder: Decoder::default(), is_over: false })
    }

    /// The next meaningful event; none after the last. A stream that ends without its end message is broken.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        while !self.is_over {
            let Some(envelope) = self.decoder.next_envelope()? else {
                self.receive().await?;
                continue;
            };
            if envelope.kind == EnvelopeKind::End {
                self.is_over = true;
                let end: EndOfStream = serde_json::from_slice(&envelope.bytes).map_err(not_understood)?;
                return end.error.map_or(Ok(None), |error| Err(Failure::of_rpc(&error)));
            }
            let message: EventMessage = serde_json::from_slice(&envelope.bytes).map_err(not_understood)?;
            if !matches!(message.event, Event::Keepalive | Event::Unknown) {
                return Ok(Some(message.event));
            }
        }
        Ok(None)
    }

    async fn receive(&mut self) -> Result<(), Failure> {
        match timeout(SILENCE_MAX, self.body.next()).await {
            Err(_) => Err(Failure::Broken("the stream of a sandbox was silent for too long".to_owned())),
            Ok(None) => Err(Failure::Broken("the stream of a sandbox broke off".to_owned())),
            Ok(Some(Err(_))) => Err(Failure::Broken("the stream of a sandbox was cut".to_owned())),
            Ok(Some(Ok(bytes))) => {
                self.decoder.push(&bytes);
                Ok(())
            }
        }
    }
}

/// The failure that a response means which is not a stream.
fn refused(status: u16, body: &[u8]) -> Failure {
    match serde_json::from_slice(body) {
        Ok(error) => Failure::of_rpc(&error),
        Err(_) => Failure::of_answer(status, body),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where errors are mapped")]
fn not_understood(error: serde_json::Error) -> Failure {
    Failure::Broken(format!("unexpected message of the sandbox: {error}"))
}
