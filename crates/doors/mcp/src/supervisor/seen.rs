//! The current state of a server, shared by all who look at it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::SessionId;
use box_core::mcp::{McpErrorPhase, McpLogLine, McpLogSource, McpRuntimeInfo, McpStatus, McpToolsChanged};
use jiff::Timestamp;
use rmcp::model::Tool;

use super::offered::Offered;
use super::stderr::StderrTail;
use crate::limits::{ERROR_CHARS_MAX, LOG_LINES_KEPT, STDERR_LINE_CHARS_MAX};
use crate::retry::Retry;
use crate::text::clean;
use crate::upstream::{Beginning, Upstream};

/// What is known of a server. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    status: McpStatus,
    /// Without the values that come from `stderr` and `offered`.
    info: McpRuntimeInfo,
    stderr: StderrTail,
    upstream: Option<Upstream>,
    log: VecDeque<McpLogLine>,
    offered: Offered,
    /// Whether it refused the protocol of its definition.
    begins_otherwise: bool,
}

impl Seen {
    /// Of a server that is not to run.
    pub(super) fn disabled() -> Self {
        let seen = Self::default();
        seen.lock().status = McpStatus::Disabled;
        seen
    }

    /// Takes over how a server stands on its way.
    pub(super) fn stands(&self, retry: &Retry) {
        let mut state = self.lock();
        state.status = retry.status();
        state.info.retry_count = retry.retry_count();
    }

    /// A restart on request accepts whatever tools the server offers next.
    pub(super) fn restarts(&self) {
        let mut state = self.lock();
        state.status = McpStatus::Connecting;
        state.offered = Offered::default();
    }

    /// It has these tools. Tells how they differ from those that it first had, if that is news.
    pub(super) fn offers(&self, tools: &[Tool]) -> Option<McpToolsChanged> {
        let told = self.lock().offered.see(tools, Timestamp::now());
        if let Some(McpToolsChanged { added, removed, changed, .. }) = &told {
            let words = [("added", added), ("removed", removed), ("changed", changed)];
            let words = words.map(|(word, names)| format!("{word}: {}", names.join(" ")));
            self.note(
                McpLogSource::Supervisor,
                &format!("its tools are others than they were first; {}", words.join("; ")),
            );
        }
        told
    }

    /// It is in this session, or in none.
    pub(super) fn lives_in(&self, session: Option<&SessionId>) {
        let mut state = self.lock();
        state.info.box_session_id = session.cloned();
        state.info.box_enabled = session.is_some();
    }

    /// It answers.
    pub(super) fn connected(&self, upstream: &Upstream) {
        let mut state = self.lock();
        state.status = McpStatus::Connected;
        (state.info.error_phase, state.info.error_message) = (None, None);
        state.upstream = Some(upstream.clone());
    }

    /// How to begin, given what its definition says.
    pub(super) fn beginning(&self, defined: Beginning) -> Beginning {
        if self.lock().begins_otherwise { defined.other() } else { defined }
    }

    /// It refused this beginning. The next attempt uses the other one.
    pub(super) fn refuses_beginning(&self) {
        let mut state = self.lock();
        state.begins_otherwise = !state.begins_otherwise;
    }

    /// The connection is closed.
    pub(super) fn disconnected(&self) {
        self.lock().upstream = None;
    }

    /// Records a failure, with the fix for it.
    pub(super) fn failed(&self, phase: McpErrorPhase, reason: &str) {
        let short: String = reason.trim().chars().take(ERROR_CHARS_MAX).collect();
        let mut state = self.lock();
        state.info.error_phase = Some(phase);
        state.info.error_message = Some(format!("{short}; {}", phase.advice()));
        drop(state);
        self.note(McpLogSource::Supervisor, &format!("{phase}: {reason}"));
    }

    /// A piece of its standard error.
    pub(super) fn stderr(&self, piece: &[u8]) {
        self.lock().stderr.push(piece);
    }

    /// Its standard error as a whole, or the end of it.
    pub(super) fn stderr_whole(&self, said: &[u8]) {
        let mut tail = StderrTail::default();
        tail.push(said);
        self.lock().stderr = tail;
    }

    /// Writes lines into its log. They may be a stranger's words.
    pub(super) fn note(&self, source: McpLogSource, text: &str) {
        let mut state = self.lock();
        for line in text.lines().map(|line| clean(line, STDERR_LINE_CHARS_MAX)).filter(|line| !line.trim().is_empty()) {
            if state.log.len() == LOG_LINES_KEPT {
                state.log.pop_front();
            }
            state.log.push_back(McpLogLine { source, text: line });
        }
    }

    /// Its log so far.
    pub(super) fn log(&self) -> Vec<McpLogLine> {
        self.lock().log.iter().cloned().collect()
    }

    /// How it stands.
    pub(super) fn status(&self) -> McpStatus {
        self.lock().status
    }

    /// How many tools are visible to clients, if known.
    pub(super) fn tools(&self) -> usize {
        self.upstream().map_or(0, |upstream| upstream.lists().tools.len())
    }

    /// The connection to it, while it is connected.
    pub(super) fn upstream(&self) -> Option<Upstream> {
        self.lock().upstream.clone().filter(|upstream| !upstream.is_closed())
    }

    /// The runtime information for callers.
    pub(super) fn runtime(&self) -> McpRuntimeInfo {
        let held_tools = self.upstream().map(|upstream| upstream.lists().held.to_vec()).unwrap_or_default();
        let state = self.lock();
        McpRuntimeInfo {
            stderr_tail: state.stderr.lines(),
            tools_changed: state.offered.changed(),
            held_tools,
            ..state.info.clone()
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_with_what_to_do_until_the_server_answers() {
        let seen = Seen::default();
        seen.failed(McpErrorPhase::DepInstall, " pip failed\n");
        let told = seen.runtime();
        assert_eq!((seen.status(), told.error_phase), (McpStatus::Connecting, Some(McpErrorPhase::DepInstall)));
        let message = told.error_message.unwrap();
        assert!(message.starts_with("pip failed; ") && message.contains("startup_timeout_sec"), "{message}");
        seen.stderr(b"one\n\ntwo\nthr");
        assert_eq!(seen.runtime().stderr_tail, ["one", "two", "thr"]);
    }

    #[test]
    fn a_log_stays_small_and_can_be_shown_anywhere() {
        let seen = Seen::default();
        for number in 0..LOG_LINES_KEPT + 2 {
            seen.note(McpLogSource::Install, &format!("line {number}\n\n\u{1b}[31mred"));
        }
        let log = seen.log();
        assert_eq!(log.len(), LOG_LINES_KEPT);
        assert!(log.iter().all(|line| !line.text.contains('\u{1b}')));
        assert!(log[log.len() - 2].text.ends_with(&format!("{}", LOG_LINES_KEPT + 1)));
    }
}
