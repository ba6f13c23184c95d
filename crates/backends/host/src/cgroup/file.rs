//! Small files and directories of a cgroup file system, always relative to an open directory.

use std::os::fd::{AsFd, OwnedFd};

use box_core::{Error, Result};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

/// Most that is read of one file. A cgroup with more processes than fit is not one that we made a moment ago.
const READ_BYTES_MAX: usize = 256 * 1024;

/// Another descriptor of the same directory.
pub(super) fn again(directory: &OwnedFd) -> Result<OwnedFd> {
    directory.try_clone().map_err(|error| Error::io("opening the cgroup of a box", error))
}

/// Opens a directory below `directory`; a link in its place is refused.
pub(super) fn open_directory(directory: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// Opens a file of a cgroup.
pub(super) fn open(directory: impl AsFd, name: &str, access: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(directory, name, access | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Writes a value in one call, as the kernel asks for it.
pub(super) fn write(directory: impl AsFd, name: &str, value: &str) -> rustix::io::Result<()> {
    let file = open(directory, name, OFlags::WRONLY)?;
    rustix::io::write(file, value.as_bytes()).map(|_| ())
}

/// Writes a value and says which one when the kernel refuses.
pub(super) fn set(directory: impl AsFd, name: &str, value: &str) -> Result<()> {
    write(directory, name, value).map_err(|errno| Error::io(format!("setting the cgroup's {name} to {value}"), errno))
}

/// Reads a whole file.
pub(super) fn read(directory: impl AsFd, name: &str) -> rustix::io::Result<String> {
    let file = open(directory, name, OFlags::RDONLY)?;
    let mut bytes = Vec::with_capacity(512);
    while bytes.len() < READ_BYTES_MAX {
        bytes.reserve(512);
        if rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes))? == 0 {
            break;
        }
    }
    String::from_utf8(bytes).map_err(|_| Errno::ILSEQ)
}

/// Reads a file that holds one number; `max` and whatever else is not a number is nothing.
pub(super) fn number(directory: impl AsFd, name: &str) -> Option<u64> {
    read(directory, name).ok()?.trim().parse().ok()
}

/// Reads one value of a file of `key value` lines.
pub(super) fn keyed(directory: impl AsFd, name: &str, key: &str) -> Option<u64> {
    let text = read(directory, name).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}

/// Whether a file is there.
pub(super) fn exists(directory: impl AsFd, name: &str) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Whether a process is a member of exactly this cgroup.
pub(super) fn holds(directory: impl AsFd, pid: u32) -> bool {
    let pid = pid.to_string();
    read(directory, "cgroup.procs").is_ok_and(|members| members.lines().any(|member| member == pid))
}

/// Names of the cgroups directly below this one.
pub(super) fn children(directory: impl AsFd) -> rustix::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if entry.file_type() == FileType::Directory && name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
