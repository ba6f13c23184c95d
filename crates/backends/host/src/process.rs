//! Processes that are found again after their parent restarted.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use box_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};
use serde::{Deserialize, Serialize};

/// How long a killed process may take to be gone. The kernel ends a whole process tree; that takes milliseconds.
const END_WAIT: Duration = Duration::from_secs(10);

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it was started, in ticks since the machine was.
    pub start_time_ticks: u64,
}

impl Process {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<Self> {
        start_time_ticks(pid).map(|start_time_ticks| Self { pid, start_time_ticks })
    }

    /// A descriptor of the process, if it is still the same one.
    pub fn open(self) -> Option<OwnedFd> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let descriptor = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok()?;
        // Asked after opening: from here on the number cannot come to mean another process.
        (Self::of(self.pid) == Some(self)).then_some(descriptor)
    }
}

impl Process {
    /// Whether it still runs. One that is dead and was not waited for does not.
    pub fn is_running(self) -> bool {
        self.open().is_some_and(|descriptor| !has_ended(&descriptor))
    }
}

/// Whether an opened process is dead, waited for or not.
pub fn has_ended(process: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Kills a process and waits until it is gone. `what` names it in errors.
pub fn end(process: &OwnedFd, what: &str) -> Result<()> {
    match rustix::process::pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(Error::io(format!("ending the {what}"), error)),
    }
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    let wait = Timespec { tv_sec: i64::try_from(END_WAIT.as_secs()).unwrap_or(10), tv_nsec: 0 };
    let ended = rustix::event::poll(&mut polled, Some(&wait))
        .map_err(|error| Error::io(format!("waiting for the {what}"), error))?;
    if ended == 0 {
        let reason = format!("the {what} does not end although it was killed");
        return Err(Error::Setup { step: "kill".to_owned(), reason });
    }
    // Only the parent can reap it; after a restart that is another process.
    let _ = rustix::process::waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    Ok(())
}

/// When the process that has this number now was started, in ticks since the machine was.
pub fn start_time_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, blanks and parentheses included: count from its end.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_a_later_one_of_the_same_number() {
        let own = Process::of(std::process::id()).unwrap();
        assert!(own.open().is_some() && own.is_running());
        assert!(Process { start_time_ticks: own.start_time_ticks + 1, ..own }.open().is_none());
    }
}
