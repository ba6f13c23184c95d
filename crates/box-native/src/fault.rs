//! Points at which a test can end this process as a crash would: at a step, not at a moment.

/// Names the step at which the process kills itself.
pub const VARIABLE: &str = "STRONGBOX_FAULT";

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

/// Ends this process if it was told to crash at `step`.
pub(crate) fn point(step: &str) {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    debug_assert!(STEPS.contains(&step), "{step} is not listed");
    let chosen = CHOSEN.get_or_init(|| std::env::var(VARIABLE).ok());
    if chosen.as_deref() == Some(step) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
