//! What callers can ask, one method each. Doors translate to these calls and do nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use box_wire::{ExecId, WindowSize};
use jiff::Timestamp;
use serde::Serialize;

use crate::backend::Stats;
use crate::call::{
    Cursor, ExecCall, ExecInfo, ExecResult, FollowEvent, ProcessCall, ProcessId, ProcessInfo, StdinChunk, StreamName,
    Target,
};
use crate::caller::Caller;
use crate::session::{SessionFilter, SessionId, SessionInfo, SessionPage, SessionRequest};
use crate::store::Store;
use crate::{Backend, BackendName, Capabilities, Result};

/// What an operator can set. Everything but what was already decided for a session can be changed while the service runs.
#[derive(Debug, Clone)]
pub struct ServiceConfig {
    /// Idle time after which a session is removed, unless it says otherwise.
    pub session_ttl_sec: u64,
    /// Most sessions at once, of all tenants together.
    pub max_sessions: usize,
    /// Most running managed processes at once, of all sessions together.
    pub max_managed_processes: usize,
    /// Characters of each stream in a result, unless the call says otherwise.
    pub output_limit_chars: usize,
    /// Bytes of each stream of one command that are kept.
    pub journal_bytes_max: u64,
    /// Bytes of all finished commands of one session that are kept; the oldest go first.
    pub journal_session_bytes_max: u64,
    /// Profile of sessions that name none.
    pub default_profile: String,
    /// Meanings of image names.
    pub images: BTreeMap<String, String>,
    /// How often idle sessions are looked for.
    pub reap_every: Duration,
    /// How long an exited managed process can be asked about.
    pub exited_process_ttl: Duration,
}

impl Default for ServiceConfig {
    fn default() -> Self {
        let images = ["python:3.11-slim", "rockchin/langbot-sandbox:latest"];
        Self {
            session_ttl_sec: 300,
            max_sessions: 1000,
            max_managed_processes: 256,
            output_limit_chars: 4000,
            journal_bytes_max: 16 << 20,
            journal_session_bytes_max: 256 << 20,
            default_profile: "default".to_owned(),
            images: images.map(|name| (name.to_owned(), "host".to_owned())).into(),
            reap_every: Duration::from_secs(5),
            exited_process_ttl: Duration::from_mins(5),
        }
    }
}

/// What becomes of boxes when the service stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Persistent sessions stay, all others are destroyed.
    KeepPersistent,
    /// All stay, for the next start to adopt.
    KeepAll,
    /// All are destroyed.
    DestroyAll,
}

/// How the service stands, for people and programs that watch it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct StatusInfo {
    /// Where boxes live.
    #[schema(value_type = String, example = "native")]
    pub backend: BackendName,
    /// Sessions of the caller's tenant.
    pub active_sessions: usize,
    /// Running managed processes of the caller's tenant.
    pub managed_processes: usize,
    /// Running commands of the caller's tenant.
    pub execs_running: usize,
    /// Idle time after which a session is removed.
    pub session_ttl_sec: u64,
    /// Most sessions at once, of all tenants together.
    pub max_sessions: usize,
    /// Most managed processes at once, of all tenants together.
    pub max_managed_processes: usize,
    /// The version of this program.
    pub version: String,
    /// Since when the service runs.
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
}

/// Something that went wrong lately.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct RecentError {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What was being done.
    pub operation: String,
    /// In which session.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<SessionId>,
    /// Stable word.
    pub code: String,
    /// What happened.
    pub message: String,
}

/// Numbers since the start of the service, and some of now, for metrics.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Sessions that exist.
    pub sessions: u64,
    /// Sessions that were made.
    pub sessions_created: u64,
    /// Sessions that could not be made.
    pub sessions_failed: u64,
    /// Sessions that were removed because nobody used them.
    pub sessions_expired: u64,
    /// Sessions whose box vanished.
    pub sessions_lost: u64,
    /// Commands that run.
    pub execs_running: u64,
    /// Commands that were started.
    pub execs_started: u64,
    /// Commands whose deadline passed.
    pub execs_timed_out: u64,
    /// Managed processes that run.
    pub processes_running: u64,
    /// Managed processes that were started again.
    pub processes_restarted: u64,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputChunk {
    /// Offset of the first byte; behind what was asked for when that is not kept any more.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Bytes of the whole stream so far, kept or not.
    pub total: u64,
    /// Whether more can still come.
    pub running: bool,
}

/// What callers can ask.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    backend: Arc<dyn Backend>,
}

fn unfinished<T>() -> Result<T> {
    Err(crate::Error::Setup { step: "service".into(), reason: "not built yet".into() })
}

impl Service {
    /// Starts the service: what the store remembers is adopted or honestly lost, what nobody remembers is removed.
    pub async fn open(backend: Arc<dyn Backend>, _store: Arc<dyn Store>, _config: ServiceConfig) -> Result<Self> {
        Ok(Self { inner: Arc::new(Inner { backend }) })
    }

    /// Changes what can be changed while sessions live.
    pub fn reload(&self, _config: ServiceConfig) {}

    /// Stops everything that the service does. Calls that come later are refused.
    pub async fn stop(&self, _mode: StopMode) -> Result<()> {
        unfinished()
    }

    /// Makes a session, or returns the one of that id if nothing that was asked differs.
    pub async fn create_session(
        &self,
        _caller: &Caller,
        _id: &SessionId,
        _request: &SessionRequest,
    ) -> Result<(SessionInfo, Created)> {
        unfinished()
    }

    /// One session.
    pub async fn get_session(&self, _caller: &Caller, _id: &SessionId) -> Result<SessionInfo> {
        unfinished()
    }

    /// The caller's sessions, in order of their ids.
    pub async fn list_sessions(&self, _caller: &Caller, _filter: &SessionFilter) -> Result<SessionPage> {
        unfinished()
    }

    /// Changes how long a session may be idle.
    pub async fn set_session_ttl(&self, _caller: &Caller, _id: &SessionId, _ttl_sec: u64) -> Result<SessionInfo> {
        unfinished()
    }

    /// Destroys a session with everything in it.
    pub async fn delete_session(&self, _caller: &Caller, _id: &SessionId) -> Result<()> {
        unfinished()
    }

    /// Stops a session where it is.
    pub async fn pause_session(&self, _caller: &Caller, _id: &SessionId) -> Result<SessionInfo> {
        unfinished()
    }

    /// Lets a session go on.
    pub async fn resume_session(&self, _caller: &Caller, _id: &SessionId) -> Result<SessionInfo> {
        unfinished()
    }

    /// What the box of a session consumes now.
    pub async fn session_stats(&self, _caller: &Caller, _id: &SessionId) -> Result<Stats> {
        unfinished()
    }

    /// Starts a command; makes the session if it does not exist. Returns when the command runs.
    pub async fn exec(
        &self,
        _caller: &Caller,
        _id: &SessionId,
        _request: &SessionRequest,
        _call: ExecCall,
    ) -> Result<ExecInfo> {
        unfinished()
    }

    /// Waits for the end of a command.
    pub async fn wait_exec(&self, _caller: &Caller, _id: &SessionId, _exec: &ExecId) -> Result<ExecResult> {
        unfinished()
    }

    /// One command, running or finished.
    pub async fn get_exec(&self, _caller: &Caller, _id: &SessionId, _exec: &ExecId) -> Result<ExecInfo> {
        unfinished()
    }

    /// The commands of a session that are remembered, oldest first. Runs of managed processes are not among them.
    pub async fn list_execs(&self, _caller: &Caller, _id: &SessionId) -> Result<Vec<ExecInfo>> {
        unfinished()
    }

    /// Kills the whole process tree of a command.
    pub async fn cancel_exec(&self, _caller: &Caller, _id: &SessionId, _exec: &ExecId) -> Result<()> {
        unfinished()
    }

    /// Starts a managed process; makes the session if it does not exist.
    pub async fn start_process(
        &self,
        _caller: &Caller,
        _id: &SessionId,
        _request: &SessionRequest,
        _call: ProcessCall,
    ) -> Result<ProcessInfo> {
        unfinished()
    }

    /// One managed process.
    pub async fn get_process(&self, _caller: &Caller, _id: &SessionId, _process: &ProcessId) -> Result<ProcessInfo> {
        unfinished()
    }

    /// The managed processes of a session.
    pub async fn list_processes(&self, _caller: &Caller, _id: &SessionId) -> Result<Vec<ProcessInfo>> {
        unfinished()
    }

    /// Stops a managed process: end of input, then a request, then force. Its record is gone afterwards.
    pub async fn stop_process(&self, _caller: &Caller, _id: &SessionId, _process: &ProcessId) -> Result<ProcessInfo> {
        unfinished()
    }

    /// Follows the output of a command or managed process from a cursor on.
    pub async fn follow(&self, _caller: &Caller, _id: &SessionId, _target: &Target, _from: Cursor) -> Result<Follow> {
        unfinished()
    }

    /// Output of a command, or of the current run of a managed process, by byte range.
    pub async fn read_output(
        &self,
        _caller: &Caller,
        _id: &SessionId,
        _target: &Target,
        _stream: StreamName,
        _from: u64,
        _bytes_max: usize,
    ) -> Result<OutputChunk> {
        unfinished()
    }

    /// Writes to the standard input of a command or managed process. Waits while it does not read.
    pub async fn write_stdin(
        &self,
        _caller: &Caller,
        _id: &SessionId,
        _target: &Target,
        _chunk: StdinChunk,
    ) -> Result<()> {
        unfinished()
    }

    /// Tells the terminal of a command how large it is.
    pub async fn resize(&self, _caller: &Caller, _id: &SessionId, _target: &Target, _size: WindowSize) -> Result<()> {
        unfinished()
    }

    /// Sends a signal to the main process.
    pub async fn signal(&self, _caller: &Caller, _id: &SessionId, _target: &Target, _signal: i32) -> Result<()> {
        unfinished()
    }

    /// How the service stands.
    pub fn status(&self, _caller: &Caller) -> Result<StatusInfo> {
        unfinished()
    }

    /// Whether boxes can be made here, and what they hold.
    pub async fn backend_info(&self, _caller: &Caller) -> Result<(BackendName, Capabilities)> {
        Ok((self.inner.backend.name(), self.inner.backend.probe().await))
    }

    /// What went wrong lately for the caller's tenant, newest first.
    pub fn recent_errors(&self, _caller: &Caller) -> Result<Vec<RecentError>> {
        unfinished()
    }

    /// Numbers for metrics.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// Whether a call made something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// It did.
    New,
    /// It was there.
    Existing,
}

/// Somebody who follows output. Dropping it ends the following and nothing else.
#[derive(Debug)]
pub struct Follow {
    _private: (),
}

impl Follow {
    /// The next thing to tell; nothing after [`FollowEvent::Ended`]. Waits until there is one. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<FollowEvent>> {
        unfinished()
    }
}
