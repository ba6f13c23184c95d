//! What servers install, kept on the host while their boxes come and go: a directory for each kind of box that a tenant has.
//!
//! Only code in boxes writes there. The host never reads, follows or runs what it finds: it measures and removes it
//! through [`SafeRoot`]. All of it can be installed again, so a file in the way is removed.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use box_core::quota::{Quota, measure};
use box_core::session::{HostPathMode, KeptDirectory};
use box_core::{Dimension, Error, Result, SafeRoot, SessionId, TenantId};
use box_wire::GuestPath;

/// Where it is in a box. Environments hold paths of themselves, so it is the same place in each.
const MOUNTED: &str = "/mnt/strongbox-mcp";
/// Who may look into our directories.
const MODE: u32 = 0o700;

/// The directories of all tenants. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Keep {
    root: Arc<SafeRoot>,
    path: PathBuf,
    quota_mb: u64,
    /// Held while directories are made or removed: one that was just requested must not be removed.
    turn: Arc<Mutex<()>>,
}

impl Keep {
    /// Opens, and makes, the place where all directories are. Blocks.
    pub(super) fn open(path: &Path, quota_mb: u64) -> Result<Self> {
        let failed = |error| Error::io(format!("making {}", path.display()), error);
        DirBuilder::new().recursive(true).mode(MODE).create(path).map_err(failed)?;
        let root = SafeRoot::open_path(path)?;
        let path = root.real_path()?;
        Ok(Self { root: Arc::new(root), path, quota_mb, turn: Arc::default() })
    }

    /// The directory of a session, made if it is missing and emptied if it holds too much. Blocks.
    pub(super) fn directory(&self, tenant: &TenantId, session: &SessionId) -> Result<KeptDirectory> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name(tenant, session);
        self.root.make_directory_all(&name, MODE)?;
        let host_path = self.path.join(&name).into_os_string().into_string();
        let unreadable = |path: std::ffi::OsString| {
            box_wire::Invalid::new("state_dir", path.display().to_string(), "a path that is readable text")
        };
        let kept = KeptDirectory {
            host_path: host_path.map_err(unreadable)?,
            mount_path: GuestPath::parse("kept", MOUNTED)?,
            quota_mb: self.quota_mb,
            mode: HostPathMode::Rw,
        };
        let quota = Quota::of_mb(self.quota_mb);
        // What cannot be counted, because a box has shut its directories, is too much.
        let fits = measure(self.root.below(&name)?.directory(), quota).is_ok_and(|usage| !quota.is_exceeded_by(&usage));
        if !fits {
            tracing::warn!(
                path = kept.host_path,
                "what MCP servers installed is thrown away: it is more than mcp.kept_mb"
            );
            self.clear(&name)?;
        }
        Ok(kept)
    }

    /// Throws away what a session has kept. Its box may be there. Blocks.
    pub(super) fn empty(&self, tenant: &TenantId, session: &SessionId) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.clear(&name(tenant, session))
    }

    fn clear(&self, name: &Path) -> Result<()> {
        for entry in self.root.list(name)? {
            self.root.remove_tree(name.join(entry))?;
        }
        Ok(())
    }

    /// Removes the directories of a tenant except needed ones, which are determined while none can be made. If that
    /// fails, all stay. Blocks.
    pub(super) fn retain(&self, tenant: &TenantId, needed: impl FnOnce() -> Option<Needed>) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let top = Path::new(tenant.as_str());
        if self.root.look(top)?.is_none() {
            return Ok(());
        }
        let Some(needed) = needed() else { return Ok(()) };
        let mut is_empty = true;
        for found in self.root.list(top)? {
            let session = found.to_str().and_then(|name| name.parse::<SessionId>().ok());
            if session.is_some_and(|session| needed.sessions.contains(&session) || (needed.exists)(&session)) {
                is_empty = false;
            } else {
                self.root.remove_tree(top.join(found))?;
            }
        }
        if is_empty { self.root.remove_tree(top) } else { Ok(()) }
    }

    /// Tenants that have, or had, something here. Blocks.
    pub(super) fn tenants(&self) -> Result<Vec<TenantId>> {
        let names = self.root.list("")?;
        Ok(names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect())
    }
}

/// What decides which directories of a tenant stay.
pub(super) struct Needed {
    /// Sessions that servers want.
    pub(super) sessions: BTreeSet<SessionId>,
    /// Whether such a session exists, also for other reasons.
    pub(super) exists: Box<dyn Fn(&SessionId) -> bool>,
}

/// Whether a box could not be made because of what it was to keep.
pub(super) fn is_in_the_way(error: &Error, kept: &KeptDirectory) -> bool {
    // A profile may want its disk held by the kernel, which no directory of the host is.
    let is_floor = matches!(error, Error::FloorNotHeld { dimension: Dimension::DiskBytes | Dimension::DiskInodes, .. });
    is_floor || error.to_string().contains(&kept.host_path)
}

fn name(tenant: &TenantId, session: &SessionId) -> PathBuf {
    Path::new(tenant.as_str()).join(session.as_str())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    const MB: u64 = 1;

    struct TestKeep {
        _directory: tempfile::TempDir,
        top: PathBuf,
        keep: Keep,
    }

    fn place() -> TestKeep {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let keep = Keep::open(&top.join("mcp/kept"), MB).unwrap();
        TestKeep { _directory: directory, top, keep }
    }

    fn session(name: &str) -> SessionId {
        name.parse().unwrap()
    }

    fn needed(names: &'static [&str]) -> Needed {
        let sessions = names.iter().map(|name| session(name)).collect();
        Needed { sessions, exists: Box::new(|session| session.as_str() == "mcp-shared-held") }
    }

    #[test]
    fn a_session_finds_what_it_kept_and_tenants_have_their_own() {
        let place = place();
        let TestKeep { keep, top, .. } = &place;
        let (one, other) = ("a".parse().unwrap(), "b".parse().unwrap());
        let kept = keep.directory(&one, &session("mcp-shared")).unwrap();
        assert_eq!(kept.host_path, top.join("mcp/kept/a/mcp-shared").to_str().unwrap());
        assert_eq!((kept.mount_path.as_str(), kept.quota_mb), ("/mnt/strongbox-mcp", MB));
        std::fs::write(Path::new(&kept.host_path).join("file"), "kept").unwrap();
        assert_eq!(keep.directory(&one, &session("mcp-shared")).unwrap(), kept);
        assert!(Path::new(&kept.host_path).join("file").exists());
        assert_ne!(keep.directory(&other, &session("mcp-shared")).unwrap().host_path, kept.host_path);
        let mode = std::fs::metadata(&kept.host_path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(keep.directory(&"..".parse().unwrap(), &session("mcp-shared")).is_err(), "a name that leads out");
    }

    #[test]
    fn too_much_is_thrown_away_and_so_is_what_cannot_be_counted() {
        let place = place();
        let keep = &place.keep;
        let tenant = TenantId::default();
        let path = PathBuf::from(keep.directory(&tenant, &session("mcp-shared")).unwrap().host_path);
        std::fs::create_dir(path.join("cache")).unwrap();
        std::fs::write(path.join("cache/large"), vec![1; 2 << 20]).unwrap();
        keep.directory(&tenant, &session("mcp-shared")).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        assert!(path.is_dir(), "a box may have it mounted");
    }

    #[test]
    fn only_what_nobody_needs_goes_and_no_link_is_followed() {
        let place = place();
        let TestKeep { keep, top, .. } = &place;
        let tenant = TenantId::default();
        let precious = top.join("precious");
        std::fs::create_dir(&precious).unwrap();
        std::fs::write(precious.join("file"), "mine").unwrap();
        let path = PathBuf::from(keep.directory(&tenant, &session("mcp-shared-gone")).unwrap().host_path);
        for (name, target) in [("directory", precious.clone()), ("file", precious.join("file")), ("up", "../..".into())]
        {
            symlink(target, path.join(name)).unwrap();
        }
        std::fs::hard_link(precious.join("file"), path.join("hard")).unwrap();
        std::fs::create_dir(path.join("shut")).unwrap();
        std::fs::write(path.join("shut/file"), "").unwrap();
        std::fs::set_permissions(path.join("shut"), std::fs::Permissions::from_mode(0o0)).unwrap();
        for name in ["mcp-shared", "mcp-shared-held"] {
            keep.directory(&tenant, &session(name)).unwrap();
        }
        keep.retain(&tenant, || None).unwrap();
        assert!(path.exists(), "without a list of needed directories all stay");
        keep.retain(&tenant, || Some(needed(&["mcp-shared"]))).unwrap();
        let mut left = keep.root.list("default").unwrap();
        left.sort();
        assert_eq!(left, ["mcp-shared", "mcp-shared-held"]);
        assert_eq!(std::fs::read_to_string(precious.join("file")).unwrap(), "mine");
        let other: TenantId = "other".parse().unwrap();
        keep.directory(&other, &session("mcp-shared")).unwrap();
        keep.retain(&other, || Some(needed(&[]))).unwrap();
        assert_eq!(keep.tenants().unwrap(), [tenant], "nothing is left of who needs nothing");
    }

    #[test]
    fn a_refusal_is_about_what_is_kept_if_it_names_it() {
        let place = place();
        let keep = &place.keep;
        let kept = keep.directory(&TenantId::default(), &session("mcp-shared")).unwrap();
        let denied = |path: &str| Error::MountDenied { path: path.to_owned(), reason: "it holds a socket".to_owned() };
        assert!(is_in_the_way(&denied(&kept.host_path), &kept));
        assert!(!is_in_the_way(&denied("/etc"), &kept));
    }
}
