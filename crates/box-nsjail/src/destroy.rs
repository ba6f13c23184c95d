//! Ends a box and removes everything that existed because of it, whatever state it was left in.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use box_core::{Error, Result};
use box_host::cgroup::Cgroups;
use box_host::ids::Ranges;
use box_host::instance::Remains;
use box_host::journal;
use box_host::process::Process;
use box_host::{disk, network};
use box_images::Images;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions};

use crate::backend::LiveBox;
use crate::fault;
use crate::record::Record;

/// How long a killed box may take to be gone. The kernel ends a whole process tree; that takes milliseconds.
const END_WAIT: Duration = Duration::from_secs(10);

/// Where boxes leave traces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) cgroups: &'a Cgroups,
    pub(crate) ranges: Option<&'a Ranges>,
    pub(crate) disks: &'a OwnedFd,
    pub(crate) journals: &'a OwnedFd,
    pub(crate) images: &'a Images,
}

/// Ends a box and removes what its record names. Only the box's directory is left, for the caller.
pub(crate) fn dismantle(record: Option<&Record>, live: Option<&LiveBox>, places: &Places<'_>) -> Result<()> {
    let Some(record) = record else { return Ok(()) };
    let cgroup = places.cgroups.open(&record.cgroup)?;
    if let Some(cgroup) = cgroup.as_ref().filter(|cgroup| cgroup.agent_directory().is_some()) {
        cgroup.kill()?;
    }
    end_processes(record, live)?;
    fault::point("jail_killed");
    if let Some(attachment) = &record.network {
        network::detach(attachment)?;
    }
    fault::point("jail_network_detached");
    if let Some(cgroup) = cgroup {
        cgroup.remove()?;
    }
    fault::point("jail_cgroup_removed");
    disk::remove_image(places.disks.as_fd(), &record.name)?;
    journal::remove(places.journals, &record.name)?;
    if let (Some(ranges), Some(range)) = (places.ranges, record.range) {
        ranges.release(range, &record.cgroup);
    }
    fault::point("jail_range_released");
    Ok(())
}

/// The first process of a pid namespace takes all others with it, and nsjail takes that one with it. They are found by number and
/// start time, so that a later process of the same number is never touched.
fn end_processes(record: &Record, live: Option<&LiveBox>) -> Result<()> {
    if let Some(live) = live {
        end(&live.agent, "agent")?;
    } else if let Some(agent) = record.agent.and_then(Process::open) {
        end(&agent, "agent")?;
    }
    match record.jail.and_then(Process::open) {
        Some(jail) => end(&jail, "nsjail"),
        None => Ok(()),
    }
}

/// Removes everything that a dead instance left. What cannot be removed is left for the next start, and told.
pub(crate) fn sweep(remains: Remains, places: &Places<'_>) {
    for id in remains.list() {
        let record = remains.open_box(&id).and_then(Record::read);
        let removed = dismantle(record.as_ref(), None, places)
            .and_then(|()| places.images.release(&format!("{}.{id}", remains.name)))
            .and_then(|()| remains.remove_box(&id));
        if let Err(error) = removed {
            tracing::warn!(instance.name = %remains.name, r#box.id = %id, error = %error, "remains of a box cannot be removed yet");
        }
    }
    remains.clear();
}

/// Kills a process and waits until it is gone.
fn end(process: &OwnedFd, what: &str) -> Result<()> {
    match rustix::process::pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(Error::io(format!("ending the {what}"), error)),
    }
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    let wait = Timespec { tv_sec: i64::try_from(END_WAIT.as_secs()).unwrap_or(10), tv_nsec: 0 };
    let ended = rustix::event::poll(&mut polled, Some(&wait))
        .map_err(|error| Error::io(format!("waiting for the {what}"), error))?;
    if ended == 0 {
        let reason = format!("the {what} of the box does not end although it was killed");
        return Err(Error::Setup { step: "kill".to_owned(), reason });
    }
    // Ours to bury only if we are its parent: never of the agent, and after a restart not of nsjail either.
    let _ = rustix::process::waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    Ok(())
}
