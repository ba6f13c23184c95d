//! Set-id, device and capability files in directories that a box can write to.
//!
//! A box cannot make such a file. One that is there before can be changed by the box: the kernel takes its bits away when it is written,
//! but not when it is mapped into memory. So it is reported, and a floor of `rootfs` refuses the box.

use std::os::fd::AsRawFd;

use rustix::fs::{AtFlags, FileType, Stat};

use super::{Grant, find};
use crate::{BoxSpec, MountSpec};

/// Why directories that the box can write to are less safe than others: each holds a file that lends rights. `grants` are those of the
/// specification's mounts, in order.
pub fn privileged_files(spec: &BoxSpec, grants: &[Grant]) -> Vec<String> {
    let writable: Vec<&MountSpec> = spec.host_writable().collect();
    let mounts = spec.mounts.iter().zip(grants).filter(|(mount, _)| writable.contains(mount));
    let found = mounts.filter_map(|(mount, grant)| Some((mount, grant, privileged(grant)?)));
    found.map(|(mount, grant, file)| describe(mount, grant, &file)).collect()
}

fn describe(mount: &MountSpec, grant: &Grant, file: &str) -> String {
    tracing::warn!(mount.source = %grant.path.display(), file, "mounted directory holds a file that lends rights");
    let path = format!("{}{}", mount.target, file.trim_start_matches('.'));
    format!(
        "{path:?} is set-user-id, set-group-id, a device or has file capabilities, and the box could change it: remove it, \
         take the bits away with `chmod a-s`, or mount the directory read-only"
    )
}

/// The first file that lends rights, by its path below the grant; an empty one is the grant itself.
fn privileged(grant: &Grant) -> Option<String> {
    if !grant.is_directory {
        let stat = rustix::fs::fstat(&grant.object).ok()?;
        let path = format!("/proc/self/fd/{}", grant.object.as_raw_fd());
        return lends_rights(&stat, &path).then(String::new);
    }
    find(&grant.object, |directory, name, kind| {
        let is_file = || {
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            let path = format!("/proc/self/fd/{}/{name}", directory.as_raw_fd());
            stat.is_ok_and(|stat| lends_rights(&stat, &path))
        };
        match kind {
            FileType::CharacterDevice | FileType::BlockDevice => true,
            FileType::RegularFile => is_file(),
            _ => false,
        }
    })
}

/// Whether a regular file runs with other rights than those of its caller.
fn lends_rights(stat: &Stat, path: &str) -> bool {
    const SET_ID: u32 = 0o6000;
    const EXECUTE: u32 = 0o111;
    let has_capabilities = || rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok();
    stat.st_mode & SET_ID != 0 || stat.st_mode & EXECUTE != 0 && has_capabilities()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;
    use crate::mount_policy::{MountPolicy, Origin};
    use crate::{MountMode, Profile};

    fn reported(source: &Path, mode: MountMode, origin: Origin) -> Vec<String> {
        let mount = MountSpec { source: source.into(), target: "/workspace".parse().unwrap(), mode, origin };
        let grant = MountPolicy::default().grant(&mount).unwrap();
        privileged_files(&BoxSpec { mounts: vec![mount], ..Profile::default().spec() }, &[grant])
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
}
