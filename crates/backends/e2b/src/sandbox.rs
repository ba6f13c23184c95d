//! A live sandbox, as long as this process knows it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use box_e2b_wire::{BoxUser, SandboxId};
use tokio_util::sync::CancellationToken;

use crate::envd::Envd;
use crate::locator::Locator;
use crate::sync::Sync;

/// The user that starts this backend's own programs: they give up its rights themselves.
pub(crate) const STARTER: BoxUser = BoxUser::Root;

/// A sandbox that is a box.
#[derive(Debug)]
pub(crate) struct LiveSandbox {
    pub(crate) locator: Locator,
    /// How its daemon is reached; waking it can change that.
    envd: Mutex<Envd>,
    is_paused: AtomicBool,
    /// Ended with the box.
    pub(crate) over: CancellationToken,
    /// What it sees of the host, where it sees anything.
    pub(crate) sync: Option<Sync>,
}

impl LiveSandbox {
    pub(crate) fn new(locator: Locator, envd: Envd, sync: Option<Sync>, over: CancellationToken) -> Self {
        Self { locator, envd: Mutex::new(envd), is_paused: AtomicBool::new(false), over, sync }
    }

    pub(crate) fn id(&self) -> &SandboxId {
        &self.locator.sandbox
    }

    /// How its daemon is reached.
    pub(crate) fn envd(&self) -> Envd {
        self.envd.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_envd(&self, envd: Envd) {
        *self.envd.lock().unwrap_or_else(PoisonError::into_inner) = envd;
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.is_paused.store(paused, Ordering::Relaxed);
    }
}
