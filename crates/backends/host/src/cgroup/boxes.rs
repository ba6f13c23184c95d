//! The cgroups of one box.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use box_core::{Error, Result, Stats};
use box_wire::plan;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::handover::Fds;

use super::delegation::delegate;
use super::hybrid::Membership;
use super::top::Top;
use super::{Cgroups, DriverKind, Enforced, LOAD, Limits, Memory, file, unified};

/// How long a box may take to come to rest.
const FREEZE_MS_MAX: u64 = 2000;
/// How long a box may stay busy after its last process was killed.
const BUSY_MS_MAX: u64 = 2000;
/// Leaf of the agent.
const AGENT: &str = "agent";
/// Leaf of programs of the host that serve the box.
const HELPER: &str = "helper";

/// The cgroups of one box. Dropping it leaves them: boxes outlive who made them.
#[derive(Debug)]
pub struct BoxCgroup {
    name: String,
    kind: DriverKind,
    /// Nothing when the box was found again, not made.
    limits: Option<Limits>,
    v2: Option<Tree>,
    v1: Vec<Membership>,
    absence: Option<String>,
}

/// The v2 part. Its leaves are missing if their maker died halfway.
#[derive(Debug)]
struct Tree {
    top: Arc<Top>,
    directory: OwnedFd,
    agent: Option<OwnedFd>,
    load: Option<OwnedFd>,
}

pub(super) fn begin(cgroups: &Cgroups, name: &str, limits: &Limits, agent: (u32, u32)) -> Result<BoxCgroup> {
    let absence = cgroups.absence().map(|(reason, fix)| format!("{reason}; {fix}"));
    let kind = cgroups.kind;
    let name = name.to_owned();
    let mut made = BoxCgroup { name, kind, limits: Some(*limits), v2: None, v1: Vec::new(), absence };
    let filled = made.fill_v2(cgroups, limits, agent);
    made.or_nothing(filled)
}

pub(super) fn finish(cgroups: &Cgroups, mut made: BoxCgroup, limits: &Limits, agent: (u32, u32)) -> Result<BoxCgroup> {
    let filled = made.fill_v1(cgroups, limits, agent);
    made.or_nothing(filled)
}

impl BoxCgroup {
    fn fill_v2(&mut self, cgroups: &Cgroups, limits: &Limits, agent: (u32, u32)) -> Result<()> {
        let Some(top) = &cgroups.v2 else { return Ok(()) };
        let directory = top.make(&self.name)?;
        let tree = Tree { top: Arc::clone(top), directory, agent: None, load: None };
        self.v2.insert(tree).fill(limits, agent)
    }

    fn fill_v1(&mut self, cgroups: &Cgroups, limits: &Limits, agent: (u32, u32)) -> Result<()> {
        for hierarchy in &cgroups.v1 {
            self.v1.push(hierarchy.make(&self.name)?);
        }
        self.v1.iter_mut().try_for_each(|membership| {
            membership.apply(limits)?;
            membership.delegate(agent)
        })
    }

    fn or_nothing(self, filled: Result<()>) -> Result<Self> {
        match filled {
            Ok(()) => Ok(self),
            Err(error) => {
                // Only what we made is in here, so a box of the same name that existed before stays.
                let _ = self.remove();
                Err(error)
            }
        }
    }
}

pub(super) fn open(cgroups: &Cgroups, name: &str) -> Result<Option<BoxCgroup>> {
    let mut v2 = None;
    if let Some(top) = &cgroups.v2
        && let Some(directory) = top.find(name)?
    {
        let leaf = |name| file::open_directory(&directory, name).ok();
        let (agent, load) = (leaf(AGENT).or_else(|| file::again(&directory).ok()), leaf(LOAD));
        v2 = Some(Tree { top: Arc::clone(top), directory, agent, load });
    }
    let mut v1 = Vec::new();
    for hierarchy in &cgroups.v1 {
        v1.extend(hierarchy.find(name)?);
    }
    if v2.is_none() && v1.is_empty() {
        return Ok(None);
    }
    let absence = cgroups.absence().map(|(reason, fix)| format!("{reason}; {fix}"));
    Ok(Some(BoxCgroup { name: name.to_owned(), kind: cgroups.kind, limits: None, v2, v1, absence }))
}

impl Tree {
    fn fill(&mut self, limits: &Limits, owner: (u32, u32)) -> Result<()> {
        let controllers = self.top.controllers();
        if !controllers.is_empty() {
            file::set(&self.directory, "cgroup.subtree_control", controllers)?;
        }
        // Where v2 carries controllers, no process may live beside other cgroups. Where it carries none, the agent lives in the
        // box's own directory, which saves making another.
        let agent = if controllers.is_empty() { file::again(&self.directory) } else { self.leaf(AGENT) }?;
        let load = self.leaf(LOAD)?;
        if !controllers.is_empty() {
            file::set(&load, "cgroup.subtree_control", controllers)?;
            unified::apply(load.as_fd(), limits)?;
        }
        delegate(&self.directory, &agent, &load, owner)?;
        (self.agent, self.load) = (Some(agent), Some(load));
        Ok(())
    }

    /// A directory of the box, made if need be.
    fn leaf(&self, name: &str) -> Result<OwnedFd> {
        match rustix::fs::mkdirat(&self.directory, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => file::open_directory(&self.directory, name),
            Err(errno) => Err(errno),
        }
        .map_err(|errno| Error::io(format!("making the cgroup {name} of a box"), errno))
    }

    fn load(&self) -> Result<BorrowedFd<'_>> {
        let gone = || Error::Gone { reason: "its cgroup for execs does not exist".to_owned() };
        self.load.as_ref().map(AsFd::as_fd).ok_or_else(gone)
    }
}

impl BoxCgroup {
    /// The v2 leaf in which the agent is to be started (`CLONE_INTO_CGROUP`), where there is v2.
    pub fn agent_directory(&self) -> Option<BorrowedFd<'_>> {
        self.v2.as_ref()?.agent.as_ref().map(AsFd::as_fd)
    }

    /// The v2 leaf for a program of the host that serves the box and dies with it, made on demand, where there is v2.
    pub fn helper_directory(&self) -> Result<Option<OwnedFd>> {
        self.v2.as_ref().map(|tree| tree.leaf(HELPER)).transpose()
    }

    /// Files through which a thread moves itself into the v1 directories, by writing `0` to each. A fresh child that does
    /// this before anything else costs microseconds; [`BoxCgroup::admit`] waits for a grace period of the whole machine,
    /// often more than ten milliseconds. Who may write is decided now, at opening, not by the child's identity.
    pub fn entrances(&self) -> Result<Vec<OwnedFd>> {
        self.v1.iter().map(Membership::entrance).collect()
    }

    /// Moves a process, with all its threads, into the v1 directories. Not needed after [`BoxCgroup::entrances`]. An
    /// ordinary user can only move a process that still has the user's own id.
    pub fn admit(&self, pid: u32) -> Result<()> {
        self.v1.iter().try_for_each(|membership| membership.admit(pid))
    }

    /// The v2 directory in which the agent makes one child per exec; nothing where it must go by ancestry.
    pub fn tracking(&self) -> Result<Option<OwnedFd>> {
        let Some(tree) = &self.v2 else { return Ok(None) };
        let opened = file::open_directory(&tree.directory, LOAD);
        opened.map(Some).map_err(|errno| Error::io("opening the cgroup of the execs", errno))
    }

    /// Where commands are held to their memory.
    pub fn memory(&self) -> Result<Memory> {
        match self.v1.iter().find_map(Membership::memory) {
            Some(directory) => file::again(directory).map(Memory::PerBox),
            None if self.kind == DriverKind::Unified => Ok(Memory::PerExec),
            None => Ok(Memory::Absent),
        }
    }

    /// How the agent tracks commands, and their memory limit. Adds the directories to `fds`.
    pub fn describe(&self, fds: &mut Fds) -> Result<(plan::Tracking, plan::Memory)> {
        let tracking = match self.tracking()? {
            Some(directory) => plan::Tracking::Cgroup(fds.add(directory)),
            None => plan::Tracking::Ancestry,
        };
        let memory = match self.memory()? {
            Memory::PerExec => plan::Memory::PerExec,
            Memory::PerBox(directory) => plan::Memory::PerBox(fds.add(directory)),
            Memory::Absent => plan::Memory::Absent,
        };
        Ok((tracking, memory))
    }

    /// Reads back what the kernel holds the box to: limits, and whether the agent is where they apply. A box that was found
    /// again is not compared with what was once asked, so pass through [`BoxCgroup::expect`] first.
    pub fn verify(&self, agent_pid: u32) -> Result<Enforced> {
        let mut enforced = Enforced::default();
        let Some(limits) = &self.limits else {
            let reason = "what the box was to be held to is not known; say so before asking".to_owned();
            return Err(Error::Setup { step: "cgroup".to_owned(), reason });
        };
        if let Some(tree) = &self.v2 {
            self.verify_tree(tree, agent_pid, limits, &mut enforced);
        }
        for membership in &self.v1 {
            membership.verify(agent_pid, limits, &mut enforced);
        }
        if let Some(absence) = &self.absence {
            enforced.tell(absence);
        }
        Ok(enforced)
    }

    fn verify_tree(&self, tree: &Tree, agent_pid: u32, limits: &Limits, enforced: &mut Enforced) {
        let member = tree.agent.as_ref().is_some_and(|agent| file::holds(agent, agent_pid));
        let Some(load) = tree.load.as_ref().filter(|_| member) else {
            enforced.tell("cgroup v2: the agent is not in its leaf");
            return;
        };
        enforced.freeze = file::exists(load, "cgroup.freeze");
        enforced.kill = file::exists(load, "cgroup.kill");
        if self.kind == DriverKind::Unified {
            unified::verify(load.as_fd(), limits, enforced);
        }
    }

    /// Says what a box that was found again is to be held to, for [`BoxCgroup::verify`].
    #[must_use]
    pub fn expect(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Stops every exec of the box where it is, and returns when all have stopped.
    pub fn freeze(&self) -> Result<()> {
        let load = self.tree("pause")?.load()?;
        file::set(load, "cgroup.freeze", "1")?;
        if wait_for(load, "frozen 1")? {
            return Ok(());
        }
        file::set(load, "cgroup.freeze", "0")?;
        let reason = format!("some process did not come to rest within {FREEZE_MS_MAX} ms; the box runs on");
        Err(Error::Setup { step: "pause".to_owned(), reason })
    }

    /// Lets every exec go on.
    pub fn thaw(&self) -> Result<()> {
        let load = self.tree("resume")?.load()?;
        file::set(load, "cgroup.freeze", "0")?;
        if wait_for(load, "frozen 0")? {
            return Ok(());
        }
        let reason = format!("some process did not go on within {FREEZE_MS_MAX} ms; try again or destroy the box");
        Err(Error::Setup { step: "resume".to_owned(), reason })
    }

    /// Kills every process of the box: agent, execs and helpers, even those that are being born. Returns at once; the dead
    /// leave the cgroups a moment later, for which [`BoxCgroup::remove`] waits.
    pub fn kill(&self) -> Result<()> {
        match file::write(&self.tree("kill as one")?.directory, "cgroup.kill", "1") {
            Ok(()) | Err(Errno::NODEV) => Ok(()),
            Err(errno) => Err(Error::io("killing the processes of a box", errno)),
        }
    }

    /// What the box consumes now.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        if let Some(tree) = &self.v2 {
            if let Some(load) = tree.load.as_ref().filter(|_| self.kind == DriverKind::Unified) {
                stats = unified::stats(load);
            }
            // Processor time is counted in every v2 cgroup, with or without controllers.
            stats.cpu_us = file::keyed(&tree.directory, "cpu.stat", "usage_usec");
        }
        self.v1.iter().for_each(|membership| membership.stats(&mut stats));
        stats
    }

    /// Removes all directories of the box, deepest first. Waits a little for processes that are dying; doing it twice is not
    /// an error.
    pub fn remove(&self) -> Result<()> {
        // Every hierarchy gets its chance even when one fails: the less is left, the better.
        let deadline = Instant::now() + Duration::from_millis(BUSY_MS_MAX);
        let mut outcome = Ok(());
        if let Some(tree) = &self.v2 {
            outcome = tree.top.remove(&self.name, &[AGENT, LOAD], deadline);
        }
        for membership in &self.v1 {
            outcome = outcome.and(membership.remove(&self.name, deadline));
        }
        outcome
    }

    fn tree(&self, what: &str) -> Result<&Tree> {
        self.v2.as_ref().ok_or_else(|| Error::Unavailable {
            what: what.to_owned(),
            reason: "the box has no cgroup on v2".to_owned(),
            fix: self.absence.clone().unwrap_or_else(|| "run strongbox doctor".to_owned()),
        })
    }
}

/// Waits until `cgroup.events` has a certain line; says whether it came in time.
fn wait_for(directory: BorrowedFd<'_>, line: &str) -> Result<bool> {
    let failed = |errno| Error::io("waiting for a cgroup event", errno);
    let events = file::open(directory, "cgroup.events", OFlags::RDONLY).map_err(failed)?;
    let deadline = Instant::now() + Duration::from_millis(FREEZE_MS_MAX);
    loop {
        let mut buffer = [0_u8; 256];
        let length = rustix::io::pread(&events, &mut buffer, 0).map_err(failed)?;
        if String::from_utf8_lossy(&buffer[..length]).lines().any(|found| found == line) {
            return Ok(true);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let timeout = Timespec::try_from(left).map_err(|_| failed(Errno::INVAL))?;
        match rustix::event::poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
}
