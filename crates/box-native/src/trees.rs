//! Opens what a plan needs from outside: trees of the host, as mounts of their own or as objects to be recognised.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use box_core::{Error, Grant, Result};
use box_host::handover::Baggage;
use box_wire::plan::Tree;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::mount::OpenTreeFlags;
use rustix::thread::{Gid, Uid};

use crate::ids::{IdMaps, WORKSPACE_OWNER, write_file};
use crate::image::RootTree;
use crate::sys;

/// How trees get into a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// We are root: detached mounts, with ids mapped where that helps.
    Mounts,
    /// The agent opens the path itself in its copy of our mounts and checks that it is the same object.
    Paths,
}

/// Files and directories of the host that every box sees, opened once.
///
/// Their ids are not mapped: a box sees what any stranger on the host would see, so a file that only root may read stays
/// unreadable.
#[derive(Debug, Default)]
pub(crate) struct HostTrees(Mutex<HashMap<PathBuf, Arc<OwnedFd>>>);

impl HostTrees {
    /// A tree for one box.
    pub(crate) fn take(&self, path: &Path, way: Way, baggage: &mut Baggage) -> Result<Tree> {
        tree_of(self.open(path)?.as_ref(), path, way, baggage)
    }

    fn open(&self, path: &Path) -> Result<Arc<OwnedFd>> {
        let mut opened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(object) = opened.get(path) {
            // A package manager replaces files by new ones; a descriptor of the old one would keep showing that.
            let unchanged = rustix::fs::fstat(object).is_ok_and(|stat| stat.st_nlink > 0);
            if unchanged {
                return Ok(Arc::clone(object));
            }
        }
        let failed = |error: rustix::io::Errno| Error::io(format!("opening {}", path.display()), error);
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let object = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).map_err(failed)?;
        let object = Arc::new(object);
        opened.insert(path.to_owned(), Arc::clone(&object));
        Ok(object)
    }
}

/// A copy of a part that boxes share. Where the kernel can, its files belong to the box's root; else to nobody.
pub(crate) fn shared(part: &OwnedFd, user_namespace: &OwnedFd, baggage: &mut Baggage) -> Result<Tree> {
    let mount = clone_mount(part).map_err(|error| Error::io("taking the skeleton", error))?;
    let _ = sys::map_mount_ids(&mount, user_namespace.as_fd());
    Ok(Tree::Mount(baggage.add(mount)))
}

/// A granted mount. Where ids can be mapped, the workload is the owner of the tree on the host, and nobody else.
pub(crate) fn granted(
    grant: &Grant,
    writable: bool,
    maps: &IdMaps,
    workload: (u32, u32),
    way: Way,
    baggage: &mut Baggage,
) -> Result<Tree> {
    if way == Way::Paths {
        return tree_of(&grant.object, &grant.path, way, baggage);
    }
    let (Some(user), Some(group)) = (maps.host_user(workload.0), maps.host_group(workload.1)) else {
        return Err(box_wire::Invalid::new("user", workload.0, "an id that the box has").into());
    };
    let mut owner = (grant.uid, grant.gid);
    if owner.0 == 0 {
        // What a box writes must never belong to the host's root, so the tree itself is handed to an owner that is nobody.
        owner.0 = WORKSPACE_OWNER;
        if writable {
            hand_over(grant)?;
        }
    }
    if owner.1 == 0 {
        owner.1 = WORKSPACE_OWNER;
    }
    let mount =
        clone_mount(&grant.object).map_err(|error| Error::io(format!("taking {}", grant.path.display()), error))?;
    map_ids(&mount, &[(owner.0, user)], &[(owner.1, group)]).map_err(|error| unmappable(&grant.path, &error))?;
    Ok(Tree::Mount(baggage.add(mount)))
}

/// The root file system of an image. Its ids are the box's: root's files are root's.
pub(crate) fn image(tree: &RootTree, user_namespace: &OwnedFd, way: Way, baggage: &mut Baggage) -> Result<Tree> {
    if way == Way::Paths {
        return tree_of(&tree.directory, &tree.path, way, baggage);
    }
    let mount = clone_mount(&tree.directory).map_err(|error| Error::io("taking the image", error))?;
    sys::map_mount_ids(&mount, user_namespace.as_fd()).map_err(|error| unmappable(&tree.path, &error))?;
    Ok(Tree::Mount(baggage.add(mount)))
}

fn tree_of(object: &OwnedFd, path: &Path, way: Way, baggage: &mut Baggage) -> Result<Tree> {
    let failed = |error: std::io::Error| Error::io(format!("taking {}", path.display()), error);
    match way {
        Way::Mounts => Ok(Tree::Mount(baggage.add(clone_mount(object).map_err(failed)?))),
        Way::Paths => {
            let stat = rustix::fs::fstat(object).map_err(|error| failed(error.into()))?;
            let path = path.to_str().ok_or_else(|| Error::MountDenied {
                path: path.display().to_string(),
                reason: "it is not valid UTF-8".to_owned(),
            })?;
            Ok(Tree::Path { path: path.to_owned(), device: stat.st_dev, inode: stat.st_ino })
        }
    }
}

/// A detached copy of what is mounted at an object, without what is mounted below it now or later.
pub(crate) fn clone_mount(object: &OwnedFd) -> std::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let mount = rustix::mount::open_tree(object, "", flags)?;
    sys::make_mount_private(&mount)?;
    Ok(mount)
}

/// Gives a tree of the host's root to nobody, so that a box can write into it.
fn hand_over(grant: &Grant) -> Result<()> {
    let link = format!("/proc/self/fd/{}", grant.object.as_raw_fd());
    let gid = (grant.gid == 0).then(|| Gid::from_raw(WORKSPACE_OWNER));
    rustix::fs::chown(link, Some(Uid::from_raw(WORKSPACE_OWNER)), gid)
        .map_err(|error| Error::io(format!("giving {} to the boxes", grant.path.display()), error))
}

/// Shows a mount's files with other ids: each pair is the id on disk and the id of the host that stands for it.
fn map_ids(mount: &OwnedFd, users: &[(u32, u32)], groups: &[(u32, u32)]) -> std::io::Result<()> {
    let holder = sys::NamespaceHolder::start()?;
    let line = |(disk, shown): &(u32, u32)| format!("{disk} {shown} 1");
    let lines = |pairs: &[(u32, u32)]| {
        pairs.iter().map(line).collect::<Vec<_>>().join(
            "
",
        )
    };
    write_file(&format!("/proc/{}/uid_map", holder.pid), &lines(users)).map_err(std::io::Error::other)?;
    write_file(&format!("/proc/{}/gid_map", holder.pid), &lines(groups)).map_err(std::io::Error::other)?;
    let namespace = open_user_namespace(holder.pid)?;
    sys::map_mount_ids(mount, namespace.as_fd())
}

/// The user namespace of a process.
pub(crate) fn open_user_namespace(pid: u32) -> std::io::Result<OwnedFd> {
    let path = format!("/proc/{pid}/ns/user");
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

fn unmappable(path: &Path, error: &std::io::Error) -> Error {
    Error::Unavailable {
        what: format!("mounting {}", path.display()),
        reason: format!("its file system cannot show files with other ids ({error})"),
        fix: "move it to ext4, xfs, btrfs or tmpfs".to_owned(),
    }
}
