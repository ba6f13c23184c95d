//! Moves into a container that an engine made. Nothing can be mounted or mapped here, so this verifies what the engine
//! promised and gives up every right that it can.

use std::os::fd::OwnedFd;

use box_wire::message::Verified;
use box_wire::plan::{Memory, Sight, Tracking};
use box_wire::{ContainerSetup, GuestPath};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::{Callers, Descriptors, Failure, MemoryTold, Prepared, Step, Tracker, confine, open_memory, set_limits};
use crate::dialler;
use crate::sys;

/// Moves in. What it returns has no right that it does not need.
pub(crate) fn move_in(setup: ContainerSetup, descriptors: Vec<OwnedFd>) -> Result<Prepared, Failure> {
    let mut descriptors = Descriptors(descriptors.into_iter().map(Some).collect());
    let listener = match setup.listener {
        Some(index) => descriptors.take(index)?,
        None => dialler::listen().step("listen")?,
    };
    let maker = setup.maker.map(|index| descriptors.take(index)).transpose()?;
    let journal = match (setup.journal, &setup.journal_in_box) {
        (Some(index), _) => Some(descriptors.take(index)?),
        (None, path) => path.as_ref().map(open_directory).transpose().step("journal")?,
    };
    let counted = setup.oom_kills.map(|index| descriptors.take(index)).transpose()?;
    let tracking = match setup.tracking {
        Tracking::Cgroup(index) => Tracker::Cgroup(descriptors.take(index)?),
        Tracking::Ancestry => Tracker::Ancestry,
    };
    let memory = match setup.memory {
        Memory::PerBox(index) => Some(descriptors.take(index)?),
        Memory::PerExec | Memory::Absent => None,
    };
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // An engine starts its first process as the leader of a session or not; either is fine.
    match rustix::process::setsid() {
        Ok(_) | Err(Errno::PERM) => {}
        Err(error) => return Err(Failure::new("session", error)),
    }
    for path in &setup.directories {
        make_directories(path);
    }
    let read_only_mounts = look_around(&setup.sights)?;
    set_limits(&setup.rlimits).step("rlimits")?;
    let own = [tracking.directory(), memory.as_ref(), journal.as_ref()];
    confine::confine_lodger(&setup, own.into_iter().flatten())?;
    let memory = match (memory, counted) {
        (Some(directory), _) => open_memory(&directory).step("memory")?,
        (None, _) if setup.memory == Memory::PerExec => MemoryTold::PerExec,
        (None, Some(kills)) => MemoryTold::Counted(kills),
        (None, None) => MemoryTold::Absent,
    };
    let verified = Verified {
        landlock_abi: sys::landlock_abi(),
        workload_confined: confine::verify_inheritance(CapabilitySet::empty(), setup.bounding).step("verify")?,
        root_capabilities: Vec::new(),
        read_only_mounts,
    };
    let ContainerSetup { workload, agent, seccomp, mode_guard, lifeline, bounding, .. } = setup;
    let callers = if agent.is_some() { Callers::Root } else { Callers::Anybody };
    let root = CapabilitySet::empty();
    Ok(Prepared {
        listener,
        callers,
        workload,
        root,
        bounding,
        seccomp,
        mode_guard,
        tracking,
        memory,
        journal,
        storage: None,
        lifeline,
        maker,
        sudo: None,
        verified,
    })
}

fn open_directory(path: &GuestPath) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path.as_str(), flags, Mode::empty())
}

/// Makes a directory and its parents where they are missing and may be made. A command that needs one that could not be made
/// will say so.
fn make_directories(path: &GuestPath) {
    let text = path.as_str();
    let ends = text.char_indices().skip(1).filter(|(_, character)| *character == '/').map(|(index, _)| index);
    for end in ends.chain([text.len()]) {
        let _ = rustix::fs::mkdirat(CWD, &text[..end], Mode::from_raw_mode(0o755));
    }
}

/// Checks that every mount shows what the host decided on; answers how many cannot be written.
fn look_around(sights: &[Sight]) -> Result<u32, Failure> {
    let mut read_only_mounts = 0;
    for sight in sights {
        let path = sight.path.as_str();
        let refuse = |reason: &str| Err(Failure::new("mount", format!("{path}: {reason}")));
        let found = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| Failure::new("mount", format!("{path}: {error}")))?;
        if (found.st_dev, found.st_ino) != (sight.device, sight.inode) {
            return refuse("the engine mounted something else than was decided on");
        }
        if sight.read_only {
            let mount = rustix::fs::statvfs(path).step("mount")?;
            if !mount.f_flag.contains(StatVfsMountFlags::RDONLY) {
                return refuse("it can be written, and must not be");
            }
            read_only_mounts += 1;
        }
    }
    Ok(read_only_mounts)
}
