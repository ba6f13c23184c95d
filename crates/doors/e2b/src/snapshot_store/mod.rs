//! Saved boxes: snapshots of sandboxes and templates that were built. Each is a row of the store and an archive beside it.

mod archive;
mod reference;
mod room;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::store::{Change, TemplateKey, TemplateRow, TemplateState, Wait};
use box_core::{Caller, Result, Store, TenantId};
use http::StatusCode;
use tokio::sync::OnceCell;

use super::failure::E2bFailure;

pub(super) use archive::{Part, remove as remove_archive, save};
pub(super) use reference::{DEFAULT_TAG, Reference, check_name, check_tag};
pub(super) use room::Room;
#[cfg(test)]
pub(super) use tests::row as snapshot_row;

/// The saved boxes that there are, of all tenants. What is changed here is remembered before anybody sees it.
#[derive(Debug)]
pub(crate) struct SnapshotStore {
    store: Arc<dyn Store>,
    /// Where archives are; without it nothing can be saved.
    directory: Option<PathBuf>,
    /// Read from the store when first needed; what a server before this one left half done is cleared away then.
    held: OnceCell<Mutex<TemplateIndex>>,
    /// Held by who changes something, so that the store remembers what was done last.
    writing: tokio::sync::Mutex<()>,
    /// What tenants have and are writing.
    rooms: Arc<room::Rooms>,
}

type TemplateIndex = HashMap<TemplateKey, Arc<TemplateRow>>;

impl SnapshotStore {
    /// What a store remembers, and a directory holds.
    pub(crate) fn new(store: Arc<dyn Store>, directory: Option<PathBuf>, bytes_max: u64) -> Self {
        let (held, writing) = (OnceCell::new(), tokio::sync::Mutex::default());
        Self { store, directory, held, writing, rooms: Arc::new(room::Rooms::new(bytes_max)) }
    }

    async fn held(&self) -> Result<MutexGuard<'_, TemplateIndex>> {
        let load = async {
            let rows = sweep::sweep(self.store.as_ref(), self.directory.as_deref()).await?;
            let held: TemplateIndex = rows.into_iter().map(|row| (row.key.clone(), Arc::new(row))).collect();
            for key in held.keys() {
                self.count(&held, &key.tenant);
            }
            Ok::<_, box_core::Error>(Mutex::new(held))
        };
        let held = self.held.get_or_try_init(|| load).await?;
        // Every change is one step, so what a panicking thread left is whole.
        Ok(held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts what a tenant has.
    fn count(&self, held: &TemplateIndex, tenant: &TenantId) {
        self.rooms.keep(tenant, held.values().filter(|row| row.key.tenant == *tenant).map(|row| &**row));
    }

    /// Those of a tenant, newest first.
    pub(crate) async fn of(&self, tenant: &TenantId) -> Result<Vec<Arc<TemplateRow>>> {
        let mut found: Vec<_> =
            self.held().await?.values().filter(|row| row.key.tenant == *tenant).map(Arc::clone).collect();
        found.sort_by(|one, other| place(other).cmp(&place(one)));
        Ok(found)
    }

    /// Those that a caller may know of, newest first. Who is bound to a profile knows of those with this profile only.
    pub(crate) async fn visible(&self, caller: &Caller) -> Result<Vec<Arc<TemplateRow>>> {
        let mut found = self.of(&caller.tenant).await?;
        found.retain(|row| caller.profile.is_none() || row.base.profile == caller.profile);
        Ok(found)
    }

    /// The one that boxes are made from who ask for this.
    pub(crate) async fn find(&self, caller: &Caller, reference: &Reference) -> Result<Option<Arc<TemplateRow>>> {
        let all = self.visible(caller).await?;
        Ok(all.into_iter().find(|row| row.state == TemplateState::Ready && reference.means(row)))
    }

    /// The versions of the template that is meant, whatever their tags.
    pub(crate) async fn versions(&self, caller: &Caller, reference: &Reference) -> Result<Vec<Arc<TemplateRow>>> {
        let mut all = self.visible(caller).await?;
        all.retain(|row| reference.names(row));
        Ok(all)
    }

    /// The one of a build.
    pub(crate) async fn build(&self, caller: &Caller, template: &str, build: &str) -> Result<Option<Arc<TemplateRow>>> {
        let all = self.visible(caller).await?;
        Ok(all.into_iter().find(|row| row.template == template && row.build == build))
    }

    /// Remembers one, new or changed.
    pub(crate) async fn put(&self, row: TemplateRow) -> Result<Arc<TemplateRow>> {
        let _one_at_a_time = self.writing.lock().await;
        self.put_alone(row).await
    }

    async fn put_alone(&self, row: TemplateRow) -> Result<Arc<TemplateRow>> {
        let row = Arc::new(row);
        self.store.write(Change::PutTemplate(Box::new(TemplateRow::clone(&row))), Wait::Committed).await?;
        let mut held = self.held().await?;
        held.insert(row.key.clone(), Arc::clone(&row));
        self.count(&held, &row.key.tenant);
        Ok(row)
    }

    /// Remembers one that is ready. Its tags are its own now: others of the template lose them, and those without any are gone.
    pub(crate) async fn publish(&self, row: TemplateRow) -> Result<Arc<TemplateRow>> {
        let _one_at_a_time = self.writing.lock().await;
        let row = self.put_alone(row).await?;
        for other in self.of(&row.key.tenant).await? {
            if other.template == row.template && other.key != row.key && other.state == TemplateState::Ready {
                self.untag(&other, &row.tags).await?;
            }
        }
        Ok(row)
    }

    /// Changes one that is there.
    pub(crate) async fn change(
        &self,
        key: &TemplateKey,
        change: impl FnOnce(&mut TemplateRow) + Send,
    ) -> Result<Option<Arc<TemplateRow>>> {
        let _one_at_a_time = self.writing.lock().await;
        let found = self.held().await?.get(key).cloned();
        let Some(mut row) = found.map(Arc::unwrap_or_clone) else { return Ok(None) };
        change(&mut row);
        self.put_alone(row).await.map(Some)
    }

    /// Takes tags from one; one without any is gone.
    pub(crate) async fn take_tags(&self, row: &TemplateRow, tags: &[String]) -> Result<()> {
        let _one_at_a_time = self.writing.lock().await;
        self.untag(row, tags).await
    }

    async fn untag(&self, row: &TemplateRow, tags: &[String]) -> Result<()> {
        let left: Vec<_> = row.tags.iter().filter(|tag| !tags.contains(tag)).cloned().collect();
        if left.is_empty() {
            return self.remove_alone(&row.key).await;
        }
        if left.len() < row.tags.len() {
            self.put_alone(TemplateRow { tags: left, ..row.clone() }).await?;
        }
        Ok(())
    }

    /// Forgets one, and removes its archive.
    pub(crate) async fn remove(&self, key: &TemplateKey) -> Result<()> {
        let _one_at_a_time = self.writing.lock().await;
        self.remove_alone(key).await
    }

    async fn remove_alone(&self, key: &TemplateKey) -> Result<()> {
        self.store.write(Change::DeleteTemplate(key.clone()), Wait::Committed).await?;
        {
            let mut held = self.held().await?;
            held.remove(key);
            self.count(&held, &key.tenant);
        }
        if let Some(directory) = &self.directory {
            archive::remove(archive::path(directory, &key.id)).await;
        }
        Ok(())
    }

    /// Where the archive of one is, or is to be.
    pub(crate) fn archive(&self, id: &str) -> std::result::Result<PathBuf, E2bFailure> {
        Ok(archive::path(self.directory()?, id))
    }

    /// Where archives are.
    pub(crate) fn directory(&self) -> std::result::Result<&PathBuf, E2bFailure> {
        let missing = || {
            let message = "this server has no place for saved sandboxes; start it with a state directory";
            E2bFailure::new(StatusCode::SERVICE_UNAVAILABLE, message)
        };
        self.directory.as_ref().ok_or_else(missing)
    }

    /// Clears away what a server before this one left half done.
    pub(crate) async fn clear(&self) {
        if let Err(error) = self.held().await.map(drop) {
            tracing::error!(%error, "saved sandboxes cannot be read");
        }
    }
}

fn place(row: &TemplateRow) -> (jiff::Timestamp, &str) {
    (row.created_at, &row.key.id)
}
