//! Opens what a jail needs from outside.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use box_core::{Error, Result};
use box_host::cgroup::BoxCgroup;
use box_host::host_root::HostRoot;
use box_host::ids::IdMaps;
use box_host::layout::WORK_PLACES;
use box_host::mounts;
use box_host::sys::{NamespaceHolder, map_mount_ids};
use box_images::RootTree;
use box_wire::GuestPath;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::layout::CONTROL_DIRECTORY;

/// Files of an image that give way to ours, unless they are links: those lead where only the image knows.
const NAMES: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];

/// A tree of the host that every box sees, as a mount of its own, without what is mounted below it.
///
/// Its ids are not mapped: a box sees what any stranger on the host would see.
pub(crate) fn of_host(path: &Path) -> Result<OwnedFd> {
    let failed = |error: std::io::Error| Error::io(format!("taking {}", path.display()), error);
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let object = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .map_err(|error| failed(error.into()))?;
    mounts::clone_mount(&object).map_err(failed)
}

/// What is mounted below the trees of the host, parents first.
pub(crate) fn below(host: &HostRoot) -> Vec<GuestPath> {
    submounts(host, &std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

fn submounts(host: &HostRoot, mountinfo: &str) -> Vec<GuestPath> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    let paths = points.filter_map(|point| GuestPath::parse("path", &point).ok());
    let is_below = |path: &GuestPath| host.trees.iter().any(|(_, tree, _)| path != tree && path.is_within(tree));
    let mut found: Vec<GuestPath> = paths.filter(is_below).collect();
    found.sort();
    found.dedup();
    found
}

/// A path as the kernel's list of mounts spells it: blanks and the like as three octal digits.
fn unescape(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, letter)| text.replace(escape, letter))
}

/// The root file system of an image, as a mount of its own in which root's files are the box's root's.
pub(crate) fn of_image(tree: &RootTree, range: Option<u32>) -> Result<OwnedFd> {
    let failed = |error: std::io::Error| Error::io("taking the image", error);
    let mount = mounts::clone_mount(&tree.directory).map_err(failed)?;
    if let Some(range) = range {
        let holder = NamespaceHolder::start().map_err(failed)?;
        IdMaps::of_range(range).write(holder.pid)?;
        let namespace = mounts::open_user_namespace(holder.pid).map_err(failed)?;
        map_mount_ids(&mount, namespace.as_fd()).map_err(|error| mounts::unmappable(&tree.path, &error))?;
    }
    Ok(mount)
}

/// Checks that nsjail will follow no link of an image when it mounts on it: it does so before the image is its root, so that a link
/// would lead into the host. Answers which small files are links and stay.
pub(crate) fn check_image(tree: &RootTree, targets: &[GuestPath]) -> Result<Vec<GuestPath>> {
    let own = WORK_PLACES.iter().map(|(path, ..)| *path).chain(["/dev", "/etc", "/proc", CONTROL_DIRECTORY]);
    for path in own.chain(targets.iter().map(GuestPath::as_str)) {
        if is_link(tree, path)? {
            let reason = format!("{path} leads through a link; what is mounted on must be a real directory in it");
            return Err(Error::BadImage { image: tree.path.display().to_string(), reason });
        }
    }
    let mut kept = Vec::new();
    for path in NAMES {
        if is_link(tree, path)? {
            kept.push(GuestPath::parse("path", path)?);
        }
    }
    Ok(kept)
}

/// Whether a link stands anywhere on the way to a path of the image, its end included; or a file where a directory should be.
fn is_link(tree: &RootTree, path: &str) -> Result<bool> {
    // Without NOFOLLOW, which would answer a link at the end by a descriptor of the link itself.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match rustix::fs::openat2(&tree.directory, path.trim_start_matches('/'), flags, Mode::empty(), resolve) {
        Ok(_) | Err(Errno::NOENT) => Ok(false),
        Err(Errno::LOOP | Errno::NOTDIR) => Ok(true),
        Err(error) => Err(Error::io(format!("looking at {path} of the image"), error)),
    }
}

/// Files of the box's cgroups, for nsjail; whoever writes `0` to one is in it, and so is everything that it starts.
pub(crate) fn entrances(cgroup: &BoxCgroup) -> Result<Vec<OwnedFd>> {
    let mut entrances = cgroup.entrances()?;
    if let Some(directory) = cgroup.agent_directory() {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, "cgroup.procs", flags, Mode::empty())
            .map_err(|error| Error::io("opening the cgroup of a box", error))?;
        entrances.push(file);
    }
    Ok(entrances)
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_host::host_root::TreeKind;

    #[test]
    fn what_is_mounted_below_the_hosts_programs_is_found() {
        let path = |text: &str| GuestPath::parse("path", text).unwrap();
        let trees = vec![("/usr".into(), path("/usr"), TreeKind::Directory)];
        let host = HostRoot { trees, ..HostRoot::default() };
        let table = "1 0 8:1 / / rw - ext4 a rw\n2 1 8:2 / /usr rw - ext4 b rw\n4 3 8:4 / /usr/local/a\\040b rw - ext4 d rw\n\
                     3 2 8:3 / /usr/local rw - ext4 c rw\n5 1 8:5 / /usrx rw - ext4 e rw\n";
        assert_eq!(submounts(&host, table), [path("/usr/local"), path("/usr/local/a b")]);
    }
}
