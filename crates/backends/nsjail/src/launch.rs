//! Starts nsjail, and listens to what it has to say when it fails.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use box_core::{Error, Result};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::{Pid, PidfdFlags};

use crate::stage::{self, Stage};
use crate::sys;

/// What nsjail may say in its whole life. It cannot write more: the file does not grow.
const LOG_BYTES_MAX: usize = 64 << 10;

/// What of it is passed on in an error.
const REASON_BYTES_MAX: usize = 600;

/// What nsjail is started with.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    /// nsjail.
    pub(crate) program: &'a Path,
    /// Its configuration. It is handed over as an open file, so that nothing of it is seen in any list of processes.
    pub(crate) config: &'a str,
    /// Files of cgroups for it; whoever writes `0` to one is in it.
    pub(crate) entrances: Vec<OwnedFd>,
    /// What it finds.
    pub(crate) scene: Scene,
}

/// What nsjail finds when it starts.
#[derive(Debug)]
pub(crate) enum Scene {
    /// The host, as we see it.
    Host,
    /// The host without its `/run`, in which there is a place for nsjail to build.
    Bare,
    /// The same, with everything that it is to show.
    Set(Box<Stage>),
}

impl Scene {
    /// The least that leaves no trace on the host: nsjail makes directories where it builds, and only root can keep it from that.
    pub(crate) fn bare() -> Self {
        if rustix::process::geteuid().is_root() { Self::Bare } else { Self::Host }
    }

    fn enter(&self) -> Result<()> {
        if matches!(self, Self::Host) {
            return Ok(());
        }
        sys::leave_mounts().map_err(|error| Error::io("leaving our mounts", error))?;
        stage::hide_run()?;
        match self {
            Self::Set(stage) => stage.set_up(),
            Self::Host | Self::Bare => Ok(()),
        }
    }
}

/// An nsjail that was started.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) pid: u32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) log: Log,
}

/// Starts nsjail. It outlives us.
pub(crate) fn launch(launch: Launch<'_>) -> Result<Launched> {
    let failed = |error: io::Error| Error::io(format!("starting {}", launch.program.display()), error);
    let log = Log::make().map_err(failed)?;
    let mut command = Command::new(launch.program);
    command.args(["--config", "/proc/self/fd/0"]).env_clear().current_dir("/");
    command.stdin(Stdio::from(memory("nsjail-config", launch.config.as_bytes()).map_err(failed)?));
    // Whom nobody in the box is. An ordinary user's own file cannot be hidden from it.
    let is_root = rustix::process::geteuid().is_root();
    let agent = if is_root { box_agent_image::sealed_unreadable() } else { box_agent_image::sealed() };
    let agent = agent.and_then(|agent| agent.try_clone_to_owned());
    command.stdout(Stdio::from(agent.map_err(failed)?));
    command.stderr(Stdio::from(log.0.try_clone().map_err(failed)?));
    let (entrances, scene) = (launch.entrances, launch.scene);
    let start = move || -> Result<std::process::Child> {
        scene.enter()?;
        sys::spawn(&mut command, entrances).map_err(|error| Error::io("starting nsjail", error))
    };
    // A thread that has left our mounts is of no further use, so it is one of its own.
    let started = std::thread::Builder::new().name("nsjail".to_owned()).spawn(start).map_err(failed)?;
    let child = started.join().map_err(|_| failed(io::Error::other("its thread panicked")))??;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| failed(io::Error::other("it has no number")))?;
    // The child is ours and not reaped, so the number cannot mean another.
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
    Ok(Launched { pid: child.id(), pidfd, log })
}

/// What nsjail says: a file in memory that cannot grow.
#[derive(Debug)]
pub(crate) struct Log(OwnedFd);

impl Log {
    fn make() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("nsjail-log", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, LOG_BYTES_MAX as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW)?;
        Ok(Self(file))
    }

    /// What nsjail said, without what is only of use to its authors.
    pub(crate) fn reason(&self) -> String {
        let mut bytes = vec![0; LOG_BYTES_MAX];
        let length = rustix::io::pread(&self.0, &mut bytes, 0).unwrap_or(0);
        bytes.truncate(length);
        reason(String::from_utf8_lossy(&bytes).trim_end_matches('\0'))
    }
}

fn reason(log: &str) -> String {
    let told: Vec<&str> = log.lines().map(message).filter(|line| !line.is_empty()).collect();
    let mut told = told.join("; ");
    told.truncate(told.floor_char_boundary(REASON_BYTES_MAX));
    if told.is_empty() { "it ended without a word".to_owned() } else { told }
}

/// A line without its level, time, process and place in the source.
fn message(line: &str) -> &str {
    let rest = line.trim();
    let rest = if rest.starts_with('[') { rest.rsplit_once("] ").map_or(rest, |(_, rest)| rest) } else { rest };
    rest.split_once("():").and_then(|(_, rest)| rest.split_once(' ')).map_or(rest, |(_, rest)| rest)
}

/// A file in memory that holds these bytes, to be read from its beginning.
fn memory(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::io::write(file.as_fd(), rest)?;
        rest = &rest[count..];
    }
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nsjail_says_is_told_without_its_places() {
        let log = "[W][2026-01-01T00:00:00+0000][1] mountSinglePoint():42 mount('/a' -> '/b'): No such file\n\
                   [E][2026-01-01T00:00:00+0000][9] main():333 Couldn't launch\n";
        assert_eq!(reason(log), "mount('/a' -> '/b'): No such file; Couldn't launch");
        assert_eq!(reason(""), "it ended without a word");
        assert!(reason(&"x".repeat(10_000)).len() <= REASON_BYTES_MAX);
    }

    #[test]
    fn the_log_does_not_grow() {
        let log = Log::make().unwrap();
        let chunk = vec![b'x'; LOG_BYTES_MAX];
        let _ = rustix::io::write(&log.0, &chunk);
        assert!(rustix::io::write(&log.0, b"more").is_err());
        assert!(log.reason().len() <= REASON_BYTES_MAX);
    }
}
