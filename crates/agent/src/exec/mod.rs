//! One running command: its streams, its deadline, its end.

mod ended;
mod inbox;
mod input;
mod journalled;
mod launch;
mod over;
mod pacing;
mod recorder;
mod spawn;
mod streamed;
mod tree;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use box_wire::{Event, ExecRequest, Output, ReadPosition, Refusal, RefusalCode, RunningExec, SignalScope};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::outbox::Outbox;
use crate::setup::Prepared;
use crate::sys::Reaped;

use ended::Ended;
pub(crate) use inbox::{Inbox, is_hung_up};
use input::Input;
use journalled::Journalled;
use launch::launch;
use pacing::Room;
pub(crate) use recorder::note_left_alone;
pub(crate) use spawn::{Beside, explain_beside, open_terminal, set_window_size, start_beside};
use spawn::{STATUS_BYTES, Spawned};
use streamed::Caller;
pub(crate) use tree::Tree;

/// How much terminal output is taken at once.
const TERMINAL_BYTES: usize = 16 << 10;

/// Turns of moving output before other execs are looked at.
const TURNS_MAX: usize = 16;

/// How long the end of a killed tree is waited for before the exec is reported anyway.
const GONE_WAIT: Duration = Duration::from_secs(2);

/// Pause between checks whether a killed tree has ended.
const GONE_LOOK: Duration = Duration::from_millis(1);

/// How long the message that a program was started may wait for others. Most commands end or print sooner, and then one
/// turn is saved.
const VERDICT_PATIENCE: Duration = Duration::from_millis(5);

/// One running command.
#[derive(Debug)]
pub(crate) struct Exec {
    request: ExecRequest,
    audience: Audience,
    child: Spawned,
    tree: Tree,
    started: Instant,
    deadline: Option<Instant>,
    input: Input,
    verdict: Verdict,
    ended: Option<Ended>,
    killed: Option<Killed>,
}

/// The receiver of the output and source of the input.
#[derive(Debug)]
enum Audience {
    /// The caller alone.
    Caller(Caller),
    /// The journal, and the clients that follow it.
    Journal(Journalled),
}

/// Whether the program could be started.
#[derive(Debug)]
enum Verdict {
    Pending,
    Started,
    Refused(Refusal),
}

/// Why and when it was killed.
#[derive(Debug, Clone, Copy)]
struct Killed {
    at: Instant,
    timed_out: bool,
    /// Every process of it, and not the main one alone.
    whole_tree: bool,
}

/// What to do with an exec after a turn.
#[derive(Debug)]
pub(crate) enum Next {
    /// It goes on.
    Running(Box<Exec>),
    /// It is over; this still has to be sent, and the tree removed when its last process is gone.
    Over { partings: Vec<(OwnedFd, Outbox)>, tree: Tree },
}

impl Exec {
    /// Starts a command. On a refusal the stream comes back for the answer.
    pub(crate) fn start(
        request: ExecRequest,
        stream: OwnedFd,
        inbox: Inbox,
        prepared: &Prepared,
    ) -> Result<Self, (OwnedFd, Refusal)> {
        let started = Instant::now();
        let (child, tree) = match launch(&request, prepared) {
            Ok(launched) => launched,
            Err(refusal) => return Err((stream, refusal)),
        };
        let deadline = request.timeout_ms.and_then(|ms| started.checked_add(Duration::from_millis(ms)));
        let audience = match request.output {
            Output::Stream => Audience::Caller(Caller::new(stream, inbox)),
            Output::Journal { bytes_max } => {
                Audience::Journal(Journalled::new(request.id.clone(), bytes_max, stream, inbox))
            }
            Output::Held { bytes_max } => {
                Audience::Journal(Journalled::held(request.id.clone(), bytes_max, stream, inbox))
            }
        };
        Ok(Self {
            request,
            audience,
            child,
            tree,
            started,
            deadline,
            input: Input::default(),
            verdict: Verdict::Pending,
            ended: None,
            killed: None,
        })
    }

    /// Lets another stream follow a journalled exec. On a refusal it comes back for the answer.
    pub(crate) fn attach(&mut self, stream: OwnedFd, inbox: Inbox) -> Result<(), (OwnedFd, Refusal)> {
        let id = &self.request.id;
        let refuse = |stream, code, message: String| Err((stream, Refusal { code, message }));
        match &mut self.audience {
            Audience::Caller(_) => {
                let message =
                    format!("exec {id} streams to the caller that started it; only journalled execs can be followed");
                refuse(stream, RefusalCode::BadRequest, message)
            }
            Audience::Journal(journalled) => match journalled.attach(stream, inbox) {
                Ok(()) => Ok(()),
                Err(stream) => {
                    let message = format!("{} streams follow exec {id}, the most it takes", journalled.attached());
                    refuse(stream, RefusalCode::OutOfProcesses, message)
                }
            },
        }
    }

    /// Makes the output of a held exec wait for the client of `stream`. A refusal returns the stream for the answer.
    pub(crate) fn pace(
        &mut self,
        stream: OwnedFd,
        inbox: Inbox,
        taken: ReadPosition,
    ) -> Result<(), (OwnedFd, Refusal)> {
        let Audience::Journal(journalled) = &mut self.audience else {
            let message = format!("exec {} is not held; only those can be paced", self.request.id);
            return Err((stream, Refusal { code: RefusalCode::BadRequest, message }));
        };
        journalled.pace(stream, inbox, taken).map_err(|stream| {
            let message = format!("exec {} cannot be paced, or by no more streams", self.request.id);
            (stream, Refusal { code: RefusalCode::OutOfProcesses, message })
        })
    }

    /// Streams that it holds.
    pub(crate) fn attached(&self) -> usize {
        match &self.audience {
            Audience::Caller(_) => 1,
            Audience::Journal(journalled) => journalled.attached(),
        }
    }

    /// The entry for a list of running execs.
    pub(crate) fn listed(&self) -> RunningExec {
        RunningExec { id: self.request.id.clone(), pid: self.told_pid(), stdin_open: self.input.is_open(&self.child) }
    }

    fn told_pid(&self) -> u32 {
        u32::try_from(self.child.pid).unwrap_or(0)
    }

    /// The pid for clients that wait for the start; none until the start is known to have succeeded.
    fn started_pid(&self) -> Option<u32> {
        matches!(self.verdict, Verdict::Started).then(|| self.told_pid())
    }

    pub(crate) fn id(&self) -> &str {
        self.request.id.as_str()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.pid
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Whether the main process is gone and only the rest has to be brought to an end.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// The descriptors that this exec waits for.
    pub(crate) fn interests<'a>(&'a self, add: &mut impl FnMut(BorrowedFd<'a>, PollFlags)) {
        let room = match &self.audience {
            Audience::Caller(caller) => {
                caller.interests(&self.input, add);
                Room { stdout: caller.takes_output(), stderr: caller.takes_output() }
            }
            Audience::Journal(journalled) => {
                journalled.interests(&self.input, add);
                journalled.room(self.ends_now())
            }
        };
        let Spawned { stdout, stderr, terminal, .. } = &self.child;
        for (output, has_room) in [(stdout, room.stdout), (stderr, room.stderr), (terminal, room.stdout)] {
            if let Some(output) = output.as_ref().filter(|_| has_room) {
                add(output.as_fd(), PollFlags::IN);
            }
        }
        if let Some(input) = self.input.waits_for(&self.child) {
            add(input.as_fd(), PollFlags::OUT);
        }
        if let Some(verdict) = self.child.verdict.as_ref().filter(|_| self.verdict_is_late()) {
            add(verdict.as_fd(), PollFlags::IN);
        }
        if let (Some(status), None) = (&self.child.status, &self.ended) {
            add(status.as_fd(), PollFlags::IN);
        }
    }

    /// When this exec must be looked at even if nothing happens.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let paced = if let Audience::Journal(journalled) = &self.audience { journalled.wake_at() } else { None };
        let own = self.own_wake_at();
        own.zip(paced).map(|(own, paced)| own.min(paced)).or(own).or(paced)
    }

    fn own_wake_at(&self) -> Option<Instant> {
        match self.killed {
            Some(killed) if self.ended.is_some() => Some((Instant::now() + GONE_LOOK).min(killed.at + GONE_WAIT)),
            Some(_) => None,
            None if matches!(self.verdict, Verdict::Pending) && !self.verdict_is_late() => Some(
                self.deadline.map_or(self.started + VERDICT_PATIENCE, |at| at.min(self.started + VERDICT_PATIENCE)),
            ),
            None => self.deadline,
        }
    }

    /// Whether the verdict is still not known after a while, so that it is worth being woken for.
    fn verdict_is_late(&self) -> bool {
        matches!(self.verdict, Verdict::Pending) && self.started.elapsed() >= VERDICT_PATIENCE
    }

    /// The main process was reaped.
    pub(crate) fn on_reaped(&mut self, reaped: Reaped) {
        // The main process may be a reaper, whose own status says nothing. Without it the command's status is lost too.
        if self.ended.is_none() {
            self.read_status();
            self.ended.get_or_insert(Ended { reaped, wall: self.started.elapsed() });
        }
    }

    /// Sends a signal to the main process, or to every process of the tree.
    pub(crate) fn signal(&self, signal: i32, scope: SignalScope) -> io::Result<()> {
        if scope == SignalScope::Tree {
            return self.tree.signal(self.child.pid, signal);
        }
        if self.ended.is_some() {
            return Err(Errno::SRCH.into());
        }
        let target = self.tree.command(self.child.pid).ok_or(Errno::SRCH)?;
        crate::sys::signal_child(target, signal)
    }

    /// Does everything that can be done now.
    pub(crate) fn advance(mut self: Box<Self>, prepared: &Prepared) -> Next {
        let can_expire = self.killed.is_none() && (self.ended.is_none() || self.is_held());
        if can_expire && self.deadline.is_some_and(|at| Instant::now() >= at) {
            self.expire();
        }
        self.take_input();
        self.hear_verdict();
        self.read_status();
        if self.move_output(prepared) && self.is_over() {
            let killed = self.killed.filter(|killed| killed.whole_tree);
            let gone = killed.is_none_or(|_| self.tree.is_gone(self.child.pid));
            if gone || killed.is_some_and(|killed| killed.at.elapsed() >= GONE_WAIT) {
                return self.finish(prepared, gone);
            }
        }
        let started = self.started_pid();
        if let Audience::Journal(journalled) = &mut self.audience {
            journalled.report(started);
        }
        Next::Running(self)
    }

    fn take_input(&mut self) {
        match &mut self.audience {
            Audience::Journal(journalled) => journalled.take_input(&mut self.input, &mut self.child),
            Audience::Caller(caller) if caller.gone => {}
            Audience::Caller(caller) => {
                if caller.take_input(&mut self.input, &mut self.child).is_err() {
                    self.caller_left();
                }
            }
        }
    }

    /// Moves output to where it belongs. True when nothing more is waiting.
    fn move_output(&mut self, prepared: &Prepared) -> bool {
        let ends_now = self.ends_now();
        match (&mut self.audience, &prepared.journal) {
            (Audience::Journal(journalled), Some(directory)) => {
                journalled.move_output(directory, &mut self.child, ends_now)
            }
            // A journalled exec does not start without a journal.
            (Audience::Journal(_), None) => true,
            (Audience::Caller(caller), _) => caller.move_output(&mut self.child).unwrap_or_else(|_| {
                self.caller_left();
                true
            }),
        }
    }

    /// The caller is gone, so a streamed exec has no reason to go on.
    fn caller_left(&mut self) {
        if let Audience::Caller(caller) = &mut self.audience {
            caller.gone = true;
        }
        self.kill(false);
    }

    fn hear_verdict(&mut self) {
        let Some(verdict) = &self.child.verdict else { return };
        let mut bytes = [0; 8];
        match rustix::io::read(verdict, &mut bytes) {
            Ok(0) => {
                self.verdict = Verdict::Started;
                let pid = self.told_pid();
                if let Audience::Caller(caller) = &mut self.audience {
                    caller.outbox.push(&Event::Started { pid });
                }
            }
            Ok(_) => self.verdict = Verdict::Refused(spawn::read_verdict(bytes, &self.request)),
            Err(_) => return,
        }
        self.child.verdict = None;
    }

    /// Hears from the reaper how the command ended.
    fn read_status(&mut self) {
        let (Some(status), None) = (&self.child.status, &self.ended) else { return };
        let mut bytes = [0; STATUS_BYTES];
        match rustix::io::read(status, &mut bytes) {
            Ok(STATUS_BYTES) => {
                self.ended = Some(Ended::told_by_reaper(self.child.pid, &bytes, self.started.elapsed()));
            }
            Ok(_) => self.child.status = None,
            Err(_) => {}
        }
    }
}
