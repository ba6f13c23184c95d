//! When a command is over, and what the agent reports then.

use std::time::Instant;

use box_wire::{Ending, ExecOutcome, Exit, Output, SignalScope, Usage};

use super::ended::Ended;
use super::spawn::Spawned;
use super::{Audience, Exec, Killed, Next, Verdict};
use crate::setup::Prepared;

impl Exec {
    /// Kills the whole tree.
    pub(crate) fn kill(&mut self, timed_out: bool) {
        self.tree.kill(self.child.pid);
        self.killed.get_or_insert(Killed { at: Instant::now(), timed_out, whole_tree: true });
    }

    /// The deadline has passed. Of a held command, what it left behind lives on.
    pub(super) fn expire(&mut self) {
        if !self.is_held() {
            return self.kill(true);
        }
        let _ = self.signal(libc::SIGKILL, SignalScope::Main);
        self.killed = Some(Killed { at: Instant::now(), timed_out: true, whole_tree: false });
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.request.output, Output::Held { .. })
    }

    /// Whether nothing more is waited for but what it has written already.
    pub(super) fn ends_now(&self) -> bool {
        let by_signal = |ended: &Ended| matches!(ended.exit(), Exit::Signal(_));
        self.ended.as_ref().is_some_and(|ended| !self.is_held() || self.killed.is_some() || by_signal(ended))
    }

    /// Whether it is over, as soon as nothing is left to take.
    pub(super) fn is_over(&self) -> bool {
        let Spawned { stdout, stderr, terminal, .. } = &self.child;
        let is_silent = stdout.is_none() && stderr.is_none() && terminal.is_none();
        self.ends_now() || (self.ended.is_some() && is_silent)
    }

    pub(super) fn finish(mut self: Box<Self>, prepared: &Prepared, gone: bool) -> Next {
        self.hear_verdict();
        let started = self.started_pid();
        let ending = match &self.verdict {
            Verdict::Refused(refusal) => Ending::Refused(refusal.clone()),
            Verdict::Pending | Verdict::Started => Ending::Exited(self.outcome(prepared, gone)),
        };
        let Self { audience, tree, .. } = *self;
        let partings = match (audience, &prepared.journal) {
            (Audience::Journal(journalled), Some(directory)) => journalled.finish(directory, started, ending),
            (Audience::Journal(_), None) => Vec::new(),
            (Audience::Caller(caller), _) => vec![caller.finish(ending)],
        };
        Next::Over { partings, tree }
    }

    fn outcome(&self, prepared: &Prepared, gone: bool) -> ExecOutcome {
        let (exit, usage) = self.ended.map_or((Exit::Code(0), Usage::default()), |ended| (ended.exit(), ended.usage()));
        let (oom_killed, peak) = self.tree.memory(&prepared.memory);
        let (cpu_user_us, cpu_system_us) = self.tree.cpu_us().unwrap_or((usage.cpu_user_us, usage.cpu_system_us));
        let memory_peak_bytes = peak.unwrap_or(usage.memory_peak_bytes);
        let usage = Usage { cpu_user_us, cpu_system_us, memory_peak_bytes, ..usage };
        let timed_out = self.killed.is_some_and(|killed| killed.timed_out);
        ExecOutcome {
            exit,
            timed_out,
            oom_killed,
            tree_gone: gone && self.killed.is_some_and(|killed| killed.whole_tree),
            usage,
        }
    }
}
