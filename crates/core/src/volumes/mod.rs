//! Volumes: named directories of a tenant that outlive the sessions that mount them.
//!
//! Each is a directory in the state directory, and only boxes read and write it. What it may hold is bounded like a
//! mounted workspace: it is measured before, while and after something runs, which the guarantees of a session call `soft`.

mod directories;
mod mounts;
mod name;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::OnceCell;

use self::directories::Directories;
use crate::hexadecimal::hexadecimal;
use crate::session::SessionId;
use crate::store::{Change, Store, VolumeRow, Wait};
use crate::{Error, Result, TenantId, fault, limits, random, tasks};

pub use mounts::{MountedVolume, VolumeDirectory, VolumeMount};
pub(crate) use mounts::{check, difference, resolve};
pub use name::VolumeName;

/// A volume, as its tenant sees it.
#[derive(Debug, Clone)]
pub struct VolumeInfo {
    /// The volume.
    pub row: Arc<VolumeRow>,
    /// The most that it may hold.
    pub quota_mb: u64,
    /// The sessions that mount it.
    pub sessions: Vec<SessionId>,
}

/// What a caller calls a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeKey {
    /// Its name, unique within the tenant.
    Name(VolumeName),
    /// Its id, as E2B's clients use it.
    Id(String),
}

impl VolumeKey {
    fn is_of(&self, row: &VolumeRow) -> bool {
        match self {
            Self::Name(name) => row.name == name.as_str(),
            Self::Id(id) => row.id == *id,
        }
    }

    /// The error that says that the tenant has no such volume.
    pub(crate) fn not_found(&self) -> Error {
        Error::VolumeNotFound { volume: self.to_string().chars().take(limits::VOLUME_NAME_BYTES_MAX).collect() }
    }
}

impl fmt::Display for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name(name) => name.as_str(),
            Self::Id(id) => id,
        })
    }
}

/// The volumes of all tenants.
#[derive(Debug)]
pub(crate) struct Volumes {
    store: Arc<dyn Store>,
    root: Option<PathBuf>,
    /// Read from the store when first needed.
    opened: OnceCell<Arc<Opened>>,
    /// Held while a volume is created, removed or about to be mounted, so that none is removed that was just found.
    changing: tokio::sync::Mutex<()>,
}

/// The volumes, with their directories.
#[derive(Debug)]
struct Opened {
    directories: Directories,
    by_id: Mutex<HashMap<String, Known>>,
}

/// A volume, and how it is used.
#[derive(Debug)]
struct Known {
    row: Arc<VolumeRow>,
    /// The number of sessions that are being created with it.
    holders: usize,
    /// Whether its row is deleted. Then only the session that empties it can mount it.
    is_deleted: bool,
}

impl Known {
    fn new(row: VolumeRow) -> Self {
        Self { row: Arc::new(row), holders: 0, is_deleted: false }
    }
}

impl Opened {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        // Every change is one step, so what a panicking thread left is whole.
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of_tenant(&self, tenant: &TenantId) -> Vec<Arc<VolumeRow>> {
        let by_id = self.lock();
        let of_tenant = by_id.values().filter(|known| known.row.tenant == *tenant && !known.is_deleted);
        of_tenant.map(|known| Arc::clone(&known.row)).collect()
    }

    /// One volume of a tenant. A deleted one is only there for what `reaches_deleted`.
    fn get(
        &self,
        tenant: &TenantId,
        key: &VolumeKey,
        reaches_deleted: impl Fn(&VolumeRow) -> bool,
    ) -> Result<Arc<VolumeRow>> {
        let by_id = self.lock();
        let is_there = |known: &&Known| !known.is_deleted || reaches_deleted(&known.row);
        let fits = |known: &&Known| known.row.tenant == *tenant && key.is_of(&known.row);
        let found = by_id.values().filter(fits).find(is_there).map(|known| Arc::clone(&known.row));
        found.ok_or_else(|| key.not_found())
    }
}

/// Keeps a volume from being removed while a session is created with it.
#[derive(Debug)]
pub(crate) struct Hold {
    opened: Arc<Opened>,
    id: String,
}

impl Hold {
    fn take(opened: &Arc<Opened>, id: &str) -> Option<Self> {
        opened.lock().get_mut(id)?.holders += 1;
        Some(Self { opened: Arc::clone(opened), id: id.to_owned() })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(known) = self.opened.lock().get_mut(&self.id) {
            known.holders = known.holders.saturating_sub(1);
        }
    }
}

impl Volumes {
    /// The volumes in a store, with their directories below `root`.
    pub(crate) fn new(root: Option<PathBuf>, store: Arc<dyn Store>) -> Self {
        Self { store, root, opened: OnceCell::new(), changing: tokio::sync::Mutex::default() }
    }

    /// Whether this server has a place for volumes.
    pub(crate) fn are_served(&self) -> bool {
        self.root.is_some()
    }

    /// Reads the volumes, and removes what a `kill -9` left of others.
    pub(crate) async fn open(&self) -> Result<()> {
        self.opened().await.map(drop)
    }

    async fn opened(&self) -> Result<&Arc<Opened>> {
        let root = self.root.clone().ok_or_else(|| Error::Unsupported {
            what: "a volume".to_owned(),
            reason: "this server has no directory for volumes".to_owned(),
            fix: "use `strongbox serve`, which keeps them in its state directory".to_owned(),
        })?;
        let load = async {
            let rows = self.store.volumes().await?;
            let ids = rows.iter().map(|row| row.id.clone()).collect();
            let directories = blocking(move || Directories::open(&root, &ids)).await?;
            let by_id = rows.into_iter().map(|row| (row.id.clone(), Known::new(row))).collect();
            Ok::<_, Error>(Arc::new(Opened { directories, by_id: Mutex::new(by_id) }))
        };
        self.opened.get_or_try_init(|| load).await
    }

    /// The volumes of a tenant, oldest first.
    pub(crate) async fn all(&self, tenant: &TenantId) -> Result<Vec<Arc<VolumeRow>>> {
        let mut found = self.opened().await?.of_tenant(tenant);
        found.sort_by(|one, other| (one.created_at, &one.name).cmp(&(other.created_at, &other.name)));
        Ok(found)
    }

    /// One volume of a tenant.
    pub(crate) async fn get(&self, tenant: &TenantId, key: &VolumeKey) -> Result<Arc<VolumeRow>> {
        self.opened().await?.get(tenant, key, |_| false)
    }

    /// The volume with an id, of whichever tenant.
    pub(crate) async fn by_id(&self, id: &str) -> Result<Arc<VolumeRow>> {
        let by_id = self.opened().await?.lock();
        let found = by_id.get(id).filter(|known| !known.is_deleted).map(|known| Arc::clone(&known.row));
        found.ok_or_else(|| VolumeKey::Id(id.to_owned()).not_found())
    }

    /// Creates a volume. Must not be dropped before its end.
    pub(crate) async fn create(&self, tenant: TenantId, name: VolumeName) -> Result<Arc<VolumeRow>> {
        let opened = self.opened().await?;
        let _alone = self.changing.lock().await;
        let of_tenant = opened.of_tenant(&tenant);
        if of_tenant.iter().any(|row| row.name == name.as_str()) {
            let what = format!("volume {name} already exists");
            return Err(Error::Conflict { what, fix: "choose another name, or use that one".to_owned() });
        }
        let limit = limits::VOLUMES_MAX;
        if of_tenant.len() >= limit {
            let fix = "remove a volume first".to_owned();
            return Err(Error::Capacity { what: "volumes".to_owned(), limit, fix });
        }
        let row = VolumeRow {
            tenant,
            id: random_text::<10>()?,
            name: name.into(),
            token: random_text::<32>()?,
            created_at: Timestamp::now(),
        };
        // The directory first: the next start removes one without a row, and a row without a directory would be of no use.
        self.create_directory(opened, &row.id).await?;
        fault::point("volume_directory_created");
        self.store.write(Change::PutVolume(Box::new(row.clone())), Wait::Committed).await?;
        fault::point("volume_row_written");
        let known = Known::new(row);
        let row = Arc::clone(&known.row);
        opened.lock().insert(row.id.clone(), known);
        Ok(row)
    }

    /// Deletes the row of a volume, unless `mounted_in` or a session that is being created has it. Its directory stays.
    /// Must not be dropped before its end.
    pub(crate) async fn forget(
        &self,
        tenant: &TenantId,
        key: &VolumeKey,
        mounted_in: impl Fn(&VolumeRow) -> Vec<SessionId>,
    ) -> Result<Arc<VolumeRow>> {
        let opened = self.opened().await?;
        let _alone = self.changing.lock().await;
        let row = self.get(tenant, key).await?;
        let is_held = opened.lock().get(&row.id).is_some_and(|known| known.holders > 0);
        // In this order: a session is listed before its creation lets go of the volume.
        let sessions = mounted_in(&row);
        if is_held || !sessions.is_empty() {
            return Err(in_use(&row.name, &sessions));
        }
        self.store.write(Change::DeleteVolume(tenant.clone(), row.id.clone()), Wait::Committed).await?;
        fault::point("volume_row_deleted");
        if let Some(known) = opened.lock().get_mut(&row.id) {
            known.is_deleted = true;
        }
        Ok(row)
    }

    /// Removes the directory of a volume whose row is deleted.
    pub(crate) async fn remove_directory(&self, id: &str) -> Result<()> {
        let (opened, id) = (Arc::clone(self.opened().await?), id.to_owned());
        blocking(move || opened.directories.remove(&id)).await
    }

    /// Drops what is known of a deleted volume. What remains of its directory is removed at the next start.
    pub(crate) async fn drop_deleted(&self, id: &str) {
        if let Ok(opened) = self.opened().await {
            opened.lock().remove(id);
        }
    }

    /// Finds the volumes of a tenant that a session asks for, and keeps them from being removed. The session that
    /// `is_own` to a volume does not keep it, and mounts it even when it is deleted.
    pub(crate) async fn find(
        &self,
        tenant: &TenantId,
        asked: &[VolumeMount],
        quota_mb: u64,
        is_own: impl Fn(&VolumeRow) -> bool,
    ) -> Result<(Vec<VolumeDirectory>, Vec<Hold>)> {
        check(asked)?;
        let opened = self.opened().await?;
        let _alone = self.changing.lock().await;
        let (mut directories, mut holds) = (Vec::new(), Vec::new());
        for VolumeMount { volume: key, .. } in asked {
            let row = opened.get(tenant, key, &is_own)?;
            if !is_own(&row) {
                holds.push(Hold::take(opened, &row.id).ok_or_else(|| key.not_found())?);
            }
            let path = self.create_directory(opened, &row.id).await?;
            let host_path = path.into_os_string().into_string().map_err(|path| {
                box_wire::Invalid::new("state_dir", path.display().to_string(), "a path that is UTF-8 text")
            })?;
            let name = row.name.clone();
            directories.push(VolumeDirectory { key: key.clone(), name, host_path, quota_mb });
        }
        Ok((directories, holds))
    }

    /// Creates the directory of a volume, if it is missing.
    async fn create_directory(&self, opened: &Arc<Opened>, id: &str) -> Result<PathBuf> {
        let (opened, id) = (Arc::clone(opened), id.to_owned());
        blocking(move || opened.directories.make(&id)).await
    }
}

fn in_use(name: &str, sessions: &[SessionId]) -> Error {
    let shown: Vec<_> = sessions.iter().take(limits::VOLUME_SESSIONS_NAMED_MAX).map(SessionId::as_str).collect();
    let (what, fix) = match sessions {
        [] => (format!("volume {name} is about to be mounted in a new session"), "delete that session first"),
        [one] => (format!("volume {name} is mounted in session {one}"), "delete that session first"),
        more if more.len() > shown.len() => {
            let rest = more.len() - shown.len();
            let what = format!("volume {name} is mounted in sessions {} and {rest} more", shown.join(", "));
            (what, "delete these sessions first")
        }
        _ => (format!("volume {name} is mounted in sessions {}", shown.join(", ")), "delete these sessions first"),
    };
    Error::Conflict { what, fix: fix.to_owned() }
}

/// Random bytes in hexadecimal.
fn random_text<const LENGTH: usize>() -> Result<String> {
    let bytes = random::bytes::<LENGTH>().map_err(|error| Error::io("choosing a random id", error))?;
    Ok(hexadecimal(&bytes))
}

/// Changes directories on a thread that may block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tasks::blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::io("changing the directory of a volume", std::io::Error::other(error))))
}
