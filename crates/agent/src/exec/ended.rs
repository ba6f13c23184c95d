//! How a command's main process ended, and what it consumed.

use std::time::Duration;

use box_wire::{Exit, Usage};

use super::spawn::STATUS_BYTES;
use crate::sys::Reaped;

/// How the main process ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) reaped: Reaped,
    pub(super) wall: Duration,
}

impl Ended {
    /// The status that a reaper reported for its command. `pid` is the reaper's own.
    pub(super) fn told_by_reaper(pid: i32, bytes: &[u8; STATUS_BYTES], wall: Duration) -> Self {
        let number = |index: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[4 + index * 8..12 + index * 8]);
            u64::from_ne_bytes(eight)
        };
        let reaped = Reaped {
            pid,
            status: i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            user_us: number(0),
            system_us: number(1),
            resident_bytes_max: number(2),
            read_bytes: number(3),
            written_bytes: number(4),
        };
        Self { reaped, wall }
    }

    pub(super) fn exit(&self) -> Exit {
        let status = self.reaped.status;
        if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            Exit::Code(libc::WEXITSTATUS(status))
        }
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            wall_us: u64::try_from(self.wall.as_micros()).unwrap_or(u64::MAX),
            cpu_user_us: self.reaped.user_us,
            cpu_system_us: self.reaped.system_us,
            memory_peak_bytes: self.reaped.resident_bytes_max,
            io_read_bytes: self.reaped.read_bytes,
            io_write_bytes: self.reaped.written_bytes,
        }
    }
}
