//! Which trees of the host may be seen in a box.
//!
//! First the path is followed and decided on without opening anything: a refusal must not depend on what lies outside the
//! allowed roots. Then the real path is opened once, without links, and that same descriptor is what gets mounted.

mod find;
mod privileged;
mod resolve;

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use serde::{Deserialize, Serialize};

use crate::{Error, MountSpec, Result, limits};
use find::{Bounds, Search, find};
use resolve::{Confines, DeadEnd};

pub use privileged::privileged_files;

/// Who asked for a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A caller: the allow-list and the deny-list hold.
    Caller,
    /// The operator's own configuration: only the deny-list holds.
    Operator,
    /// A caller of a door that has an allow-list of its own: this one, of real paths, and the deny-list hold.
    Within(Vec<PathBuf>),
    /// The service itself, for skills, which all lie below this real path. It may lie in our own state, where nothing else is shown.
    Skills(PathBuf),
    /// The service itself, for this one real path, which may lie in our own state: what a box keeps there outlives the box.
    Kept(PathBuf),
}

/// Places that no box ever sees, in whatever way they are spelled. Nothing inside them and nothing that contains them.
const DENIED: [&str; 16] = [
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/root",
    "/boot",
    "/run",
    "/var/run",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/kubelet",
    "/var/lib/rancher",
    "/var/lib/libvirt",
    "/var/spool/cron",
    "/var/log",
];

/// The home of the host's root. The operator, who may be that root, can name a directory in it.
const ROOT_HOME: &str = "/root";

/// The user and group id of trees that are the service's own. Earlier versions gave directories of root to it.
pub const WORKSPACE_OWNER: u32 = 0x7FFF_0000;

/// In the reason of every refusal that no allow-list can change.
pub const NEVER_SHOWN: &str = "never shown to a box";

/// Which trees of the host may be seen in a box.
#[derive(Debug, Clone, Default)]
pub struct MountPolicy {
    /// Trees below which callers may mount. None = callers may mount nothing.
    pub allowed_roots: Vec<PathBuf>,
    /// More places that no box ever sees: our own state.
    pub denied: Vec<PathBuf>,
}

/// A tree that may be mounted: the decision and the object that it was made on.
#[derive(Debug)]
pub struct Grant {
    /// The object itself, opened as a path.
    pub object: OwnedFd,
    /// Its real path at the time of the decision.
    pub path: PathBuf,
    /// Whether it is a directory; else it is a regular file.
    pub is_directory: bool,
    /// Owner on the host.
    pub uid: u32,
    /// Group on the host.
    pub gid: u32,
    /// Device, to recognise the object.
    pub device: u64,
    /// Inode, to recognise the object.
    pub inode: u64,
}

impl MountPolicy {
    /// Decides, opens the source of a mount, and decides on what was opened. A missing source is an error, never made.
    pub fn grant(&self, mount: &MountSpec) -> Result<Grant> {
        let asked = mount.source.as_path();
        let deny = |reason: String| Error::MountDenied { path: asked.display().to_string(), reason };
        let text = asked.to_str().ok_or_else(|| deny("it is not valid UTF-8".to_owned()))?;
        if !text.starts_with('/') {
            return Err(deny("it must be an absolute path".to_owned()));
        }
        if text.chars().any(char::is_control) || text.len() > box_wire::limits::PATH_BYTES_MAX {
            return Err(deny("it holds control characters or is too long".to_owned()));
        }
        let real = self.locate(asked, &mount.origin).map_err(deny)?;
        let object = open(&real, OFlags::PATH)
            .map_err(|error| deny(format!("it cannot be opened: {error}; create it first")))?;
        let grant = identify(object).map_err(|error| deny(format!("it cannot be examined: {error}")))?;
        let grant = grant.ok_or_else(|| deny("it is neither a directory nor a regular file".to_owned()))?;
        self.decide(&grant.path, &mount.origin).map_err(deny)?;
        if let Some(socket) = grant.is_directory.then(|| find_socket(&grant.object)).flatten() {
            let reason =
                format!("it holds the socket {socket}, through which a box could talk to a program of the host");
            return Err(deny(format!("{reason}; remove it or mount a directory without it")));
        }
        Ok(grant)
    }

    /// Follows a path, opening nothing, and decides on the real path that it leads to. The answer to a caller depends on nothing
    /// outside the allowed roots.
    pub fn locate(&self, asked: &Path, origin: &Origin) -> Result<PathBuf, String> {
        let roots = match origin {
            Origin::Caller => Some(self.allowed_roots.as_slice()),
            Origin::Within(roots) => Some(roots.as_slice()),
            Origin::Operator | Origin::Skills(_) | Origin::Kept(_) => None,
        };
        let denied: Vec<&Path> = DENIED.iter().map(Path::new).chain(self.denied.iter().map(PathBuf::as_path)).collect();
        let confines = roots.map(|roots| Confines { roots, denied: &denied });
        let real = resolve::resolve(asked, confines.as_ref()).map_err(|dead_end| match dead_end {
            DeadEnd::Links => "it has too many links".to_owned(),
            DeadEnd::Denied(place) => never_shown(&place),
            DeadEnd::Outside => outside(roots.unwrap_or_default()),
        })?;
        self.decide(&real, origin)?;
        Ok(real)
    }

    /// Decides on a real path. For places that are still to be made; what exists is granted as an opened object.
    pub fn decide(&self, path: &Path, origin: &Origin) -> Result<(), String> {
        if path == Path::new("/") {
            return Err(format!("/ is the whole host, which is {NEVER_SHOWN}"));
        }
        let is_around_ours =
            |place: &Path| matches!(origin, Origin::Skills(root) | Origin::Kept(root) if root.starts_with(place));
        let own = self.denied.iter().map(PathBuf::as_path).filter(|place| !is_around_ours(place));
        let may_be_at_home = *origin == Origin::Operator;
        let is_named_at_home = may_be_at_home && is_plain_in_home(path);
        let fixed = DENIED.iter().filter(|place| !(is_named_at_home && **place == ROOT_HOME)).map(Path::new);
        for place in fixed.chain(own) {
            if may_be_at_home && path.starts_with(place) && place == Path::new(ROOT_HOME) {
                return Err(format!(
                    "{ROOT_HOME} itself and what is hidden in it are {NEVER_SHOWN}; mount a directory such as {ROOT_HOME}/data"
                ));
            }
            if path.starts_with(place) {
                return Err(never_shown(place));
            }
            if place.starts_with(path) {
                return Err(format!("it contains {}, which is {NEVER_SHOWN}", place.display()));
            }
        }
        let roots = match origin {
            Origin::Operator => return Ok(()),
            Origin::Caller => &self.allowed_roots,
            Origin::Within(roots) => roots,
            Origin::Skills(root) if path.starts_with(root) && path != root => return Ok(()),
            Origin::Skills(root) => return Err(format!("it is no skill below {}", root.display())),
            Origin::Kept(place) if path == place => return Ok(()),
            Origin::Kept(place) => return Err(format!("it is not {}", place.display())),
        };
        if roots.iter().any(|root| path.starts_with(root)) { Ok(()) } else { Err(outside(roots)) }
    }
}

/// Whether a real path is a directory. A link that came to lie on the way since the path was located is not followed.
pub fn is_directory(real: &Path) -> bool {
    open(real, OFlags::PATH | OFlags::DIRECTORY).is_ok()
}

fn open(real: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, real, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn never_shown(place: &Path) -> String {
    format!("{} is {NEVER_SHOWN}", place.display())
}

/// The one reason for everything outside the allowed roots.
fn outside(roots: &[PathBuf]) -> String {
    if roots.is_empty() {
        return "no host directory may be mounted; set allowed_mount_roots".to_owned();
    }
    let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
    format!("it is not below an allowed root ({})", roots.join(", "))
}

/// Whether a path lies in the home of root and no part of it is hidden: keys and settings are.
fn is_plain_in_home(path: &Path) -> bool {
    let is_hidden = |name: std::path::Component<'_>| name.as_os_str().as_encoded_bytes().starts_with(b".");
    path.strip_prefix(ROOT_HOME).is_ok_and(|below| below != Path::new("") && !below.components().any(is_hidden))
}

/// Looks for a socket in a tree: a read-only mount does not keep anybody from connecting.
fn find_socket(tree: &OwnedFd) -> Option<String> {
    match find(tree, Bounds::names(limits::MOUNT_ENTRIES_MAX), |entry| entry.kind == FileType::Socket) {
        Search::Found(path) => Some(path.display().to_string()),
        Search::Nothing | Search::Incomplete => None,
    }
}

/// The grant for an opened object, or `None` where its kind is not mountable.
fn identify(object: OwnedFd) -> std::io::Result<Option<Grant>> {
    let stat = rustix::fs::statx(&object, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    let is_directory = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => true,
        FileType::RegularFile => false,
        _ => return Ok(None),
    };
    let path = std::fs::read_link(format!("/proc/self/fd/{}", object.as_raw_fd()))?;
    if !path.is_absolute() {
        return Ok(None);
    }
    let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    let (uid, gid, inode) = (stat.stx_uid, stat.stx_gid, stat.stx_ino);
    Ok(Some(Grant { object, path, is_directory, uid, gid, device, inode }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MountMode;

    fn ask(policy: &MountPolicy, source: &str, origin: Origin) -> Result<Grant> {
        let target = "/workspace".parse().unwrap();
        policy.grant(&MountSpec { source: source.into(), target, mode: MountMode::Rw, origin })
    }

    #[test]
    fn spelling_does_not_matter() {
        let allowed = tempfile::tempdir().unwrap();
        let root = allowed.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("link"), root.join("link2")).unwrap();
        let policy = MountPolicy { allowed_roots: vec![root.clone()], denied: vec![] };
        let below = |name: &str| root.join(name).display().to_string();
        let tricks = ["//etc", "/./etc", "/usr/../etc", "/etc/", "/etc/.", "/proc/self/root/etc", "/proc/1/cwd", "/"];
        for trick in tricks.into_iter().map(str::to_owned).chain([below("link"), below("link2"), below("../../etc")]) {
            for origin in [Origin::Caller, Origin::Operator] {
                let error = ask(&policy, &trick, origin).unwrap_err();
                assert_eq!(error.code(), "mount_denied", "{trick}");
            }
        }
        for bad in ["", "~", "relative/path", "file:///etc", "/etc\n", "  /etc", "$HOME"] {
            assert!(ask(&policy, bad, Origin::Operator).is_err(), "{bad:?}");
        }
        assert!(ask(&policy, &root.display().to_string(), Origin::Caller).is_ok());
    }

    #[test]
    fn a_refusal_does_not_tell_what_exists() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (root, outside) = (place.join("allowed"), place.join("outside"));
        std::fs::create_dir_all(outside.join("there")).unwrap();
        std::fs::create_dir(&root).unwrap();
        std::fs::write(outside.join("file"), "").unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(outside.join("socket")).unwrap();
        std::os::unix::fs::symlink(outside.join("there"), root.join("to-there")).unwrap();
        std::os::unix::fs::symlink(outside.join("missing"), root.join("to-missing")).unwrap();
        let reason = |path: &Path, origin: Origin| {
            let policy = MountPolicy { allowed_roots: vec![root.clone()], denied: vec![] };
            let error = ask(&policy, path.to_str().unwrap(), origin).unwrap_err().to_string();
            error.replace(path.to_str().unwrap(), "PATH")
        };
        let missing = reason(&outside.join("missing"), Origin::Caller);
        assert!(missing.contains("not below an allowed root"), "{missing}");
        for name in ["there", "file", "file/below", "socket", "missing/below"] {
            assert_eq!(reason(&outside.join(name), Origin::Caller), missing, "{name}");
        }
        for name in ["to-there", "to-missing", "to-there/x"] {
            assert_eq!(reason(&root.join(name), Origin::Caller), missing, "{name}");
        }
        let denied = |path: &str| reason(Path::new(path), Origin::Operator);
        assert_eq!(denied("/etc/passwd"), denied("/etc/no-such-file"));
        assert!(reason(&root.join("missing"), Origin::Caller).contains("create it first"));
    }

    #[test]
    fn no_detour_tells_what_exists_outside_the_roots() {
        use std::os::unix::fs::symlink;
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (root, outside) = (place.join("allowed"), place.join("outside"));
        std::fs::create_dir_all(outside.join("there")).unwrap();
        std::fs::create_dir_all(root.join("x/y")).unwrap();
        std::fs::write(outside.join("file"), "").unwrap();
        for (target, name) in [("/etc", "to-etc"), ("/", "to-top"), ("round", "round"), ("there", "to-there")] {
            symlink(target, outside.join(name)).unwrap();
        }
        symlink(&root, place.join("alias")).unwrap();
        let policy = MountPolicy { allowed_roots: vec![root.clone()], denied: vec![] };
        let answer = |path: &str| {
            let granted = ask(&policy, path, Origin::Caller).map(|grant| grant.path);
            granted.map_err(|error| error.to_string().replace(path, "PATH"))
        };
        let below = |directory: &Path, name: &str| directory.join(name).display().to_string();
        let missing = answer(&below(&outside, "missing"));
        assert!(missing.as_ref().unwrap_err().contains("not below an allowed root"), "{missing:?}");
        let detours = ["there", "file", "missing", "to-etc", "to-top", "round", "to-there"];
        for name in detours {
            for path in [format!("{name}/../../allowed/x"), name.to_owned(), format!("{name}/etc/passwd")] {
                assert_eq!(answer(&below(&outside, &path)), missing, "{path}");
            }
            // What a box can leave in a root: a link through a place of the host and back.
            let detour = root.join(format!("by-{name}"));
            symlink(outside.join(name).join("../../allowed/x"), &detour).unwrap();
            assert_eq!(answer(&detour.display().to_string()), missing, "by-{name}");
            symlink(format!("../outside/{name}/../../allowed/x"), root.join(format!("up-{name}"))).unwrap();
            assert_eq!(answer(&below(&root, &format!("up-{name}"))), missing, "up-{name}");
        }
        // The working directory of a process may lie in a root.
        for process in [std::process::id(), u32::MAX] {
            let cwd = format!("/proc/{process}/cwd");
            assert!(answer(&cwd).unwrap_err().contains("/proc is never shown"), "{cwd}");
        }
        for path in ["x", "x/../x", "x/y/..", "missing/../x"].map(|path| below(&root, path)) {
            assert_eq!(answer(&path), Ok(root.join("x")), "{path}");
        }
        assert_eq!(answer(&below(&place, "alias/x")), Ok(root.join("x")), "a link of the host into a root");
    }

    #[test]
    fn denial_works_in_both_directions() {
        let policy = MountPolicy { allowed_roots: vec!["/".into()], denied: vec!["/usr/share/doc".into()] };
        assert!(ask(&policy, "/usr/share/doc", Origin::Caller).is_err(), "the place");
        assert!(ask(&policy, "/usr", Origin::Caller).is_err(), "what contains it");
        assert!(ask(&policy, "/var", Origin::Caller).is_err(), "contains the engines' state");
        assert!(ask(&policy, "/usr/lib", Origin::Caller).is_ok());
    }

    #[test]
    fn the_operator_mounts_directories_of_roots_home_but_neither_the_home_nor_what_is_hidden() {
        let policy = MountPolicy { allowed_roots: vec!["/".into()], denied: vec!["/root/state".into()] };
        let decide = |path: &str, origin: &Origin| policy.decide(Path::new(path), origin);
        for path in ["/root/data", "/root/work/project"] {
            assert_eq!(decide(path, &Origin::Operator), Ok(()), "{path}");
            for origin in [Origin::Caller, Origin::Within(vec!["/root".into()])] {
                assert!(decide(path, &origin).is_err(), "{path}: {origin:?}");
            }
        }
        for path in ["/root", "/root/.ssh", "/root/.config/x", "/root/data/.git", "/root/state", "/root/state/x"] {
            assert!(decide(path, &Origin::Operator).is_err(), "{path}");
        }
        assert!(decide("/root/.ssh", &Origin::Operator).unwrap_err().contains("/root/data"));
    }

    #[test]
    fn skills_are_shown_from_our_own_state_and_nothing_else_of_it() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path().canonicalize().unwrap();
        let skills = state.join("skills/tenants/a");
        std::fs::create_dir_all(skills.join("one/secrets")).unwrap();
        std::fs::create_dir_all(state.join("skills/tenants/b/two")).unwrap();
        std::os::unix::fs::symlink("/etc", skills.join("link")).unwrap();
        let policy = MountPolicy { allowed_roots: vec![], denied: vec![state.clone(), skills.join("one/secrets")] };
        let asked = |path: &Path| ask(&policy, path.to_str().unwrap(), Origin::Skills(skills.clone()));
        assert!(asked(&skills.join("one")).is_err(), "it contains a place that is denied");
        let policy = MountPolicy { denied: vec![state.clone()], ..policy };
        let asked = |path: &Path| ask(&policy, path.to_str().unwrap(), Origin::Skills(skills.clone()));
        assert!(asked(&skills.join("one")).is_ok());
        for path in [&skills, &state, &state.join("skills"), &state.join("skills/tenants/b/two"), &skills.join("link")]
        {
            assert_eq!(asked(path).unwrap_err().code(), "mount_denied", "{path:?}");
        }
        assert!(ask(&policy, skills.join("one").to_str().unwrap(), Origin::Operator).is_err(), "for skills only");
        let root = PathBuf::from("/etc/strongbox/skills");
        assert!(ask(&policy, "/etc", Origin::Skills(root)).is_err(), "the deny-list holds");
    }

    #[test]
    fn what_is_kept_for_a_box_is_one_place_of_our_own_state() {
        let state = tempfile::tempdir().unwrap();
        let state = state.path().canonicalize().unwrap();
        let kept = state.join("mcp/kept/a/one");
        std::fs::create_dir_all(kept.join("below")).unwrap();
        std::os::unix::fs::symlink("/etc", state.join("mcp/kept/a/link")).unwrap();
        let policy = MountPolicy { allowed_roots: vec![], denied: vec![state.clone()] };
        let asked = |path: &Path| ask(&policy, path.to_str().unwrap(), Origin::Kept(path.to_owned()));
        assert!(asked(&kept).is_ok());
        assert!(asked(&state.join("mcp/kept/a/link")).is_err(), "what it really is counts");
        assert!(asked(Path::new("/etc")).is_err(), "the deny-list holds");
        let other = |path: &Path| ask(&policy, path.to_str().unwrap(), Origin::Kept(kept.clone()));
        for path in [&kept.join("below"), &state.join("mcp/kept/a"), &state] {
            assert_eq!(other(path).unwrap_err().code(), "mount_denied", "{path:?}");
        }
    }

    #[test]
    fn nothing_is_allowed_until_a_root_is_set_and_nothing_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let none = MountPolicy::default();
        assert!(ask(&none, path.to_str().unwrap(), Origin::Caller).is_err());
        assert!(ask(&none, path.to_str().unwrap(), Origin::Operator).is_ok());
        let missing = path.join("does/not/exist");
        assert!(ask(&none, missing.to_str().unwrap(), Origin::Operator).is_err());
        assert!(!path.join("does").exists());
    }

    #[test]
    fn a_tree_with_a_socket_in_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink("/run", root.join("link")).unwrap();
        assert!(ask(&MountPolicy::default(), root.to_str().unwrap(), Origin::Operator).is_ok());
        let _listener = std::os::unix::net::UnixListener::bind(root.join("a/b/s")).unwrap();
        let error = ask(&MountPolicy::default(), root.to_str().unwrap(), Origin::Operator).unwrap_err();
        assert!(error.to_string().contains("a/b/s"), "{error}");
    }

    #[test]
    fn sockets_and_devices_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().canonicalize().unwrap().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = ask(&MountPolicy::default(), socket.to_str().unwrap(), Origin::Operator).unwrap_err();
        assert!(error.to_string().contains("neither a directory nor a regular file"), "{error}");
    }
}
