//! Ends a box and removes everything that existed because of it, whatever state it was left in.

use std::os::fd::{AsFd, OwnedFd};

use box_core::Result;
use box_host::cgroup::Cgroups;
use box_host::ids::Ranges;
use box_host::instance::Remains;
use box_host::journal;
use box_host::live::LiveBox;
use box_host::process::{self, Process};
use box_host::record;
use box_host::{disk, network};
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
        process::end(&live.agent, "agent")?;
    } else if let Some(agent) = record.agent.and_then(Process::open) {
        process::end(&agent, "agent")?;
    }
    match record.jail.and_then(Process::open) {
        Some(jail) => process::end(&jail, "nsjail"),
        None => Ok(()),
    }
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
