//! Points of the backend at which a test can end this process as a crash would: at a step, not at a moment.

pub use box_core::fault::VARIABLE;

/// Every step of making, using and ending a box, in order.
pub const STEPS: &[&str] = &[
    "jail_instance_made",
    "jail_record_written",
    "jail_range_claimed",
    "jail_cgroup_made",
    "jail_socket_made",
    "jail_disk_made",
    "jail_started",
    "jail_record_completed",
    "jail_agent_admitted",
    "jail_mounts_attached",
    "jail_network_attached",
    "jail_journal_made",
    "jail_lodging_sent",
    "jail_ready",
    "jail_dialled",
    "jail_killed",
    "jail_network_detached",
    "jail_cgroup_removed",
    "jail_range_released",
    "jail_directory_removed",
];

/// A point of the backend.
pub(crate) fn point(step: &str) {
    box_core::fault::crash_at(step, STEPS);
}

/// A point that boxes of all backends of this machine have, by the name that it has here.
pub(crate) fn common(step: &str) {
    point(&format!("jail_{step}"));
}
