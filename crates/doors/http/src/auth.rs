//! Authentication and scopes: a token becomes a caller, and a caller may do what its scopes allow.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use box_core::cached::Cached;
use box_core::token::{self, TokenRow};
use box_core::{Caller, Scope, Service, Store};
use http::{HeaderMap, HeaderValue, header, request::Parts};
use jiff::Timestamp;

use crate::body::ChargedTo;
use crate::failure::Failure;
use crate::gate::Peer;
use crate::state::ServerState;
use crate::{limits, seats};

/// Before this, a subprotocol of a WebSocket is a token. Browsers cannot set any other header there.
const PROTOCOL_PREFIX: &str = "bearer.";

/// Prefixes of tokens: of this server's form, and of E2B's.
const KEY_PREFIXES: [&str; 2] = ["sbx_", "e2b_"];

/// The tokens that open this door.
#[derive(Debug)]
pub struct Tokens {
    store: Arc<dyn Store>,
    rows: Cached<Arc<[TokenRow]>>,
    /// Told whether there are several tenants.
    service: Option<Service>,
}

/// The credentials of a request.
#[derive(Debug, PartialEq, Eq)]
enum Credential<'a> {
    Nothing,
    Token(&'a str),
    /// Credentials that are not exactly one token.
    Nonsense,
}

impl Tokens {
    /// Those of a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, rows: Cached::new(limits::TOKENS_AGE_MAX), service: None }
    }

    /// The same, and informs a service whether the tokens admit several tenants.
    #[must_use]
    pub fn telling(self, service: Service) -> Self {
        Self { service: Some(service), ..self }
    }

    /// Whether there is none at all, good or expired.
    pub async fn is_empty(&self) -> box_core::Result<bool> {
        Ok(self.rows().await?.is_empty())
    }

    async fn rows(&self) -> box_core::Result<Arc<[TokenRow]>> {
        let load = async {
            let rows = self.store.tokens().await?;
            if let Some(service) = &self.service {
                service.set_shared(has_several_tenants(&rows));
            }
            Ok(rows.into())
        };
        self.rows.get(load).await
    }

    /// The caller. Without a token only the owner of the machine is admitted: by the Unix socket always, over the
    /// loopback while there are no tokens, and then without the boxes of MCP servers.
    async fn caller(&self, peer: Peer, shown: &Credential<'_>) -> Result<Caller, Failure> {
        let rows = self.rows().await?;
        match shown {
            // The answer does not say why, so that a stranger learns nothing about tokens.
            Credential::Token(token) => {
                token::check(&rows, token, Timestamp::now()).map_err(|_| Failure::unauthorized())
            }
            Credential::Nothing if peer == Peer::Unix => Ok(Caller::local()),
            Credential::Nothing if rows.is_empty() && peer.is_local() => Ok(Caller::loopback()),
            Credential::Nothing | Credential::Nonsense => Err(Failure::unauthorized()),
        }
    }
}

impl Tokens {
    /// The caller with a key of E2B's form, which is a token in another spelling. Until a token exists, any key admits
    /// callers on this machine, because E2B's clients do not work without a key.
    pub async fn owner_of_key(&self, peer: Peer, key: &str) -> box_core::Result<Option<Caller>> {
        let rows = self.rows().await?;
        if key.is_empty() && peer == Peer::Unix {
            return Ok(Some(Caller::local()));
        }
        if rows.is_empty() && peer.is_local() && (key.is_empty() || token::is_e2b_key(key)) {
            return Ok(Some(if peer == Peer::Unix { Caller::local() } else { Caller::loopback() }));
        }
        Ok(token::check(&rows, key, Timestamp::now()).ok())
    }
}

/// Whether good tokens open the doors to more than one tenant.
fn has_several_tenants(rows: &[TokenRow]) -> bool {
    let now = Timestamp::now();
    let mut tenants = rows.iter().filter(|row| row.expires_at.is_none_or(|end| end > now)).map(|row| &row.tenant);
    let first = tenants.next();
    tenants.any(|tenant| Some(tenant) != first)
}

/// Finds the token of a request: in `Authorization`, or in the subprotocols of a WebSocket.
fn shown(headers: &HeaderMap) -> Credential<'_> {
    let by_header = headers.get_all(header::AUTHORIZATION).iter().map(|value| value.to_str().ok().and_then(bearer));
    let mut all: Vec<Option<&str>> = by_header.collect();
    if is_upgrade(headers) {
        let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
        let tokens =
            offered.flat_map(|value| value.split(',')).filter_map(|name| name.trim().strip_prefix(PROTOCOL_PREFIX));
        all.extend(tokens.map(Some));
    }
    match all.as_slice() {
        [] => Credential::Nothing,
        [Some(token)] if !token.is_empty() => Credential::Token(token),
        _ => Credential::Nonsense,
    }
}

/// The token in a value of `Authorization`, if that is the kind of thing it shows.
pub fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a value of `Authorization` or of another header for keys looks like a token of this server.
pub fn is_like_ours(value: &HeaderValue) -> bool {
    // Invalid text is not a token.
    let text = value.to_str().unwrap_or_default();
    let token = bearer(text).unwrap_or(text.trim());
    KEY_PREFIXES.iter().any(|prefix| token.starts_with(prefix))
}

/// Takes tokens out of the subprotocols that a WebSocket offers.
pub fn drop_token_protocols(headers: &mut HeaderMap) {
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let names = offered.flat_map(|value| value.split(',')).map(str::trim);
    let rest = names.filter(|name| !name.starts_with(PROTOCOL_PREFIX)).collect::<Vec<_>>().join(", ");
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if !rest.is_empty()
        && let Ok(rest) = HeaderValue::try_from(rest)
    {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, rest);
    }
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Admits a caller with the scope of a group of routes.
pub async fn admit(State((state, scope)): State<(ServerState, Scope)>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let caller = identify(&state, scope, &parts).await;
    enter(&state, caller, Request::from_parts(parts, body), next).await
}

/// Admits a caller that has one of several scopes; the handler decides which of them the request needs.
pub async fn admit_any(
    State((state, scopes)): State<(ServerState, &'static [Scope])>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let caller = identify_any(&state, scopes, &parts).await;
    enter(&state, caller, Request::from_parts(parts, body), next).await
}

async fn enter(state: &ServerState, caller: Result<Caller, Failure>, mut request: Request, next: Next) -> Response {
    match caller {
        Ok(caller) => {
            tracing::Span::current().record("caller.subject", caller.subject.as_str());
            request.extensions_mut().insert(ChargedTo::new(state.service(), &caller));
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    }
}

/// Whether a request presents a token of this server.
pub fn shows_token(headers: &HeaderMap) -> bool {
    shown(headers) != Credential::Nothing
}

/// The caller, if it has the scope of a group of routes.
pub async fn identify(state: &ServerState, scope: Scope, head: &Parts) -> Result<Caller, Failure> {
    identify_any(state, &[scope], head).await
}

/// The caller, if it has one of these scopes.
async fn identify_any(state: &ServerState, scopes: &[Scope], head: &Parts) -> Result<Caller, Failure> {
    let peer = head.extensions.get::<Peer>().copied().ok_or_else(Failure::unauthorized)?;
    let caller = state.tokens().caller(peer, &shown(&head.headers)).await?;
    seats::trust(&head.extensions);
    let mut missing = None;
    for scope in scopes {
        match caller.require(*scope) {
            Ok(()) => return Ok(caller),
            Err(error) => drop(missing.get_or_insert(error)),
        }
    }
    missing.map_or(Ok(caller), |error| Err(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MemoryStore, token};
    use box_core::TenantId;
    use box_core::token::mint;

    const TCP: &str = "127.0.0.1:1";
    const FAR: &str = "192.0.2.9:1";

    fn peer(remote: &str) -> Peer {
        Peer::Tcp { local: "127.0.0.1:5410".parse().unwrap(), remote: remote.parse().unwrap() }
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
        pairs.iter().map(pair).collect()
    }

    async fn subject(tokens: &[TokenRow], peer: Peer, pairs: &[(&str, &str)]) -> Option<String> {
        let known = Tokens::new(Arc::new(MemoryStore::with(tokens)));
        known.caller(peer, &shown(&headers(pairs))).await.ok().map(|caller| caller.subject)
    }

    #[tokio::test]
    async fn without_tokens_only_this_machine_comes_in() {
        assert_eq!(subject(&[], peer(TCP), &[]).await.as_deref(), Some("local"));
        assert_eq!(subject(&[], peer("[::1]:9"), &[]).await.as_deref(), Some("local"));
        assert_eq!(subject(&[], peer("[::ffff:127.0.0.1]:9"), &[]).await.as_deref(), Some("local"));
        assert_eq!(subject(&[], Peer::Unix, &[]).await.as_deref(), Some("local"));
        assert_eq!(subject(&[], peer(FAR), &[]).await, None);
        assert_eq!(subject(&[], peer(TCP), &[("authorization", "Bearer x")]).await, None, "an unknown token");
    }

    #[tokio::test]
    async fn a_key_is_a_token_and_any_will_do_while_there_is_none() {
        let made = mint("alice", TenantId::default(), [Scope::Exec].into(), None, Timestamp::now());
        let (secret, row) = made.unwrap();
        let owner = async |rows: &[TokenRow], remote: &str, key: &str| {
            let known = Tokens::new(Arc::new(MemoryStore::with(rows)));
            known.owner_of_key(peer(remote), key).await.unwrap().map(|caller| caller.subject)
        };
        let (any, own) = ("e2b_00", secret.expose_as_e2b_key());
        assert_eq!(owner(&[], TCP, any).await.as_deref(), Some("local"));
        assert_eq!(owner(&[], TCP, "").await.as_deref(), Some("local"));
        let free = Tokens::new(Arc::new(MemoryStore::with(&[])));
        for key in [any, ""] {
            assert_eq!(free.owner_of_key(peer(TCP), key).await.unwrap(), Some(Caller::loopback()), "{key}");
            assert_eq!(free.owner_of_key(Peer::Unix, key).await.unwrap(), Some(Caller::local()), "{key}");
        }
        for bad in ["e2b_", "x", "sbx_0_0"] {
            assert_eq!(owner(&[], TCP, bad).await, None, "{bad}");
        }
        assert_eq!(owner(&[], FAR, any).await, None);
        let rows = [row];
        assert_eq!(owner(&rows, TCP, any).await, None);
        assert_eq!(owner(&rows, TCP, "").await, None);
        for remote in [TCP, FAR] {
            assert_eq!(owner(&rows, remote, &own).await.as_deref(), Some("token:alice"));
            assert_eq!(owner(&rows, remote, secret.expose()).await.as_deref(), Some("token:alice"));
        }
    }

    #[tokio::test]
    async fn once_there_is_a_token_the_loopback_needs_one_too() {
        let (secret, row) = token("alice");
        let rows = [row];
        let bearer = format!("Bearer {secret}");
        assert_eq!(subject(&rows, peer(TCP), &[]).await, None);
        assert_eq!(subject(&rows, Peer::Unix, &[]).await.as_deref(), Some("local"));
        for remote in [TCP, FAR] {
            let shown = [("authorization", bearer.as_str())];
            assert_eq!(subject(&rows, peer(remote), &shown).await.as_deref(), Some("token:alice"));
        }
        assert_eq!(
            subject(&rows, Peer::Unix, &[("authorization", "Bearer x")]).await,
            None,
            "a bad one is never ignored"
        );
    }

    #[tokio::test]
    async fn a_token_that_is_not_exactly_one_good_one_opens_nothing() {
        let (secret, row) = token("alice");
        let rows = [row];
        let written = |prefix: &str, suffix: &str| format!("{prefix}{secret}{suffix}");
        let (good, long, short) = (written("Bearer ", ""), written("Bearer ", "0"), written("Bearer ", ""));
        let (basic, bare, cookie) = (written("Basic ", ""), written("", ""), written("token=", ""));
        let protocol = written("bearer.", "");
        let header = "authorization";
        let table: [&[(&str, &str)]; 12] = [
            &[(header, "")],
            &[(header, "Bearer ")],
            &[(header, "Bearer")],
            &[(header, "Bearer x")],
            &[(header, &long)],
            &[(header, &short[..short.len() - 1])],
            &[(header, &basic)],
            &[(header, &bare)],
            &[(header, "Bearer x"), (header, &good)],
            &[(header, &good), (header, &good)],
            &[("cookie", &cookie)],
            &[("sec-websocket-protocol", &protocol)],
        ];
        for pairs in table {
            assert_eq!(subject(&rows, peer(TCP), pairs).await, None, "{pairs:?}");
        }
        let lower = written("bearer ", "");
        assert!(subject(&rows, peer(TCP), &[(header, &lower)]).await.is_some(), "any case of the scheme");
    }

    #[tokio::test]
    async fn a_browser_shows_its_token_as_a_subprotocol() {
        let (secret, row) = token("alice");
        let rows = [row];
        let upgrade = ("upgrade", "websocket");
        let offered = |value| ("sec-websocket-protocol", value);
        let (both, two) = (format!("strongbox.v1, bearer.{secret}"), format!("bearer.{secret}, bearer.x"));
        let good = [upgrade, offered(both.as_str())];
        assert_eq!(subject(&rows, peer(TCP), &good).await.as_deref(), Some("token:alice"));
        for bad in ["strongbox.v1", "bearer.x", two.as_str(), "bearer."] {
            assert_eq!(subject(&rows, peer(TCP), &[upgrade, offered(bad)]).await, None, "{bad}");
        }
    }

    #[tokio::test]
    async fn an_expired_token_opens_nothing_and_still_counts_as_one() {
        let (secret, row) = token("alice");
        let rows = [TokenRow { expires_at: Some(Timestamp::UNIX_EPOCH), ..row }];
        assert_eq!(subject(&rows, peer(TCP), &[("authorization", &format!("Bearer {secret}"))]).await, None);
        assert_eq!(subject(&rows, peer(TCP), &[]).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_token_is_forgotten_within_a_second() {
        let (secret, row) = token("alice");
        let store = Arc::new(MemoryStore::with(&[row]));
        let known = Tokens::new(Arc::clone(&store) as Arc<dyn Store>);
        let shown = Credential::Token(&secret);
        assert!(known.caller(peer(TCP), &shown).await.is_ok());
        store.set(&[token("bob").1]);
        assert!(known.caller(peer(TCP), &shown).await.is_ok(), "still known");
        tokio::time::advance(limits::TOKENS_AGE_MAX).await;
        assert!(known.caller(peer(TCP), &shown).await.is_err());
        assert_eq!(store.reads(), 2);
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_read_lets_nobody_in() {
        let store = MemoryStore::with(&[]);
        store.break_it();
        let known = Tokens::new(Arc::new(store));
        let failure = known.caller(peer(TCP), &Credential::Nothing).await.unwrap_err();
        assert_eq!(failure.status().as_u16(), 500);
    }
}
