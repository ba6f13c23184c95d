//! The file system that holds everything the box owns, while its root is built.
//!
//! Where the box is made from a snapshot, what is in it was made by a stranger: nothing here goes through a link.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use box_wire::plan::{Access, Own, Root};
use box_wire::{GuestPath, Plan, User};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};

use super::charged::Limits;
use super::{Failure, Step, mounts, restore};
use crate::snapshot::{PLACES, ROOT, Storage, UPPER};

/// Where the storage is mounted while the root is built. It exists on every Linux, and everything below it that is needed has
/// been gathered before.
const STAGE: &str = "/dev";

/// A directory of the storage that stays empty.
const EMPTY: &str = "empty";

/// Longest name that a directory of the storage can have.
const NAME_BYTES_MAX: usize = 255;

/// Larger host files are not copied into boxes. The package list of a large machine has about 5 MB.
const COPY_BYTES_MAX: u64 = 32 << 20;

/// Flags to open the files of a tree that are copied.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The storage of a box under construction.
#[derive(Debug)]
pub(super) struct Stage {
    /// The file system, as a mount at [`STAGE`].
    mount: OwnedFd,
    /// The parts that are kept when the box is made.
    kept: Storage,
}

impl Stage {
    /// Mounts the storage, and fills it first if there is a snapshot.
    pub(super) fn open(
        plan: &Plan,
        mount: OwnedFd,
        snapshot: Option<(OwnedFd, Limits<'_>)>,
    ) -> std::result::Result<Self, Failure> {
        mounts::restrict(&mount, Access::ReadWrite).step("storage")?;
        mounts::attach(&mount, open_path(STAGE).step("storage")?).step("storage")?;
        // Before anything is mounted in it, so that it shows nothing else.
        let view = mounts::clone_at(&mount, "").step("storage")?;
        mounts::restrict(&view, Access::ReadOnly).step("storage")?;
        let stage = Self { mount, kept: Storage { view, overlays: Vec::new() } };
        if let Some((archive, limits)) = snapshot {
            let fill = || restore::fill(&stage.mount, restore::reader(archive), plan.workload);
            limits.run(|| fill().map_err(|refusal| refusal.to_string())).step("seed")?;
            stage.check_kind(&plan.root).step("seed")?;
        }
        for name in [ROOT, PLACES, EMPTY] {
            stage.directory(name).step("storage")?;
        }
        Ok(stage)
    }

    /// A saved box is restored on what it stood on: nothing else makes sense of what it changed there.
    fn check_kind(&self, root: &Root) -> std::result::Result<(), &'static str> {
        let had_image = mounts::open_target(&self.mount, &place_name(&GuestPath::root())).is_ok();
        match (matches!(root, Root::Overlay(_)), had_image) {
            (true, false) => Err("the saved box had no image, and this one has; make it without one"),
            (false, true) => Err("the saved box was made from an image; make this one from the same"),
            _ => Ok(()),
        }
    }

    /// The directory of a box that has a root of its own.
    pub(super) fn root(&self) -> Result<OwnedFd> {
        mounts::clone_at(&self.mount, ROOT)
    }

    /// The mount point of the new root.
    pub(super) fn root_place(&self) -> Result<OwnedFd> {
        mounts::open_target(&self.mount, ROOT)
    }

    /// A directory with nothing in it.
    pub(super) fn empty(&self) -> Result<OwnedFd> {
        mounts::clone_at(&self.mount, EMPTY)
    }

    /// A directory of the storage for a place of the root. One that is there stays what the box made of it.
    pub(super) fn writable(&self, path: &GuestPath, mode: u32, owner: User) -> Result<OwnedFd> {
        let name = place_name(path);
        if self.directory(&name)? == CreationTime::Now {
            mounts::set_owner_and_mode(mounts::open_target(&self.mount, &name)?, mode, owner)?;
        }
        mounts::clone_at(&self.mount, &name)
    }

    /// An overlay over `lower` and a layer that boxes share; changes go to directories of the storage. The directories in `own`
    /// exist from the start.
    pub(super) fn overlay(
        &mut self,
        path: &GuestPath,
        lower: &OwnedFd,
        shared: Option<&OwnedFd>,
        own: &Own,
    ) -> Result<OwnedFd> {
        let base = place_name(path);
        for part in ["", "/lower", "/shared", "/work"] {
            self.directory(&format!("{base}{part}"))?;
        }
        // A restored box already had it, and may have changed it.
        if self.directory(&format!("{base}/{UPPER}"))? == CreationTime::Now {
            self.populate(&format!("{base}/{UPPER}"), lower, own)?;
        }
        for (layer, part) in [(Some(lower), "lower"), (shared, "shared")] {
            let Some(layer) = layer else { continue };
            mounts::restrict(layer, Access::ReadOnly)?;
            mounts::attach(layer, mounts::open_target(&self.mount, &format!("{base}/{part}"))?)?;
        }
        self.kept.overlays.push(base.trim_start_matches(PLACES).trim_start_matches('/').to_owned());
        // All of these are real directories, as was just seen to.
        let path = |part: &str| format!("{STAGE}/{base}/{part}");
        let layers = if shared.is_some() { [path("shared"), path("lower")].join(":") } else { path("lower") };
        mounts::overlay(&layers, &path(UPPER), &path("work"))
    }

    /// Fills a layer before any box uses it.
    fn populate(&self, upper: &str, lower: &OwnedFd, own: &Own) -> Result<()> {
        for name in &own.directories {
            self.directory(&format!("{upper}/{name}"))?;
        }
        for name in &own.copies {
            self.copy(lower, name, &format!("{upper}/{name}"))?;
        }
        for name in &own.hidden {
            let (above, name) = self.above(&format!("{upper}/{name}"))?;
            // An overlay treats this device as a whiteout. Unprivileged users may create it.
            rustix::fs::mknodat(&above, &name, FileType::CharacterDevice, Mode::empty(), 0)?;
        }
        for (name, target) in &own.links {
            let (above, name) = self.above(&format!("{upper}/{name}"))?;
            rustix::fs::symlinkat(target.as_str(), &above, &name)?;
        }
        Ok(())
    }

    /// Copies a file of a tree if every user in the box may read it.
    fn copy(&self, tree: &OwnedFd, name: &str, to: &str) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let from = match rustix::fs::openat2(tree, name, flags, Mode::empty(), BENEATH) {
            Err(Errno::NOENT | Errno::ACCESS) => return Ok(()),
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&from)?;
        let is_small = u64::try_from(stat.st_size).is_ok_and(|bytes| bytes <= COPY_BYTES_MAX);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !is_small {
            return Err(Errno::FBIG);
        }
        let (above, name) = self.above(to)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = rustix::fs::openat(&above, &name, flags, Mode::from_raw_mode(0o644))?;
        let (mut from, mut copy) = (File::from(from).take(COPY_BYTES_MAX), File::from(copy));
        std::io::copy(&mut from, &mut copy).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(())
    }

    /// Returns the parent directory in the storage, created if missing, and the last name of the path.
    fn above(&self, path: &str) -> Result<(OwnedFd, String)> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut made = String::new();
        for part in above.split('/') {
            made = if made.is_empty() { part.to_owned() } else { format!("{made}/{part}") };
            self.directory(&made)?;
        }
        Ok((mounts::open_target(&self.mount, above)?, name.to_owned()))
    }

    /// The parts that stay when the box is made.
    pub(super) fn keep(self) -> Storage {
        self.kept
    }

    /// Makes a directory of the storage. What has that name already must be one, and no link to one.
    fn directory(&self, path: &str) -> Result<CreationTime> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let above = mounts::open_target(&self.mount, above)?;
        match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => Ok(CreationTime::Now),
            Err(Errno::EXIST) if mounts::is_directory(mounts::open_target(&self.mount, path)?)? => {
                Ok(CreationTime::Before)
            }
            Err(Errno::EXIST) => Err(Errno::NOTDIR),
            Err(error) => Err(error),
        }
    }
}

/// When a directory was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CreationTime {
    Now,
    Before,
}

/// The directory of a place. It follows from where the place is, so that a saved box finds its places again whatever else is mounted.
fn place_name(path: &GuestPath) -> String {
    let name = path.as_str().replace('%', "%25").replace('/', "%2F");
    if name.len() <= NAME_BYTES_MAX {
        return format!("{PLACES}/{name}");
    }
    // The Fowler–Noll–Vo hash: any that never changes will do.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{PLACES}/{hash:016x}")
}

fn open_path(path: &str) -> Result<OwnedFd> {
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
