//! Follows what changes on the host while boxes run: its addresses, and the packet rules that keep boxes from it.
//!
//! One thread for the whole process, started with the first box. The kernel notifies it of changes; once a second it
//! checks by itself, because the kernel announces an address before it routes it, and drops messages when there are too
//! many.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use box_core::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::shut::HostAddresses;
use super::{failure, netlink, of_container, veth};
use crate::process::Process;

const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// How long changes of packet rules are gathered: a program that rewrites its rules makes many at once.
const GATHER: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
struct Followed {
    /// A process in the network of each box. Those that are gone are forgotten at the next change.
    boxes: Vec<Process>,
    is_running: bool,
}

static FOLLOWED: Mutex<Followed> = Mutex::new(Followed { boxes: Vec::new(), is_running: false });

/// Keeps the host's addresses closed for a box from now on. `closed` are those that were closed when its rules were written.
pub(super) fn follow(pid: u32, closed: &HostAddresses) -> Result<()> {
    let process = Process::of(pid).ok_or_else(|| failure("the box ended while its network was made"))?;
    let mut followed = followed();
    if !followed.is_running {
        start()?;
        followed.is_running = true;
    }
    if !followed.boxes.contains(&process) {
        followed.boxes.push(process);
    }
    drop(followed);
    // Addresses that changed since its rules were written.
    let now = HostAddresses::now();
    if now == *closed { Ok(()) } else { refresh(process, &now).map_err(|error| Error::io("follow the host", error)) }
}

fn start() -> Result<()> {
    let context = |error| Error::io("follow the host's addresses", error);
    let addresses = netlink::address_changes().map_err(context)?;
    let rules = netlink::rule_changes().ok();
    let thread = std::thread::Builder::new().name("network-watch".to_owned());
    thread.spawn(move || run(&addresses, rules.as_ref())).map(drop).map_err(context)
}

fn run(addresses: &OwnedFd, rules: Option<&OwnedFd>) {
    let mut closed = HostAddresses::default();
    // Whether something may have changed that was not looked at.
    let mut is_due = true;
    loop {
        let mut polled: Vec<PollFd<'_>> =
            [Some(addresses), rules].into_iter().flatten().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        // An error is a signal, or lasts; then there is still the look of every second.
        let _ = rustix::event::poll(&mut polled, Some(&LOOK));
        if rules.is_some_and(netlink::drain) {
            std::thread::sleep(GATHER);
        }
        if let Err(error) = veth::keep_rules() {
            tracing::error!(%error, "boxes are cut off: their packet rules cannot be restored");
        }
        let was_told = netlink::drain(addresses);
        if was_told || is_due {
            let now = HostAddresses::now();
            let is_closed = now == closed || refresh_all(&now);
            is_due = was_told || !is_closed;
            if is_closed {
                closed = now;
            }
        }
    }
}

/// Whether every box that is still there has these addresses closed.
fn refresh_all(addresses: &HostAddresses) -> bool {
    let boxes = followed().boxes.clone();
    let mut gone = Vec::new();
    let mut all_done = true;
    for process in boxes {
        match refresh(process, addresses) {
            Ok(()) => {}
            Err(_) if !process.is_running() => gone.push(process),
            Err(error) => {
                tracing::error!(%error, process.pid, "failed to close the host's new addresses for a box");
                all_done = false;
            }
        }
    }
    followed().boxes.retain(|process| !gone.contains(process));
    all_done
}

fn refresh(process: Process, addresses: &HostAddresses) -> std::io::Result<()> {
    let (user, net) = of_container(process.pid).map_err(std::io::Error::other)?;
    // Looked at after the namespaces were opened: they are those of this process and not of a later one of its number.
    if Process::of(process.pid) != Some(process) {
        return Err(rustix::io::Errno::SRCH.into());
    }
    addresses.refresh(user.as_ref(), &net)
}

fn followed() -> MutexGuard<'static, Followed> {
    FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner)
}
