//! The state directory of a server: what is where in it, and that it is ours alone.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use box_core::Store;
use box_store::SqliteStore;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::fault::Fault;

/// The file that a server holds locked.
const LEASE: &str = "server.lock";

/// How long the end of a server that was killed is waited for, and how often it is looked for.
const LEASE_WAIT: Duration = Duration::from_secs(2);
const LEASE_PAUSE: Duration = Duration::from_millis(20);

/// A state directory.
#[derive(Debug, Clone)]
pub(crate) struct StateDir {
    path: PathBuf,
}

/// The right to be the only server of a state directory, until this is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Lease {
    _file: std::fs::File,
}

impl StateDir {
    /// Opens the directory, making it if need be, and refuses one that others can change: whoever can write here makes tokens.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let failed = |error: std::io::Error| {
            Fault::new(format!("the state directory {} cannot be used: {error}", path.display()))
                .hint("run as the user that it belongs to, or choose another with --state-dir or state_dir")
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
            let path = path.display();
            return Err(Fault::new(format!(
                "the state directory {path} belongs to somebody else, or others can write to it"
            ))
            .hint(format!("run as its owner, or: chown and chmod 700 {path}")));
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Takes the directory for one server. Two would adopt each other's boxes, on whatever backend those live.
    pub(crate) fn lease(&self) -> Result<Lease, Fault> {
        let path = self.path.join(LEASE);
        let failed = |error: std::io::Error| Fault::new(format!("{} cannot be locked: {error}", path.display()));
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.map_err(failed)?;
        match lock(&file) {
            Ok(()) => Ok(Lease { _file: file }),
            Err(Errno::WOULDBLOCK) => {
                let message = format!("another server runs on the state directory {}", self.path.display());
                let hint = "stop it first, or give this one a state of its own with --state-dir";
                Err(Fault::new(message).code("state_in_use").hint(hint))
            }
            Err(error) => Err(failed(error.into())),
        }
    }

    /// The directory itself.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The database, made if need be. A server and commands like `token` can have it open at once.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>, Fault> {
        Ok(Arc::new(SqliteStore::open(&self.path.join("strongbox.db"))?))
    }

    /// Where the audit log is.
    pub(crate) fn audit(&self) -> PathBuf {
        self.path.join("audit")
    }
}

/// Whether a server holds this state directory.
pub(crate) fn is_leased(directory: &Path) -> bool {
    let Ok(file) = std::fs::File::open(directory.join(LEASE)) else { return false };
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

/// Locks a file. One who was killed just now holds it until the kernel has taken him down, which is waited for.
fn lock(file: &std::fs::File) -> rustix::io::Result<()> {
    let given_up_at = Instant::now() + LEASE_WAIT;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < given_up_at => std::thread::sleep(LEASE_PAUSE),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_is_made_for_its_owner_only() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        StateDir::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_directory_has_one_server_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDir::open(place.path()).unwrap();
        let lease = state.lease().unwrap();
        assert_eq!(state.lease().unwrap_err().code, "state_in_use");
        drop(lease);
        state.lease().unwrap();
    }

    #[test]
    fn a_directory_that_others_can_change_is_refused() {
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let fault = StateDir::open(place.path()).unwrap_err();
        assert!(fault.hint.unwrap().contains("chmod 700"), "{}", fault.message);
    }
}
