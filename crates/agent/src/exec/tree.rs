//! The process tree of one exec: how it is held together, killed as a whole, and asked what it consumed.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use box_wire::{ExecId, User};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

use crate::setup::{self, Callers, MemoryTold, Prepared, Tracker};
use crate::sys;

/// Buffer for one read of a kernel file.
const FILE_BYTES_MAX: usize = 4096;

/// The most that is read of a list of processes: far more than fit into a box of the usual size.
const MEMBERS_BYTES_MAX: u64 = 4 << 20;

/// How often descendants are looked for again when a tree without a cgroup is killed. A tree that forks faster than it dies
/// is ended with its box by the host.
const WALKS_MAX: u32 = 64;

/// The process tree of one exec.
#[derive(Debug)]
pub(crate) struct Tree {
    place: TreeHolder,
    oom_kills_before: u64,
}

/// How the processes of the tree are found.
#[derive(Debug)]
enum TreeHolder {
    /// A cgroup of its own, below the box's.
    Cgroup { name: String, directory: OwnedFd },
    /// Everything below a reaper that was forked for it.
    Ancestry(Sight),
}

/// The user that reads the list of processes.
#[derive(Debug, Clone, Copy)]
enum Sight {
    /// The agent, which sees all that it has to.
    Own,
    /// A process with the ids of the commands: a container may hide a user's processes from all others.
    Of(User),
}

impl Tree {
    /// Makes the place where the processes of an exec will live.
    pub(crate) fn prepare(prepared: &Prepared, id: &ExecId) -> io::Result<Self> {
        let place = match &prepared.tracking {
            Tracker::Cgroup(parent) => {
                let name = id.as_str().to_owned();
                rustix::fs::mkdirat(parent, &name, Mode::from_raw_mode(0o700))?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                TreeHolder::Cgroup { directory: rustix::fs::openat(parent, &name, flags, Mode::empty())?, name }
            }
            Tracker::Ancestry if prepared.callers == Callers::Root => {
                TreeHolder::Ancestry(Sight::Of(prepared.workload))
            }
            Tracker::Ancestry => TreeHolder::Ancestry(Sight::Own),
        };
        let mut oom_kills_before = 0;
        match (&prepared.memory, &place) {
            // An exec dies as a whole when it runs out of memory: half a pipeline is worse than none.
            (MemoryTold::PerExec, TreeHolder::Cgroup { directory, .. }) => {
                let _ = write_at(directory, "memory.oom.group", b"1");
            }
            (MemoryTold::PerBox { oom_control, peak, .. }, _) => {
                oom_kills_before = oom_kills(oom_control);
                let _ = rustix::io::pwrite(peak, b"0", 0);
            }
            (MemoryTold::Counted(kills), _) => oom_kills_before = oom_kills(kills),
            _ => {}
        }
        Ok(Self { place, oom_kills_before })
    }

    /// The cgroup into which the exec's first process is forked.
    pub(crate) fn cgroup(&self) -> Option<BorrowedFd<'_>> {
        match &self.place {
            TreeHolder::Cgroup { directory, .. } => Some(directory.as_fd()),
            TreeHolder::Ancestry(_) => None,
        }
    }

    /// Whether a process belongs to the tree. Nothing can be said of trees without a cgroup.
    pub(crate) fn holds(&self, pid: i32) -> bool {
        self.cgroup().is_some_and(|cgroup| members_of(cgroup).is_ok_and(|members| members.contains(&pid)))
    }

    /// Kills every process of the tree. `top` is the reaper if the box has no cgroup.
    pub(crate) fn kill(&self, top: i32) {
        match &self.place {
            TreeHolder::Cgroup { directory, .. } => drop(write_at(directory, "cgroup.kill", b"1")),
            TreeHolder::Ancestry(sight) => kill_descendants(top, *sight),
        }
    }

    /// Sends a signal to every process of the tree. An error when not one could be signaled.
    pub(crate) fn signal(&self, top: i32, signal: i32) -> io::Result<()> {
        let members = match &self.place {
            TreeHolder::Cgroup { directory, .. } => members_of(directory)?,
            TreeHolder::Ancestry(sight) => descendants_of(top, *sight),
        };
        // The numbers were just read; at worst one names another process of the box by now, and a box is one trust domain.
        let mut outcome = Err(Errno::SRCH.into());
        for pid in members {
            let signalled = sys::signal_child(pid, signal);
            outcome = if outcome.is_ok() { outcome } else { signalled };
        }
        outcome
    }

    /// The command itself, where it is not `top`.
    pub(crate) fn command(&self, top: i32) -> Option<i32> {
        match &self.place {
            TreeHolder::Cgroup { .. } => Some(top),
            TreeHolder::Ancestry(sight) => children_of(top, *sight).first().copied(),
        }
    }

    /// Whether no process of the tree is left.
    pub(crate) fn is_gone(&self, top: i32) -> bool {
        match &self.place {
            TreeHolder::Cgroup { directory, .. } => {
                read_at(directory, "cgroup.events").is_ok_and(|text| value_of(&text, "populated") == Some(0))
            }
            TreeHolder::Ancestry(sight) => children_of(top, *sight).is_empty(),
        }
    }

    /// Processor time in user mode and in the kernel, of every process that was ever in the tree.
    pub(crate) fn cpu_us(&self) -> Option<(u64, u64)> {
        let TreeHolder::Cgroup { directory, .. } = &self.place else { return None };
        let text = read_at(directory, "cpu.stat").ok()?;
        Some((value_of(&text, "user_usec")?, value_of(&text, "system_usec")?))
    }

    /// Whether the kernel killed a process of it for memory, and the peak where that is known.
    pub(crate) fn memory(&self, told: &MemoryTold) -> (bool, Option<u64>) {
        match (told, &self.place) {
            (MemoryTold::PerExec, TreeHolder::Cgroup { directory, .. }) => {
                let events = read_at(directory, "memory.events").unwrap_or_default();
                let peak = read_at(directory, "memory.peak").ok().and_then(|text| text.trim().parse().ok());
                (value_of(&events, "oom_kill").is_some_and(|count| count > 0), peak)
            }
            (MemoryTold::PerBox { oom_control, peak, .. }, _) => {
                let peak = read_all(peak).ok().and_then(|text| text.trim().parse().ok());
                (oom_kills(oom_control) > self.oom_kills_before, peak)
            }
            (MemoryTold::Counted(kills), _) => (oom_kills(kills) > self.oom_kills_before, None),
            _ => (false, None),
        }
    }

    /// Removes the place. Fails while a process is left in it.
    pub(crate) fn remove(&self, tracker: &Tracker) -> rustix::io::Result<()> {
        match (&self.place, tracker) {
            (TreeHolder::Cgroup { name, .. }, Tracker::Cgroup(directory)) => {
                match rustix::fs::unlinkat(directory, name.as_str(), AtFlags::REMOVEDIR) {
                    Err(Errno::NOENT) => Ok(()),
                    removed => removed,
                }
            }
            _ => Ok(()),
        }
    }
}

/// Kills everything below `top`, again and again until nothing is left, because a tree can grow while it is cut.
fn kill_descendants(top: i32, sight: Sight) {
    for _ in 0..WALKS_MAX {
        let family = descendants_of(top, sight);
        if let (true, Sight::Of(_)) = (family.is_empty(), sight) {
            // A file operation has executed nothing and hides as the agent does. It ends with its reaper.
            let _ = sys::signal_child(top, libc::SIGKILL);
        }
        if family.is_empty() {
            return;
        }
        for pid in family {
            // The number was just read from the list of this box; at worst it names another process of the box that took it
            // since, and a box is one trust domain.
            let _ = sys::signal_child(pid, libc::SIGKILL);
        }
        std::thread::yield_now();
    }
}

/// Everything below `top`, at this moment.
fn descendants_of(top: i32, sight: Sight) -> Vec<i32> {
    let parents = parents(sight);
    let mut family = vec![top];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        family.extend(parents.iter().filter(|(_, parent)| *parent == member).map(|(pid, _)| pid));
        next += 1;
    }
    family.split_off(1)
}

/// The processes of a cgroup, at this moment.
fn members_of(cgroup: impl AsFd) -> rustix::io::Result<Vec<i32>> {
    let file = rustix::fs::openat(cgroup, "cgroup.procs", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    std::fs::File::from(file)
        .take(MEMBERS_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(String::from_utf8_lossy(&bytes).lines().filter_map(|line| line.parse().ok()).collect())
}

/// Every living process of the box and its parent, as far as they are seen.
fn parents(sight: Sight) -> Vec<(i32, i32)> {
    match sight {
        Sight::Own => listed(),
        Sight::Of(user) => seen_by(user).unwrap_or_default(),
    }
}

/// The same as `user` sees them: a child looks, and reports them.
fn seen_by(user: User) -> io::Result<Vec<(i32, i32)>> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    if sys::fork(None)?.is_none() {
        let list = if setup::become_user(user).is_ok() { listed() } else { Vec::new() };
        let bytes: Vec<u8> =
            list.iter().flat_map(|(pid, parent)| [pid.to_ne_bytes(), parent.to_ne_bytes()].concat()).collect();
        let _ = std::fs::File::from(writer).write_all(&bytes);
        sys::exit_now(0)
    }
    drop(writer);
    let mut bytes = Vec::new();
    std::fs::File::from(reader).take(MEMBERS_BYTES_MAX).read_to_end(&mut bytes)?;
    let number = |part: &[u8]| part.first_chunk().map_or(0, |part| i32::from_ne_bytes(*part));
    Ok(bytes.chunks_exact(8).map(|pair| (number(&pair[..4]), number(&pair[4..]))).collect())
}

/// Every process whose parent this process may know.
fn listed() -> Vec<(i32, i32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    entries.flatten().filter_map(number).filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

/// The parent of a process; nothing when it is dead and only waits to be reaped.
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so the fields are counted from its end: state, then parent.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    fields.next()?.parse().ok().filter(|_| state != "Z" && state != "X")
}

/// The living children of a process.
fn children_of(pid: i32, sight: Sight) -> Vec<i32> {
    parents(sight).into_iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| child).collect()
}

fn oom_kills(control: &OwnedFd) -> u64 {
    read_all(control).ok().and_then(|text| value_of(&text, "oom_kill")).unwrap_or(0)
}

/// The number behind `key` in a file of `key number` lines.
fn value_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

fn read_at(directory: &OwnedFd, name: &str) -> rustix::io::Result<String> {
    let file = rustix::fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    read_all(&file)
}

fn read_all(file: &OwnedFd) -> rustix::io::Result<String> {
    let mut buffer = vec![0; FILE_BYTES_MAX];
    let count = rustix::io::pread(file, &mut buffer, 0)?;
    buffer.truncate(count);
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

fn write_at(directory: &OwnedFd, name: &str, value: &[u8]) -> rustix::io::Result<()> {
    let file = rustix::fs::openat(directory, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, value).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_whole_key() {
        let text = "oom 3\noom_kill 2\npopulated 0\n";
        assert_eq!(value_of(text, "oom_kill"), Some(2));
        assert_eq!(value_of(text, "oom"), Some(3));
        assert_eq!(value_of(text, "pop"), None);
    }
}
