//! Puts mounts into a container that an engine made, without telling the engine a path that could come to mean something else.
//!
//! Entering a mount namespace needs a process with one thread. So the agent's program is started once more, as a helper outside of
//! all boxes: it gets the mounts as descriptors, enters, puts them into place, answers, and ends.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use box_core::{Error, Grant, MountMode, Origin, Result};
use box_wire::plan::{Attaching, Placing, Sight};
use box_wire::{GuestPath, Invalid, Kind, User};
use rustix::fs::{Mode, OFlags};

use super::{Dwellers, of_grant};
use crate::handover::{self, Fds};
use crate::sys;

/// A tree for a container.
#[derive(Debug)]
pub struct Attachment {
    /// The decided tree.
    pub grant: Grant,
    /// Where it is seen.
    pub target: GuestPath,
    /// What may be done with it.
    pub mode: MountMode,
    /// Who asked for it.
    pub origin: Origin,
}

/// Puts mounts into the mount namespace of a process, which a descriptor names: the first one of a container that has
/// not run anything of its image yet. `workload` is user and group as the host knows them; the trees belong to them
/// alone.
///
/// A target that is not there is made where that is possible. No link of the image is followed. Answers what the agent in the
/// container must find. Waits, at most for as long as the set-up of a box may take. On an error some mounts may stand already, so
/// the container has to go.
pub fn attach(process: BorrowedFd<'_>, workload: (u32, u32), attachments: &[Attachment]) -> Result<Vec<Sight>> {
    if attachments.is_empty() {
        return Ok(Vec::new());
    }
    check_rights(workload)?;
    let container = Container::open(process)?;
    let mut fds = Fds::default();
    let mut order = Attaching {
        process: fds.add(container.process),
        root: fds.add(container.root),
        mount_table: fds.add(container.mount_table),
        owner: User { uid: workload.0, gid: workload.1 },
        places: Vec::with_capacity(attachments.len()),
    };
    for attachment in parents_first(attachments) {
        let mount = fds.add(restricted(attachment, workload)?);
        order.places.push(Placing { mount, path: attachment.target.clone() });
    }
    let (ours, theirs) = UnixStream::pair().map_err(|error| Error::io("making a socket", error))?;
    let _helper = Helper::start(theirs.into()).map_err(|error| Error::io("starting the helper for mounts", error))?;
    handover::send(&ours, Kind::Attaching, &order, &fds)?;
    handover::read_report(&ours)?;
    Ok(attachments.iter().map(sight).collect())
}

fn check_rights((user, _): (u32, u32)) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Unavailable {
            what: "putting mounts into a container".to_owned(),
            reason: "only root may do that".to_owned(),
            fix: "run strongbox as root, or let the engine mount them by path".to_owned(),
        });
    }
    if user == 0 {
        return Err(Invalid::new("user", user, "an id of the host other than root's").into());
    }
    Ok(())
}

/// A place is there before what lies below it. A path that leads through another is longer and begins like it.
fn parents_first(attachments: &[Attachment]) -> Vec<&Attachment> {
    let mut ordered: Vec<&Attachment> = attachments.iter().collect();
    ordered.sort_by_key(|attachment| &attachment.target);
    ordered
}

/// The mount of an attachment, with its final restrictions from the first moment on.
fn restricted(attachment: &Attachment, workload: (u32, u32)) -> Result<OwnedFd> {
    // Root of an engine's container owns nothing in the tree, unlike root of a native box.
    let mount = of_grant(&attachment.grant, &attachment.origin, attachment.mode, Dwellers { workload, root: None })?;
    let always = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    let attributes = match attachment.mode {
        MountMode::Ro => always | libc::MOUNT_ATTR_RDONLY,
        MountMode::Rw => always,
    };
    sys::restrict_mount(&mount, attributes)
        .map_err(|error| Error::io(format!("restricting {}", attachment.grant.path.display()), error))?;
    Ok(mount)
}

fn sight(attachment: &Attachment) -> Sight {
    Sight {
        path: attachment.target.clone(),
        device: attachment.grant.device,
        inode: attachment.grant.inode,
        read_only: attachment.mode == MountMode::Ro,
    }
}

/// Descriptors of a container, so that it is never looked up by pid again.
struct Container {
    process: OwnedFd,
    /// Its root, as its first process sees it.
    root: OwnedFd,
    /// The list of its mounts, which shows which of them are shared.
    mount_table: OwnedFd,
}

impl Container {
    fn open(process: BorrowedFd<'_>) -> Result<Self> {
        let gone = || Error::Gone { reason: "its first process has ended".to_owned() };
        let failed = |error: io::Error| Error::io("opening the container", error);
        let pid = pid_of(process).ok_or_else(gone)?;
        let open = |name: &str, flags: OFlags| {
            rustix::fs::open(format!("/proc/{pid}/{name}"), flags | OFlags::CLOEXEC, Mode::empty())
                .map_err(|error| failed(error.into()))
        };
        let root = open("root", OFlags::PATH | OFlags::DIRECTORY)?;
        let mount_table = open("mountinfo", OFlags::RDONLY)?;
        // Checked again after opening: while the process lives, its pid is not reused.
        if pid_of(process) != Some(pid) {
            return Err(gone());
        }
        if is_own_root(&root).map_err(failed)? {
            let reason = "the root of its first process is the host's; it has not moved into its own yet";
            return Err(Error::Setup { step: "mount".to_owned(), reason: reason.to_owned() });
        }
        Ok(Self { process: process.try_clone_to_owned().map_err(failed)?, root, mount_table })
    }
}

/// Whether this is the directory that we see as `/`. An engine's process has it until it pivots, and then what is made for the
/// container would be made on the host.
fn is_own_root(root: &OwnedFd) -> io::Result<bool> {
    let (theirs, ours) = (rustix::fs::fstat(root)?, rustix::fs::stat("/")?);
    Ok((theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino))
}

/// The number of the process behind a descriptor, as long as there is one.
fn pid_of(process: BorrowedFd<'_>) -> Option<u32> {
    let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    let number = told.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    number.trim().parse().ok().filter(|&pid| pid > 0)
}

/// The process that enters the container. It is ended and reaped when this is dropped, whatever it is doing.
#[derive(Debug)]
struct Helper(Child);

impl Helper {
    fn start(control: OwnedFd) -> io::Result<Self> {
        let program = box_agent_image::sealed()?;
        let mut command = Command::new(format!("/proc/self/fd/{}", program.as_fd().as_raw_fd()));
        command.arg("attach").env_clear().current_dir("/");
        command.stdin(Stdio::from(control)).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
