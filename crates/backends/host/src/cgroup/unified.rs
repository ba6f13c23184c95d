//! Limits where one hierarchy (v2) carries all controllers. They are set on `load`, so the agent is outside of them.

use std::os::fd::{AsFd, BorrowedFd};

use box_core::{Result, Stats};

use super::{Enforced, Limits, PERIOD_US, file, quota_us};

/// Sets the limits of a box on the directory of its execs.
pub(super) fn apply(load: BorrowedFd<'_>, limits: &Limits) -> Result<()> {
    file::set(load, "memory.max", &limits.memory_bytes_max.to_string())?;
    if file::exists(load, "memory.swap.max") {
        file::set(load, "memory.swap.max", "0")?;
    }
    file::set(load, "pids.max", &limits.pids_max.to_string())?;
    if file::exists(load, "cpu.max") {
        file::set(load, "cpu.max", &format!("{} {PERIOD_US}", quota_us(limits.cpus)))?;
    }
    Ok(())
}

/// Reads back what the kernel holds the box to.
pub(super) fn verify(load: BorrowedFd<'_>, limits: &Limits, enforced: &mut Enforced) {
    let memory = file::number(load, "memory.max");
    let swap = file::read(load, "memory.swap.max").ok();
    let pids = file::number(load, "pids.max");
    let cpu = file::read(load, "cpu.max").ok();
    let no_swap = swap.as_deref().is_none_or(|value| value.trim() == "0");
    enforced.memory = no_swap && memory.is_some_and(|bytes| bytes <= limits.memory_bytes_max);
    enforced.pids = pids.is_some_and(|count| count <= limits.pids_max);
    enforced.cpu = cpu.as_deref().and_then(parse_cpu_max) == Some((quota_us(limits.cpus), PERIOD_US));
    let told = |value: Option<String>| value.map_or_else(|| "none".to_owned(), |text| text.trim().to_owned());
    enforced.detail = format!(
        "cgroup v2: memory.max {}, memory.swap.max {}, pids.max {}, cpu.max {}",
        told(memory.map(|bytes| bytes.to_string())),
        told(swap),
        told(pids.map(|count| count.to_string())),
        told(cpu)
    );
}

/// What the execs consume now. The processor time is the whole box's, as everywhere.
pub(super) fn stats(load: impl AsFd) -> Stats {
    Stats {
        cpu_us: None,
        memory_bytes: file::number(&load, "memory.current"),
        pids: file::number(&load, "pids.current"),
    }
}

fn parse_cpu_max(text: &str) -> Option<(u64, u64)> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some((quota.parse().ok()?, period.parse().ok()?))
}
