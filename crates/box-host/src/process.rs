//! Processes that are found again after a restart of whoever started them.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

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
        assert!(own.open().is_some());
        assert!(Process { start_time_ticks: own.start_time_ticks + 1, ..own }.open().is_none());
    }
}
