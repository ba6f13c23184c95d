//! MCP over HTTP: `/mcp` for all servers of the caller's tenant, `/mcp/{server}` for one of them, `/mcp/box` for our own tools.
//! All of them are also found with `/mcp` behind them, and a server and our own tools at `/{server}/mcp` and `/box/mcp`.
//!
//! Each address speaks streamable HTTP, and to clients that know nothing newer the two-way scheme of 2024-11-05: they open the same
//! address as a stream of events and are told where to post. Who the caller is stands in the request ([`Caller`], put there by
//! whoever checked the token, the host and the origin); what is not bound to that caller is not there for it.

mod identity;
mod legacy_sse;
mod pace;
mod plain;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use box_core::mcp::{McpServerName, OWN_TOOLS};
use box_core::{Caller, Scope, SessionId};
use http::{HeaderMap, Method, StatusCode, header};
use rmcp::ServerHandler;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::gateway::{Absence, Around, Gateway, Upstreams, View};
use crate::own::{Computer, Own};

pub use pace::Pace;

use identity::{Endpoint, Owner};
use legacy_sse::LegacySse;
use pace::Paces;
use sessions::{Bound, Sessions};

/// Largest message of a client, in bytes. Files go into tools as text.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// How often a stream without news shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// When a client may come back for a server that is starting.
const RETRY_AFTER_SEC: u64 = 2;
/// Most names of servers in one message.
const NAMES_MAX: usize = 16;
/// What clients that put `/mcp` behind `/mcp` ask for. A server of this name has it.
const ALL: &str = "mcp";
/// The session of our own tools when the client names none.
const OWN_SESSION: &str = "mcp";
/// Where a client names its session.
const SESSION_HEADER: &str = "mcp-session-id";
/// Where a client that knows streamable HTTP says which version it speaks.
const VERSION_HEADER: &str = "mcp-protocol-version";

/// MCP over HTTP. Cheap to clone.
#[derive(Clone)]
pub struct Door {
    inner: Arc<Inner>,
}

struct Inner {
    upstreams: Arc<dyn Upstreams>,
    around: Around,
    computer: Arc<dyn Computer>,
    sessions: Arc<Sessions>,
    legacy_sse: LegacySse,
    paces: Paces,
    stop: CancellationToken,
}

/// What may stand behind the question mark.
#[derive(Debug, Deserialize)]
struct EndpointQuery {
    /// The session of a client of 2024-11-05.
    session_id: Option<String>,
    /// The session in which our own tools work.
    session: Option<String>,
}

impl Door {
    /// A door to these servers and this computer. Its tasks are tracked, and end when it is closed.
    pub fn new(upstreams: Arc<dyn Upstreams>, computer: Arc<dyn Computer>, pace: Pace, tasks: TaskTracker) -> Self {
        let stop = CancellationToken::new();
        let inner = Inner {
            around: Around::new(Arc::clone(&upstreams), tasks.clone()),
            upstreams,
            computer,
            sessions: Arc::new(Sessions::new()),
            legacy_sse: LegacySse::new(tasks, stop.clone()),
            paces: Paces::new(pace),
            stop,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The routes. Whoever mounts them puts a [`Caller`] into the extensions of each request first.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/mcp", any(all))
            .route("/mcp/box", any(own))
            .route("/mcp/{server}", any(one))
            // Some clients put /mcp behind whatever address they are given. Behind /mcp, that is `one` too.
            .route("/mcp/box/mcp", any(own))
            .route("/mcp/{server}/mcp", any(one))
            // Others replace the last part of an address. Paths of other interfaces are more specific, so those win.
            .route("/box/mcp", any(own))
            .route("/{server}/mcp", any(one))
            .with_state(self.clone())
    }

    /// Ends all sessions. New ones are refused.
    pub async fn close(&self) {
        self.inner.stop.cancel();
        self.inner.sessions.close_all().await;
    }

    /// How many clients are connected.
    pub fn sessions(&self) -> usize {
        self.inner.sessions.count() + self.inner.legacy_sse.count()
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").field("sessions", &self.sessions()).finish_non_exhaustive()
    }
}

async fn all(State(door): State<Door>, Query(asked): Query<EndpointQuery>, request: Request) -> Response {
    door.enter(Endpoint::Servers(View::All), asked, request).await
}

async fn own(State(door): State<Door>, Query(asked): Query<EndpointQuery>, mut request: Request) -> Response {
    match working_session(asked.session.clone(), &mut request) {
        Ok(session) => door.enter(Endpoint::Own(session), asked, request).await,
        Err(error) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

/// The session in which our own tools work. An address that names one is bound to it: no argument of a tool names another.
fn working_session(named: Option<String>, request: &mut Request) -> box_core::Result<SessionId> {
    let caller = request.extensions_mut().get_mut::<Caller>();
    let only = caller.as_ref().and_then(|caller| caller.session.as_ref()?.only().cloned());
    match (named, only) {
        (Some(named), _) => {
            let session = SessionId::try_from(named)?;
            if let Some(caller) = caller {
                *caller = caller.clone().for_tools().bound_to(&session)?;
            }
            Ok(session)
        }
        (None, Some(only)) => Ok(only),
        (None, None) => Ok(OWN_SESSION.parse()?),
    }
}

async fn one(
    State(door): State<Door>,
    Path(server): Path<String>,
    Query(asked): Query<EndpointQuery>,
    request: Request,
) -> Response {
    match server.parse::<McpServerName>() {
        Ok(server) => {
            let view = door.view(server, request.extensions().get());
            door.enter(Endpoint::Servers(view), asked, request).await
        }
        Err(invalid) => refuse(StatusCode::NOT_FOUND, &invalid.to_string()),
    }
}

impl Door {
    /// What is at the address of a name.
    fn view(&self, name: McpServerName, caller: Option<&Caller>) -> View {
        let is_defined =
            |caller: &Caller| self.inner.upstreams.defined(caller).iter().any(|(defined, _)| *defined == name);
        let is_all = name.as_str() == ALL && !caller.is_some_and(is_defined);
        if is_all { View::All } else { View::One(name) }
    }

    /// Lets a request in, and finds out which of the two transports it is for.
    async fn enter(&self, endpoint: Endpoint, asked: EndpointQuery, mut request: Request) -> Response {
        let Some(caller) = request.extensions_mut().remove::<Caller>() else {
            return refuse(StatusCode::UNAUTHORIZED, "nobody said who is asking");
        };
        if let Some(refusal) = self.refusal(&caller) {
            return refusal;
        }
        // A session that exists goes on while its server is started again.
        let begins = asked.session_id.is_none() && !request.headers().contains_key(SESSION_HEADER);
        if begins && !self.is_there(&endpoint, &caller) {
            return self.not_there(&endpoint, &caller);
        }
        forget_secrets(request.headers_mut());
        let owner = Owner::new(&caller, endpoint.clone());
        match endpoint {
            Endpoint::Servers(view) => {
                let around = self.inner.around.clone();
                let handler = move || Gateway::new(around.clone(), caller.clone(), view.clone());
                self.serve(owner, handler, asked, request).await
            }
            Endpoint::Own(session) => {
                let (computer, upstreams) = (Arc::clone(&self.inner.computer), Arc::clone(&self.inner.upstreams));
                let handler = move || {
                    Own::new(Arc::clone(&computer), caller.clone(), session.clone()).counted(Arc::clone(&upstreams))
                };
                self.serve(owner, handler, asked, request).await
            }
        }
    }

    /// What is said to who has no right, or comes too often.
    fn refusal(&self, caller: &Caller) -> Option<Response> {
        if self.inner.stop.is_cancelled() {
            return Some(refuse(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping; try again in a moment"));
        }
        if let Err(error) = caller.require(Scope::Exec) {
            return Some(refuse(StatusCode::FORBIDDEN, &error.to_string()));
        }
        let wait = self.inner.paces.take(caller).err()?;
        let mut refusal = refuse(StatusCode::TOO_MANY_REQUESTS, "too many requests; wait and try again");
        refusal.headers_mut().insert(header::RETRY_AFTER, wait.as_secs().saturating_add(1).into());
        Some(refusal)
    }

    /// Whether there is anything at an address that the caller may use.
    fn is_there(&self, endpoint: &Endpoint, caller: &Caller) -> bool {
        let name = match endpoint {
            Endpoint::Servers(View::All) => return true,
            Endpoint::Servers(View::One(name)) => name,
            Endpoint::Own(_) => return caller.mcp.allows_some_of(OWN_TOOLS),
        };
        let connected = self.inner.upstreams.connected(caller);
        let alive = connected.iter().any(|server| server.name() == name && !server.is_closed());
        alive && caller.mcp.allows_some_of(name.as_str())
    }

    /// Says why there is nothing at an address. Who may not use a server is answered as if there were none.
    fn not_there(&self, endpoint: &Endpoint, caller: &Caller) -> Response {
        let Endpoint::Servers(View::One(name)) = endpoint else {
            return refuse(StatusCode::NOT_FOUND, "your token does not allow the tools of /mcp/box; see --mcp-allow");
        };
        let upstreams = &*self.inner.upstreams;
        if let Some(absence) = Absence::of(upstreams, caller, name.as_str()) {
            let mut refusal = refuse(StatusCode::SERVICE_UNAVAILABLE, &absence.to_string());
            if absence.passes() {
                refusal.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_SEC.into());
            }
            return refusal;
        }
        let defined = upstreams.defined(caller);
        let usable = defined.iter().map(|(name, _)| name.as_str()).filter(|name| caller.mcp.allows_some_of(name));
        let usable: Vec<&str> = usable.take(NAMES_MAX).collect();
        let known =
            if usable.is_empty() { "none is defined".to_owned() } else { format!("there is {}", usable.join(", ")) };
        let reason = format!("no MCP server is called {name}: {known}; define one with `strongbox mcp add`");
        refuse(StatusCode::NOT_FOUND, &reason)
    }

    async fn serve<S, H>(&self, owner: Owner, handler: H, asked: EndpointQuery, request: Request) -> Response
    where
        S: ServerHandler,
        H: Fn() -> S + Send + Sync + 'static,
    {
        match (request.method(), asked.session_id) {
            (&Method::GET, _) if is_old(request.headers()) => self.inner.legacy_sse.open(owner, handler(), &request),
            (&Method::POST, Some(session)) => self.inner.legacy_sse.post(&owner, &session, request).await,
            _ => self.streamable(owner, handler, request).await,
        }
    }

    async fn streamable<S, H>(&self, owner: Owner, handler: H, mut request: Request) -> Response
    where
        S: ServerHandler,
        H: Fn() -> S + Send + Sync + 'static,
    {
        let ends = request.method() == Method::DELETE;
        let begins = request.method() == Method::POST && !request.headers().contains_key(SESSION_HEADER);
        if begins && self.inner.sessions.is_full() {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many clients are connected; try again later");
        }
        let is_post = request.method() == Method::POST;
        let wants_json = is_post && plain::is_wanted(request.headers());
        if wants_json {
            plain::accept_events(request.headers_mut());
        }
        if is_post && plain::is_ping(request.headers()) {
            return plain::pong(request).await;
        }
        // Host and origin were checked by whoever let the request in.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            // Some clients take large answers only as they are, not as events.
            .with_json_response(true)
            .with_max_request_body_bytes(MESSAGE_BYTES_MAX)
            .with_cancellation_token(self.inner.stop.clone());
        let bound = Arc::new(Bound::new(Arc::clone(&self.inner.sessions), owner));
        let service = StreamableHttpService::new(move || Ok(handler()), bound, config);
        let mut answer = service.handle(request).await.map(Body::new);
        // It has ended, not will: clients take "accepted" for a failure here.
        if ends && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        if answer.status().is_client_error() || answer.status().is_server_error() {
            return plain::error(answer).await;
        }
        match (is_post, wants_json) {
            (true, true) => plain::collect(answer).await,
            (true, false) => plain::prefer(answer).await,
            (false, _) => answer,
        }
    }
}

/// Whether who asks for events knows nothing of streamable HTTP.
fn is_old(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let knows_streamable = headers.contains_key(SESSION_HEADER) || headers.contains_key(VERSION_HEADER);
    accepts.is_some_and(|accepts| accepts.contains("text/event-stream")) && !knows_streamable
}

/// Nothing behind this door needs to know how the caller proved who it is, and rmcp hands all headers on.
fn forget_secrets(headers: &mut HeaderMap) {
    for name in [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE] {
        headers.remove(name);
    }
    headers.remove("x-api-key");
}

fn refuse(status: StatusCode, reason: &str) -> Response {
    let body = serde_json::json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": reason}});
    (status, axum::Json(body)).into_response()
}

#[cfg(test)]
mod tests;
