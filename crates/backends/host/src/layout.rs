//! The layout of a root that is made for a box, on all local backends: its directories, links and small files.

use box_core::BoxSpec;
use box_core::limits::WORKSPACE;
use box_wire::{BoxId, GuestPath};

use crate::host_root::HostRoot;

/// Directories that programs expect, and places on which something is mounted.
pub const DIRECTORIES: [&str; 14] = [
    "/dev",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/srv",
    "/sys",
    "/tmp",
    "/var/cache",
    "/var/lib",
    WORKSPACE,
];

/// Where a box can write, whatever else: the place, its permission bits, to whom it belongs, and its name in the storage.
pub const WORK_PLACES: [(&str, u32, Owner, &str); 5] = [
    (WORKSPACE, 0o755, Owner::Workload, "workspace"),
    ("/tmp", 0o1777, Owner::Root, "tmp"),
    ("/root", 0o700, Owner::Root, "root"),
    ("/run", 0o755, Owner::Root, "run"),
    ("/dev/shm", 0o1777, Owner::Root, "shm"),
];

/// To whom a work place belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Who commands run as.
    Workload,
    /// Root of the box.
    Root,
}

/// Links of a root without an image.
pub const LINKS: [(&str, &str); 4] = [
    ("/etc/os-release", "../usr/lib/os-release"),
    ("/etc/mtab", "../proc/self/mounts"),
    ("/var/tmp", "/tmp"),
    ("/var/run", "/run"),
];

/// Room for the links and mount points of `/dev`.
pub const DEVICE_BYTES_MAX: u64 = 64 << 10;

/// Directories in which there is nothing.
pub fn empty_directories() -> impl Iterator<Item = &'static str> {
    let is_used = |path: &&str| ["/dev", "/proc"].contains(path) || WORK_PLACES.iter().any(|(place, ..)| place == path);
    DIRECTORIES.into_iter().filter(move |path| !is_used(path))
}

/// Small files of a root without an image, beside those of the host, for these users and groups.
pub fn account_files((users, groups): (String, String)) -> [(&'static str, String); 3] {
    let services = "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n";
    [("/etc/passwd", users), ("/etc/group", groups), ("/etc/nsswitch.conf", services.to_owned())]
}

/// The users and groups of a box that has the host's programs.
pub fn accounts(spec: &BoxSpec, host: &HostRoot) -> (String, String) {
    crate::standard::accounts(spec.user, spec.home.as_str(), host.shell)
}

/// Files of `/etc` by which names are found. In an image its own files give way, as with every engine.
pub fn name_files(id: &BoxId, resolver: Option<&String>) -> impl Iterator<Item = (&'static str, String)> {
    let files = [("hostname", format!("{id}\n")), ("hosts", format!("127.0.0.1 localhost {id}\n::1 localhost\n"))];
    files.into_iter().chain(resolver.map(|text| ("resolv.conf", text.clone())))
}

/// The mounts of a specification by their numbers, parents before what lies in them.
pub fn mount_order(spec: &BoxSpec) -> Vec<usize> {
    let mut order: Vec<usize> = (0..spec.mounts.len()).collect();
    order.sort_by_key(|&index| spec.mounts[index].target.as_str().matches('/').count());
    order
}

/// A path that stands in a program, or came out of a parsed one.
pub fn known(path: &str) -> GuestPath {
    GuestPath::parse("path", path).unwrap_or_else(|_| GuestPath::root())
}
