//! Points at which a test can end this process as a crash would. They share the variable of `box-core`'s.

/// Every step of an installation after which a crash leaves something behind, in their order.
pub const STEPS: &[&str] = &["skill_staged", "skill_plan_written", "skill_moved", "skill_all_moved"];

/// A point of an installation.
pub(crate) fn point(step: &str) {
    box_core::fault::crash_at(step, STEPS);
}
