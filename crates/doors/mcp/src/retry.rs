//! What follows from whatever happens to a server: try again, wait, attach again, clean up, give up.
//!
//! This is a state machine without a clock and without effects. Whoever drives it says what happened and when, does the one thing
//! that it is told, and says what came of that. So every order of events can be tried in a test.
//!
//! - A failed attempt is cleaned up, and tried again after 2, 4 and 8 seconds. Then the server is given up.
//! - A process that lives and does not answer yet is starting. That is waited for until the start-up timeout, and is no failed attempt.
//! - A connection that is lost while its process lives is made again. Nothing is built for that.
//! - Nothing is built, and nobody rests, before everything of the attempt before is cleaned up.

use std::time::Duration;

use crate::limits::{ATTACH_INTERVAL, ATTACHES_MAX, BACK_OFF, HEALTH_FAILURES_MAX, STEADY_AFTER};
use box_core::mcp::{McpErrorPhase, McpStatus};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The server is to run, or to run anew: it was defined, enabled or restarted.
    Start,
    /// It is to run, and a process of it from before lives.
    Found,
    /// Its process was started. From now on it may take its time to answer.
    ProcessStarted,
    /// It answered.
    Connected,
    /// A step failed, and there is no process that could be waited for.
    Failed(McpErrorPhase),
    /// The connection to its process, or the attempt to make one, broke off; and what was then seen of the process.
    Lost(McpErrorPhase, ProcessState),
    /// Somebody looked at its process, as is done every few seconds.
    Looked(ProcessState),
    /// A time that was to be waited for has come.
    Due,
    /// Everything of the last attempt is gone.
    CleanedUp,
    /// The server is not to run any more: it was disabled or removed, or we end.
    Stop,
}

/// What was seen of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs.
    Running,
    /// It has ended.
    Exited,
    /// It cannot be said: there is no such process or session, or nobody answers.
    Unknown,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing. What is under way goes on.
    Continue,
    /// Make everything: session, dependencies, process, connection. Ends with [`Event::Connected`], [`Event::Failed`] or [`Event::Lost`].
    Build,
    /// Connect to the process that lives. Ends with [`Event::Connected`] or [`Event::Lost`].
    Attach,
    /// Give up what is under way and remove what was made, as far as it is the server's own. Ends with [`Event::CleanedUp`].
    CleanUp,
    /// Say [`Event::Due`] at this time.
    WaitUntil(Duration),
    /// Nothing, until [`Event::Start`]. Nothing of the server is left.
    Rest,
}

/// Where a server is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is not to run.
    Idle,
    /// It is being made, and has no process yet.
    Building,
    /// Its process was started then, and is being reached.
    Starting { since: Duration },
    /// Its process was started then, did not answer, and will be tried again.
    StartingPause { since: Duration, until: Duration },
    /// It answers since then.
    Connected { since: Duration },
    /// It answered before. Its process is being reached again.
    Attaching,
    /// As before, but not right now.
    AttachingPause { until: Duration },
    /// What was made is being removed.
    CleaningUp { then: Then },
    /// It waits to be made again.
    BackingOff { until: Duration },
    /// It failed too often, or for good.
    GivenUp,
}

/// What comes after cleaning up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Build,
    BackOff(Duration),
    GiveUp,
    Idle,
}

/// What follows from whatever happens to one server.
#[derive(Debug, Clone)]
pub struct Retry {
    state: State,
    startup_timeout: Duration,
    /// Attempts after the first, since the server was started or last held for a while.
    retries: usize,
    /// Connections that were made again, since one held for a while.
    attaches: u32,
    /// Looks at the process that failed in a row.
    health_failures: u32,
    failed: Option<McpErrorPhase>,
}

impl Retry {
    /// A server that may take so long to answer after its process was started. It does not run until [`Event::Start`].
    pub fn new(startup_timeout: Duration) -> Self {
        Self { state: State::Idle, startup_timeout, retries: 0, attaches: 0, health_failures: 0, failed: None }
    }

    /// How the server stands.
    pub fn status(&self) -> McpStatus {
        match self.state {
            State::Idle | State::CleaningUp { then: Then::Idle } => McpStatus::Disabled,
            State::GivenUp | State::CleaningUp { then: Then::GiveUp } => McpStatus::Error,
            State::Connected { .. } => McpStatus::Connected,
            _ => McpStatus::Connecting,
        }
    }

    /// How often it was tried again.
    pub fn retry_count(&self) -> u32 {
        u32::try_from(self.retries).unwrap_or(u32::MAX)
    }

    /// Where it failed last. Nothing once it is connected again.
    pub fn error_phase(&self) -> Option<McpErrorPhase> {
        self.failed
    }

    /// Takes note of what happened, and says what is to be done. `now` is of a clock that never goes back.
    pub fn on(&mut self, event: Event, now: Duration) -> Action {
        self.forget_old_failures(now);
        match event {
            Event::Start => self.start(Action::Build),
            Event::Found => self.start(Action::Attach),
            Event::ProcessStarted => self.process_started(now),
            Event::Connected => self.connected(now),
            Event::Failed(phase) => self.failed(phase),
            Event::Lost(phase, process) => self.lost(phase, process, now),
            Event::Looked(process) => self.looked(process, now),
            Event::Due => self.due(now),
            Event::CleanedUp => self.cleaned_up(now),
            Event::Stop => self.stop(),
        }
    }

    /// A server that held for a while starts from nothing when it fails again.
    fn forget_old_failures(&mut self, now: Duration) {
        if matches!(self.state, State::Connected { since } if now.saturating_sub(since) >= STEADY_AFTER) {
            self.retries = 0;
            self.attaches = 0;
        }
    }

    fn start(&mut self, action: Action) -> Action {
        self.retries = 0;
        self.attaches = 0;
        self.health_failures = 0;
        self.failed = None;
        match self.state {
            State::Idle | State::GivenUp | State::BackingOff { .. } if action == Action::Attach => {
                self.enter(State::Attaching, Action::Attach)
            }
            State::Idle | State::GivenUp | State::BackingOff { .. } => self.enter(State::Building, Action::Build),
            State::CleaningUp { .. } => self.enter(State::CleaningUp { then: Then::Build }, Action::Continue),
            _ => self.enter(State::CleaningUp { then: Then::Build }, Action::CleanUp),
        }
    }

    fn stop(&mut self) -> Action {
        match self.state {
            State::Idle | State::GivenUp | State::BackingOff { .. } => self.enter(State::Idle, Action::Rest),
            State::CleaningUp { .. } => self.enter(State::CleaningUp { then: Then::Idle }, Action::Continue),
            _ => self.enter(State::CleaningUp { then: Then::Idle }, Action::CleanUp),
        }
    }

    fn process_started(&mut self, now: Duration) -> Action {
        if self.state == State::Building {
            self.health_failures = 0;
            self.state = State::Starting { since: now };
        }
        Action::Continue
    }

    fn connected(&mut self, now: Duration) -> Action {
        if matches!(self.state, State::Building | State::Starting { .. } | State::Attaching) {
            self.health_failures = 0;
            self.failed = None;
            self.state = State::Connected { since: now };
        }
        Action::Continue
    }

    fn failed(&mut self, phase: McpErrorPhase) -> Action {
        // A call that failed is its caller's affair.
        if phase == McpErrorPhase::ToolCall || !self.is_under_way() {
            return Action::Continue;
        }
        self.failed = Some(phase);
        let then = match BACK_OFF.get(self.retries) {
            Some(delay) if phase.is_transient() => {
                self.retries += 1;
                Then::BackOff(*delay)
            }
            _ => Then::GiveUp,
        };
        self.enter(State::CleaningUp { then }, Action::CleanUp)
    }

    /// Whether something of the server is made, or about to be.
    fn is_under_way(&self) -> bool {
        !matches!(self.state, State::Idle | State::CleaningUp { .. } | State::BackingOff { .. } | State::GivenUp)
    }

    fn lost(&mut self, phase: McpErrorPhase, process: ProcessState, now: Duration) -> Action {
        let is_running = process == ProcessState::Running;
        match self.state {
            State::Starting { since } if is_running && !self.is_too_late(since, now) => {
                let until = now.saturating_add(ATTACH_INTERVAL);
                self.enter(State::StartingPause { since, until }, Action::WaitUntil(until))
            }
            State::Connected { .. } | State::Attaching if is_running => self.attach_again(now),
            State::Connected { .. } | State::Attaching => self.failed(McpErrorPhase::Runtime),
            State::Building | State::Starting { .. } => self.failed(phase),
            // Of a connection that was given up already.
            _ => Action::Continue,
        }
    }

    fn attach_again(&mut self, now: Duration) -> Action {
        self.attaches += 1;
        if self.attaches > ATTACHES_MAX {
            self.attaches = 0;
            return self.failed(McpErrorPhase::RelayConnect);
        }
        if self.attaches == 1 {
            return self.enter(State::Attaching, Action::Attach);
        }
        let until = now.saturating_add(ATTACH_INTERVAL);
        self.enter(State::AttachingPause { until }, Action::WaitUntil(until))
    }

    fn looked(&mut self, process: ProcessState, now: Duration) -> Action {
        let (phase, since) = match self.state {
            State::Starting { since } | State::StartingPause { since, .. } => (McpErrorPhase::McpInit, Some(since)),
            State::Connected { .. } | State::Attaching | State::AttachingPause { .. } => (McpErrorPhase::Runtime, None),
            _ => return Action::Continue,
        };
        match process {
            ProcessState::Running => self.health_failures = 0,
            ProcessState::Unknown => self.health_failures += 1,
            ProcessState::Exited => return self.failed(phase),
        }
        let is_late = since.is_some_and(|since| self.is_too_late(since, now));
        if is_late || self.health_failures >= HEALTH_FAILURES_MAX { self.failed(phase) } else { Action::Continue }
    }

    fn is_too_late(&self, since: Duration, now: Duration) -> bool {
        now.saturating_sub(since) >= self.startup_timeout
    }

    fn due(&mut self, now: Duration) -> Action {
        match self.state {
            State::BackingOff { until } | State::AttachingPause { until } | State::StartingPause { until, .. }
                if now < until =>
            {
                Action::WaitUntil(until)
            }
            State::BackingOff { .. } => self.enter(State::Building, Action::Build),
            State::AttachingPause { .. } => self.enter(State::Attaching, Action::Attach),
            State::StartingPause { since, .. } => self.enter(State::Starting { since }, Action::Attach),
            _ => Action::Continue,
        }
    }

    fn cleaned_up(&mut self, now: Duration) -> Action {
        let State::CleaningUp { then } = self.state else { return Action::Continue };
        self.health_failures = 0;
        match then {
            Then::Build => self.enter(State::Building, Action::Build),
            Then::GiveUp => self.enter(State::GivenUp, Action::Rest),
            Then::Idle => self.enter(State::Idle, Action::Rest),
            Then::BackOff(delay) => {
                let until = now.saturating_add(delay);
                self.enter(State::BackingOff { until }, Action::WaitUntil(until))
            }
        }
    }

    fn enter(&mut self, state: State, action: Action) -> Action {
        self.state = state;
        action
    }
}

#[cfg(test)]
mod tests;
