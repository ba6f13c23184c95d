//! Bodies of E2B's clients: JSON in which unknown fields mean nothing, and no body is an empty one.

use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use box_e2b_wire::SandboxId;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::failure::E2bFailure;
use crate::limits;
use door_http::body;

/// What was sent, and what it was read as.
#[derive(Debug)]
pub(crate) struct Sent<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Sent<T> {
    type Rejection = E2bFailure;

    async fn from_request(request: Request, _state: &S) -> Result<Self, E2bFailure> {
        let kind = body::check_is_json(request.headers());
        let bytes = body::read_all(request, limits::BODY_BYTES_MAX).await?;
        // A page of another origin can send other kinds without being asked whether it may.
        if !bytes.is_empty() {
            kind?;
        }
        let text = if bytes.is_empty() { &b"{}"[..] } else { &bytes };
        let bad = |error: serde_json::Error| E2bFailure::invalid(format!("the body cannot be read: {error}"));
        serde_json::from_slice(text).map(Self).map_err(bad)
    }
}

/// The part of an address behind `?`. Names may come several times.
#[derive(Debug)]
pub(super) struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// The last value of a name.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All values of a name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Pairs {
    type Rejection = E2bFailure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, E2bFailure> {
        let bad = |error| E2bFailure::invalid(format!("the query cannot be read: {error}"));
        Query::try_from_uri(&parts.uri).map(|Query(pairs)| Self(pairs)).map_err(bad)
    }
}

/// A sandbox that the path names.
#[derive(Debug)]
pub(super) struct OfSandbox(pub(super) SandboxId);

impl<S: Send + Sync> FromRequestParts<S> for OfSandbox {
    type Rejection = E2bFailure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, E2bFailure> {
        let unreadable = |_| E2bFailure::invalid("the path is not UTF-8");
        let raw = RawPathParams::from_request_parts(parts, state).await.map_err(unreadable)?;
        let text = raw.iter().find(|(name, _)| *name == "sandbox_id").map_or("", |(_, value)| value);
        text.parse().map(Self).map_err(|_| absent(text))
    }
}

/// What is told of a sandbox that is not there, or not the caller's, which is the same to it.
pub(super) fn absent(sandbox: &str) -> E2bFailure {
    let shown: String = sandbox.chars().take(64).collect();
    E2bFailure::not_found(format!("sandbox \"{shown}\" was not found"))
}
