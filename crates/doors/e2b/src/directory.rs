//! The sandboxes that there are: held in memory, found by id or by what opens them, and remembered by the store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::store::{Change, SandboxRow, SessionKey, Wait};
use box_core::{Result, Store};
use box_e2b_wire::SandboxId;
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, OnceCell};

/// The sandboxes that there are, of all tenants. What is changed here is remembered before anybody sees it.
#[derive(Debug)]
pub(crate) struct Directory {
    store: Arc<dyn Store>,
    /// Read from the store when first needed.
    held: OnceCell<Mutex<SandboxIndex>>,
    /// Held by who changes something, so that the store remembers what was done last.
    writing: tokio::sync::Mutex<()>,
    /// Told when an end has changed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct SandboxIndex {
    by_id: HashMap<SandboxId, Arc<SandboxRow>>,
    /// By hashes: how long looking takes tells nothing about tokens.
    by_token: HashMap<[u8; 32], SandboxId>,
}

impl SandboxIndex {
    fn insert(&mut self, id: SandboxId, row: Arc<SandboxRow>) {
        self.by_token.insert(digest(&row.access_token), id.clone());
        self.by_id.insert(id, row);
    }

    fn remove(&mut self, id: &SandboxId) {
        if let Some(row) = self.by_id.remove(id) {
            self.by_token.remove(&digest(&row.access_token));
        }
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl Directory {
    /// What a store remembers.
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, held: OnceCell::new(), writing: tokio::sync::Mutex::default(), changed: Notify::new() }
    }

    async fn held(&self) -> Result<MutexGuard<'_, SandboxIndex>> {
        let load = async {
            let mut held = SandboxIndex::default();
            for row in self.store.sandboxes().await? {
                // A session of another door is no sandbox, whoever wrote it there.
                if let Ok(id) = row.key.id.as_str().parse() {
                    held.insert(id, Arc::new(row));
                }
            }
            Ok::<_, box_core::Error>(Mutex::new(held))
        };
        let held = self.held.get_or_try_init(|| load).await?;
        // Every change is one step, so what a panicking thread left is whole.
        Ok(held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// All of them, in no order.
    pub(crate) async fn all(&self) -> Result<Vec<Arc<SandboxRow>>> {
        Ok(self.held().await?.by_id.values().cloned().collect())
    }

    /// The one of that id.
    pub(crate) async fn find(&self, id: &SandboxId) -> Result<Option<Arc<SandboxRow>>> {
        Ok(self.held().await?.by_id.get(id).cloned())
    }

    /// The one that an access token opens.
    pub(crate) async fn opened_by(&self, token: &str) -> Result<Option<Arc<SandboxRow>>> {
        let held = self.held().await?;
        let id = held.by_token.get(&digest(token));
        Ok(id.and_then(|id| held.by_id.get(id)).cloned())
    }

    /// The one whose access token made something, such as a signature.
    pub(crate) async fn whose_token(&self, made: impl Fn(&str) -> bool) -> Result<Option<Arc<SandboxRow>>> {
        let all = self.all().await?;
        Ok(all.into_iter().find(|row| made(&row.access_token)))
    }

    /// Remembers one that is about to be made. Nobody finds it yet, but after a crash it is known that there may be one.
    pub(crate) async fn intend(&self, row: &SandboxRow) -> Result<()> {
        self.store.write(Change::PutSandbox(Box::new(row.clone())), Wait::Committed).await
    }

    /// Takes in one that was made as intended.
    pub(crate) async fn add(&self, id: SandboxId, row: SandboxRow) -> Result<Arc<SandboxRow>> {
        let row = Arc::new(row);
        self.held().await?.insert(id, Arc::clone(&row));
        self.changed.notify_one();
        Ok(row)
    }

    /// Changes one. Nothing if it is not there any more.
    pub(crate) async fn change(
        &self,
        id: &SandboxId,
        change: impl FnOnce(&mut SandboxRow) + Send,
    ) -> Result<Option<Arc<SandboxRow>>> {
        let _one_at_a_time = self.writing.lock().await;
        let Some(mut row) = self.find(id).await?.map(Arc::unwrap_or_clone) else { return Ok(None) };
        change(&mut row);
        self.store.write(Change::PutSandbox(Box::new(row.clone())), Wait::Committed).await?;
        let row = Arc::new(row);
        self.held().await?.insert(id.clone(), Arc::clone(&row));
        self.changed.notify_one();
        Ok(Some(row))
    }

    /// Forgets one.
    pub(crate) async fn forget(&self, key: &SessionKey) -> Result<()> {
        let _one_at_a_time = self.writing.lock().await;
        self.store.write(Change::DeleteSandbox(key.clone()), Wait::Committed).await?;
        if let Ok(id) = key.id.as_str().parse() {
            self.held().await?.remove(&id);
        }
        Ok(())
    }

    /// Waits until an end has changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::row;
    use door_http::testing::MemoryStore;

    fn id(text: &str) -> SandboxId {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn what_was_changed_is_known_after_a_restart() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let directory = Directory::new(Arc::clone(&store));
        for name in ["one", "two"] {
            directory.intend(&row(name)).await.unwrap();
            assert!(directory.find(&id(name)).await.unwrap().is_none() || name == "one", "nobody finds an intention");
            directory.add(id(name), row(name)).await.unwrap();
        }
        directory.change(&id("one"), |row| row.timeout_sec = 7).await.unwrap().unwrap();
        directory.forget(&row("two").key).await.unwrap();
        assert!(directory.change(&id("two"), |_| ()).await.unwrap().is_none());
        let again = Directory::new(store);
        for directory in [directory, again] {
            let all = directory.all().await.unwrap();
            assert_eq!(all.iter().map(|row| (row.key.id.as_str(), row.timeout_sec)).collect::<Vec<_>>(), [("one", 7)]);
            let found = directory.opened_by(&row("one").access_token).await.unwrap();
            assert_eq!(found.unwrap().key, row("one").key);
            assert!(directory.opened_by(&row("two").access_token).await.unwrap().is_none());
        }
    }
}
