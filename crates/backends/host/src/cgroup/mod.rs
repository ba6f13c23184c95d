//! Limits, kill and freeze by cgroups, on machines of both kinds.
//!
//! *Unified*: one hierarchy (v2) carries everything. *Hybrid*: limits are on v1, one hierarchy per controller, while kill,
//! freeze and starting a process inside a cgroup come from a v2 hierarchy without controllers.
//!
//! ```text
//! v2:  strongbox/<box>/agent      the agent; on hybrid machines it lives in <box> itself
//!                     /helper     programs of the host that serve the box
//!                     /load/<exec>  one per exec, made by the agent
//! v1:  strongbox/<box>            agent and execs together, in each hierarchy
//!                     /load       the execs, in the hierarchy of memory
//! ```

mod boxes;
mod delegation;
mod detect;
mod file;
mod hybrid;
mod top;
mod unified;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use box_core::{Error, Result};
use box_wire::Invalid;

pub use boxes::BoxCgroup;
use hybrid::Hierarchy;
use top::Top;

/// Length of the window in which processor time is rationed: the kernel's default.
const PERIOD_US: u64 = 100_000;
/// Smallest ration in one window that the kernel takes.
const QUOTA_US_MIN: u64 = 1000;
/// Parent of the execs.
const LOAD: &str = "load";
/// Longest name of a box.
const NAME_BYTES_MAX: usize = 128;

/// What a box may consume.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Processors; fractions count.
    pub cpus: f64,
    /// Memory, with no swap on top.
    pub memory_bytes_max: u64,
    /// Processes at once, the agent not counted.
    pub pids_max: u64,
}

/// How cgroups are laid out here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverKind {
    /// Everything on v2.
    Unified,
    /// Limits on v1; kill and freeze on v2 where we may use it.
    Hybrid,
    /// Nothing that we may use.
    Absent,
}

/// The cgroups of this machine, as far as we may use them.
#[derive(Debug)]
pub struct Cgroups {
    kind: DriverKind,
    v2: Option<Arc<Top>>,
    v1: Vec<Hierarchy>,
    absence: Option<Absence>,
}

/// What is missing, and what would bring it.
#[derive(Debug, Clone)]
struct Absence {
    reason: String,
    fix: String,
}

/// Where commands are held to their memory.
#[derive(Debug)]
pub enum Memory {
    /// In each exec's own v2 cgroup.
    PerExec,
    /// In this v1 memory cgroup, for all execs together.
    PerBox(OwnedFd),
    /// Nowhere.
    Absent,
}

/// What the kernel says it holds a box to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "five findings that have nothing to do with each other")]
pub struct Enforced {
    /// Processor time is rationed as asked.
    pub cpu: bool,
    /// Memory is limited as asked, and swap does not widen it.
    pub memory: bool,
    /// The number of processes is limited as asked.
    pub pids: bool,
    /// The processes of an exec can be killed as one.
    pub kill: bool,
    /// The processes of the box can be stopped as one.
    pub freeze: bool,
    /// The figures, or why there are none.
    pub detail: String,
}

impl Enforced {
    /// Adds a sentence to the detail.
    fn tell(&mut self, more: &str) {
        if !self.detail.is_empty() {
            self.detail.push_str("; ");
        }
        self.detail.push_str(more);
    }
}

impl Cgroups {
    /// Detects what the machine offers, without changes. [`Cgroups::absence`] names what is missing.
    pub fn detect() -> Self {
        detect::detect()
    }

    fn absent(reason: impl Into<String>, fix: impl Into<String>) -> Self {
        let absence = Some(Absence { reason: reason.into(), fix: fix.into() });
        Self { kind: DriverKind::Absent, v2: None, v1: Vec::new(), absence }
    }

    /// How cgroups are laid out here.
    pub fn kind(&self) -> DriverKind {
        self.kind
    }

    /// Why something is missing and what would bring it; nothing when all is there. A driver other than
    /// [`DriverKind::Absent`] can lack parts too.
    pub fn absence(&self) -> Option<(&str, &str)> {
        self.absence.as_ref().map(|absence| (absence.reason.as_str(), absence.fix.as_str()))
    }

    /// Whether boxes get a v2 directory: kill and freeze as one, and starting the agent inside its cgroup.
    pub fn tracks(&self) -> bool {
        self.v2.is_some()
    }

    /// Makes the directories of one box. `name` is unique on the machine; `agent` is the host's uid and gid to which the
    /// part of v2 is delegated in which execs are made. On an error nothing of it is left.
    pub fn create(&self, name: &str, limits: &Limits, agent: (u32, u32)) -> Result<BoxCgroup> {
        let begun = self.begin(name, limits, agent)?;
        self.finish(begun, limits, agent)
    }

    /// Makes the part into which the agent is born, so that it can be started while [`Cgroups::finish`] makes the rest.
    pub fn begin(&self, name: &str, limits: &Limits, agent: (u32, u32)) -> Result<BoxCgroup> {
        check_name(name)?;
        boxes::begin(self, name, limits, agent)
    }

    /// Makes the rest: the v1 directories, which the agent enters by [`BoxCgroup::entrances`].
    pub fn finish(&self, begun: BoxCgroup, limits: &Limits, agent: (u32, u32)) -> Result<BoxCgroup> {
        boxes::finish(self, begun, limits, agent)
    }

    /// Finds the directories of a box again, in whatever state they are; nothing when there are none.
    pub fn open(&self, name: &str) -> Result<Option<BoxCgroup>> {
        check_name(name)?;
        boxes::open(self, name)
    }

    /// Opens what exists of one box's directories, or says why there are none.
    pub fn require(&self, name: &str) -> Result<BoxCgroup> {
        match (self.open(name)?, self.absence()) {
            (Some(cgroup), _) => Ok(cgroup),
            (None, Some((reason, fix))) => {
                let (what, reason, fix) = ("a cgroup for the box".to_owned(), reason.to_owned(), fix.to_owned());
                Err(Error::Unavailable { what, reason, fix })
            }
            (None, None) => Err(Error::Gone { reason: "its cgroup is gone".to_owned() }),
        }
    }

    /// Names of all boxes of which a directory exists in any hierarchy.
    pub fn list(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for top in self.v2.iter().chain(self.v1.iter().map(|hierarchy| &hierarchy.top)) {
            names.extend(top.list()?);
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }
}

impl Drop for Cgroups {
    /// Removes the directories that hold all boxes, where they hold none. Not sooner: making and removing them for each box would
    /// cost as much as the box's own.
    fn drop(&mut self) {
        for top in self.v2.iter().chain(self.v1.iter().map(|hierarchy| &hierarchy.top)) {
            top.leave();
        }
    }
}

fn check_name(name: &str) -> Result<()> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let plain = name.bytes().all(allowed) && !name.starts_with('.');
    if plain && (1..=NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(());
    }
    let allowed = format!("1 to {NAME_BYTES_MAX} of a-z, 0-9, - and ., not starting with .");
    Err(Invalid::new("cgroup name", name, allowed).into())
}

/// Processor time in one window.
fn quota_us(cpus: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "the window is a small constant")]
    let quota = (cpus * PERIOD_US as f64).round();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float becomes the nearest whole number in range, and specs are checked to be positive and finite"
    )]
    let quota = quota as u64;
    quota.max(QUOTA_US_MIN)
}
