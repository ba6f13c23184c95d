//! What the program exits with. The list for people is in docs/cli.md.

/// A command's deadline passed.
pub(crate) const EXIT_TIMED_OUT: u8 = 124;
/// Everything that went wrong before a command of the caller's could speak for itself.
pub(crate) const EXIT_OWN_ERROR: u8 = 125;
/// The command cannot be executed.
pub(crate) const EXIT_NOT_EXECUTABLE: u8 = 126;
/// The command does not exist in the box.
pub(crate) const EXIT_NOT_FOUND: u8 = 127;
/// What a shell shows for a program that SIGPIPE ended.
pub(crate) const EXIT_OUTPUT_CLOSED: u8 = 128 + 13;

/// The signal that cannot be refused.
pub(crate) const SIGKILL: i32 = 9;
/// The signal of a system call that is not allowed.
pub(crate) const SIGSYS: i32 = 31;

/// What a shell shows for a program that a signal ended.
pub(crate) fn after_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(EXIT_OWN_ERROR, |number| 128_u8.saturating_add(number))
}
