//! The LangBot door: its action RPC over WebSocket and stdio, spoken by clients of every version.
//!
//! A transport reads requests and hands each to [`LangBot::answer`], which never fails: whatever goes wrong is a reply. Clients
//! that name their instance in the handshake belong to workspaces, which never see each other; older ones name nothing and
//! share one place of their own.

mod actions;
mod admission;
mod attach;
mod connection;
mod context;
mod envelope;
mod fault;
mod fragments;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gatekeeping;
mod generation_guard;
mod handshake;
mod held;
mod limits;
mod model;
mod mounts;
mod reassembler;
mod relay;
mod settings;
mod spec;
mod standing;
mod stdio;
mod tenancy;
mod uploads;
mod views;
mod websocket;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::routing::get;
use box_core::Service;
use door_http::ServerState;
use door_http::gate::OwnRules;
use door_http::socket::Relays;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use admission::Grants;
use door_http::turns::Turns;
pub(crate) use envelope::{Reply, Request};
use generation_guard::GenerationGuard;
use standing::Standing;
use tenancy::InstanceId;
use uploads::Uploads;

/// Fewest characters of a token that client and server share.
const CONTROL_TOKEN_CHARS_MIN: usize = 32;

/// The operator's settings for this door.
#[derive(Clone, Default)]
pub struct LangBotConfig {
    /// Clients without a token are served from other machines, too.
    pub legacy: bool,
    /// The secret that clients must show, if any.
    pub control_token: Option<String>,
    /// The only instance that is served; else the first that comes.
    pub trusted_instance: Option<String>,
    /// Settings before any client has sent some, in the same form.
    pub initial: Map<String, Value>,
    /// Trees below which clients may mount, whatever they say in their settings.
    pub allowed_mount_roots: Option<Vec<PathBuf>>,
    /// The name under which clients see the backend, when not its own.
    pub backend_name: Option<String>,
    /// Storage that is not hard-limited is good enough for admission.
    pub soft_storage_allowed: bool,
    /// The default directory for skills and workspaces.
    pub data_dir: PathBuf,
}

impl std::fmt::Debug for LangBotConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LangBotConfig").field("legacy", &self.legacy).finish_non_exhaustive()
    }
}

impl LangBotConfig {
    /// Whether a text can be the shared secret: long enough not to be guessed, and without whitespace.
    pub fn is_control_token(text: &str) -> bool {
        text.chars().count() >= CONTROL_TOKEN_CHARS_MIN && !text.chars().any(char::is_whitespace)
    }

    /// Whether a text can be the id of an instance.
    pub fn is_instance_id(text: &str) -> bool {
        InstanceId::parse(text).is_some()
    }

    /// Refuses a configuration that could never admit a client.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.control_token.as_deref().is_some_and(|token| !Self::is_control_token(token)) {
            return Err("the control token of LangBot must have at least 32 characters and no whitespace");
        }
        if self.trusted_instance.as_deref().is_some_and(|id| !Self::is_instance_id(id)) {
            return Err("the trusted instance of LangBot must have up to 128 letters, digits, '.', '_', ':' and '-'");
        }
        Ok(())
    }

    /// Whether clients on other machines may connect: with a secret, or because the operator allows it without.
    pub fn is_open(&self) -> bool {
        self.legacy || self.control_token.is_some()
    }
}

/// The door. Cheap to clone; all clones are one door.
#[derive(Debug, Clone)]
pub struct LangBot(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    service: Service,
    config: LangBotConfig,
    standing: Standing,
    generation_guard: GenerationGuard,
    grants: Grants,
    /// The only instance that is served, once it is known.
    instance: OnceLock<InstanceId>,
    state: ServerState,
    relays: Relays,
    turns: Turns,
}

/// One connection, as far as its requests are concerned.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The client.
    pub(crate) client: Client,
    /// Most bytes of one reply. Clients close the connection on longer messages.
    pub(crate) reply_bytes_max: usize,
    /// Files that came by it and wait to be used.
    uploads: Uploads,
}

impl Connection {
    /// A connection that has just been opened.
    pub(crate) fn new(client: Client, reply_bytes_max: usize) -> Self {
        Self { client, reply_bytes_max, uploads: Uploads::default() }
    }
}

/// The client of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Client {
    /// One that names nothing.
    Legacy,
    /// One of this instance.
    Tenant(InstanceId),
}

impl LangBot {
    /// A door to the service of a server.
    pub fn new(config: LangBotConfig, state: ServerState) -> Self {
        let service = state.service().clone();
        let trusted = config.trusted_instance.as_deref().and_then(InstanceId::parse);
        let instance = trusted.map_or_else(OnceLock::new, OnceLock::from);
        Self(Arc::new(Inner {
            standing: Standing::new(&config, &service),
            service,
            config,
            generation_guard: GenerationGuard::default(),
            grants: Grants::default(),
            instance,
            state,
            relays: Relays::default(),
            turns: Turns::default(),
        }))
    }

    /// The order of commands in each session.
    pub(crate) fn turns(&self) -> &Turns {
        &self.0.turns
    }

    /// The operator's settings.
    pub(crate) fn config(&self) -> &LangBotConfig {
        &self.0.config
    }

    /// The instance that the operator trusts, if that was said.
    pub(crate) fn trusted_instance(&self) -> Option<&InstanceId> {
        self.0.config.trusted_instance.as_ref().and_then(|_| self.0.instance.get())
    }

    /// The state that all doors share.
    pub(crate) fn state(&self) -> &ServerState {
        &self.0.state
    }

    /// Up to where the line relays have delivered.
    pub(crate) fn relays(&self) -> &Relays {
        &self.0.relays
    }

    /// The requests that are being carried out. The server waits for them when it stops.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        self.0.state.tasks()
    }

    /// Fires when the server stops waiting for requests.
    pub(crate) fn abort(&self) -> &CancellationToken {
        self.0.state.abort()
    }

    /// The service.
    pub(crate) fn service(&self) -> &Service {
        &self.0.service
    }

    /// Which generation of a workspace is the current one.
    pub(crate) fn generation_guard(&self) -> &GenerationGuard {
        &self.0.generation_guard
    }

    /// Carries a request out. Nothing when a newer generation of its workspace has shown itself meanwhile: such requests are
    /// not answered.
    pub(crate) async fn answer(&self, connection: &Connection, request: Request) -> Option<Reply> {
        let seq_id = request.seq_id;
        match actions::perform(self, connection, request).await? {
            Ok(data) => Some(Reply::success(seq_id, data)),
            Err(fault) => Some(Reply::failure(seq_id, &fault)),
        }
    }
}

/// The paths that decide for themselves who comes in, because LangBot's clients send no token of this server.
fn relay_routes() -> OpenApiRouter<LangBot> {
    OpenApiRouter::new().routes(routes!(attach::relay)).routes(routes!(attach::relay_named))
}

/// The part of the OpenAPI document for this door. Its action RPC is not HTTP and not in the document.
pub fn document() -> utoipa::openapi::OpenApi {
    relay_routes().into_openapi()
}

impl LangBot {
    /// The routes of this door.
    pub fn routes(&self) -> Router {
        let relays: Router<Self> = relay_routes().into();
        relays.route("/rpc/ws", get(websocket::open)).with_state(self.clone())
    }
}

/// LangBot is a program: it reaches the server by any name.
#[derive(Debug)]
pub struct Rules;

impl OwnRules for Rules {
    fn is_for_programs(&self, path: &str) -> bool {
        let parts: Vec<&str> = path.split('/').skip(1).take(8).collect();
        matches!(
            parts.as_slice(),
            ["rpc", "ws"]
                | ["v1", "sessions", _, "managed-process", "ws"]
                | ["v1", "sessions", _, "managed-process", _, "ws"]
        )
    }
}

#[cfg(test)]
mod tests;
