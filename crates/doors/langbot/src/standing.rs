//! How the door stands: the settings that hold, and what the backend is found to be.

use std::sync::{Arc, PoisonError, RwLock};

use box_core::{Caller, Capabilities, Error, Service};
use serde_json::{Map, Value, json};

use super::admission::{Readiness, ReadinessFacts};
use super::fault::{Class, Fault};
use super::settings::{BackendChoice, Settings};
use super::{LangBot, LangBotConfig};

/// The settings that hold.
#[derive(Debug)]
pub(crate) struct Standing {
    settings: RwLock<Arc<Settings>>,
    /// One change at a time: each is laid over the one before.
    changing: tokio::sync::Mutex<()>,
}

impl Standing {
    /// Before any client has come.
    pub(super) fn new(config: &LangBotConfig, service: &Service) -> Self {
        Self {
            settings: RwLock::new(Arc::new(Settings::initial(config, &service.offered_backends()))),
            changing: tokio::sync::Mutex::default(),
        }
    }
}

impl LangBot {
    /// The settings that hold now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.0.standing.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The name under which clients know the backend.
    pub(crate) fn backend_name(&self) -> String {
        let named = || self.settings().named_backend().unwrap_or_else(|| self.0.service.backend_name());
        self.0.config.backend_name.clone().unwrap_or_else(|| named().to_string())
    }

    /// The name under which the operator shows whatever backend there is.
    pub(crate) fn backend_alias(&self) -> Option<&str> {
        self.0.config.backend_name.as_deref()
    }

    /// Lays settings over those that hold; all of them or none.
    pub(super) async fn change_settings(&self, changes: Map<String, Value>) -> Result<(), Fault> {
        let _turn = self.0.standing.changing.lock().await;
        let door = self.clone();
        let apply = move || door.settings().with(&changes, &door.0.config, &door.0.service.offered_backends());
        let settings = Arc::new(blocking(apply).await??);
        *self.0.standing.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        Ok(())
    }

    /// Refuses when the settings want a backend that is not here.
    pub(crate) fn check_backend(&self) -> Result<(), Fault> {
        match self.settings().backend() {
            BackendChoice::Ours | BackendChoice::Named(_) => Ok(()),
            BackendChoice::Other(name) => {
                let text = format!(
                    "the backend {name} of box.backend is not available here; leave box.backend empty to use {}",
                    self.backend_name()
                );
                Err(Fault::new(Class::BackendUnavailable, text))
            }
        }
    }

    /// The reply to clients about the backend.
    pub(crate) async fn backend_info(&self) -> Map<String, Value> {
        let available = self.check_backend().is_ok() && self.capabilities().await.available;
        let name = available.then(|| self.backend_name());
        let mut info = Map::from_iter([("name".to_owned(), json!(name)), ("available".to_owned(), json!(available))]);
        if let Some(reason) = self.absence().await.filter(|_| self.check_backend().is_ok()) {
            info.insert("reason".to_owned(), json!(reason));
        }
        info
    }

    /// Why no box can be made here, when none can.
    async fn absence(&self) -> Option<String> {
        match self.settings().named_backend() {
            None => self.0.service.status(&Caller::local()).await.ok()?.reason,
            Some(_) => self.capabilities().await.absence().map(|(reason, _)| reason),
        }
    }

    /// Whether this machine holds what admission promises; nothing where no grants are needed.
    pub(crate) async fn readiness(&self) -> Option<Readiness> {
        let settings = self.settings();
        if !settings.policy().is_required() {
            return None;
        }
        let capabilities = self.capabilities().await;
        let workspace = settings.default_workspace().map(ToOwned::to_owned);
        let has_workspace = blocking(move || workspace.is_some_and(|path| path.is_dir())).await.unwrap_or(false);
        let backend_name = self.check_backend().is_ok().then(|| self.backend_name());
        Some(Readiness::of(&ReadinessFacts {
            policy: settings.policy(),
            backend_name: backend_name.as_deref(),
            capabilities: &capabilities,
            has_workspace,
            max_sessions: settings.limits().max_sessions,
            soft_storage_allowed: self.0.config.soft_storage_allowed,
        }))
    }

    /// Whether sandboxes can be made now, for those who watch the server: the readiness of admission where that is on. What
    /// settings ask of the backend is LangBot's own matter otherwise: the other doors do not care.
    pub async fn ready(&self) -> Map<String, Value> {
        if let Some(readiness) = self.readiness().await {
            return readiness.shown();
        }
        let available = self.0.service.backend_info(&Caller::local()).await.is_ok_and(|(_, found)| found.available);
        let mut ready = Map::from_iter([
            ("ready".to_owned(), json!(available)),
            ("mode".to_owned(), json!("standard")),
            ("backend".to_owned(), json!({ "name": self.chosen_name(), "available": available })),
            ("checks".to_owned(), json!({ "backend_available": available })),
        ]);
        if let Err(error @ Error::Disabled) = self.0.service.presence() {
            ready.insert("error".to_owned(), json!(error.to_string()));
        }
        ready
    }

    fn chosen_name(&self) -> String {
        self.backend_alias().map_or_else(|| self.0.service.backend_name().to_string(), str::to_owned)
    }

    /// The report of the backend for this door's sessions.
    async fn capabilities(&self) -> Capabilities {
        let name = self.settings().named_backend().unwrap_or_else(|| self.0.service.backend_name());
        match self.0.service.backend_info_of(&Caller::local(), name).await {
            Ok(capabilities) => capabilities,
            Err(error) => {
                tracing::error!(error = %error, "the backend cannot be asked");
                Capabilities { available: false, findings: Vec::new() }
            }
        }
    }
}

/// Runs blocking work on a thread where it does not delay other tasks.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    box_core::tasks::blocking(work).await.map_err(|error| {
        tracing::error!(error = %error, "work for a client ended by itself");
        Fault::new(Class::Box, "the server could not finish this; its log says more")
    })
}
