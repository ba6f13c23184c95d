//! Keeps a container on a bridge from reaching its neighbours, by the kernel: its port of the bridge is made an isolated one.
//!
//! An engine promises the same by rules of its packet filter, which an operator may have switched off, and which nobody can look at
//! here. Root of the same machine and network can do better, and read it back.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};

/// Where interfaces are told.
const INTERFACES: &str = "/sys/class/net";

/// Isolates the ports of a container's interfaces on a bridge; answers whether all of them are.
pub(crate) fn isolate(pid: u32, bridge: &str) -> bool {
    let own = interfaces_of(pid);
    !own.is_empty() && own.iter().all(|interface| isolate_one(*interface, bridge).is_some())
}

/// An interface and its other end, by the numbers that each side gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Interface {
    index: u32,
    peer: u32,
}

/// The interfaces of a container that have another end.
fn interfaces_of(pid: u32) -> Vec<Interface> {
    let list = || -> rustix::io::Result<Vec<Interface>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &str, flags| rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        let names = rustix::fs::Dir::read_from(open(INTERFACES, flags)?)?.flatten();
        let names = names.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        let number = |name: &str, file: &str| {
            let path = format!("{INTERFACES}/{name}/{file}");
            let file = fs::File::from(open(&path, OFlags::RDONLY | OFlags::CLOEXEC).ok()?);
            std::io::read_to_string(file).ok()?.trim().parse::<u32>().ok()
        };
        let interface =
            |name: String| Some(Interface { index: number(&name, "ifindex")?, peer: number(&name, "iflink")? });
        Ok(names.filter(|name| name != "." && name != "..").filter_map(interface).collect())
    };
    list().unwrap_or_default().into_iter().filter(|one| one.index != one.peer).collect()
}

/// Finds the other end among our own interfaces: each end names the other, and it is a port of that very bridge. Where the engine
/// lives in another network, none does.
fn isolate_one(interface: Interface, bridge: &str) -> Option<()> {
    let place = fs::read_dir(INTERFACES).ok()?.flatten().map(|entry| entry.path()).find(|place| {
        let number = |file: &str| fs::read_to_string(place.join(file)).ok()?.trim().parse::<u32>().ok();
        number("ifindex") == Some(interface.peer) && number("iflink") == Some(interface.index)
    })?;
    let port: PathBuf = place.join("brport");
    let found = fs::read_link(port.join("bridge")).ok()?;
    if found.file_name() != Path::new(bridge).file_name() {
        return None;
    }
    fs::write(port.join("isolated"), "1").ok()?;
    (fs::read_to_string(port.join("isolated")).ok()?.trim() == "1").then_some(())
}
