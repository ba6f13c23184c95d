//! What the kernel holds a container to, compared with what was asked for it.

use box_core::{BoxSpec, Stats};
use box_host::cgroup_files::{self, CpuQuota, Limits};

use crate::container::{AGENT_PROCESSES, CPU_PERIOD_US, cpu_quota_us};

/// What was found to hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four questions, each with its own answer")]
pub(crate) struct Enforced {
    /// Memory, at what was asked or less.
    pub(crate) memory: bool,
    /// Whether there is no swap on top.
    pub(crate) swap: bool,
    /// Processor time.
    pub(crate) cpu: bool,
    /// Processes.
    pub(crate) pids: bool,
}

/// What the cgroups of a container's first process are held to.
pub(crate) fn enforced(pid: u32, spec: &BoxSpec) -> Enforced {
    compare(&cgroup_files::limits(pid), spec)
}

/// What a container consumes now, the agent and the reaper above a command not counted among the processes.
pub(crate) fn stats(pid: u32) -> Stats {
    let told = cgroup_files::stats(pid);
    Stats { pids: told.pids.map(|count| count.saturating_sub(AGENT_PROCESSES)), ..told }
}

fn compare(limits: &Limits, spec: &BoxSpec) -> Enforced {
    let within = |value: Option<u64>, max: u64| value.is_some_and(|value| value <= max);
    let asked = u128::from(u64::try_from(cpu_quota_us(spec.cpus)).unwrap_or(u64::MAX));
    // Compared without dividing, so that nothing is lost to rounding.
    let is_rationed =
        |cpu: CpuQuota| u128::from(cpu.quota_us) * u128::from(CPU_PERIOD_US) <= asked * u128::from(cpu.period_us);
    Enforced {
        memory: within(limits.memory_bytes, spec.memory_mb << 20),
        swap: within(limits.swap_bytes, 0),
        cpu: limits.cpu.is_some_and(is_rationed),
        pids: within(limits.pids, spec.pids_limit.saturating_add(AGENT_PROCESSES)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::Profile;

    #[test]
    fn only_what_the_kernel_says_counts() {
        let spec = Profile::default().spec();
        assert_eq!(compare(&Limits::default(), &spec), Enforced::default());
        let held = Limits {
            memory_bytes: Some(spec.memory_mb << 20),
            swap_bytes: Some(0),
            pids: Some(spec.pids_limit + AGENT_PROCESSES),
            cpu: Some(CpuQuota { quota_us: 50_000, period_us: 50_000 }),
        };
        assert_eq!(compare(&held, &spec), Enforced { memory: true, swap: true, cpu: true, pids: true });
        let wide = Limits {
            memory_bytes: Some((spec.memory_mb << 20) + 1),
            swap_bytes: Some(1),
            pids: Some(spec.pids_limit + AGENT_PROCESSES + 1),
            cpu: Some(CpuQuota { quota_us: 50_001, period_us: 50_000 }),
        };
        assert_eq!(compare(&wide, &spec), Enforced::default());
    }
}
