//! Boxes that a backend builds from parts of this machine: the record that is written before anything else, how a box
//! is claimed and removed again, in one order for all backends, and the backend that does so.

mod backend;

use std::os::fd::{AsFd, OwnedFd};

use box_core::{Error, Result};
use box_wire::BoxId;
use serde::{Deserialize, Serialize};

use crate::cgroup::{BoxCgroup, Cgroups};
use crate::ids::Ranges;
use crate::instance::Remains;
use crate::live::LiveBox;
use crate::network::{self, Attachment, Subnet, Target};
use crate::process::{self, Process};
use crate::{disk, journal, record};

pub use backend::{CreatedBox, Launcher, Local, LocalBackend, LocalConfig, Prepared};

/// Claims of id ranges that are tried before giving up. There are thousands of ranges.
const CLAIMS_MAX: u32 = 64;

/// Everything that exists, or is about to, because of one box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The box.
    pub id: BoxId,
    /// Name of its directories in the cgroup hierarchies.
    pub cgroup: String,
    /// Its range of ids, where it has one of its own.
    pub range: Option<u32>,
    /// Its way out, where it has one.
    pub network: Option<Attachment>,
    /// The program that keeps the box, where there is one and once it was started.
    #[serde(default)]
    pub jail: Option<Process>,
    /// Its first process, once it was started.
    pub agent: Option<Process>,
}

/// Tells a test that a step was reached. Each backend has names of its own for the steps.
pub type Point = fn(&str);

/// Where boxes leave traces.
#[derive(Debug, Clone, Copy)]
struct Places<'a> {
    /// The hierarchies.
    cgroups: &'a Cgroups,
    /// Where ranges of ids are claimed; root only.
    ranges: Option<&'a Ranges>,
    /// What boxes keep on disk.
    disks: &'a OwnedFd,
    /// What their commands wrote.
    journals: &'a OwnedFd,
    /// The steps.
    point: Point,
}

impl Record {
    /// Writes the intent and claims a range of ids, in that order; an ordinary user has nothing to claim.
    pub fn claim_range(&mut self, ranges: Option<&Ranges>, directory: &OwnedFd, point: Point) -> Result<Option<u32>> {
        let Some(ranges) = ranges else {
            record::write(self, directory)?;
            point("record_written");
            return Ok(None);
        };
        for _ in 0..CLAIMS_MAX {
            let range = Ranges::pick()?;
            self.range = Some(range);
            record::write(self, directory)?;
            point("record_written");
            if ranges.claim(range, &self.cgroup)? {
                point("range_claimed");
                return Ok(Some(range));
            }
        }
        Err(setup("ids", "every range of ids that was tried is taken; are there thousands of boxes?"))
    }

    /// Gives the box its way out. The record is written before and after, so that whatever exists is known.
    fn attach_network(
        &mut self,
        directory: &OwnedFd,
        cgroup: &BoxCgroup,
        pid: u32,
        reserved: &[Subnet],
        point: Point,
    ) -> Result<()> {
        let Some(mut attachment) = self.network.clone() else { return Ok(()) };
        let helper = cgroup.helper_directory()?;
        let target = Target { agent_pid: pid, helper_cgroup: helper.as_ref().map(AsFd::as_fd), reserved };
        let attached = network::attach(&mut attachment, &target);
        self.network = Some(attachment);
        record::write(self, directory)?;
        attached?;
        point("network_attached");
        Ok(())
    }

    /// The first process of a pid namespace takes all others with it, and what keeps the box takes that one with it. They are found by number
    /// and start time, so that a later process of the same number is never touched.
    fn end_processes(&self, live: Option<&LiveBox>) -> Result<()> {
        let opened = if live.is_none() { self.agent.and_then(Process::open) } else { None };
        if let Some(agent) = live.map(|live| &live.agent).or(opened.as_ref()) {
            process::end(agent, "agent")?;
        }
        match self.jail.and_then(Process::open) {
            Some(jail) => process::end(&jail, "jail"),
            None => Ok(()),
        }
    }
}

/// Checks from outside that a box shares none of these namespaces with us.
pub fn verify_namespaces(pid: u32, kinds: &[&str]) -> Result<()> {
    for kind in kinds {
        let read = |process: &str| rustix::fs::readlink(format!("/proc/{process}/ns/{kind}"), Vec::new());
        match (read("self"), read(&pid.to_string())) {
            (Ok(ours), Ok(theirs)) if ours != theirs => {}
            (Ok(_), Ok(_)) => return Err(setup("verify", &format!("the box shares our {kind} namespace"))),
            // An ordinary user may not look at a process that hides itself; then the agent's word has to do.
            _ if !rustix::process::geteuid().is_root() => {}
            _ => return Err(setup("verify", &format!("the {kind} namespace of the box cannot be examined"))),
        }
    }
    Ok(())
}

/// A step of making a box that failed.
pub fn setup(step: &str, reason: &str) -> Error {
    Error::Setup { step: step.to_owned(), reason: reason.to_owned() }
}

/// Ends a box and removes what its record names. `name` is the one that it has among the boxes of all instances. Only the box's directory is
/// left, for the caller.
fn dismantle(record: Option<&Record>, name: &str, live: Option<&LiveBox>, places: &Places<'_>) -> Result<()> {
    let Some(record) = record else { return Ok(()) };
    let cgroup = places.cgroups.open(&record.cgroup)?;
    if let Some(cgroup) = cgroup.as_ref().filter(|cgroup| cgroup.agent_directory().is_some()) {
        cgroup.kill()?;
    }
    record.end_processes(live)?;
    (places.point)("killed");
    if let Some(attachment) = &record.network {
        network::detach(attachment)?;
    }
    (places.point)("network_detached");
    if let Some(cgroup) = cgroup {
        cgroup.remove()?;
    }
    (places.point)("cgroup_removed");
    disk::remove_image(places.disks.as_fd(), name)?;
    journal::remove(places.journals, name)?;
    if let (Some(ranges), Some(range)) = (places.ranges, record.range) {
        ranges.release(range, &record.cgroup);
    }
    (places.point)("range_released");
    Ok(())
}

/// Removes everything that a dead instance left; `release` gives up what a box of that name holds elsewhere. What cannot be removed is left for
/// the next start, and told.
fn sweep(remains: Remains, places: &Places<'_>, release: impl Fn(&str) -> Result<()>) {
    for id in remains.list() {
        let record = remains.open_box(&id).and_then(record::read::<Record>);
        let name = format!("{}.{id}", remains.name);
        let removed = dismantle(record.as_ref(), &name, None, places)
            .and_then(|()| release(&name))
            .and_then(|()| remains.remove_box(&id));
        if let Err(error) = removed {
            tracing::warn!(instance.name = %remains.name, r#box.id = %id, error = %error, "remains of a box cannot be removed yet");
        }
    }
    if let Err(error) = network::put_away() {
        tracing::warn!(instance.name = %remains.name, error = %error, "packet rules cannot be removed yet");
    }
    remains.clear();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use box_core::{BackendName, Dimension, Handle, Level};
    use box_wire::version::Hello;

    use super::*;
    use crate::network::{HelperProcess, Method};

    #[derive(Deserialize)]
    struct Fixture {
        records: BTreeMap<String, Record>,
        handles: BTreeMap<String, Handle>,
    }

    const AGENT: Process = Process { pid: 4242, start_time_ticks: 987_654 };

    fn record(
        range: Option<u32>,
        network: Option<Attachment>,
        jail: Option<Process>,
        agent: Option<Process>,
    ) -> Record {
        Record { id: "s-1".parse().unwrap(), cgroup: "1a2b.s-1".to_owned(), range, network, jail, agent }
    }

    fn attachment(method: Method) -> Attachment {
        Attachment { method, helper: None, guard: None, interface: None, index: None, subnet: None }
    }

    /// Boxes of the first release run under newer servers. The fixture never changes; a new field needs a default.
    #[test]
    fn records_and_handles_of_released_versions_are_read() {
        let found: Fixture = serde_json::from_str(include_str!("../fixtures/boxes-1.json")).unwrap();
        let helper = |pid, start_time_ticks| Some(HelperProcess { pid, start_time_ticks });
        let jail = Some(Process { pid: 4200, start_time_ticks: 987_600 });
        let veth = Attachment {
            interface: Some("sb1a2b3c".to_owned()),
            index: Some(12),
            subnet: Some("10.200.0.4/30".to_owned()),
            ..attachment(Method::Veth)
        };
        let pasta =
            Attachment { helper: helper(4300, 987_700), guard: helper(4301, 987_701), ..attachment(Method::Pasta) };
        let slirp = Attachment { helper: helper(4300, 987_700), ..attachment(Method::Slirp4netns) };
        let expected = [
            ("intent", record(None, None, None, None)),
            ("native", record(Some(77), Some(veth), None, Some(AGENT))),
            ("nsjail", record(None, Some(pasta), jail, Some(AGENT))),
            ("older", record(None, Some(slirp), None, Some(AGENT))),
        ];
        assert_eq!(found.records, expected.map(|(name, record)| (name.to_owned(), record)).into());
        for (name, backend) in [("native", BackendName::Native), ("nsjail", BackendName::Nsjail)] {
            let handle = &found.handles[name];
            assert_eq!((handle.backend, handle.agent.check()), (backend, Ok(())), "{name}");
            assert!(handle.agent.features.is_subset(&Hello::ours().features), "{name}");
            assert_eq!(serde_json::from_str::<Process>(&handle.locator).unwrap(), AGENT, "{name}");
        }
        let guarantees = &found.handles["native"].guarantees;
        assert_eq!(guarantees.level(Dimension::Memory), Level::Hard);
        assert_eq!(guarantees.level(Dimension::Kill), Level::Soft);
    }
}
