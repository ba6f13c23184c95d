//! What the box runtime that LangBot brings says and allows, for clients that know it by that: of its RPC and of its older REST
//! form.

/// Most bytes of each stream in a result.
pub(crate) const STREAM_BYTES_MAX: usize = 1 << 20;

/// Longest deadline. The original has none, and its clients have bounds of their own.
pub(crate) const TIMEOUT_SEC_MAX: u64 = 24 * 3600;

/// What stands for output that is left out behind its first `bytes`.
pub(crate) fn clip_notice(bytes: usize, discarded: u64) -> String {
    format!("\n... [raw output clipped at {bytes} bytes, {discarded} bytes discarded]")
}

/// What a command that was too slow is made to say where it said nothing.
pub(crate) fn timeout_notice(timeout_sec: u64) -> String {
    format!("Command timed out after {timeout_sec} seconds.")
}
