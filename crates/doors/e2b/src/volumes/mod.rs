//! Volumes: directories of ours that outlive the sandboxes that have them.
//!
//! Only boxes write there, and nothing of what lies in one is touched from outside: who wants to see it without a sandbox does so
//! through a small box of the volume's own, see [`content`].

mod content;
mod directory_store;
mod mounted;
mod reached;
mod views;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::store::{Change, VolumeRow, Wait};
use box_core::{Error, Store, TenantId};
use http::StatusCode;
use jiff::Timestamp;
use tokio::sync::OnceCell;

use self::directory_store::DirectoryStore;
use super::E2bConfig;
use super::control::{new_id, secret};
use super::failure::E2bFailure;
use crate::app::App;
use crate::limits;

pub(super) use self::content::routes as content_routes;

/// What is done here, where nobody knows how it ended.
pub(super) const LOOKING_AFTER: &str = "looking after volumes";

/// The volumes that there are, of all tenants.
#[derive(Debug)]
pub(crate) struct Volumes {
    store: Arc<dyn Store>,
    place: Option<PathBuf>,
    quota_mb: u64,
    /// Read from the store when first needed.
    opened: OnceCell<Arc<Opened>>,
    /// Held by who makes or removes one, or is about to mount one: none goes that somebody has just found.
    changing: tokio::sync::Mutex<()>,
}

/// The volumes, with their directories.
#[derive(Debug)]
struct Opened {
    directories: DirectoryStore,
    by_id: Mutex<HashMap<String, Known>>,
}

/// A volume, and how many sandboxes are being made with it.
#[derive(Debug)]
struct Known {
    row: Arc<VolumeRow>,
    holders: usize,
}

impl Opened {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        // Every change is one step, so what a panicking thread left is whole.
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, fits: impl Fn(&VolumeRow) -> bool) -> Option<Arc<VolumeRow>> {
        self.lock().values().map(|known| &known.row).find(|row| fits(row)).cloned()
    }
}

/// Removes what is left of volumes that were being made or removed when the server last ended.
pub(crate) async fn open(app: &App) {
    if app.e2b().volumes().place.is_none() {
        return;
    }
    if let Err(failure) = app.e2b().volumes().opened().await {
        tracing::error!(error = failure.message(), "volumes cannot be used");
    }
}

impl Volumes {
    /// What a store remembers.
    pub(super) fn new(config: &E2bConfig, store: Arc<dyn Store>) -> Self {
        Self {
            store,
            place: config.volumes.clone(),
            quota_mb: config.volume_mb,
            opened: OnceCell::new(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    async fn opened(&self) -> Result<&Arc<Opened>, E2bFailure> {
        let place = self.place.clone().ok_or_else(|| E2bFailure::not_served("volumes"))?;
        let load = async {
            let rows = self.store.volumes().await?;
            let names = rows.iter().map(|row| row.id.clone()).collect();
            let directories = blocking(move || DirectoryStore::open(&place, &names)).await?;
            let known = |row: VolumeRow| (row.id.clone(), Known { row: Arc::new(row), holders: 0 });
            Ok::<_, Error>(Arc::new(Opened { directories, by_id: Mutex::new(rows.into_iter().map(known).collect()) }))
        };
        Ok(self.opened.get_or_try_init(|| load).await?)
    }

    /// Those of a tenant, oldest first.
    pub(super) async fn all(&self, tenant: &TenantId) -> Result<Vec<Arc<VolumeRow>>, E2bFailure> {
        let known = self.opened().await?.lock();
        let mut found: Vec<_> =
            known.values().filter(|known| known.row.tenant == *tenant).map(|known| Arc::clone(&known.row)).collect();
        found.sort_by(|one, other| (one.created_at, &one.name).cmp(&(other.created_at, &other.name)));
        Ok(found)
    }

    /// The one of that id, whoever's it is.
    pub(super) async fn find(&self, id: &str) -> Result<Option<Arc<VolumeRow>>, E2bFailure> {
        Ok(self.opened().await?.lock().get(id).map(|known| Arc::clone(&known.row)))
    }

    /// Makes one. Not to be given up in the middle.
    pub(super) async fn make(&self, tenant: TenantId, name: String) -> Result<Arc<VolumeRow>, E2bFailure> {
        let opened = self.opened().await?;
        let _alone = self.changing.lock().await;
        let of_tenant = self.all(&tenant).await?;
        if of_tenant.iter().any(|row| row.name == name) {
            let message = format!("there is a volume named {name:?} already; choose another name, or use that one");
            return Err(E2bFailure::new(StatusCode::CONFLICT, message));
        }
        if of_tenant.len() >= limits::E2B_VOLUMES_MAX {
            let most = limits::E2B_VOLUMES_MAX;
            return Err(E2bFailure::invalid(format!("there are {most} volumes, which is the most; remove one first")));
        }
        let id = new_id()?.as_str().to_owned();
        let row = Arc::new(VolumeRow { tenant, id, name, token: secret()?, created_at: Timestamp::now() });
        // The directory first: one that nobody knows of goes at the next start, and a volume without one cannot be used.
        self.make_directory(&row.id).await?;
        self.store.write(Change::PutVolume(Box::new((*row).clone())), Wait::Committed).await?;
        opened.lock().insert(row.id.clone(), Known { row: Arc::clone(&row), holders: 0 });
        Ok(row)
    }

    /// Makes the directory of a volume, where it is not there.
    async fn make_directory(&self, id: &str) -> Result<PathBuf, E2bFailure> {
        let (opened, id) = (Arc::clone(self.opened().await?), id.to_owned());
        Ok(blocking(move || opened.directories.make(&id)).await?)
    }

    /// Forgets one of a tenant. Its directory is still there. Not to be given up in the middle.
    pub(super) async fn forget(&self, app: &App, tenant: &TenantId, id: &str) -> Result<Arc<VolumeRow>, E2bFailure> {
        let opened = self.opened().await?;
        let _alone = self.changing.lock().await;
        let row = self.find(id).await?.filter(|row| row.tenant == *tenant).ok_or_else(|| absent(id))?;
        let is_held = opened.lock().get(id).is_some_and(|known| known.holders > 0);
        // In this order: who held it has added its sandbox before it let go.
        if is_held || is_mounted(app, &row).await? {
            let message = format!("volume {:?} is mounted in a sandbox; end that sandbox first", row.name);
            return Err(E2bFailure::new(StatusCode::CONFLICT, message));
        }
        self.store.write(Change::DeleteVolume(tenant.clone(), row.id.clone()), Wait::Committed).await?;
        opened.lock().remove(id);
        Ok(row)
    }

    /// Removes the directory of one that is forgotten.
    async fn remove_directory(&self, id: &str) -> box_core::Result<()> {
        // Whoever has forgotten one has opened them.
        let Some(opened) = self.opened.get().map(Arc::clone) else { return Ok(()) };
        let id = id.to_owned();
        blocking(move || opened.directories.remove(&id)).await
    }
}

async fn is_mounted(app: &App, volume: &VolumeRow) -> Result<bool, E2bFailure> {
    let sandboxes = app.e2b().directory().all().await?;
    let has_it = |mounts: &[box_core::store::SandboxVolume]| mounts.iter().any(|mount| mount.name == volume.name);
    Ok(sandboxes.iter().any(|row| row.key.tenant == volume.tenant && has_it(&row.volume_mounts)))
}

/// Does something with directories where nobody waits for it but who asked.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> box_core::Result<T> + Send + 'static,
) -> box_core::Result<T> {
    let done = box_core::tasks::blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::io(LOOKING_AFTER, std::io::Error::other(error))))
}

/// Removes what is left of a volume that is forgotten: the box through which it was looked into, and its directory. What cannot be
/// removed now is tried again at the next start.
pub(super) async fn clear(app: &App, row: &Arc<VolumeRow>) {
    let stays = |error: &dyn std::fmt::Display| {
        tracing::warn!(volume.id = row.id, %error, "what is left of a volume stays for now");
    };
    if let Err(failure) = reached::end_session(app, row).await {
        stays(&failure.message());
    }
    let Err(error) = app.e2b().volumes().remove_directory(&row.id).await else { return };
    // A server that is not root may not remove what users of its boxes made. Root of a box may.
    let emptied = async {
        content::empty(app, row).await?;
        reached::end_session(app, row).await?;
        Ok::<_, E2bFailure>(app.e2b().volumes().remove_directory(&row.id).await?)
    };
    if emptied.await.is_err() {
        stays(&error);
    }
}

/// What is told of a volume that is not there, or not the caller's, which is the same to it.
pub(super) fn absent(id: &str) -> E2bFailure {
    let shown: String = id.chars().take(64).collect();
    E2bFailure::not_found(format!("volume \"{shown}\" was not found"))
}

#[cfg(test)]
mod tests;
