//! Ends a program of the host that serves one box, such as a network helper, when that box ends.
//!
//! While a server is there, it does that. A guard does it also when no server returns, and it ends with either of the two, so
//! nothing has to end it.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::Signal;

/// Waits until one of two processes, named by their descriptors, has ended. When `first` has, kills `second`.
pub(crate) fn keep(first: &OwnedFd, second: &OwnedFd) -> i32 {
    let mut ends = [first, second].map(|process| PollFd::new(process, PollFlags::IN));
    loop {
        match rustix::event::poll(&mut ends, None) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(_) => return 7,
        }
    }
    if !ends[0].revents().is_empty() {
        // Fails only if it has ended too.
        let _ = rustix::process::pidfd_send_signal(second, Signal::KILL);
    }
    0
}
