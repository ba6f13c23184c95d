//! The limits that the kernel enforces on a container, compared with the requested ones.

use bollard::models::ContainerCreateBody;
use box_core::{BoxSpec, Stats};
use box_host::cgroup_files::{self, CpuQuota, Limits};

use crate::container::{AGENT_PROCESSES, CPU_PERIOD_US, cpu_quota_us};

/// Threads that a runtime may need in a container until the agent runs: runc starts some there, more on a busy machine, and ends when
/// it cannot.
const RUNTIME_THREADS: u64 = 64;

/// Which limits hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four questions, each with its own answer")]
pub(crate) struct Enforced {
    /// Memory, at what was asked or less.
    pub(crate) memory: bool,
    /// Whether swap is off.
    pub(crate) swap: bool,
    /// Processor time.
    pub(crate) cpu: bool,
    /// Processes.
    pub(crate) pids: bool,
}

/// The limits on the cgroups of a container's first process.
pub(crate) fn enforced(pid: u32, spec: &BoxSpec) -> Enforced {
    compare(&cgroup_files::limits(pid), spec)
}

/// The current usage of a container; its processes do not include the agent and the reaper above a command.
pub(crate) fn stats(pid: u32) -> Stats {
    let told = cgroup_files::stats(pid);
    Stats { pids: told.pids.map(|count| count.saturating_sub(AGENT_PROCESSES)), ..told }
}

/// Leaves a runtime room for its threads in a container with a narrow limit. [`limit_pids`] takes it back.
pub(crate) fn with_room_to_start(mut container: ContainerCreateBody) -> ContainerCreateBody {
    if let Some(limit) = container.host_config.as_mut().and_then(|host| host.pids_limit.as_mut()) {
        *limit = (*limit).max(RUNTIME_THREADS.cast_signed());
    }
    container
}

/// Lowers the limit on processes of a started container to what was asked for. Where that fails, [`enforced`] says so.
pub(crate) fn limit_pids(pid: u32, spec: &BoxSpec) {
    let asked = spec.pids_limit.saturating_add(AGENT_PROCESSES);
    let directory = cgroup_files::directories(pid).pids.filter(|found| found.path != found.top);
    let Some(directory) = directory.filter(|_| asked < RUNTIME_THREADS) else { return };
    if let Err(error) = std::fs::write(directory.path.join("pids.max"), asked.to_string()) {
        tracing::warn!(%error, path = %directory.path.display(), "failed to lower the limit on processes of a container");
    }
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
    use bollard::models::HostConfig;
    use box_core::Profile;

    #[test]
    fn a_narrow_limit_leaves_room_until_the_agent_runs_and_a_wide_one_stays() {
        let limit = |pids_limit| {
            let host_config = Some(HostConfig { pids_limit: Some(pids_limit), ..HostConfig::default() });
            let container = with_room_to_start(ContainerCreateBody { host_config, ..ContainerCreateBody::default() });
            container.host_config.and_then(|host| host.pids_limit)
        };
        assert_eq!(limit(3), Some(64));
        assert_eq!(limit(130), Some(130));
    }

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
