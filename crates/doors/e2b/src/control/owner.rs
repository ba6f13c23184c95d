//! Who asks: whoever shows a key. Our tokens are keys, in the spelling that E2B's clients check.

use axum::extract::FromRequestParts;
use box_core::{Caller, Scope};
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};

use crate::app::App;
use crate::failure::E2bFailure;
use door_http::body::ChargedTo;
use door_http::gate::Peer;

/// The header with a key.
const API_KEY: &str = "x-api-key";

/// Who asks.
#[derive(Debug)]
pub(super) struct Owner(pub(super) Caller);

impl FromRequestParts<App> for Owner {
    type Rejection = E2bFailure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, E2bFailure> {
        let refused = || {
            let message =
                "a good key is needed: send a token of this server as X-API-KEY; `strongbox token create` makes one";
            E2bFailure::unauthorized(message)
        };
        let peer = parts.extensions.get::<Peer>().copied().ok_or_else(refused)?;
        let key = shown(&parts.headers).ok_or_else(refused)?;
        let caller = app.tokens().owner_of_key(peer, key).await?.ok_or_else(refused)?;
        door_http::seats::trust(&parts.extensions);
        caller.require(Scope::Exec)?;
        if let Some(bound) = &caller.session {
            let message =
                format!("the key is bound to session {bound}: use one that is not; sandboxes choose their own ids");
            return Err(E2bFailure::new(StatusCode::FORBIDDEN, message));
        }
        parts.extensions.insert(ChargedTo::new(app.service(), &caller));
        tracing::Span::current().record("caller.subject", caller.subject.as_str());
        Ok(Self(caller))
    }
}

/// The one key that a request shows, or an empty one; nothing when it shows several.
fn shown(headers: &HeaderMap) -> Option<&str> {
    let keys: Vec<_> = headers.get_all(API_KEY).iter().collect();
    let bearers: Vec<_> = headers.get_all(header::AUTHORIZATION).iter().collect();
    match (keys.as_slice(), bearers.as_slice()) {
        ([], []) => Some(""),
        ([key], _) => key.to_str().ok(),
        ([], [bearer]) => {
            let (scheme, token) = bearer.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        }
        _ => None,
    }
}
