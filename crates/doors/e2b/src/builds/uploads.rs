//! Files that came for builds: each may be sent once, by whoever was told where, and is kept until the build has ended.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use box_core::TenantId;
use box_core::snapshots::Room;
use subtle::ConstantTimeEq;

use crate::limits;

/// Files that came, and those that may come, by template.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<HashMap<(TenantId, String), HashMap<String, Upload>>>);

#[derive(Debug)]
enum Upload {
    /// It may come, from whoever shows this.
    Expected { token: String },
    /// It is on its way.
    Coming,
    /// It is there, and has its room until it goes.
    There { path: PathBuf, _room: Room },
}

/// Why a file cannot come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoUpload {
    /// A build has so many files and no more.
    #[error("a build can have at most {} COPY steps with files of their own", limits::E2B_UPLOADS_MAX)]
    TooMany,
    /// Nobody expects it.
    #[error("this address was used already, or was never given; ask for another one")]
    Unexpected,
}

impl Uploads {
    fn all(&self) -> MutexGuard<'_, HashMap<(TenantId, String), HashMap<String, Upload>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a file is there already.
    pub(crate) fn is_there(&self, tenant: &TenantId, template: &str, hash: &str) -> bool {
        self.there(tenant, template, hash).is_some()
    }

    /// Where a file is.
    pub(crate) fn there(&self, tenant: &TenantId, template: &str, hash: &str) -> Option<PathBuf> {
        match self.all().get(&(tenant.clone(), template.to_owned()))?.get(hash)? {
            Upload::There { path, .. } => Some(path.clone()),
            Upload::Expected { .. } | Upload::Coming => None,
        }
    }

    /// Lets a file come once. One that is there already stays until another one has come.
    pub(crate) fn expect(&self, tenant: &TenantId, template: &str, hash: &str, token: String) -> Result<(), NoUpload> {
        let mut all = self.all();
        let files = all.entry((tenant.clone(), template.to_owned())).or_default();
        if files.len() >= limits::E2B_UPLOADS_MAX && !files.contains_key(hash) {
            return Err(NoUpload::TooMany);
        }
        files.insert(hash.to_owned(), Upload::Expected { token });
        Ok(())
    }

    /// Lets whoever shows the right token begin, once; says whose file it is.
    pub(crate) fn begin(&self, template: &str, hash: &str, token: &str) -> Result<TenantId, NoUpload> {
        let mut all = self.all();
        for ((tenant, known), files) in all.iter_mut().filter(|((_, known), _)| known == template) {
            debug_assert_eq!(known, template, "others were left out");
            let Some(upload) = files.get_mut(hash) else { continue };
            let Upload::Expected { token: expected } = &*upload else { continue };
            if bool::from(expected.as_bytes().ct_eq(token.as_bytes())) {
                *upload = Upload::Coming;
                return Ok(tenant.clone());
            }
        }
        Err(NoUpload::Unexpected)
    }

    /// Takes in a file that has come. Returns the file to remove: this one, where the build has ended meanwhile, or the one before.
    pub(crate) fn finish(
        &self,
        tenant: &TenantId,
        template: &str,
        hash: &str,
        path: PathBuf,
        room: Room,
    ) -> Option<PathBuf> {
        let mut all = self.all();
        let files = all.get_mut(&(tenant.clone(), template.to_owned()));
        let Some(upload) = files.and_then(|files| files.get_mut(hash)) else { return Some(path) };
        match std::mem::replace(upload, Upload::There { path, _room: room }) {
            Upload::There { path, .. } => Some(path),
            Upload::Expected { .. } | Upload::Coming => None,
        }
    }

    /// Forgets the files of a template, and says where they are.
    pub(crate) fn forget(&self, tenant: &TenantId, template: &str) -> Vec<PathBuf> {
        let files = self.all().remove(&(tenant.clone(), template.to_owned())).unwrap_or_default();
        let place = |upload| if let Upload::There { path, .. } = upload { Some(path) } else { None };
        files.into_values().filter_map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn room(tenant: &TenantId) -> Room {
        let config = box_core::snapshots::SnapshotConfig { bytes_max: 1 << 20, ..Default::default() };
        let store = std::sync::Arc::new(door_http::testing::MemoryStore::default());
        box_core::snapshots::SnapshotStore::new(store, config).upload_room(tenant).await.unwrap()
    }

    #[tokio::test]
    async fn a_file_comes_once_from_who_was_told_where() {
        let (uploads, tenant) = (Uploads::default(), TenantId::default());
        uploads.expect(&tenant, "t", "h", "secret".to_owned()).unwrap();
        assert_eq!(uploads.begin("t", "h", "guess"), Err(NoUpload::Unexpected));
        assert_eq!(uploads.begin("other", "h", "secret"), Err(NoUpload::Unexpected));
        assert_eq!(uploads.begin("t", "h", "secret"), Ok(tenant.clone()));
        assert_eq!(uploads.begin("t", "h", "secret"), Err(NoUpload::Unexpected), "once");
        assert!(!uploads.is_there(&tenant, "t", "h"));
        assert_eq!(uploads.finish(&tenant, "t", "h", "/w".into(), room(&tenant).await), None);
        let replaced = uploads.finish(&tenant, "t", "h", "/x".into(), room(&tenant).await);
        assert_eq!((replaced, uploads.there(&tenant, "t", "h")), (Some("/w".into()), Some("/x".into())));
        assert!(!uploads.is_there(&"other".parse().unwrap(), "t", "h"), "tenants are apart");
        assert_eq!(uploads.forget(&tenant, "t"), [PathBuf::from("/x")]);
        let unwanted = uploads.finish(&tenant, "t", "h", "/x".into(), room(&tenant).await);
        assert_eq!(unwanted, Some("/x".into()), "nobody waits for it any more");
    }

    #[test]
    fn a_build_has_so_many_files() {
        let (uploads, tenant) = (Uploads::default(), TenantId::default());
        for number in 0..limits::E2B_UPLOADS_MAX {
            uploads.expect(&tenant, "t", &number.to_string(), String::new()).unwrap();
        }
        assert_eq!(uploads.expect(&tenant, "t", "more", String::new()), Err(NoUpload::TooMany));
        assert_eq!(uploads.expect(&tenant, "t", "0", String::new()), Ok(()));
    }
}
