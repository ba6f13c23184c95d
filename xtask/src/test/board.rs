//! The order of stages: which may run now, beside which others.
//!
//! A stage begins when every stage of an earlier phase has ended and nothing that it needs for itself is in use. Among those
//! that may begin, the first in the list does; so the list names long stages first.

use super::{Proof, Verdict};
use anyhow::Result;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Stages of one phase run beside each other; the next phase waits for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Installs, formats, compiles.
    Sources,
    /// Runs what was compiled.
    Suites,
    /// What needs the machine for itself.
    Alone,
    /// Looks at what is left.
    End,
}

/// What only one stage at a time may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    /// Cargo's target directory.
    Cargo,
    /// The test user, its home and its cgroups.
    TestUser,
    /// Engines: one set is as much as two processors carry.
    Engines,
    /// Both processors: stages that compute all the time.
    Processors,
}

/// One step of the proof.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    pub(super) name: &'static str,
    pub(super) proves: &'static str,
    pub(super) run: fn(&mut Proof) -> Result<Verdict>,
    phase: Phase,
    resources: &'static [Resource],
}

/// A stage.
pub(super) const fn stage(
    phase: Phase,
    name: &'static str,
    resources: &'static [Resource],
    proves: &'static str,
    run: fn(&mut Proof) -> Result<Verdict>,
) -> Stage {
    Stage { name, proves, run, phase, resources }
}

struct State {
    waiting: Vec<Stage>,
    running: Vec<Stage>,
}

/// The stages that wait and those that run.
pub(super) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

impl Board {
    pub(super) fn new(stages: Vec<Stage>) -> Self {
        Self { state: Mutex::new(State { waiting: stages, running: Vec::new() }), changed: Condvar::new() }
    }

    /// Runs every stage in `lanes` threads, and returns when all have ended.
    pub(super) fn run(&self, lanes: usize, work: impl Fn(Stage) + Sync) {
        std::thread::scope(|scope| {
            for _ in 0..lanes {
                scope.spawn(|| {
                    while let Some(stage) = self.take() {
                        work(stage);
                        self.end(stage);
                    }
                });
            }
        });
    }

    /// Waits for a stage that may begin; none when no stage waits any more.
    fn take(&self) -> Option<Stage> {
        let mut state = self.lock();
        while !state.waiting.is_empty() {
            if let Some(at) = state.next() {
                let taken = state.waiting.remove(at);
                state.running.push(taken);
                return Some(taken);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn end(&self, stage: Stage) {
        self.lock().running.retain(|running| running.name != stage.name);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The first stage that may begin now.
    fn next(&self) -> Option<usize> {
        let phase = self.waiting.iter().chain(&self.running).map(|stage| stage.phase).min()?;
        self.waiting.iter().position(|stage| stage.phase == phase && self.is_free(stage.resources))
    }

    fn is_free(&self, wanted: &[Resource]) -> bool {
        !self.running.iter().any(|stage| stage.resources.iter().any(|used| wanted.contains(used)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toy(name: &'static str, phase: Phase, resources: &'static [Resource]) -> Stage {
        stage(phase, name, resources, "", |_| Ok(Verdict::Passed))
    }

    #[test]
    fn phases_wait_for_each_other_and_resources_are_used_by_one_stage() {
        let a = toy("a", Phase::Sources, &[Resource::Cargo]);
        let b = toy("b", Phase::Sources, &[Resource::Cargo]);
        let c = toy("c", Phase::Sources, &[]);
        let d = toy("d", Phase::Suites, &[]);
        let state =
            |waiting: &[Stage], running: &[Stage]| State { waiting: waiting.to_vec(), running: running.to_vec() };
        assert_eq!(state(&[a, b, c, d], &[]).next(), Some(0));
        assert_eq!(state(&[b, c, d], &[a]).next(), Some(1));
        assert_eq!(state(&[b, d], &[a, c]).next(), None);
        assert_eq!(state(&[d], &[b]).next(), None);
        assert_eq!(state(&[d], &[]).next(), Some(0));
    }

    #[test]
    fn every_stage_runs_once() {
        let stages = vec![
            toy("end", Phase::End, &[]),
            toy("one", Phase::Suites, &[Resource::Engines]),
            toy("two", Phase::Suites, &[Resource::Engines]),
            toy("first", Phase::Sources, &[]),
        ];
        let seen = Mutex::new(Vec::new());
        Board::new(stages).run(3, |stage| seen.lock().expect("unpoisoned").push(stage.name));
        let seen = seen.into_inner().expect("unpoisoned");
        assert_eq!((seen.len(), seen[0], seen[3]), (4, "first", "end"));
    }
}
