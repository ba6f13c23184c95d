//! What the box runtime that LangBot brings says and allows, for clients that know it by that: of its RPC and of its older REST
//! form.

use box_core::call::{ExecInfo, ExecStatus};

/// Most bytes of each stream in a result.
pub const STREAM_BYTES_MAX: usize = 1 << 20;

/// Longest deadline. The original has none, and its clients have bounds of their own.
pub const TIMEOUT_SEC_MAX: u64 = 24 * 3600;

/// The notice in place of output that is left out behind its first `bytes`.
pub fn clip_notice(bytes: usize, discarded: u64) -> String {
    format!("\n... [raw output clipped at {bytes} bytes, {discarded} bytes discarded]")
}

/// Standard error with what LangBot's protocol has no field for: why the command was killed.
pub fn explained(mut stderr: String, info: &ExecInfo) -> String {
    let timed_out = info.status == ExecStatus::TimedOut;
    if timed_out && stderr.is_empty() {
        stderr = info.timeout_message();
    }
    let limit = info.deadline_notice().filter(|_| timed_out);
    with_notice(with_notice(stderr, info.memory_notice()), limit.as_deref())
}

/// Output with a notice below it. The protocol has no field for it, and 137 alone looks like a bug in the program.
pub fn with_notice(said: String, notice: Option<&str>) -> String {
    let Some(notice) = notice else { return said };
    let line_end = if said.is_empty() || said.ends_with('\n') { "" } else { "\n" };
    said + line_end + notice
}
