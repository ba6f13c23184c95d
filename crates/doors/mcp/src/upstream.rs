//! One server that is connected: what the gateway needs of it, and what its supervisor does.
//!
//! An [`Upstream`] is one connection, shared by all clients of a tenant. It lives until its streams end, or until it is closed; it
//! never comes back to life. Whoever keeps servers running connects anew and hands out the new one.
#![expect(deprecated, reason = "what 2026-07-28 gave up is what servers and clients of before it speak")]

mod about;
mod any_transport;
mod calls;
mod http;
mod id_namespace;
mod in_flight;
mod interceptor;
mod legacy_sse;
mod listening;
mod lists;
mod pins;
mod reason;
mod request_forwarder;
mod resources;
mod wire;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use box_core::mcp::McpServerName;
use box_core::service::Buffered;
use box_core::tasks::Start as _;
use rmcp::model::{
    ClientRequest, GetExtensions, PingRequest, ProtocolVersion, RequestMetaObject, ServerCapabilities, ServerResult,
    SubscribeRequest, SubscribeRequestParams, UnsubscribeRequest, UnsubscribeRequestParams,
};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt as _, PeerRequestOptions, RunningService};
use rmcp::{Peer, RoleClient, ServiceError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::stdio::{Garbage, Stdio};
use crate::text::clean;

pub use about::About;
pub use http::Remote;

pub(crate) use calls::{ClientId, Event};
pub(crate) use in_flight::{Answer, Failure, InFlight};
pub(crate) use lists::Lists;
pub(crate) use pins::{Fingerprints, Pins, fingerprints};
pub(crate) use wire::{Heard, News};

use any_transport::AnyTransport;
use interceptor::Interceptor;
use listening::Listening;
use request_forwarder::RequestForwarder;
use wire::{Watch, Wire};

/// Most calls on their way to one server at once.
pub const CALLS_MAX: usize = 4096;
/// Most large requests on their way to one server at once; others wait. A server that does not read makes us keep all of them.
const LARGE_CALLS_MAX: usize = 16;
/// A request with more bytes than this is a large one.
const SMALL_BYTES_MAX: usize = 64 << 10;
/// Timeout for a remote server to show that it speaks the newest version, before it is treated as an older one.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest that lists are waited for when a server says that they changed.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a server's lists are left alone after they were asked for.
const REFRESH_PAUSE: Duration = Duration::from_millis(250);

/// A server that is connected. Cheap to clone.
#[derive(Clone)]
pub struct Upstream {
    inner: Arc<Inner>,
}

struct Inner {
    peer: Peer<RoleClient>,
    wire: Arc<Wire>,
    about: About,
    capabilities: ServerCapabilities,
    lists: watch::Sender<Lists>,
    slots: Arc<Semaphore>,
    large_slots: Arc<Semaphore>,
    garbage: Garbage,
    tasks: TaskTracker,
    listening: Listening,
    /// The connection for clients of 2026-07-28, if this one is for older clients.
    newer: OnceLock<Upstream>,
    /// Which tools may be shown, unless all are.
    pins: OnceLock<Pins>,
    stop: CancellationToken,
}

/// Why a server could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It did not understand us, or ended, before it was ready.
    #[error("the MCP handshake failed: {0}")]
    Handshake(String),
    /// It understood us, but requires the other protocol.
    #[error("the server refused the MCP handshake: {0}")]
    Refused(String),
    /// It is ready, but does not say what it offers.
    #[error("the server answered the handshake but not tools/list: {0}")]
    List(String),
    /// A remote one cannot be reached, or does not speak MCP.
    #[error("cannot connect to the MCP server at {origin}: {reason}; check its url, and that it runs")]
    Remote {
        /// Where it is, without what may be secret in its address.
        origin: String,
        /// What went wrong.
        reason: String,
    },
    /// Its address cannot be used.
    #[error("{0}")]
    Address(String),
}

/// How a connection begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// With a handshake, as in all versions before 2026-07-28.
    #[default]
    Handshake,
    /// Without: the server describes itself, and each request is self-contained.
    Discovery,
}

impl Beginning {
    /// The other one.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Handshake => Self::Discovery,
            Self::Discovery => Self::Handshake,
        }
    }

    fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Handshake => ClientLifecycleMode::Initialize,
            Self::Discovery => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] },
        }
    }
}

impl Upstream {
    /// Connects a server that talks over two streams, and charges its long messages to a tenant. Give it a deadline by dropping it.
    pub(crate) async fn over_streams<R, W>(
        name: McpServerName,
        beginning: Beginning,
        (reader, writer): (R, W),
        buffered: Option<Buffered>,
        tasks: &TaskTracker,
    ) -> Result<Self, ConnectError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let garbage = Garbage::default();
        let transport = id_namespace::IdNamespace::new(Stdio::new(reader, writer, garbage.clone()).charged(buffered));
        let transport = transport.map_err(|error| ConnectError::Address(format!("there is no randomness: {error}")))?;
        let connected = Self::connect(name, beginning, AnyTransport::new(transport), garbage, tasks).await?;
        if connected.is_new() {
            connected.listen_for_changes();
        }
        Ok(connected)
    }

    /// Connects a remote server over streamable HTTP. There each request can have its own version: a server that also speaks the newest one
    /// gets the version of each client. If it does not support streamable HTTP, legacy SSE is tried.
    pub async fn over_http(name: McpServerName, remote: &Remote, tasks: &TaskTracker) -> Result<Self, ConnectError> {
        let connected = Self::begin_http(name.clone(), Beginning::Handshake, remote, tasks).await;
        if let Err(ConnectError::List(_) | ConnectError::Address(_)) = connected {
            return connected;
        }
        let newer = Self::begin_http(name.clone(), Beginning::Discovery, remote, tasks);
        let newer = tokio::time::timeout(DISCOVERY_TIMEOUT, newer).await;
        match (connected, newer) {
            (Ok(connected), Ok(Ok(newer))) => {
                connected.speaks_newest(newer);
                Ok(connected)
            }
            (Ok(connected), _) => Ok(connected),
            (Err(_), Ok(Ok(newer))) => {
                newer.listen_for_changes();
                Ok(newer)
            }
            (Err(refused), _) => {
                // If legacy SSE fails too, report the first error.
                let reason = match refused {
                    ConnectError::Handshake(reason) | ConnectError::Refused(reason) => reason,
                    other => return Err(other),
                };
                let unreachable = |_| ConnectError::Remote { origin: remote.origin(), reason };
                Self::over_legacy_sse(name, remote, tasks).await.map_err(unreachable)
            }
        }
    }

    /// Connects it with one of both protocols.
    pub(crate) async fn begin_http(
        name: McpServerName,
        beginning: Beginning,
        remote: &Remote,
        tasks: &TaskTracker,
    ) -> Result<Self, ConnectError> {
        Self::connect(name, beginning, AnyTransport::new(remote.transport()?), Garbage::default(), tasks).await
    }

    /// A second connection to the same server, for clients of 2026-07-28. It ends with this one.
    fn speaks_newest(&self, newer: Self) {
        if self.inner.newer.set(newer.clone()).is_ok() {
            let upstream = self.clone();
            self.inner.tasks.start(async move {
                upstream.closed().await;
                newer.close();
            });
        }
    }

    /// The connection for a client of 2026-07-28, or for an older one.
    pub(crate) fn for_client(&self, is_new: bool) -> &Self {
        let newer = self.inner.newer.get().filter(|newer| is_new && !newer.is_closed());
        newer.unwrap_or(self)
    }

    /// Connects a server elsewhere, over the server-sent events of 2024-11-05.
    pub async fn over_legacy_sse(
        name: McpServerName,
        remote: &Remote,
        tasks: &TaskTracker,
    ) -> Result<Self, ConnectError> {
        let unreachable = |error: ConnectError| match error {
            ConnectError::Handshake(reason) => ConnectError::Remote { origin: remote.origin(), reason },
            other => other,
        };
        let legacy_sse = legacy_sse::LegacySse::open(remote).await.map_err(unreachable)?;
        let transport = AnyTransport::new(legacy_sse);
        Self::connect(name, Beginning::Handshake, transport, Garbage::default(), tasks).await.map_err(unreachable)
    }

    async fn connect(
        name: McpServerName,
        beginning: Beginning,
        transport: AnyTransport,
        garbage: Garbage,
        tasks: &TaskTracker,
    ) -> Result<Self, ConnectError> {
        let wire = Arc::new(Wire::new(name));
        let interceptor = Interceptor::new(transport, Arc::clone(&wire));
        let asked = RequestForwarder::new(Arc::clone(&wire));
        let handshake = asked.serve_with_lifecycle(interceptor, beginning.lifecycle()).await;
        let running = handshake.map_err(|error| {
            let reason = clean(&reason::of(&error), 1000);
            if reason::is_refusal(&error) { ConnectError::Refused(reason) } else { ConnectError::Handshake(reason) }
        })?;
        let info = running.peer().peer_info();
        let capabilities = info.as_deref().map(|info| info.capabilities.clone()).unwrap_or_default();
        let inner = Inner {
            peer: running.peer().clone(),
            wire,
            about: About::of(info.as_deref()),
            capabilities,
            lists: watch::Sender::new(Lists::default()),
            slots: Arc::new(Semaphore::new(CALLS_MAX)),
            large_slots: Arc::new(Semaphore::new(LARGE_CALLS_MAX)),
            garbage,
            tasks: tasks.clone(),
            listening: Listening::default(),
            newer: OnceLock::new(),
            pins: OnceLock::new(),
            stop: CancellationToken::new(),
        };
        let upstream = Self { inner: Arc::new(inner) };
        // Whoever gives up waiting must not leave a connection behind.
        let given_up = upstream.inner.stop.clone().drop_guard();
        tasks.start(upstream.clone().live(running));
        upstream.refresh().await.map_err(|error| ConnectError::List(clean(&error.to_string(), 1000)))?;
        given_up.disarm();
        Ok(upstream)
    }

    /// Keeps the connection until it ends, and the lists as the server says they are.
    async fn live(self, running: RunningService<RoleClient, RequestForwarder>) {
        let closed = self.inner.wire.closed.clone();
        loop {
            tokio::select! {
                () = closed.cancelled() => break,
                () = self.inner.stop.cancelled() => break,
                () = self.inner.wire.changed.notified() => {
                    self.inner.stop.run_until_cancelled(self.follow_a_change()).await;
                }
            }
        }
        closed.cancel();
        // Whoever waits for an answer knows already; this is only about the streams.
        if running.cancel().await.is_err() {
            tracing::warn!(mcp.server = %self.name(), "the connection to a server ended badly");
        }
    }

    /// Asks for the lists again, and then rests: a server may say that they change as often as it likes.
    async fn follow_a_change(&self) {
        let refreshed = tokio::time::timeout(LIST_TIMEOUT, self.refresh()).await;
        if !matches!(refreshed, Ok(Ok(()))) {
            tracing::warn!(mcp.server = %self.name(), "a server changed its lists but does not tell them");
        }
        tokio::select! {
            () = tokio::time::sleep(REFRESH_PAUSE) => {}
            () = self.closed() => {}
        }
    }

    /// Asks for the lists. Whoever watches them hears of it only if they differ.
    async fn refresh(&self) -> Result<(), ServiceError> {
        let fetched = tokio::select! {
            fetched = self.fetch() => fetched?,
            () = self.closed() => return Err(ServiceError::TransportClosed),
        };
        self.show(|_| fetched);
        Ok(())
    }

    /// Replaces the lists, without held tools. The tools are split under the lock of the lists.
    fn show(&self, change: impl FnOnce(&Lists) -> Lists) {
        self.inner.lists.send_if_modified(|lists| {
            let mut changed = change(lists);
            if let Some(pins) = self.inner.pins.get() {
                let (shown, held) = pins.split(&changed.offered);
                (changed.tools, changed.held) = (Arc::new(shown), Arc::new(held));
            }
            let differ = *lists != changed;
            if differ {
                *lists = changed;
            }
            differ
        });
    }

    /// Shows only these of its tools from now on. Later calls have no effect.
    pub(crate) fn pin(&self, pins: Pins) {
        let _ = self.inner.pins.set(pins);
        self.sort_out();
    }

    /// Whether only approved tools are shown.
    pub(crate) fn is_pinned(&self) -> bool {
        self.inner.pins.get().is_some()
    }

    /// Applies changed approvals.
    pub(crate) fn sort_out(&self) {
        self.show(Lists::clone);
    }

    async fn fetch(&self) -> Result<Lists, ServiceError> {
        let tools = match self.inner.capabilities.tools {
            Some(_) => lists::tools(&self.inner.peer).await?,
            None => Vec::new(),
        };
        let prompts = match self.inner.capabilities.prompts {
            Some(_) => lists::prompts(&self.inner.peer).await?,
            None => Vec::new(),
        };
        let offered = Arc::new(tools);
        Ok(Lists { tools: Arc::clone(&offered), offered, held: Arc::default(), prompts: Arc::new(prompts) })
    }

    /// What it is called here.
    pub fn name(&self) -> &McpServerName {
        &self.inner.wire.name
    }

    /// What it says of itself.
    pub fn about(&self) -> &About {
        &self.inner.about
    }

    /// The names of its tools.
    pub fn tool_names(&self) -> Vec<String> {
        self.inner.lists.borrow().tools.iter().map(|tool| tool.name.to_string()).collect()
    }

    /// How many lines of its output were no messages.
    pub fn garbage_lines(&self) -> u64 {
        self.inner.garbage.lines()
    }

    /// Whether the connection is over.
    pub fn is_closed(&self) -> bool {
        self.inner.wire.closed.is_cancelled()
    }

    /// Waits until the connection is over.
    pub async fn closed(&self) {
        self.inner.wire.closed.cancelled().await;
    }

    /// Tells when its tools or prompts change from here on.
    pub fn changes(&self) -> ListChanges {
        ListChanges(self.inner.lists.subscribe())
    }

    /// Ends the connection. Calls on their way fail.
    pub fn close(&self) {
        self.inner.wire.closed.cancel();
        self.inner.stop.cancel();
    }

    /// Whether the server answers, within a time.
    pub async fn answers(&self, within: Duration) -> bool {
        let ping = self.inner.peer.send_request(ClientRequest::PingRequest(PingRequest::default()));
        tokio::select! {
            answer = tokio::time::timeout(within, ping) => matches!(answer, Ok(Ok(_) | Err(ServiceError::McpError(_)))),
            () = self.closed() => false,
        }
    }

    /// Tools and prompts as they are now.
    pub(crate) fn lists(&self) -> Lists {
        self.inner.lists.borrow().clone()
    }

    /// What the server can do.
    pub(crate) fn capabilities(&self) -> &ServerCapabilities {
        &self.inner.capabilities
    }

    /// Whether it speaks 2026-07-28 or later: it sends no requests, and returns `input_required` instead.
    pub(crate) fn is_new(&self) -> bool {
        self.inner.peer.peer_info().is_some_and(|info| !info.protocol_version.has_initialize())
    }

    /// Sends a request for a client.
    pub(crate) async fn begin(
        &self,
        mut request: ClientRequest,
        client: ClientId,
        meta: RequestMetaObject,
    ) -> Result<InFlight, Failure> {
        let slot = Arc::clone(&self.inner.slots).try_acquire_owned().map_err(|_| Failure::Busy)?;
        let large_slot = self.large_slot(&request).await?;
        let wants_progress = meta.get_progress_token().is_some();
        let (entered, events) = self.inner.wire.calls.enter(client, wants_progress);
        request.extensions_mut().insert(entered.mark());
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let handle = tokio::select! {
            biased;
            () = self.closed() => return Err(Failure::Closed),
            handle = self.inner.peer.send_request_with_option(request, options) => handle?,
        };
        let answer = Answer { handle, closed: self.inner.wire.closed.clone() };
        Ok(InFlight { events, answer, _entered: entered, _slots: (slot, large_slot) })
    }

    /// Waits until there is room for a request, if it is a large one.
    async fn large_slot(&self, request: &ClientRequest) -> Result<Option<OwnedSemaphorePermit>, Failure> {
        if lists::is_short(request, SMALL_BYTES_MAX) {
            return Ok(None);
        }
        tokio::select! {
            slot = Arc::clone(&self.inner.large_slots).acquire_owned() => slot.map(Some).map_err(|_| Failure::Closed),
            () = self.closed() => Err(Failure::Closed),
        }
    }

    /// Sends a request that belongs to no client's call, and waits for the answer.
    async fn ask(&self, request: ClientRequest) -> Result<ServerResult, Failure> {
        tokio::select! {
            answer = self.inner.peer.send_request(request) => Ok(answer?),
            () = self.closed() => Err(Failure::Closed),
        }
    }

    /// Tells news to a client from now on.
    pub(crate) fn listen(&self, client: ClientId, listener: mpsc::Sender<Heard>) {
        self.inner.wire.listen(client, listener);
    }

    /// Watches a resource for a client.
    pub(crate) async fn watch(&self, client: ClientId, uri: &str) -> Result<(), Failure> {
        match self.inner.wire.watch(client, uri) {
            Watch::TooMany => return Err(Failure::Busy),
            Watch::Known => return Ok(()),
            Watch::Tell => {}
        }
        if self.is_new() {
            return self.listen_for(uri).inspect_err(|_| {
                self.inner.wire.unwatch(client, uri);
            });
        }
        let request = SubscribeRequest::new(SubscribeRequestParams::new(uri));
        let answer = self.ask(ClientRequest::SubscribeRequest(request)).await;
        if answer.is_err() {
            self.inner.wire.unwatch(client, uri);
        }
        answer.map(drop)
    }

    /// Watches a resource no longer.
    pub(crate) async fn unwatch(&self, client: ClientId, uri: &str) -> Result<(), Failure> {
        if self.inner.wire.unwatch(client, uri) == Watch::Tell { self.unsubscribe(uri).await } else { Ok(()) }
    }

    /// Forgets a client that is gone.
    pub(crate) async fn leave(&self, client: ClientId) {
        for uri in self.inner.wire.leave(client) {
            if self.unsubscribe(&uri).await.is_err() {
                return;
            }
        }
    }

    async fn unsubscribe(&self, uri: &str) -> Result<(), Failure> {
        if self.is_new() {
            self.listen_no_longer(uri);
            return Ok(());
        }
        let request = UnsubscribeRequest::new(UnsubscribeRequestParams::new(uri));
        self.ask(ClientRequest::UnsubscribeRequest(request)).await.map(drop)
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("name", self.name()).field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// Hears when the lists of a server change.
#[derive(Debug)]
pub struct ListChanges(watch::Receiver<Lists>);

impl ListChanges {
    /// Waits for the next change. Never ends once the server is gone for good.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests;
