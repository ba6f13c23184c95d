//! Identifies clients of this door by their headers and addresses.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, StatusCode};
use subtle::ConstantTimeEq;

use super::tenancy::InstanceId;
use super::{Client, LangBot};
use door_http::gate::Peer;
use door_http::observe::Verbatim;

/// The header that names the client's instance. Clients that know nothing of instances do not send it.
pub(super) const INSTANCE: HeaderName = HeaderName::from_static("x-langbot-instance-id");
/// The header with the secret that client and server share.
const CONTROL_TOKEN: HeaderName = HeaderName::from_static("x-langbot-box-control-token");

/// What to do with the first instance that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Newcomer {
    /// It is the only one from now on.
    Pin,
    /// It is turned away: only one that was pinned before may come.
    Refuse,
}

/// A refusal without a reason, so that a stranger learns nothing from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unauthorized;

impl IntoResponse for Unauthorized {
    fn into_response(self) -> Response {
        Verbatim::wrap((StatusCode::UNAUTHORIZED, "Unauthorized").into_response())
    }
}

/// Identifies a client. Without a shared secret only programs of this machine are admitted, and over TCP only while the
/// other doors need no token either, unless the operator allows strangers.
pub(crate) async fn identify(
    door: &LangBot,
    peer: Peer,
    headers: &HeaderMap,
    newcomer: Newcomer,
) -> Result<Client, Unauthorized> {
    match &door.config().control_token {
        Some(token) => check_token(token, headers)?,
        None if door.config().legacy || peer == Peer::Unix => {}
        None if peer.is_local() && door.state().tokens().is_empty().await.unwrap_or(false) => {}
        None => return Err(Unauthorized),
    }
    door.client(headers, newcomer)
}

impl LangBot {
    fn client(&self, headers: &HeaderMap, newcomer: Newcomer) -> Result<Client, Unauthorized> {
        let mut named = headers.get_all(INSTANCE).iter();
        match (named.next(), named.next()) {
            (None, _) if self.config().control_token.is_none() && self.config().trusted_instance.is_none() => {
                Ok(Client::Legacy)
            }
            (Some(value), None) => {
                let id = value.to_str().ok().and_then(InstanceId::parse).ok_or(Unauthorized)?;
                self.pinned(id, newcomer).map(Client::Tenant)
            }
            _ => Err(Unauthorized),
        }
    }

    fn pinned(&self, id: InstanceId, newcomer: Newcomer) -> Result<InstanceId, Unauthorized> {
        let pinned = match newcomer {
            Newcomer::Pin => self.0.instance.get_or_init(|| id.clone()),
            Newcomer::Refuse => self.0.instance.get().ok_or(Unauthorized)?,
        };
        if *pinned == id { Ok(id) } else { Err(Unauthorized) }
    }
}

/// Takes as long for a wrong token as for the right one.
fn check_token(expected: &str, headers: &HeaderMap) -> Result<(), Unauthorized> {
    let mut shown = headers.get_all(CONTROL_TOKEN).iter();
    let (Some(token), None) = (shown.next(), shown.next()) else { return Err(Unauthorized) };
    if bool::from(token.as_bytes().ct_eq(expected.as_bytes())) { Ok(()) } else { Err(Unauthorized) }
}
