//! Points at which a test can end this process as a crash would: at a step of the service, not at a moment.
//! At a few other points it can make one thread wait forever.
//!
//! The backend has points of its own under the same variable; no name is in both lists.

/// Names the step at which the process kills itself, or at which a thread waits forever.
pub const VARIABLE: &str = "STRONGBOX_FAULT";

/// Every step at which what the service remembers and what there is could differ, in the order of a session's life.
pub const STEPS: &[&str] = &[
    "session_intent_written",
    "session_box_made",
    "session_row_committed",
    "exec_row_queued",
    "exec_started",
    "exec_told_to_end",
    "exec_end_queued",
    "process_rows_written",
    "process_started",
    "process_asked_to_stop",
    "process_stopped",
    "process_forgotten",
    "session_paused",
    "session_pause_written",
    "session_resumed",
    "session_ttl_written",
    "exec_timed_out",
    "destroy_intent_written",
    "session_box_destroyed",
    "session_row_deleted",
    "volume_directory_created",
    "volume_row_written",
    "volume_row_deleted",
    "recovery_adopted",
    "recovery_found_again",
    "recovery_discarded",
    "recovery_done",
];

/// A point of the service.
pub(crate) fn point(step: &str) {
    crash_at(step, STEPS);
}

/// Ends this process if it was told to crash at `step`, which must be one of `steps`.
pub fn crash_at(step: &str, steps: &[&str]) {
    debug_assert!(steps.contains(&step), "{step} is not listed");
    if is_chosen(step) {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Makes this thread wait forever if `step` was chosen: for work that other threads must not wait for.
pub fn hang_at(step: &str) {
    while is_chosen(step) {
        std::thread::park();
    }
}

fn is_chosen(step: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var(VARIABLE).ok()).as_deref() == Some(step)
}
