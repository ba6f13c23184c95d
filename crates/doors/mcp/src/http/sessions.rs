//! Sessions of streamable HTTP: rmcp runs them, and what is here decides whose they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::Stream;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::WorkerTransport;
use rmcp::transport::streamable_http_server::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker, SessionConfig, create_local_session,
};
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId};
use tokio::time::Instant;

use super::identity::Owner;
use crate::random::unguessable;

/// Most sessions of all callers together.
const SESSIONS_MAX: usize = 10_000;
/// Most sessions of one caller. Clients seldom say goodbye: for a new one, the one that was unused longest ends.
const CALLER_SESSIONS_MAX: usize = 128;
/// A session that is unused for so long ends. Longer than the longest call, during which a session looks unused.
const IDLE: Duration = Duration::from_hours(2);
/// How long an answer is kept for a client that lost its stream. Answers are large, so this is short.
const ANSWER_KEPT: Duration = Duration::from_secs(10);
/// Most messages that wait on each stream.
const WAITING_MAX: usize = 64;

/// All sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    local: LocalSessionManager,
    owners: Mutex<HashMap<SessionId, SessionEntry>>,
}

#[derive(Debug)]
struct SessionEntry {
    owner: Owner,
    used: Instant,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    /// It is nobody's, or somebody else's. Both look the same.
    #[error("there is no such session")]
    Unknown,
    /// It could not be given a name.
    #[error("a session could not be named: {0}")]
    Unnamed(std::io::Error),
    /// It ended meanwhile.
    #[error(transparent)]
    Ended(#[from] LocalSessionManagerError),
}

impl Sessions {
    pub(super) fn new() -> Self {
        let mut local = LocalSessionManager::default();
        local.session_config = config();
        Self { local, owners: Mutex::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.count() >= SESSIONS_MAX
    }

    /// Ends all sessions.
    pub(super) async fn close_all(&self) {
        let ids: Vec<_> = self.lock().drain().map(|(id, _)| id).collect();
        for id in ids {
            drop(self.local.close_session(&id).await);
        }
    }

    /// Remembers a new session, and says which old one of its caller must go for it.
    fn hold(&self, id: SessionId, owner: Owner) -> Option<SessionId> {
        let mut owners = self.lock();
        let mut same = owners.iter().filter(|(_, held)| held.owner.is_same_caller(&owner)).collect::<Vec<_>>();
        same.sort_by_key(|(_, held)| held.used);
        let surplus = (same.len() >= CALLER_SESSIONS_MAX).then(|| same.first().map(|(id, _)| SessionId::clone(id)));
        let surplus = surplus.flatten();
        if let Some(surplus) = &surplus {
            owners.remove(surplus);
        }
        owners.insert(id, SessionEntry { owner, used: Instant::now() });
        surplus
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, SessionEntry>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn config() -> SessionConfig {
    let mut config = SessionConfig::default();
    config.keep_alive = Some(IDLE);
    config.completed_cache_ttl = ANSWER_KEPT;
    config.channel_capacity = WAITING_MAX;
    config
}

/// The sessions of one caller at one address: what one request can reach.
#[derive(Debug)]
pub(super) struct Bound {
    sessions: Arc<Sessions>,
    owner: Owner,
}

impl Bound {
    pub(super) fn new(sessions: Arc<Sessions>, owner: Owner) -> Self {
        Self { sessions, owner }
    }

    /// Refuses a session that is not this caller's, and marks it as used.
    fn check(&self, id: &SessionId) -> Result<(), SessionError> {
        match self.sessions.lock().get_mut(id) {
            Some(held) if held.owner == self.owner => {
                held.used = Instant::now();
                Ok(())
            }
            _ => Err(SessionError::Unknown),
        }
    }
}

impl SessionManager for Bound {
    type Error = SessionError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionError> {
        let id: SessionId = unguessable().map_err(SessionError::Unnamed)?.into();
        let (handle, worker) = create_local_session(Arc::clone(&id), self.sessions.local.session_config.clone());
        self.sessions.local.sessions.write().await.insert(Arc::clone(&id), handle);
        if let Some(surplus) = self.sessions.hold(Arc::clone(&id), self.owner.clone()) {
            self.sessions.local.close_session(&surplus).await?;
        }
        Ok((id, WorkerTransport::spawn(worker)))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionError> {
        self.check(id)?;
        Ok(self.sessions.local.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionError> {
        Ok(self.check(id).is_ok() && self.sessions.local.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionError> {
        // Whoever asks to end what is not there, or not its own, is told the same as everybody.
        if self.check(id).is_ok() {
            self.sessions.lock().remove(id);
            self.sessions.local.close_session(id).await?;
        }
        Ok(())
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        self.check(id)?;
        Ok(self.sessions.local.create_stream(id, message).await?)
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), SessionError> {
        self.check(id)?;
        Ok(self.sessions.local.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        self.check(id)?;
        Ok(self.sessions.local.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionError> {
        self.check(id)?;
        Ok(self.sessions.local.resume(id, last_event_id).await?)
    }
}
