//! Bodies and queries: named values that were read strictly, and become one of our types or a refusal that names the field.

mod lax;
mod names;
mod strict;

use std::cell::Cell;

use axum::body::BodyDataStream;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::response::{IntoResponse, Response};
use box_core::service::Buffered;
use box_core::{Caller, Service, TenantId};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::{Extensions, HeaderMap, StatusCode, header, request::Parts};
use serde::de::{DeserializeOwned, value::MapDeserializer};
use serde_json::{Map, Value};
use tokio::time::timeout;

pub use lax::{
    fraction, maybe_null_text, number, number_u16, number_u32, optional_text, text, text_list, text_map, whole,
    yes_or_no,
};
pub use names::nearest;
pub use strict::object;

use crate::failure::Failure;
use crate::limits;

/// A body of JSON. Without any body it is as if `{}` had been sent.
#[derive(Debug)]
pub struct Body<T>(pub T);

/// The part of a URL behind `?`.
#[derive(Debug)]
pub struct Params<T>(pub T);

/// The budget that a body counts against until it is complete. It travels in the extensions of a request.
#[derive(Debug, Clone)]
pub struct ChargedTo {
    service: Service,
    tenant: TenantId,
}

impl ChargedTo {
    /// The tenant of a caller.
    pub fn new(service: &Service, caller: &Caller) -> Self {
        Self { service: service.clone(), tenant: caller.tenant.clone() }
    }

    /// The budget for the bytes of a request. None before its caller is known.
    pub fn held(extensions: &Extensions) -> Option<Buffered> {
        extensions.get::<Self>().map(|charged| charged.service.buffered(&charged.tenant))
    }
}

/// A body as it came.
#[derive(Debug)]
pub struct Raw(pub Bytes);

/// A type that is parsed from named values.
pub trait FromFields: Sized {
    /// Takes what it knows out of the fields.
    fn take_from(fields: &mut Fields) -> Result<Self, Failure>;

    /// Takes all fields and refuses unknown ones.
    fn from_fields(mut fields: Fields) -> Result<Self, Failure> {
        let taken = Self::take_from(&mut fields)?;
        fields.finish()?;
        Ok(taken)
    }
}

/// Named values that are not yet anything.
#[derive(Debug, Default)]
pub struct Fields {
    left: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Fields {
    /// Reads a JSON object. Each name may occur once, at every depth.
    pub fn from_json(bytes: &[u8]) -> Result<Self, Failure> {
        let left = if bytes.is_empty() { Map::new() } else { strict::object(bytes)? };
        Ok(Self { left, known: Vec::new() })
    }

    fn from_pairs(pairs: Vec<(String, String)>) -> Result<Self, Failure> {
        let mut left = Map::new();
        for (name, value) in pairs {
            if left.insert(name.clone(), Value::String(value)).is_some() {
                return Err(Failure::invalid(&name, format!("{name} is given twice; give it once")));
            }
        }
        Ok(Self { left, known: Vec::new() })
    }

    /// Whether a field is present and was not taken yet.
    pub fn has(&self, name: &str) -> bool {
        self.left.contains_key(name)
    }

    /// Takes the fields of one type. A value that does not fit is refused by the name of its field.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let names = names::of::<T>();
        self.known.extend(names);
        let current = Cell::new("");
        let left = &mut self.left;
        let entries = names.iter().filter_map(|name| left.remove(*name).map(|value| (*name, value)));
        let entries = entries.inspect(|(name, _)| current.set(name));
        T::deserialize(MapDeserializer::new(entries)).map_err(|error: serde_json::Error| {
            let field = current.get();
            Failure::invalid(field, format!("invalid {field}: {error}"))
        })
    }

    /// Refuses what was not taken.
    pub fn finish(self) -> Result<(), Failure> {
        let Some(name) = self.left.keys().next() else { return Ok(()) };
        let shown: String = name.chars().take(64).collect();
        let failure = Failure::invalid(&shown, format!("{shown:?} is not known here"));
        Err(match names::nearest(name, &self.known) {
            Some(near) => failure.hint(format!("did you mean {near}?")),
            None => failure.hint(format!("known are {}", self.known.join(", "))),
        })
    }
}

impl<T: FromFields, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Response> {
        let read = async {
            let kind = check_is_json(request.headers());
            let bytes = read_all(request, limits::BODY_BYTES_MAX).await?;
            if !bytes.is_empty() {
                kind?;
            }
            T::from_fields(Fields::from_json(&bytes)?)
        };
        read.await.map(Self).map_err(IntoResponse::into_response)
    }
}

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Response;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Response> {
        read_all(request, limits::BODY_BYTES_MAX).await.map(Self).map_err(IntoResponse::into_response)
    }
}

impl<T: FromFields, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Response> {
        let read = || {
            let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
                .map_err(|error| Failure::invalid("query", format!("the query cannot be read: {error}")))?;
            T::from_fields(Fields::from_pairs(pairs)?)
        };
        read().map(Self).map_err(IntoResponse::into_response)
    }
}

/// A body that says what it is must say that it is JSON. One that says nothing is taken at its word.
pub fn check_is_json(headers: &HeaderMap) -> Result<(), Failure> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    let failure = Failure::from_status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    Err(failure.hint("add the header `Content-Type: application/json`; with curl, use --json instead of -d"))
}

/// Reads a body that is neither too large nor too slow.
pub async fn read_all(request: Request, bytes_max: usize) -> Result<Bytes, Failure> {
    read_held(request, bytes_max).await.map(|(whole, _)| whole)
}

/// The same, with what its bytes count against: keep it for as long as they are held.
pub async fn read_held(request: Request, bytes_max: usize) -> Result<(Bytes, Option<Buffered>), Failure> {
    let announced = announced(request.headers());
    let mut held = ChargedTo::held(request.extensions());
    let mut pieces = request.into_body().into_data_stream();
    if announced.is_some_and(|bytes| bytes > bytes_max as u64) {
        return Err(too_large(&mut pieces, bytes_max).await);
    }
    let whole = timeout(limits::BODY_TIME_MAX, read_pieces(&mut pieces, bytes_max, held.as_mut())).await;
    match whole.unwrap_or_else(|_| Err(too_slow()))? {
        Some(whole) => Ok((whole, held)),
        None => Err(too_large(&mut pieces, bytes_max).await),
    }
}

/// How long the body is, if the head of the request says so.
pub fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok())
}

/// The next piece of a body; nothing at its end.
pub async fn next_piece(pieces: &mut BodyDataStream) -> Result<Option<Bytes>, Failure> {
    let piece = timeout(limits::BODY_PAUSE_MAX, pieces.next()).await.map_err(|_| too_slow())?;
    let bad = |_| Failure::new(StatusCode::BAD_REQUEST, "bad_request", "the body ended before it was complete");
    piece.transpose().map_err(bad)
}

/// A whole body; nothing when it is too large.
async fn read_pieces(
    pieces: &mut BodyDataStream,
    bytes_max: usize,
    mut held: Option<&mut Buffered>,
) -> Result<Option<Bytes>, Failure> {
    let mut whole = BytesMut::new();
    loop {
        let Some(piece) = next_piece(pieces).await? else { return Ok(Some(whole.freeze())) };
        if whole.len() + piece.len() > bytes_max {
            return Ok(None);
        }
        if let Some(held) = &mut held {
            held.resize(whole.len() + piece.len())?;
        }
        whole.extend_from_slice(&piece);
    }
}

async fn too_large(rest: &mut BodyDataStream, bytes_max: usize) -> Failure {
    discard(rest).await;
    let message = format!("a body may have at most {bytes_max} bytes");
    Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

/// Throws the rest of a body away, so that a client that is still writing comes to read the answer.
pub async fn discard(rest: &mut BodyDataStream) {
    let discard = async {
        let mut discarded = 0;
        while let Some(Ok(piece)) = rest.next().await
            && discarded < limits::BODY_DISCARD_BYTES_MAX
        {
            discarded += piece.len();
        }
    };
    // The answer is the same however much could be thrown away.
    let _ = timeout(limits::BODY_DISCARD_TIME_MAX, discard).await;
}

pub fn too_slow() -> Failure {
    Failure::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body came too slowly; send it again")
}

#[cfg(test)]
mod tests;
