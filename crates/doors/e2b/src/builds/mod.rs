//! Templates that are being built, as far as only this server knows: what was said about it, and files that came for it.

mod log;
mod uploads;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use box_core::store::TemplateKey;
use tokio::sync::Semaphore;

use crate::limits;

pub(crate) use log::{BuildLog, Entry, Level};
pub(crate) use uploads::Uploads;

/// All builds of this server.
#[derive(Debug)]
pub(crate) struct Builds {
    logs: Mutex<HashMap<TemplateKey, Arc<BuildLog>>>,
    uploads: Uploads,
    permits: Semaphore,
}

impl Default for Builds {
    fn default() -> Self {
        let permits = Semaphore::new(limits::E2B_BUILDS_AT_ONCE);
        Self { logs: Mutex::default(), uploads: Uploads::default(), permits }
    }
}

impl Builds {
    /// The log of a build, which begins now. Those of builds that ended long ago make room.
    pub(crate) fn begin(&self, key: &TemplateKey) -> Arc<BuildLog> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        while logs.len() >= limits::E2B_BUILD_LOGS_MAX {
            let oldest = logs.iter().min_by_key(|(_, log)| log.begun_at()).map(|(key, _)| key.clone());
            if oldest.and_then(|key| logs.remove(&key)).is_none() {
                break;
            }
        }
        let log = Arc::new(BuildLog::default());
        logs.insert(key.clone(), Arc::clone(&log));
        log
    }

    /// The log of a build, if it is still kept.
    pub(crate) fn log(&self, key: &TemplateKey) -> Option<Arc<BuildLog>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Files that came for builds.
    pub(crate) fn uploads(&self) -> &Uploads {
        &self.uploads
    }

    /// Who may build now; others wait.
    pub(crate) fn permits(&self) -> &Semaphore {
        &self.permits
    }
}
