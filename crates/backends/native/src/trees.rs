//! Opens what a plan needs from outside: trees of the host, as mounts of their own or as objects to be recognised.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use box_core::{Error, Grant, MountSpec, Result};
use box_host::handover::Fds;
use box_host::ids::IdMaps;
use box_host::mounts::{self, Dwellers, clone_mount, unmappable};
use box_host::sys;
use box_images::RootTree;
use box_wire::plan::Tree;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// How trees get into a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountMethod {
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
    pub(crate) fn take(&self, path: &Path, way: MountMethod, fds: &mut Fds) -> Result<Tree> {
        tree_of(self.open(path)?.as_ref(), path, way, fds)
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
pub(crate) fn shared(part: &OwnedFd, user_namespace: &OwnedFd, fds: &mut Fds) -> Result<Tree> {
    let mount = clone_mount(part).map_err(|error| Error::io("taking the skeleton", error))?;
    let _ = sys::map_mount_ids(&mount, user_namespace.as_fd());
    Ok(Tree::Mount(fds.add(mount)))
}

/// A granted mount. Where ids can be mapped, the workload is the owner of the tree on the host.
pub(crate) fn granted(
    grant: &Grant,
    mount: &MountSpec,
    maps: &IdMaps,
    workload: (u32, u32),
    way: MountMethod,
    fds: &mut Fds,
) -> Result<Tree> {
    if way == MountMethod::Paths {
        return tree_of(&grant.object, &grant.path, way, fds);
    }
    let (Some(user), Some(group)) = (maps.host_user(workload.0), maps.host_group(workload.1)) else {
        return Err(box_wire::Invalid::new("user", workload.0, "an id that the box has").into());
    };
    let root = maps.host_user(0).zip(maps.host_group(0));
    let mount = mounts::of_grant(grant, &mount.origin, mount.mode, Dwellers { workload: (user, group), root })?;
    Ok(Tree::Mount(fds.add(mount)))
}

/// The root file system of an image. Its ids are the box's: root's files are root's.
pub(crate) fn image(tree: &RootTree, user_namespace: &OwnedFd, way: MountMethod, fds: &mut Fds) -> Result<Tree> {
    if way == MountMethod::Paths {
        return tree_of(&tree.directory, &tree.path, way, fds);
    }
    let mount = clone_mount(&tree.directory).map_err(|error| Error::io("taking the image", error))?;
    sys::map_mount_ids(&mount, user_namespace.as_fd()).map_err(|error| unmappable(&tree.path, &error))?;
    Ok(Tree::Mount(fds.add(mount)))
}

fn tree_of(object: &OwnedFd, path: &Path, way: MountMethod, fds: &mut Fds) -> Result<Tree> {
    let failed = |error: std::io::Error| Error::io(format!("taking {}", path.display()), error);
    match way {
        MountMethod::Mounts => Ok(Tree::Mount(fds.add(clone_mount(object).map_err(failed)?))),
        MountMethod::Paths => {
            let stat = rustix::fs::fstat(object).map_err(|error| failed(error.into()))?;
            let path = path.to_str().ok_or_else(|| Error::MountDenied {
                path: path.display().to_string(),
                reason: "it is not valid UTF-8".to_owned(),
            })?;
            Ok(Tree::Path { path: path.to_owned(), device: stat.st_dev, inode: stat.st_ino })
        }
    }
}
