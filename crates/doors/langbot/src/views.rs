//! What clients are shown of sessions, processes and commands. Always everything that any version knows: old clients ignore what
//! is new to them.

use box_core::BackendName;
use box_core::call::{ExecResult, ExecStatus, ProcessId, ProcessInfo, ProcessStatus};
use box_core::limits::STDERR_PREVIEW_CHARS;
use box_core::session::{SessionInfo, SessionState};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::spec::BoxSpec;
use super::tenancy::TenancyScope;
use door_http::original::{STREAM_BYTES_MAX, clip_notice, explained, with_notice};

/// Room in a reply for everything but the two streams.
const REPLY_REST_BYTES: usize = 4096;

/// How things are called where a reply goes to.
#[derive(Debug, Clone)]
pub(crate) struct Names<'a> {
    /// The scope of the sessions.
    pub(crate) place: &'a TenancyScope,
    /// The name under which the operator shows whatever backend there is, if not by its own.
    pub(crate) alias: Option<&'a str>,
}

impl Names<'_> {
    /// The backend's name in replies.
    fn backend(&self, name: BackendName) -> &str {
        self.alias.unwrap_or(name.as_str())
    }

    /// A session, without its processes.
    pub(crate) fn session(&self, info: &SessionInfo) -> Map<String, Value> {
        let config = &info.config;
        fields(json!({
            "session_id": self.place.shown(self.place.logical(&info.session_id)),
            "backend_name": self.backend(info.backend_name),
            "backend_session_id": info.backend_session_id,
            "image": config.image,
            "network": config.network,
            "host_path": config.host_path,
            "host_path_mode": config.host_path_mode,
            "mount_path": config.mount_path,
            "persistent": config.persistent,
            "cpus": config.cpus,
            "memory_mb": config.memory_mb,
            "pids_limit": config.pids_limit,
            "read_only_rootfs": config.read_only_rootfs,
            "workspace_quota_mb": config.workspace_quota_mb,
            "created_at": timestamp(info.created_at),
            "last_used_at": timestamp(info.last_used_at),
            "status": status(info),
        }))
    }

    /// A session with its processes, if it has any.
    pub(crate) fn session_with_processes(&self, info: &SessionInfo, processes: &[ProcessInfo]) -> Map<String, Value> {
        let mut shown = self.session(info);
        let by_id = |process: &ProcessInfo| (process.process_id.to_string(), self.process(process).into());
        if let Some(default) = processes.iter().find(|process| process.process_id == ProcessId::default()) {
            shown.insert("managed_process".to_owned(), self.process(default).into());
        }
        if !processes.is_empty() {
            shown.insert("managed_processes".to_owned(), Value::Object(processes.iter().map(by_id).collect()));
        }
        shown
    }

    /// A managed process.
    pub(crate) fn process(&self, info: &ProcessInfo) -> Map<String, Value> {
        let status = match info.status {
            ProcessStatus::Running => "running",
            ProcessStatus::Exited => "exited",
        };
        fields(json!({
            "session_id": self.place.shown(self.place.logical(&info.session_id)),
            "process_id": info.process_id,
            "status": status,
            "command": info.command,
            "args": info.args,
            "cwd": info.cwd,
            "env_keys": info.env_keys,
            "attached": info.attached,
            "started_at": timestamp(info.started_at),
            "exited_at": info.exited_at.map(timestamp),
            "exit_code": info.exit_code,
            "stderr_preview": preview(&with_notice(info.stderr_preview.clone(), info.memory_notice())),
        }))
    }

    /// How a command ended and what it said, in a reply of at most `reply_bytes_max`.
    pub(crate) fn result(&self, spec: &BoxSpec, result: &ExecResult, reply_bytes_max: usize) -> Map<String, Value> {
        let info = &result.info;
        let timed_out = info.status == ExecStatus::TimedOut;
        let room = reply_bytes_max.saturating_sub(REPLY_REST_BYTES);
        // Each stream may have half of the room, and what the other leaves of its half.
        let half = room / 2;
        let left_by = |text: &str| half.saturating_sub(written_bytes(text));
        let stream = |text: &str, other: &str, truncated, total| {
            Stream { text: stripped(text), truncated, total, head: head_bytes(reply_bytes_max) }
                .clipped(half + left_by(other))
        };
        let stdout = stream(&result.stdout, &result.stderr, result.stdout_truncated, info.stdout_bytes);
        let stderr = stream(&result.stderr, &result.stdout, result.stderr_truncated, info.stderr_bytes);
        fields(json!({
            "session_id": self.place.shown(&spec.session_id),
            "backend_name": self.backend(info.backend_name),
            "status": if timed_out { "timed_out" } else { "completed" },
            "exit_code": if timed_out { None } else { info.shell_code() },
            "stdout": stdout,
            "stderr": explained(stderr, info),
            "duration_ms": info.duration_ms,
        }))
    }
}

/// The limit on each stream, for replies of at most `reply_bytes_max`.
pub(crate) fn head_bytes(reply_bytes_max: usize) -> usize {
    reply_bytes_max.clamp(1, STREAM_BYTES_MAX)
}

/// A time as clients write it: with six digits, whether they are needed or not.
pub(crate) fn timestamp(time: Timestamp) -> String {
    format!("{time:.6}")
}

fn status(info: &SessionInfo) -> &'static str {
    match info.state {
        SessionState::Destroying | SessionState::Lost => "closing",
        _ if info.execs_running > 0 => "running",
        SessionState::Creating | SessionState::Running | SessionState::Paused => "idle",
    }
}

/// Lines without blanks around them, and without empty ones.
fn preview(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(stripped).filter(|line| !line.is_empty()).collect();
    let joined = lines.join("\n");
    let skip = joined.chars().count().saturating_sub(STDERR_PREVIEW_CHARS);
    joined.chars().skip(skip).collect()
}

/// Without what Python takes for blanks.
fn stripped(text: &str) -> &str {
    text.trim_matches(|character: char| character.is_whitespace() || ('\x1c'..='\x1f').contains(&character))
}

/// Output of a stream.
struct Stream<'a> {
    text: &'a str,
    /// Whether it said more.
    truncated: bool,
    /// Bytes of all that it said.
    total: u64,
    /// Bytes of it that were asked for.
    head: usize,
}

impl Stream<'_> {
    /// The text, and a notice if that is not all. It has at most `room` bytes in JSON, the notice not counted.
    fn clipped(&self, room: usize) -> String {
        let kept = fitting(self.text, room);
        if kept.len() == self.text.len() && !self.truncated {
            return kept.to_owned();
        }
        // A character that is cut in the middle is left out, and still counts as kept.
        let is_head = kept.len() == self.text.len() && kept.len() + 4 > self.head;
        let bytes = if is_head { self.head } else { kept.len() };
        let discarded = self.total.saturating_sub(bytes as u64);
        kept.to_owned() + &clip_notice(bytes, discarded)
    }
}

/// The beginning of a text that has at most `room` bytes in JSON.
fn fitting(text: &str, room: usize) -> &str {
    let mut used = 0;
    let beyond = text.char_indices().find(|(_, character)| {
        used += written(*character);
        used > room
    });
    beyond.map_or(text, |(cut, _)| &text[..cut])
}

fn written_bytes(text: &str) -> usize {
    text.chars().map(written).sum()
}

/// Bytes of a character in JSON.
fn written(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\x08' | '\x0c' => 2,
        '\0'..='\x1f' => 6,
        other => other.len_utf8(),
    }
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
