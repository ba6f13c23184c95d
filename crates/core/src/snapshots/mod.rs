//! Saved boxes: snapshots of sessions and templates that were built. Each is a row of the store and an archive beside it.

mod archive;
mod error;
mod pipe;
mod reference;
mod room;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_wire::Invalid;
use tokio::sync::OnceCell;

use crate::caller::{Caller, TenantId};
use crate::store::{Change, Store, TemplateKey, TemplateOrigin, TemplateRow, TemplateState, Wait};
use crate::{Error, Result, limits};

pub(crate) use archive::PART;
pub use archive::{Part, remove_archive};
pub use error::SnapshotError;
pub(crate) use pipe::ArchivePipe;
pub use reference::{DEFAULT_TAG, Reference, check_name, check_tag};
pub use room::Room;

/// Where snapshots are kept, and how much of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotConfig {
    /// The directory of archives; without it nothing can be saved.
    pub directory: Option<PathBuf>,
    /// Most that all snapshots and templates of a tenant may have together.
    pub bytes_max: u64,
    /// Names of the operator's templates, which no snapshot can have.
    pub reserved: BTreeSet<String>,
}

/// Which saved boxes are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedKind {
    /// Snapshots of sessions.
    Snapshot,
    /// Templates that were built from steps.
    Template,
    /// Both.
    Any,
}

impl SavedKind {
    fn includes(self, row: &TemplateRow) -> bool {
        match self {
            Self::Snapshot => matches!(row.origin, TemplateOrigin::Snapshot(_)),
            Self::Template => row.origin == TemplateOrigin::Build,
            Self::Any => true,
        }
    }

    /// The error for a reference that names none of them.
    fn not_found(self, name: &str) -> Error {
        let name = name.chars().take(NAME_CHARS_SHOWN).collect();
        match self {
            Self::Template => SnapshotError::TemplateNotFound { name },
            Self::Snapshot | Self::Any => SnapshotError::NotFound { name },
        }
        .into()
    }
}

/// Characters of a caller's reference that an error repeats.
const NAME_CHARS_SHOWN: usize = 64;

/// The saved boxes of all tenants. A change is stored before anybody sees it.
#[derive(Debug)]
pub struct SnapshotStore {
    store: Arc<dyn Store>,
    config: SnapshotConfig,
    /// Read from the store when first needed; what an earlier run left half done is removed then.
    held: OnceCell<Mutex<TemplateIndex>>,
    /// Held by who changes something, so that the store gets changes in their order.
    writing: tokio::sync::Mutex<()>,
    /// What tenants have and are writing.
    rooms: Arc<room::Rooms>,
}

type TemplateIndex = HashMap<TemplateKey, Arc<TemplateRow>>;

impl SnapshotStore {
    /// The saved boxes of a store and a directory.
    pub fn new(store: Arc<dyn Store>, config: SnapshotConfig) -> Self {
        let rooms = Arc::new(room::Rooms::new(config.bytes_max));
        Self { store, config, held: OnceCell::new(), writing: tokio::sync::Mutex::default(), rooms }
    }

    async fn held(&self) -> Result<MutexGuard<'_, TemplateIndex>> {
        let load = async {
            let rows = sweep::sweep(self.store.as_ref(), self.config.directory.as_deref()).await?;
            let held: TemplateIndex = rows.into_iter().map(|row| (row.key.clone(), Arc::new(row))).collect();
            for key in held.keys() {
                self.count(&held, &key.tenant);
            }
            Ok::<_, Error>(Mutex::new(held))
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
    pub async fn of(&self, tenant: &TenantId) -> Result<Vec<Arc<TemplateRow>>> {
        let mut found: Vec<_> =
            self.held().await?.values().filter(|row| row.key.tenant == *tenant).map(Arc::clone).collect();
        found.sort_by(|one, other| place(other).cmp(&place(one)));
        Ok(found)
    }

    /// Those that a caller may use, newest first. A caller who is bound to a profile uses those of this profile only, and
    /// no caller uses a snapshot of a session that it may not see: it holds the session's files.
    pub async fn visible(&self, caller: &Caller) -> Result<Vec<Arc<TemplateRow>>> {
        let mut found = self.of(&caller.tenant).await?;
        found.retain(|row| {
            let is_of_profile = caller.profile.is_none() || row.base.profile == caller.profile;
            let is_seen = match &row.origin {
                TemplateOrigin::Snapshot(session) => {
                    session.parse().map_or(caller.session.is_none(), |session| caller.sees_session(&session))
                }
                TemplateOrigin::Build => caller.session.is_none(),
            };
            is_of_profile && is_seen
        });
        Ok(found)
    }

    /// The one from which a box is made that names this reference.
    pub async fn find(&self, caller: &Caller, reference: &Reference) -> Result<Option<Arc<TemplateRow>>> {
        let all = self.visible(caller).await?;
        Ok(all.into_iter().find(|row| row.state == TemplateState::Ready && reference.means(row)))
    }

    /// The versions of a template, whatever their tags.
    pub async fn versions(&self, caller: &Caller, reference: &Reference) -> Result<Vec<Arc<TemplateRow>>> {
        let mut all = self.visible(caller).await?;
        all.retain(|row| reference.names(row));
        Ok(all)
    }

    /// The one of a build.
    pub async fn build(&self, caller: &Caller, template: &str, build: &str) -> Result<Option<Arc<TemplateRow>>> {
        let all = self.visible(caller).await?;
        Ok(all.into_iter().find(|row| row.template == template && row.build == build))
    }

    /// The saved box that a caller names, of one kind.
    pub(crate) async fn get(&self, caller: &Caller, kind: SavedKind, name: &str) -> Result<Arc<TemplateRow>> {
        let found = self.find(caller, &Reference::read(name)).await?.filter(|row| kind.includes(row));
        found.ok_or_else(|| kind.not_found(name))
    }

    /// Those of one kind that a caller may use, newest first.
    pub(crate) async fn list(&self, caller: &Caller, kind: SavedKind) -> Result<Vec<Arc<TemplateRow>>> {
        let mut all = self.visible(caller).await?;
        all.retain(|row| kind.includes(row));
        Ok(all)
    }

    /// The versions of one template that is there.
    pub(crate) async fn versions_of(
        &self,
        caller: &Caller,
        kind: SavedKind,
        name: &str,
    ) -> Result<Vec<Arc<TemplateRow>>> {
        let mut found = self.versions(caller, &Reference::read(name)).await?;
        found.retain(|row| kind.includes(row));
        if found.is_empty() { Err(kind.not_found(name)) } else { Ok(found) }
    }

    /// Refuses a name that the snapshots and templates of callers cannot have.
    pub fn check_free(&self, name: &str) -> Result<()> {
        check_name(name)?;
        if self.config.reserved.contains(name) {
            let allowed = "a name other than those of the server's templates; choose another";
            return Err(Invalid::new("name", name, allowed).into());
        }
        Ok(())
    }

    /// The id of the template with this name that the caller may use, or a new one.
    pub async fn template_id(&self, caller: &Caller, name: Option<&str>, new: &str) -> Result<String> {
        let all = self.visible(caller).await?;
        let same = name.and_then(|name| all.iter().find(|row| row.name.as_deref() == Some(name)));
        Ok(same.map_or_else(|| new.to_owned(), |row| row.template.clone()))
    }

    /// Gives more tags to a version of a template. Other versions lose them.
    pub(crate) async fn tag(&self, caller: &Caller, name: &str, tags: &[String]) -> Result<Arc<TemplateRow>> {
        tags.iter().try_for_each(|tag| check_tag(tag))?;
        let found = self.find(caller, &Reference::read(name)).await?;
        let mut row = found.map(Arc::unwrap_or_clone).ok_or_else(|| SavedKind::Template.not_found(name))?;
        for tag in tags {
            if !row.tags.contains(tag) {
                row.tags.push(tag.clone());
            }
        }
        if row.tags.len() > limits::SNAPSHOT_TAGS_MAX {
            let allowed = format!("at most {} for one version", limits::SNAPSHOT_TAGS_MAX);
            return Err(Invalid::new("tags", row.tags.len(), allowed).into());
        }
        self.publish(row).await
    }

    /// Stores one, new or changed.
    pub async fn put(&self, row: TemplateRow) -> Result<Arc<TemplateRow>> {
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

    /// Stores one that is ready. Other versions of the template lose its tags; a version without tags is deleted.
    pub async fn publish(&self, row: TemplateRow) -> Result<Arc<TemplateRow>> {
        let _one_at_a_time = self.writing.lock().await;
        let row = self.put_alone(row).await?;
        for other in self.of(&row.key.tenant).await? {
            if other.template == row.template && other.key != row.key && other.state == TemplateState::Ready {
                self.untag(&other, &row.tags).await?;
            }
        }
        Ok(row)
    }

    /// Changes one that exists.
    pub async fn change(
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

    /// Takes tags from one; a version without tags is deleted.
    pub async fn take_tags(&self, row: &TemplateRow, tags: &[String]) -> Result<()> {
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

    /// Deletes one and its archive.
    pub async fn remove(&self, key: &TemplateKey) -> Result<()> {
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
        if let Some(directory) = &self.config.directory {
            remove_archive(archive::path(directory, &key.id)).await;
        }
        Ok(())
    }

    /// The path of the archive of an id.
    pub fn archive(&self, id: &str) -> Result<PathBuf> {
        Ok(archive::path(self.directory()?, id))
    }

    /// The directory of archives.
    pub fn directory(&self) -> Result<&PathBuf> {
        Ok(self.config.directory.as_ref().ok_or(SnapshotError::NoDirectory)?)
    }

    /// Removes what an earlier run of the server left half done.
    pub(crate) async fn clear(&self) {
        if let Err(error) = self.held().await.map(drop) {
            tracing::error!(%error, "failed to read snapshots");
        }
    }
}

fn place(row: &TemplateRow) -> (jiff::Timestamp, &str) {
    (row.created_at, &row.key.id)
}
