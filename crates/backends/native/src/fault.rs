//! Points of the backend at which a test can end this process as a crash would: at a step, not at a moment.

pub use box_core::fault::VARIABLE;

/// Every step of making, using and ending a box, in order.
pub const STEPS: &[&str] = &[
    "instance_made",
    "record_written",
    "range_claimed",
    "cgroup_made",
    "socket_made",
    "disk_made",
    "agent_started",
    "record_completed",
    "ids_mapped",
    "journal_made",
    "network_attached",
    "plan_sent",
    "box_ready",
    "dialled",
    "killed",
    "network_detached",
    "cgroup_removed",
    "range_released",
    "directory_removed",
];

/// A point of the backend.
pub(crate) fn point(step: &str) {
    box_core::fault::crash_at(step, STEPS);
}
