//! Limits and the network.

use box_core::Error;
use box_core::backend::Finding;

use super::{good, setting, weaker};
use crate::cgroup::{Cgroups, DriverKind};
use crate::network;

/// cgroups, which hold limits, kill and pause.
pub(super) fn cgroups() -> Finding {
    const NAME: &str = "cgroups";
    let cgroups = Cgroups::detect();
    let kind = match cgroups.kind() {
        DriverKind::Unified => "v2",
        DriverKind::Hybrid => "hybrid: limits on v1, kill and pause on v2",
        DriverKind::Absent => "none that can be used",
    };
    match cgroups.absence() {
        None => good(NAME, kind),
        Some((reason, fix)) => weaker(NAME, format!("{kind}; {reason}"), Some(fix)),
    }
}

/// Swap, which would widen a memory limit where nothing limits it too.
pub(super) fn swap() -> Finding {
    const NAME: &str = "swap";
    let areas = setting("/proc/swaps").unwrap_or_default().lines().skip(1).count();
    if areas == 0 {
        return good(NAME, "this machine has none");
    }
    let on_v1 = std::path::Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists();
    let limited_v1 = std::path::Path::new("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes").exists();
    if on_v1 && !limited_v1 {
        return weaker(
            NAME,
            "there is swap and cgroups do not count it: a box can use it beyond its memory limit",
            Some("sudo swapoff -a, or add swapaccount=1 to the kernel's command line"),
        );
    }
    good(NAME, "there is swap, and boxes get none of it")
}

/// Outbound network for boxes that may have it.
pub(super) fn network() -> Finding {
    const NAME: &str = "network";
    let chosen = network::choose(None).and_then(|method| network::put_away().map(|()| method));
    match chosen {
        Ok(method) => good(NAME, format!("boxes that may reach out do so by {}", method.name())),
        Err(Error::MissingFacility { reason, fix, .. }) => {
            weaker(NAME, format!("no box can reach out: {reason}"), Some(&fix))
        }
        Err(error) => weaker(NAME, format!("no box can reach out: {error}"), None),
    }
}
