//! A backend that is not there: switched off, not needed yet, or still to come.

use std::fmt;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use box_wire::{BoxId, GuestPath, User};
use tokio::time::Instant;

use super::{
    AgentStream, Backend, BackendName, Capabilities, Finding, FindingState, Handle, ImageProgram, Liveness, Stats,
};
use crate::{BoxSpec, Error, MountSpec, Result};

/// First wait before it is tried again; doubled each time.
const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Longest wait before it is tried again.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long a failure is told again instead of trying again: many may ask at once, and trying can take long.
const FAILURE_AGE_MAX: Duration = Duration::from_millis(300);

/// What opens a backend, tried until it succeeds.
pub type Opening = Pin<Box<dyn Future<Output = Result<Arc<dyn Backend>>> + Send>>;

/// What begins to open a backend, as often as need be.
pub type Opener = Box<dyn Fn() -> Opening + Send + Sync>;

/// A backend that is not there: switched off, not needed yet, or still to come. What is asked of it before is refused with the reason.
#[derive(Debug)]
pub struct LazyBackend {
    name: BackendName,
    /// The backend, once it is there.
    opened: OnceLock<Arc<dyn Backend>>,
    wait: Wait,
}

/// Why it is not there.
enum Wait {
    /// The operator does not want it.
    Disabled,
    /// It has to be opened.
    Openable {
        open: Opener,
        /// When the last attempt failed and why; nothing where there was none.
        failure: Mutex<Option<(Instant, Arc<Error>)>>,
        /// One attempt at a time.
        turn: tokio::sync::Mutex<()>,
    },
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("Disabled"),
            Self::Openable { failure, .. } => {
                f.debug_struct("Openable").field("failure", failure).finish_non_exhaustive()
            }
        }
    }
}

impl LazyBackend {
    /// A backend that the operator has switched off. Nothing is ever opened.
    pub fn disabled(name: BackendName) -> Self {
        Self { name, opened: OnceLock::new(), wait: Wait::Disabled }
    }

    /// A backend that nobody has needed yet. It is opened when somebody does.
    pub fn untouched(name: BackendName, open: Opener) -> Self {
        let (failure, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { name, opened: OnceLock::new(), wait: Wait::Openable { open, failure, turn } }
    }

    /// Whether nobody has tried to open it.
    pub fn is_untouched(&self) -> bool {
        self.opened.get().is_none() && self.failure().is_none()
    }

    /// Whether it is open.
    pub fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    fn backend(&self) -> Result<&Arc<dyn Backend>> {
        self.opened.get().ok_or_else(|| self.absence())
    }

    fn failure(&self) -> Option<(Instant, Arc<Error>)> {
        match &self.wait {
            Wait::Disabled => None,
            Wait::Openable { failure, .. } => failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// What whoever asks too early is told.
    fn absence(&self) -> Error {
        if matches!(self.wait, Wait::Disabled) {
            return Error::Disabled;
        }
        let what = format!("the {} backend", self.name);
        let (reason, fix) = match self.failure().as_ref().map(|(_, error)| &**error) {
            Some(Error::Unavailable { reason, fix, .. }) => (reason.clone(), fix.clone()),
            Some(other) => (
                other.to_string(),
                "it is tried again and again; `strongbox doctor` says what this machine lacks".to_owned(),
            ),
            None => {
                let reason = "nobody has needed it yet, so it was left alone".to_owned();
                (reason, "`strongbox backends` looks at all of them".to_owned())
            }
        };
        Error::Unavailable { what, reason, fix }
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
impl Backend for LazyBackend {
    fn name(&self) -> BackendName {
        self.name
    }

    fn presence(&self) -> Result<()> {
        self.backend()?.presence()
    }

    async fn attempt(&self) -> Result<()> {
        let Wait::Openable { open, failure, turn } = &self.wait else { return Err(Error::Disabled) };
        let _turn = turn.lock().await;
        let is_fresh = |(at, _): &(Instant, _)| at.elapsed() < FAILURE_AGE_MAX;
        if self.opened.get().is_none() && !self.failure().as_ref().is_some_and(is_fresh) {
            match open().await {
                Ok(backend) => drop(self.opened.set(backend)),
                Err(error) => {
                    tracing::warn!(backend = %self.name, error = %error, "a backend cannot be opened");
                    let failed = Some((Instant::now(), Arc::new(error)));
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = failed;
                }
            }
        }
        self.presence()
    }

    async fn arrives(&self) {
        if matches!(self.wait, Wait::Disabled) {
            return std::future::pending().await;
        }
        let mut backoff = BACKOFF_MIN;
        if self.is_untouched() {
            drop(self.attempt().await);
        }
        while self.opened.get().is_none() {
            tokio::time::sleep(backoff).await;
            backoff = (backoff * 2).min(BACKOFF_MAX);
            drop(self.attempt().await);
        }
    }

    fn ends_boxes_itself(&self) -> bool {
        self.backend().is_ok_and(|backend| backend.ends_boxes_itself())
    }

    fn shares_volumes(&self) -> bool {
        self.backend().is_ok_and(|backend| backend.shares_volumes())
    }

    fn shares_filesystem(&self) -> bool {
        self.backend().is_ok_and(|backend| backend.shares_filesystem())
    }

    fn workload(&self, user: User) -> User {
        self.backend().map_or(user, |backend| backend.workload(user))
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

    async fn image_program(&self, spec: &BoxSpec) -> Result<Option<ImageProgram>> {
        self.backend()?.image_program(spec).await
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

    fn journal_in_box(&self, handle: &Handle) -> Option<GuestPath> {
        self.backend().ok()?.journal_in_box(handle)
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
