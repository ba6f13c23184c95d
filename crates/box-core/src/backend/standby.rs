//! A backend that is not there: switched off, or still to come.

use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use box_wire::BoxId;

use super::{AgentStream, Backend, BackendName, Capabilities, Finding, FindingState, Handle, Liveness, Stats};
use crate::{BoxSpec, Error, MountSpec, Result};

/// First wait before it is tried again; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Longest wait before it is tried again.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// What opens a backend, tried until it succeeds.
pub type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>>> + Send>>;

/// A backend that is not there: switched off, or still to come. What is asked of it before is refused with the reason.
#[derive(Debug)]
pub struct Standby {
    name: BackendName,
    /// The backend, once it is there.
    opened: OnceLock<Arc<dyn Backend>>,
    wait: Wait,
}

/// Why it is not there.
enum Wait {
    /// The operator does not want it.
    Disabled,
    /// It could not be opened.
    Retried {
        open: Box<dyn Fn() -> Opening + Send + Sync>,
        /// Why the last attempt failed.
        reason: Mutex<Arc<Error>>,
        /// One attempt at a time.
        turn: tokio::sync::Mutex<()>,
    },
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("Disabled"),
            Self::Retried { reason, .. } => f.debug_struct("Retried").field("reason", reason).finish_non_exhaustive(),
        }
    }
}

impl Standby {
    /// A backend that the operator has switched off. Nothing is ever opened.
    pub fn disabled(name: BackendName) -> Self {
        Self { name, opened: OnceLock::new(), wait: Wait::Disabled }
    }

    /// A backend that could not be opened, and why. It is tried again while somebody waits for it.
    pub fn retried(name: BackendName, reason: Error, open: impl Fn() -> Opening + Send + Sync + 'static) -> Self {
        let (reason, turn) = (Mutex::new(Arc::new(reason)), tokio::sync::Mutex::default());
        Self { name, opened: OnceLock::new(), wait: Wait::Retried { open: Box::new(open), reason, turn } }
    }

    fn backend(&self) -> Result<&Arc<dyn Backend>> {
        self.opened.get().ok_or_else(|| self.absence())
    }

    /// What whoever asks too early is told.
    fn absence(&self) -> Error {
        let Wait::Retried { reason, .. } = &self.wait else { return Error::Disabled };
        let reason = Arc::clone(&reason.lock().unwrap_or_else(PoisonError::into_inner));
        let what = format!("the {} backend", self.name);
        match &*reason {
            Error::Unavailable { reason, fix, .. } => {
                Error::Unavailable { what, reason: reason.clone(), fix: fix.clone() }
            }
            other => {
                let fix = "it is tried again and again; `strongbox doctor` says what this machine lacks".to_owned();
                Error::Unavailable { what, reason: other.to_string(), fix }
            }
        }
    }

    /// The absence as something that was looked at and not found.
    fn finding(&self) -> Finding {
        let (name, detail, fix) = match self.absence() {
            Error::Unavailable { reason, fix, .. } => ("backend", reason, fix),
            _ => ("enabled", "disabled by the configuration".to_owned(), "set enabled = true and restart".to_owned()),
        };
        Finding { name: name.to_owned(), state: FindingState::Missing, detail, fix: Some(fix) }
    }
}

#[async_trait]
impl Backend for Standby {
    fn name(&self) -> BackendName {
        self.name
    }

    fn presence(&self) -> Result<()> {
        self.backend()?.presence()
    }

    async fn arrives(&self) {
        let Wait::Retried { open, reason, turn } = &self.wait else { return std::future::pending().await };
        let _turn = turn.lock().await;
        let mut backoff = BACKOFF_MIN;
        while self.opened.get().is_none() {
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
            match open().await {
                Ok(backend) => drop(self.opened.set(backend)),
                Err(error) => {
                    tracing::warn!(error = %error, retry_in_ms = backoff.as_millis(), "the backend is still not there");
                    *reason.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(error);
                }
            }
        }
    }

    fn shares_filesystem(&self) -> bool {
        self.backend().is_ok_and(|backend| backend.shares_filesystem())
    }

    async fn open_source(&self, mount: &MountSpec) -> Result<OwnedFd> {
        self.backend()?.open_source(mount).await
    }

    async fn probe(&self) -> Capabilities {
        match self.backend() {
            Ok(backend) => backend.probe().await,
            Err(_) => Capabilities { available: false, findings: vec![self.finding()] },
        }
    }

    async fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        self.backend()?.create(id, spec).await
    }

    async fn adopt(&self, handle: &Handle) -> Result<Liveness> {
        self.backend()?.adopt(handle).await
    }

    async fn dial(&self, handle: &Handle) -> Result<AgentStream> {
        self.backend()?.dial(handle).await
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        self.backend()?.pause(handle).await
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        self.backend()?.resume(handle).await
    }

    async fn journal(&self, handle: &Handle) -> Result<OwnedFd> {
        self.backend()?.journal(handle).await
    }

    async fn stats(&self, handle: &Handle) -> Result<Stats> {
        self.backend()?.stats(handle).await
    }

    async fn destroy(&self, handle: &Handle) -> Result<()> {
        self.backend()?.destroy(handle).await
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        self.backend()?.list_orphans().await
    }
}
