//! Skill packages, as handlers reach them.

use std::path::PathBuf;

use box_core::quota::Quota;
use box_core::{Caller, Service, TenantId};
use box_skills::{SkillStore, SkillStores};
use http::StatusCode;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::limits;
use door_http::blocking;
use door_http::failure::Failure;

/// Where skill packages are, and where new ones may come from.
#[derive(Debug, Clone, Default)]
pub struct SkillsConfig {
    /// The stores of all tenants. Without them this server has no skills.
    pub stores: Option<SkillStores>,
    /// Whether archives may be fetched from an `https` address that a caller names.
    pub allow_urls: bool,
    /// Whether such an address may be one of this machine's own loopback, and then also `http`.
    pub allow_loopback_urls: bool,
    /// Directories of the host below which administrators may name one to install from.
    pub checkout_roots: Vec<PathBuf>,
}

/// What handlers know of skills.
#[derive(Debug)]
pub(crate) struct SkillDoor {
    config: SkillsConfig,
    archives: Semaphore,
    /// Held by who adds to packages: no two find the last room free.
    adding: tokio::sync::Mutex<()>,
}

impl SkillDoor {
    /// A door to these packages.
    pub(crate) fn new(config: SkillsConfig) -> Self {
        Self { config, archives: Semaphore::new(limits::ARCHIVES_MAX), adding: tokio::sync::Mutex::default() }
    }

    /// What the operator allows.
    pub(crate) fn config(&self) -> &SkillsConfig {
        &self.config
    }

    /// The right to hold an archive in memory; whoever has none waits.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>, Failure> {
        self.archives.acquire().await.map_err(|error| Failure::internal(error.to_string()))
    }

    /// Does something with the packages of the caller's tenant, where nobody else has to wait for it.
    pub(crate) async fn with_store<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce(&SkillStore) -> box_skills::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        let (stores, tenant) = (self.stores()?, caller.tenant.clone());
        blocking(move || work(&open(&stores, &tenant)?)).await?.map_err(told)
    }

    /// The same for what adds to the packages: refused where the disk, or what the tenant may have, is full.
    pub(crate) async fn adding<T: Send + 'static>(
        &self,
        service: &Service,
        caller: &Caller,
        work: impl FnOnce(&SkillStore) -> box_skills::Result<T> + Send + 'static,
    ) -> Result<T, Failure> {
        service.check_writable()?;
        let _alone = self.adding.lock().await;
        let quota = Quota::of_mb(limits::SKILLS_MB_MAX);
        if quota.is_exceeded_by(&self.with_store(caller, move |store| store.usage(quota)).await?) {
            let message = format!("all skills of a tenant may take {} MiB; delete some first", limits::SKILLS_MB_MAX);
            return Err(Failure::new(StatusCode::INSUFFICIENT_STORAGE, "quota_exceeded", message));
        }
        self.with_store(caller, work).await
    }

    fn stores(&self) -> Result<SkillStores, Failure> {
        let missing = || {
            let message = "this server has no place for skills";
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, "skills_unavailable", message)
                .hint("the operator sets skills_root")
        };
        self.config.stores.clone().ok_or_else(missing)
    }
}

fn open(stores: &SkillStores, tenant: &TenantId) -> box_skills::Result<SkillStore> {
    stores.of(tenant)
}

/// What is wrong with a package, an archive or a name of them.
pub(crate) fn told(error: box_skills::Error) -> Failure {
    let (code, message) = (error.code(), error.to_string());
    let status = match (error, code) {
        (box_skills::Error::System(error), _) => return error.into(),
        (_, "skill_not_found" | "file_not_found") => StatusCode::NOT_FOUND,
        (_, "skill_exists" | "digest_differs") => StatusCode::CONFLICT,
        (_, "too_large") => StatusCode::PAYLOAD_TOO_LARGE,
        _ => return Failure::new(StatusCode::BAD_REQUEST, "validation_error", message).detail(code),
    };
    Failure::new(status, code, message)
}
