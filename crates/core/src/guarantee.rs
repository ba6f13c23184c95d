//! What a box really enforces, dimension by dimension.
//!
//! Computed from what was applied and verified, never from what was asked for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// One thing that a box limits or hides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// Processor time.
    Cpu,
    /// Memory, without swap.
    Memory,
    /// Number of processes.
    Pids,
    /// Bytes that the box can store.
    DiskBytes,
    /// Files that the box can store.
    DiskInodes,
    /// What the box can reach.
    Network,
    /// The host's files, seen and changed only as granted.
    Rootfs,
    /// System calls outside of the allow-list.
    Syscalls,
    /// Host identity: no id of the host is anyone in the box.
    Identity,
    /// A time-out or a kill ends every process of an exec.
    Kill,
}

impl Dimension {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 10] = [
        Self::Cpu,
        Self::Memory,
        Self::Pids,
        Self::DiskBytes,
        Self::DiskInodes,
        Self::Network,
        Self::Rootfs,
        Self::Syscalls,
        Self::Identity,
        Self::Kill,
    ];
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::DiskBytes => "disk_bytes",
            Self::DiskInodes => "disk_inodes",
            Self::Network => "network",
            Self::Rootfs => "rootfs",
            Self::Syscalls => "syscalls",
            Self::Identity => "identity",
            Self::Kill => "kill",
        })
    }
}

/// How firmly something is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Not at all.
    Absent,
    /// Held in practice, but a determined workload can pass it, or it is only checked now and then.
    Soft,
    /// The kernel enforces it.
    Hard,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "absent",
            Self::Soft => "soft",
            Self::Hard => "hard",
        })
    }
}

/// How firmly one dimension is held, and by what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantee {
    /// Which dimension.
    pub dimension: Dimension,
    /// How firmly.
    pub level: Level,
    /// By what it is held, or why it is not and what would change that.
    pub why: String,
}

/// All guarantees of one box, in the order of [`Dimension::ALL`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Guarantees(Vec<Guarantee>);

impl Guarantees {
    /// Adds or replaces the guarantee of one dimension.
    pub fn set(&mut self, dimension: Dimension, level: Level, why: impl Into<String>) {
        self.0.retain(|guarantee| guarantee.dimension != dimension);
        self.0.push(Guarantee { dimension, level, why: why.into() });
        self.0.sort_by_key(|guarantee| guarantee.dimension);
    }

    /// How firmly `dimension` is held; what was never set is absent.
    pub fn level(&self, dimension: Dimension) -> Level {
        self.iter().find(|guarantee| guarantee.dimension == dimension).map_or(Level::Absent, |found| found.level)
    }

    /// Lowers the guarantee of one dimension to at most soft where there are reasons, and adds them to what it says.
    pub fn soften(&mut self, dimension: Dimension, reasons: &[String]) {
        let before = self.iter().find(|guarantee| guarantee.dimension == dimension).cloned();
        if let (Some(before), false) = (before, reasons.is_empty()) {
            self.set(dimension, before.level.min(Level::Soft), format!("{}; {}", before.why, reasons.join("; ")));
        }
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Guarantee> {
        self.0.iter()
    }
}

/// Guarantees without which a box must not be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Floors(pub Vec<Dimension>);

impl Floors {
    /// Refuses guarantees that are less than hard where a floor was set.
    pub fn check(&self, guarantees: &Guarantees) -> Result<()> {
        for &dimension in &self.0 {
            let found = guarantees.level(dimension);
            if found < Level::Hard {
                let told = guarantees.iter().find(|guarantee| guarantee.dimension == dimension);
                let reason = told.map_or_else(|| "nothing enforces it".to_owned(), |guarantee| guarantee.why.clone());
                return Err(Error::FloorNotHeld { dimension, found, reason });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_lower_a_guarantee_and_never_raise_it() {
        let mut guarantees = Guarantees::default();
        guarantees.set(Dimension::Rootfs, Level::Hard, "a root of its own");
        guarantees.set(Dimension::Pids, Level::Absent, "no cgroup");
        let told = guarantees.clone();
        guarantees.soften(Dimension::Rootfs, &[]);
        guarantees.soften(Dimension::Network, &["it was never set".to_owned()]);
        assert_eq!(guarantees, told);
        for dimension in [Dimension::Rootfs, Dimension::Pids] {
            guarantees.soften(dimension, &["one".to_owned(), "two".to_owned()]);
        }
        assert_eq!(guarantees.level(Dimension::Pids), Level::Absent);
        let rootfs = guarantees.iter().find(|guarantee| guarantee.dimension == Dimension::Rootfs).unwrap();
        assert_eq!((rootfs.level, rootfs.why.as_str()), (Level::Soft, "a root of its own; one; two"));
    }

    #[test]
    fn a_floor_refuses_what_is_not_hard_and_says_why() {
        let mut guarantees = Guarantees::default();
        guarantees.set(Dimension::Memory, Level::Hard, "cgroup");
        guarantees.set(Dimension::Pids, Level::Soft, "rlimit only");
        assert!(Floors(vec![Dimension::Memory]).check(&guarantees).is_ok());
        let error = Floors(vec![Dimension::Pids]).check(&guarantees).unwrap_err();
        assert_eq!(error.code(), "floor_not_held");
        let message = "cannot enforce pids as required: it must be hard and would be soft here: rlimit only";
        assert_eq!(error.to_string(), message);
        assert!(Floors(vec![Dimension::Network]).check(&guarantees).is_err(), "never set = absent");
    }
}
