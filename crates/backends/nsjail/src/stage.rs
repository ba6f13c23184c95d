//! What nsjail finds when root starts it: a mount namespace of its own, in which everything that it is to show stands under names of
//! ours.
//!
//! nsjail mounts as the box's root, who is nobody on the host: it could not enter our directories, and what it mounts by a path of
//! the host could be another thing by then. So the trees are taken as objects before, and put where it can reach them. Our `/run` is
//! hidden from it on the way, with all the sockets in it.
//!
//! ```text
//! /run/strongbox/host/<number>   trees of the host
//!               /door            where the host waits for the agent
//!               /storage/<name>  what the box can write, one file system with one limit
//!               /image, /root    the image, and the root that is made of it
//!               /usr             the host's programs where a box may add to them
//! /run/user/0/nsjail/{root,tmp}  where nsjail builds
//! ```

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use box_core::{Error, Result};
use box_host::host_root::TreeKind;
use box_host::layout::{Owner, WORK_PLACES, empty_directories};
use box_wire::plan::Own;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Uid};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags};

/// The directory of the control socket.
pub(crate) const CONTROL_DIRECTORY: &str = "/run/strongbox/door";
/// The root, where it is not nsjail's own.
pub(crate) const ROOT: &str = "/run/strongbox/root";
/// The host's programs, where a box may add to them.
pub(crate) const USR: &str = "/run/strongbox/usr";
const IMAGE: &str = "/run/strongbox/image";
const STORAGE: &str = "/run/strongbox/storage";

/// Everything else is names and mount points.
const OPTIONS: &std::ffi::CStr = c"size=1m,nr_inodes=1024,mode=755";

/// What holds for every file system here.
const SAFE: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// What holds for the root, until nsjail adds the same as for all others: on the way it makes the root read-only in a manner that
/// forgets such flags, and the kernel does not let it forget those that were there before it came.
const FREE: MountFlags = MountFlags::empty();

/// Hides `/run` from the calling thread, which must have a mount namespace of its own, and makes the place where nsjail builds.
pub(crate) fn hide_run() -> Result<()> {
    let hide = || -> std::io::Result<()> {
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        rustix::mount::mount("tmpfs", "/run", "tmpfs", SAFE, OPTIONS)?;
        directories("/run/user/0/nsjail/root")?;
        directories("/run/user/0/nsjail/tmp")
    };
    hide().map_err(|error| Error::io("hiding /run from nsjail", error))
}

/// Where a tree of the host stands.
pub(crate) fn host_tree(index: usize) -> String {
    format!("/run/strongbox/host/{index}")
}

/// Where a part of the storage stands.
pub(crate) fn storage(name: &str) -> String {
    format!("{STORAGE}/{name}")
}

/// Everything that is put there. Nothing stands anywhere until [`Stage::set_up`].
#[derive(Debug)]
pub(crate) struct Stage {
    /// Trees of the host, as mounts of their own.
    pub(crate) trees: Vec<(OwnedFd, TreeKind)>,
    /// The directory of the control socket, as a mount of its own.
    pub(crate) control_socket: OwnedFd,
    /// Where everything that the box owns is stored.
    pub(crate) storage: Storage,
    /// What the root is made of.
    pub(crate) root: Root,
    /// Root of the box, by its ids on the host.
    pub(crate) box_root: (u32, u32),
    /// Who commands run as, by its ids on the host.
    pub(crate) workload: (u32, u32),
}

/// Where everything that the box owns is stored. One file system, one limit.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Memory, charged to whoever writes it.
    Tmpfs {
        /// Hard limit of bytes.
        bytes_max: u64,
        /// Hard limit of files.
        inodes_max: u64,
    },
    /// A file system of its own.
    Mount(OwnedFd),
}

/// What the root is made of.
#[derive(Debug)]
pub(crate) enum Root {
    /// nsjail makes it.
    Nsjail,
    /// Directories of the storage, and the host's programs with these directories to write in.
    Writable(Own),
    /// An image, with the storage above.
    Image(OwnedFd),
}

impl Stage {
    /// Puts everything in its place, in a mount namespace that has no `/run` any more.
    pub(crate) fn set_up(&self) -> Result<()> {
        self.try_set_up().map_err(|error| Error::io("setting the stage for nsjail", error))
    }

    fn try_set_up(&self) -> std::io::Result<()> {
        directories("/run/strongbox/host")?;
        for (index, (tree, kind)) in self.trees.iter().enumerate() {
            place(tree, &host_tree(index), *kind)?;
        }
        place(&self.control_socket, CONTROL_DIRECTORY, TreeKind::Directory)?;
        self.set_up_storage()?;
        match &self.root {
            Root::Nsjail => Ok(()),
            Root::Writable(programs) => self.set_up_writable(programs),
            Root::Image(image) => {
                place(image, IMAGE, TreeKind::Directory)?;
                self.overlay(IMAGE, "root", ROOT, FREE, &Own::default())
            }
        }
    }

    fn set_up_storage(&self) -> std::io::Result<()> {
        match &self.storage {
            Storage::Mount(mount) => place(mount, STORAGE, TreeKind::Directory)?,
            Storage::Tmpfs { bytes_max, inodes_max } => {
                directories(STORAGE)?;
                let options = format!("size={bytes_max},nr_inodes={inodes_max},mode=755");
                let options = std::ffi::CString::new(options)?;
                rustix::mount::mount("tmpfs", STORAGE, "tmpfs", SAFE, options.as_c_str())?;
            }
        }
        for (_, mode, owner, name) in WORK_PLACES {
            let owner = match owner {
                Owner::Workload => self.workload,
                Owner::Root => self.box_root,
            };
            own_directory(&storage(name), mode, owner)?;
        }
        Ok(())
    }

    /// A root of directories that can be written, and the host's programs with a layer above them.
    fn set_up_writable(&self, programs: &Own) -> std::io::Result<()> {
        let top = storage("top");
        own_directory(&top, 0o755, self.box_root)?;
        for path in empty_directories() {
            for (end, _) in path.match_indices('/').skip(1) {
                own_directory(&format!("{top}{}", &path[..end]), 0o755, self.box_root)?;
            }
            own_directory(&format!("{top}{path}"), 0o755, self.box_root)?;
        }
        directories(ROOT)?;
        rustix::mount::mount_bind(top.as_str(), ROOT)?;
        rustix::mount::mount_remount(ROOT, FREE | MountFlags::BIND, c"")?;
        self.overlay(&host_tree(0), "usr", USR, SAFE, programs)
    }

    /// A layer of the storage above a tree, in which some directories belong to the box's root.
    fn overlay(&self, lower: &str, name: &str, target: &str, flags: MountFlags, own: &Own) -> std::io::Result<()> {
        let (upper, work) = (storage(&format!("{name}-upper")), storage(&format!("{name}-work")));
        own_directory(&upper, 0o755, self.box_root)?;
        own_directory(&work, 0o700, (0, 0))?;
        for directory in &own.directories {
            own_directory(&format!("{upper}/{directory}"), 0o755, self.box_root)?;
        }
        for name in &own.hidden {
            let above = name.rsplit_once('/').map_or("", |(above, _)| above);
            own_directory(&format!("{upper}/{above}"), 0o755, self.box_root)?;
            // An overlay treats this device as a whiteout.
            rustix::fs::mknodat(CWD, format!("{upper}/{name}"), FileType::CharacterDevice, Mode::empty(), 0)?;
        }
        for (name, target) in &own.links {
            let link = format!("{upper}/{name}");
            rustix::fs::symlink(target, &link)?;
            let (uid, gid) = self.box_root;
            rustix::fs::chownat(
                CWD,
                &link,
                Some(Uid::from_raw(uid)),
                Some(Gid::from_raw(gid)),
                AtFlags::SYMLINK_NOFOLLOW,
            )?;
        }
        directories(target)?;
        let options = std::ffi::CString::new(format!("lowerdir={lower},upperdir={upper},workdir={work}"))?;
        Ok(rustix::mount::mount("overlay", target, "overlay", flags, options.as_c_str())?)
    }
}

/// Puts a mount that stands nowhere in its place, which is made.
fn place(mount: &OwnedFd, path: &str, kind: TreeKind) -> std::io::Result<()> {
    match kind {
        TreeKind::Directory => directories(path)?,
        TreeKind::File => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            drop(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?);
        }
    }
    Ok(rustix::mount::move_mount(mount.as_fd(), "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Makes a directory with its parents, whatever the mask of this process: nsjail must be able to pass through.
fn directories(path: &str) -> std::io::Result<()> {
    for (end, _) in path.match_indices('/').skip(2).chain([(path.len(), "")]) {
        directory(Path::new(&path[..end]), 0o755)?;
    }
    Ok(())
}

fn own_directory(path: &str, mode: u32, (uid, gid): (u32, u32)) -> std::io::Result<()> {
    directory(Path::new(path), mode)?;
    Ok(rustix::fs::chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

fn directory(path: &Path, mode: u32) -> std::io::Result<()> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        Ok(()) => Ok(rustix::fs::chmod(path, Mode::from_raw_mode(mode))?),
        Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
