//! Removal of a tree whose shape somebody else chose.
//!
//! One descriptor at a time and no recursion, so that depth costs neither descriptors nor stack. The way back up is `..`,
//! which is believed only if it is the directory that we came from: a tree that is moved while we remove it must not lead us
//! into another one.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Permissions that removal needs on a directory.
const OWNER_ALL: u32 = 0o700;

/// A directory on the way from the top to where we are.
struct Ancestor {
    device: u64,
    inode: u64,
    /// Name of the directory that we went down into.
    child: CString,
}

/// Removes `name` in `parent` with everything below it.
pub(super) fn remove_tree(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        outcome => return outcome,
    }
    let mut current = enter(parent, name)?;
    let mut ancestors: Vec<Ancestor> = Vec::new();
    loop {
        if let Some(child) = remove_files(&current)? {
            let below = enter(&current, child.as_c_str())?;
            let (device, inode) = identity(&current)?;
            ancestors.push(Ancestor { device, inode, child });
            current = below;
        } else if let Some(ancestor) = ancestors.pop() {
            current = rustix::fs::openat(
                &current,
                "..",
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            if identity(&current)? != (ancestor.device, ancestor.inode) {
                return Err(Errno::BUSY);
            }
            rustix::fs::unlinkat(&current, ancestor.child.as_c_str(), AtFlags::REMOVEDIR)?;
        } else {
            return rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR);
        }
    }
}

/// Removes what is not a directory, up to the first directory that is not empty, which is returned.
fn remove_files(directory: &OwnedFd) -> rustix::io::Result<Option<CString>> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes() == b"." || name.to_bytes() == b".." {
            continue;
        }
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
        match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(Some(name.to_owned())),
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}

/// Opens a directory of the same file system in which we may remove, changing its mode if it is ours.
fn enter<P: rustix::path::Arg + Copy>(parent: &OwnedFd, name: P) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let open = |flags: OFlags| {
        rustix::fs::openat2(parent, name, flags | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)
    };
    let directory = match open(OFlags::RDONLY) {
        Err(Errno::ACCESS) => {
            // Its owner may not read it, but may change that: by the object, because the name could be another by now.
            let object = open(OFlags::PATH)?;
            let link = format!("/proc/self/fd/{}", object.as_raw_fd());
            rustix::fs::chmod(link, Mode::from_raw_mode(OWNER_ALL))?;
            open(OFlags::RDONLY)?
        }
        outcome => outcome?,
    };
    let mode = rustix::fs::fstat(&directory)?.st_mode;
    if mode & OWNER_ALL != OWNER_ALL && !rustix::process::geteuid().is_root() {
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(OWNER_ALL))?;
    }
    Ok(directory)
}

fn identity(directory: impl AsFd) -> rustix::io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}
