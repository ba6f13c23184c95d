//! Set-id, device and capability files in directories that a box can write to.
//!
//! A box cannot make such a file. One that is there before can be changed by the box: the kernel takes its bits away when it is written,
//! but not when it is mapped into memory. Where the box writes root's files, it would get root's rights by one of root's, so the mount is
//! refused. Elsewhere such a file is reported, and a floor of `rootfs` refuses the box.

use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Stat};

use super::{Bounds, Grant, Search, find};
use crate::{BoxSpec, Error, MountSpec, Result, limits};

/// Why directories that the box can write to are less safe than others: each holds a file that lends rights, or may hold one.
/// Refuses a directory of root if such a file in it is root's. `grants` are those of the specification's mounts, in order.
pub fn privileged_files(spec: &BoxSpec, grants: &[Grant]) -> Result<Vec<String>> {
    // A box of an ordinary user writes as that user, who could change such a file without a box.
    let server_is_root = rustix::process::geteuid().is_root();
    examine(spec, grants, server_is_root, Bounds::names(limits::ROOTS_MOUNT_ENTRIES_MAX))
}

fn examine(spec: &BoxSpec, grants: &[Grant], server_is_root: bool, bounds_of_roots: Bounds) -> Result<Vec<String>> {
    let writable: Vec<&MountSpec> = spec.host_writable().collect();
    let mut reasons = Vec::new();
    for (mount, grant) in spec.mounts.iter().zip(grants).filter(|(mount, _)| writable.contains(mount)) {
        let found = if server_is_root && grant.uid == 0 {
            let is_of_root = |stat: &Stat| stat.st_uid == 0 && !is_device(stat);
            let (of_root, other) = search(grant, bounds_of_roots, is_of_root);
            if let Some(reason) = refusal(mount, of_root, bounds_of_roots.names) {
                return Err(Error::MountDenied { path: mount.source.display().to_string(), reason });
            }
            other.map_or(Search::Nothing, Search::Found)
        } else {
            search(grant, Bounds::names(limits::MOUNT_ENTRIES_MAX), |_| true).0
        };
        reasons.extend(describe(mount, grant, found));
    }
    Ok(reasons)
}

/// Why a box may not write to a directory of root.
#[expect(clippy::unnecessary_debug_formatting, reason = "a box chose the names: escapes keep them readable")]
fn refusal(mount: &MountSpec, of_root: Search, names_max: usize) -> Option<String> {
    match of_root {
        Search::Nothing => None,
        Search::Found(file) => {
            let file = if file == Path::new("") { mount.source.clone() } else { mount.source.join(file) };
            Some(format!(
                "root's file {file:?} is set-user-id, set-group-id or has file capabilities, and a box could change \
                 what it does with root's rights: run `chmod u-s,g-s FILE` and `setcap -r FILE` on it, or mount \
                 the directory read-only"
            ))
        }
        Search::Incomplete => Some(format!(
            "not all names in it could be looked at (at most {names_max} are), and a set-user-id file of root that a \
             box could change may be among them: mount a smaller directory, or mount it read-only"
        )),
    }
}

#[expect(clippy::unnecessary_debug_formatting, reason = "a box chose the names: escapes keep them readable")]
fn describe(mount: &MountSpec, grant: &Grant, search: Search) -> Option<String> {
    let source = grant.path.display();
    let target = Path::new(mount.target.as_str());
    match search {
        Search::Nothing => None,
        Search::Found(file) => {
            let path = if file == Path::new("") { target.to_owned() } else { target.join(file) };
            tracing::warn!(mount.source = %source, file = ?path, "mounted directory holds a file that lends rights");
            Some(format!(
                "{path:?} is set-user-id, set-group-id, a device or has file capabilities, and the box could change it: \
                 remove it, take the bits away with `chmod a-s`, or mount the directory read-only"
            ))
        }
        Search::Incomplete => {
            tracing::warn!(mount.source = %source, "mounted directory could not be searched for files that lend rights");
            Some(format!(
                "not all names in {target:?} could be looked at, and a set-user-id file that the box could change may be \
                 among them: mount a smaller directory, or mount it read-only"
            ))
        }
    }
}

/// Looks for files that lend rights, up to the first one that is wanted. Also returns the first other one before it. An empty path
/// is the grant itself.
fn search(grant: &Grant, bounds: Bounds, is_wanted: impl Fn(&Stat) -> bool) -> (Search, Option<PathBuf>) {
    if !grant.is_directory {
        let path = format!("/proc/self/fd/{}", grant.object.as_raw_fd());
        return match rustix::fs::fstat(&grant.object) {
            Ok(stat) if !lends_rights(&stat, Path::new(&path)) => (Search::Nothing, None),
            Ok(stat) if is_wanted(&stat) => (Search::Found(PathBuf::new()), None),
            Ok(_) => (Search::Nothing, Some(PathBuf::new())),
            Err(_) => (Search::Incomplete, None),
        };
    }
    let mut other = None;
    let found = find(&grant.object, bounds, |entry| {
        if !matches!(entry.kind, FileType::RegularFile | FileType::CharacterDevice | FileType::BlockDevice) {
            return false;
        }
        let Ok(stat) = rustix::fs::statat(entry.directory, entry.name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
        let directory = PathBuf::from(format!("/proc/self/fd/{}", entry.directory.as_raw_fd()));
        if !lends_rights(&stat, &directory.join(std::ffi::OsStr::from_bytes(entry.name.to_bytes()))) {
            return false;
        }
        let is_wanted = is_wanted(&stat);
        if !is_wanted && other.is_none() {
            other = Some(entry.path());
        }
        is_wanted
    });
    (found, other)
}

/// Whether a file gives other rights than those of its caller. One that cannot be executed does too: a box can make it executable
/// by an access list, which keeps the bits.
fn lends_rights(stat: &Stat, path: &Path) -> bool {
    const SET_ID: u32 = 0o6000;
    let has_capabilities = || rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok();
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => stat.st_mode & SET_ID != 0 || has_capabilities(),
        _ => is_device(stat),
    }
}

fn is_device(stat: &Stat) -> bool {
    matches!(FileType::from_raw_mode(stat.st_mode), FileType::CharacterDevice | FileType::BlockDevice)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{Mode, OFlags};

    use super::*;
    use crate::mount_policy::{MountPolicy, Origin};
    use crate::{MountMode, Profile, limits};

    fn reported(source: &Path, mode: MountMode, origin: Origin) -> Vec<String> {
        let mount = MountSpec { source: source.into(), target: "/workspace".parse().unwrap(), mode, origin };
        // As a server of an ordinary user does.
        examined(mount, false, Bounds::names(0)).unwrap()
    }

    fn examined(mount: MountSpec, server_is_root: bool, bounds_of_roots: Bounds) -> Result<Vec<String>> {
        let grant = MountPolicy::default().grant(&mount).unwrap();
        let spec = BoxSpec { mounts: vec![mount], ..Profile::default().spec() };
        examine(&spec, &[grant], server_is_root, bounds_of_roots)
    }

    #[test]
    fn files_that_lend_rights_are_reported_where_a_box_can_change_them() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::set_permissions(root.join("a"), Permissions::from_mode(0o2755)).unwrap();
        let file = root.join("a/b/tool");
        fs::write(&file, "").unwrap();
        for (mode, count) in [(0o755, 0), (0o1755, 0), (0o4755, 1), (0o2755, 1)] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            for source in [&root, &file] {
                assert_eq!(reported(source, MountMode::Rw, Origin::Operator).len(), count, "{mode:o} {source:?}");
            }
        }
        let why = reported(&root, MountMode::Rw, Origin::Operator).remove(0);
        assert!(why.starts_with("\"/workspace/a/b/tool\" is set-user-id"), "{why}");
        let why = reported(&file, MountMode::Rw, Origin::Operator).remove(0);
        assert!(why.starts_with("\"/workspace\" is"), "{why}");
        assert!(reported(&root, MountMode::Ro, Origin::Operator).is_empty(), "it cannot be changed");
        assert!(reported(&root, MountMode::Rw, Origin::Kept(root.clone())).is_empty(), "nobody else gets there");
    }
    #[test]
    fn a_box_hides_no_file_that_lends_rights() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().canonicalize().unwrap();
        let why = || reported(&root, MountMode::Rw, Origin::Operator).pop().unwrap_or_default();
        let hidden = root.join(std::ffi::OsStr::from_bytes(b"\xff"));
        fs::create_dir(&hidden).unwrap();
        fs::write(hidden.join("tool"), "").unwrap();
        fs::set_permissions(hidden.join("tool"), Permissions::from_mode(0o4755)).unwrap();
        assert!(why().starts_with("\"/workspace/\\xFF/tool\" is set-user-id"), "{}", why());
        fs::remove_dir_all(hidden).unwrap();
        assert_eq!(why(), "");
        // Deeper than any path that the kernel takes.
        let name = "d".repeat(200);
        let mut directory = rustix::fs::open(root.as_path(), OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..25 {
            rustix::fs::mkdirat(&directory, name.as_str(), Mode::RWXU).unwrap();
            directory = rustix::fs::openat(&directory, name.as_str(), OFlags::PATH, Mode::empty()).unwrap();
        }
        assert!(why().starts_with("not all names in \"/workspace\""), "{}", why());
        fs::remove_dir_all(root.join(name)).unwrap();
        let many = root.join("many");
        fs::create_dir(&many).unwrap();
        for number in 0..limits::MOUNT_ENTRIES_MAX {
            symlink("x", many.join(number.to_string())).unwrap();
        }
        assert!(why().starts_with("not all names"), "{}", why());
    }
    #[test]
    fn a_tree_of_root_with_a_file_that_lends_roots_rights_is_not_writable() {
        // Only root makes files of root.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().canonicalize().unwrap();
        let file = root.join("bin/a\u{1b}tool");
        fs::create_dir(root.join("bin")).unwrap();
        fs::write(&file, "").unwrap();
        let of = |source: &Path, mode: MountMode, names: usize| {
            let target = "/workspace".parse().unwrap();
            examined(
                MountSpec { source: source.into(), target, mode, origin: Origin::Operator },
                true,
                Bounds::names(names),
            )
        };
        let set = |owner: u32, mode: u32| {
            std::os::unix::fs::chown(&file, Some(owner), None).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        };
        for (owner, mode, is_refused) in
            [(0, 0o755, false), (0, 0o4755, true), (0, 0o2755, true), (0, 0o4644, true), (4242, 0o4755, false)]
        {
            set(owner, mode);
            let answer = of(&root, MountMode::Rw, 2);
            assert_eq!(answer.is_err(), is_refused, "{owner} {mode:o}: {answer:?}");
            assert!(of(&root, MountMode::Ro, 2).unwrap().is_empty());
            assert_eq!(answer.map_or(0, |reasons| reasons.len()), usize::from(owner != 0), "{owner} {mode:o}");
        }
        set(0, 0o4755);
        let error = of(&root, MountMode::Rw, 2).unwrap_err();
        assert_eq!(error.code(), "mount_denied");
        assert!(error.to_string().contains(&format!("root's file {file:?} is set-user-id")), "{error}");
        assert!(error.to_string().contains("`chmod u-s,g-s FILE`"), "{error}");
        fs::rename(&file, root.join("bin/tool")).unwrap();
        assert!(of(&root.join("bin/tool"), MountMode::Rw, 2).is_err(), "the file itself");
        fs::rename(root.join("bin/tool"), &file).unwrap();
        set(0, 0o755);
        let error = of(&root, MountMode::Rw, 1).unwrap_err();
        assert!(error.to_string().contains("not all names in it"), "{error}");
        // In a directory of another user, root's files are not the box's to write.
        std::os::unix::fs::chown(&root, Some(4242), None).unwrap();
        set(0, 0o4755);
        assert_eq!(of(&root, MountMode::Rw, 2).unwrap().len(), 1);
    }

    #[test]
    fn root_has_no_file_with_capabilities_in_a_tree_that_a_box_writes_to() {
        const CAPABILITIES: [u32; 5] = [0x0200_0001, 1 << 21, 0, 0, 0];
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().canonicalize().unwrap();
        fs::write(root.join("tool"), "").unwrap();
        fs::set_permissions(root.join("tool"), Permissions::from_mode(0o644)).unwrap();
        let value: Vec<u8> = CAPABILITIES.into_iter().flat_map(u32::to_le_bytes).collect();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(root.join("tool"), "security.capability", &value, flags).unwrap();
        let target = "/workspace".parse().unwrap();
        let mount = MountSpec { source: root, target, mode: MountMode::Rw, origin: Origin::Operator };
        assert!(examined(mount, true, Bounds::names(1)).unwrap_err().to_string().contains("has file capabilities"));
    }

    #[test]
    fn names_that_take_too_much_memory_are_not_looked_at() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path().canonicalize().unwrap();
        let directory = rustix::fs::open(root.as_path(), OFlags::RDONLY, Mode::empty()).unwrap();
        for name in ["aa", "bb", "cc"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        for (pending_bytes, expected) in [(5, Search::Incomplete), (6, Search::Nothing)] {
            assert_eq!(find(&directory, Bounds { names: 3, pending_bytes }, |_| false), expected);
        }
    }
}
