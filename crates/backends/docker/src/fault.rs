//! Points of the backend at which a test can end this process as a crash would: at a step, not at a moment.

/// Every step of making, using and ending a box, in order. No other backend has a step of the same name.
pub const STEPS: &[&str] = &[
    "engine_instance_made",
    "engine_record_written",
    "engine_socket_made",
    "engine_container_made",
    "engine_container_recorded",
    "engine_container_started",
    "engine_agent_knocked",
    "engine_record_completed",
    "engine_journal_made",
    "engine_mounts_attached",
    "engine_lodging_sent",
    "engine_box_ready",
    "engine_dialled",
    "engine_killed",
    "engine_container_removed",
    "engine_storage_removed",
    "engine_directory_removed",
];

/// A point of the backend.
pub(crate) fn point(step: &str) {
    box_core::fault::crash_at(step, STEPS);
}
