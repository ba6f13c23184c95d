//! Files that came for builds: each may be sent once, by whoever was told where, and is kept until the build has ended.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use box_core::TenantId;
use subtle::ConstantTimeEq;

use crate::limits;

/// Files that came, and those that may come, by template.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<HashMap<(TenantId, String), HashMap<String, Upload>>>);

#[derive(Debug, Clone)]
enum Upload {
    /// It may come, from whoever shows this.
    Expected { token: String },
    /// It is on its way.
    Coming,
    /// It is there.
    There { path: PathBuf, bytes: u64 },
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

    /// Bytes of all files of a tenant.
    pub(crate) fn bytes(&self, tenant: &TenantId) -> u64 {
        let size = |upload: &Upload| if let Upload::There { bytes, .. } = upload { *bytes } else { 0 };
        let of = |((whose, _), files): (&(TenantId, String), &HashMap<String, Upload>)| {
            if whose == tenant { files.values().map(size).sum::<u64>() } else { 0 }
        };
        self.all().iter().map(of).sum()
    }

    /// Takes in a file that has come; nobody wants it where the build has ended meanwhile.
    pub(crate) fn finish(&self, tenant: &TenantId, template: &str, hash: &str, path: PathBuf, bytes: u64) -> bool {
        let mut all = self.all();
        let files = all.get_mut(&(tenant.clone(), template.to_owned()));
        let Some(upload) = files.and_then(|files| files.get_mut(hash)) else { return false };
        *upload = Upload::There { path, bytes };
        true
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

    #[test]
    fn a_file_comes_once_from_who_was_told_where() {
        let (uploads, tenant) = (Uploads::default(), TenantId::default());
        uploads.expect(&tenant, "t", "h", "secret".to_owned()).unwrap();
        assert_eq!(uploads.begin("t", "h", "guess"), Err(NoUpload::Unexpected));
        assert_eq!(uploads.begin("other", "h", "secret"), Err(NoUpload::Unexpected));
        assert_eq!(uploads.begin("t", "h", "secret"), Ok(tenant.clone()));
        assert_eq!(uploads.begin("t", "h", "secret"), Err(NoUpload::Unexpected), "once");
        assert!(!uploads.is_there(&tenant, "t", "h"));
        assert!(uploads.finish(&tenant, "t", "h", "/x".into(), 7));
        assert_eq!((uploads.there(&tenant, "t", "h"), uploads.bytes(&tenant)), (Some("/x".into()), 7));
        assert!(!uploads.is_there(&"other".parse().unwrap(), "t", "h"), "tenants are apart");
        assert_eq!(uploads.forget(&tenant, "t"), [PathBuf::from("/x")]);
        assert!(!uploads.finish(&tenant, "t", "h", "/x".into(), 7), "nobody waits for it any more");
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
