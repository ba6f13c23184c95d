//! Ends a box and removes everything that existed because of it, whatever state it was left in.

use std::os::fd::{AsFd, OwnedFd};

use box_core::Result;
use box_host::cgroup::Cgroups;
use box_host::disk;
use box_host::ids::Ranges;
use box_host::instance::Remains;
use box_host::journal;
use box_host::live::LiveBox;
use box_host::network;
use box_host::process::{self, Process};
use box_host::record;
use box_images::Images;

use crate::fault;
use crate::record::Record;

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
    // The first process of a pid namespace takes all others with it. It is found by number and start time, so that a later
    // process of the same number is never touched.
    let opened = if live.is_none() { record.agent.and_then(Process::open) } else { None };
    if let Some(pidfd) = live.map(|live| &live.agent).or(opened.as_ref()) {
        process::end(pidfd, "agent")?;
    }
    fault::point("killed");
    if let Some(attachment) = &record.network {
        network::detach(attachment)?;
    }
    fault::point("network_detached");
    if let Some(cgroup) = cgroup {
        cgroup.remove()?;
    }
    fault::point("cgroup_removed");
    disk::remove_image(places.disks.as_fd(), &record.cgroup)?;
    journal::remove(places.journals, &record.cgroup)?;
    if let (Some(ranges), Some(range)) = (places.ranges, record.range) {
        ranges.release(range, &record.cgroup);
    }
    fault::point("range_released");
    Ok(())
}

/// Removes everything that a dead instance left. What cannot be removed is left for the next start, and told.
pub(crate) fn sweep(remains: Remains, places: &Places<'_>) {
    for id in remains.list() {
        let record = remains.open_box(&id).and_then(record::read::<Record>);
        let removed = dismantle(record.as_ref(), None, places)
            .and_then(|()| places.images.release(&format!("{}.{id}", remains.name)))
            .and_then(|()| remains.remove_box(&id));
        if let Err(error) = removed {
            tracing::warn!(instance.name = %remains.name, r#box.id = %id, error = %error, "remains of a box cannot be removed yet");
        }
    }
    remains.clear();
}
