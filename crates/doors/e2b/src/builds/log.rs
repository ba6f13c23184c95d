//! What a build says, line by line.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

use crate::limits;

/// The log of one build.
#[derive(Debug)]
pub(crate) struct BuildLog {
    begun_at: Timestamp,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    entries: Vec<Entry>,
    bytes: usize,
}

/// One line of it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Entry {
    /// When it was said.
    pub(crate) timestamp: Timestamp,
    /// What.
    pub(crate) message: String,
    /// How loudly.
    pub(crate) level: Level,
    /// At which step.
    pub(crate) step: String,
}

/// How loudly something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As usual.
    Info,
    /// On standard error.
    Warn,
    /// It went wrong.
    Error,
}

impl Default for BuildLog {
    fn default() -> Self {
        Self { begun_at: Timestamp::now(), lines: Mutex::default() }
    }
}

impl BuildLog {
    /// When the build began.
    pub(super) fn begun_at(&self) -> Timestamp {
        self.begun_at
    }

    /// Says something. What is too much is left out, and the last line says so.
    pub(crate) fn say(&self, step: &str, level: Level, message: impl Into<String>) {
        let mut message: String = message.into();
        if message.len() > limits::E2B_BUILD_LINE_BYTES_MAX {
            let cut = message.floor_char_boundary(limits::E2B_BUILD_LINE_BYTES_MAX);
            message.truncate(cut);
            message.push('…');
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = lines.bytes >= limits::E2B_BUILD_LOG_BYTES_MAX;
        if is_full && level != Level::Error {
            return;
        }
        lines.bytes += message.len() + LINE_BYTES;
        let entry = |message| Entry { timestamp: Timestamp::now(), message, level, step: step.to_owned() };
        lines.entries.push(entry(message));
        if !is_full && lines.bytes >= limits::E2B_BUILD_LOG_BYTES_MAX {
            lines.entries.push(entry("the log is full; what is said from here on is not kept".to_owned()));
        }
    }

    /// So many lines from one on.
    pub(crate) fn read(&self, offset: usize, count: usize) -> Vec<Entry> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.entries.iter().skip(offset).take(count).cloned().collect()
    }
}

/// What a line takes beside its text.
const LINE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_bounded_and_says_so_and_why_a_build_failed_is_always_said() {
        let log = BuildLog::default();
        let much = "é".repeat(limits::E2B_BUILD_LINE_BYTES_MAX);
        for _ in 0..limits::E2B_BUILD_LOG_BYTES_MAX / limits::E2B_BUILD_LINE_BYTES_MAX + 10 {
            log.say("1", Level::Info, much.as_str());
        }
        log.say("1", Level::Error, "it failed");
        let kept = log.read(0, usize::MAX);
        assert!(kept[0].message.len() <= limits::E2B_BUILD_LINE_BYTES_MAX + 4);
        let last: Vec<_> = kept.iter().rev().take(2).map(|entry| entry.message.as_str()).collect();
        assert_eq!(last, ["it failed", "the log is full; what is said from here on is not kept"]);
        assert_eq!(log.read(kept.len() - 1, 100).len(), 1);
    }
}
