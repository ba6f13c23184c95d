//! One running command: its streams, its deadline, its end.

mod inbox;
mod spawn;
mod tree;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use box_wire::{Event, ExecOutcome, ExecRequest, Exit, Kind, Refusal, RefusalCode, Usage, WindowSize, frame};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::outbox::{Outbox, Source, Taken};
use crate::setup::Prepared;
use crate::sys::Reaped;

pub(crate) use inbox::Inbox;
use spawn::{STATUS_BYTES, Spawned};
pub(crate) use tree::Tree;

/// How much terminal output is taken at once.
const TERMINAL_BYTES: usize = 16 << 10;

/// Turns of moving output before other execs are looked at.
const TURNS_MAX: usize = 16;

/// How long the end of a killed tree is waited for before the exec is reported anyway.
const GONE_WAIT: Duration = Duration::from_secs(2);

/// How often a killed tree is looked at while its end is waited for.
const GONE_LOOK: Duration = Duration::from_millis(1);

/// How long the news that a program was started may wait for company. Most commands end or say something sooner, and then one
/// turn less is taken.
const VERDICT_PATIENCE: Duration = Duration::from_millis(5);

/// One running command.
#[derive(Debug)]
pub(crate) struct Exec {
    request: ExecRequest,
    stream: OwnedFd,
    inbox: Inbox,
    outbox: Outbox,
    child: Spawned,
    tree: Tree,
    started: Instant,
    deadline: Option<Instant>,
    stdin: Vec<u8>,
    stdin_ending: bool,
    verdict: Verdict,
    ended: Option<Ended>,
    killed: Option<Killed>,
    client_gone: bool,
}

/// Whether the program could be started.
#[derive(Debug)]
enum Verdict {
    Pending,
    Started,
    Refused(Refusal),
}

/// How the main process ended.
#[derive(Debug, Clone, Copy)]
struct Ended {
    reaped: Reaped,
    wall: Duration,
}

/// Why and when the tree was killed.
#[derive(Debug, Clone, Copy)]
struct Killed {
    at: Instant,
    timed_out: bool,
}

/// What becomes of an exec after it was looked at.
#[derive(Debug)]
pub(crate) enum Next {
    /// It goes on.
    Running(Box<Exec>),
    /// It is over; this still has to be sent, and the tree removed when its last process is gone.
    Over { stream: OwnedFd, outbox: Outbox, tree: Tree },
}

impl Exec {
    /// Starts a command. On a refusal the stream comes back for the answer.
    pub(crate) fn start(
        request: ExecRequest,
        stream: OwnedFd,
        inbox: Inbox,
        prepared: &Prepared,
    ) -> Result<Self, (OwnedFd, Refusal)> {
        let refuse = |stream, code, message: String| Err((stream, Refusal { code, message }));
        if let Err(invalid) = request.validate() {
            return refuse(stream, RefusalCode::BadRequest, invalid.to_string());
        }
        let tree = match Tree::prepare(prepared, &request.id) {
            Ok(tree) => tree,
            Err(error) => return refuse(stream, RefusalCode::Internal, format!("no place for the exec: {error}")),
        };
        let started = Instant::now();
        let child = match spawn::spawn(&request, &tree, prepared) {
            Ok(child) => child,
            Err(error) => {
                let _ = tree.remove(&prepared.tracking);
                let (code, message) = explain_spawn(&error);
                return refuse(stream, code, message);
            }
        };
        let deadline = request.timeout_ms.and_then(|ms| started.checked_add(Duration::from_millis(ms)));
        Ok(Self {
            request,
            stream,
            inbox,
            outbox: Outbox::default(),
            child,
            tree,
            started,
            deadline,
            stdin: Vec::new(),
            stdin_ending: false,
            verdict: Verdict::Pending,
            ended: None,
            killed: None,
            client_gone: false,
        })
    }

    pub(crate) fn id(&self) -> &str {
        self.request.id.as_str()
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.pid
    }

    /// Whether the main process is gone and only the rest has to be brought to an end.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// What this exec waits for.
    pub(crate) fn interests<'a>(&'a self, add: &mut impl FnMut(BorrowedFd<'a>, PollFlags)) {
        use std::os::fd::AsFd;
        let mut stream = PollFlags::empty();
        if self.stdin.is_empty() && !self.client_gone {
            stream |= PollFlags::IN;
        }
        if !self.outbox.is_empty() {
            stream |= PollFlags::OUT;
        }
        if !self.client_gone {
            add(self.stream.as_fd(), stream);
        }
        if self.outbox.is_empty() || self.client_gone {
            let outputs = [&self.child.stdout, &self.child.stderr, &self.child.terminal];
            for output in outputs.into_iter().flatten() {
                add(output.as_fd(), PollFlags::IN);
            }
        }
        if !self.stdin.is_empty()
            && let Some(input) = self.child.stdin.as_ref().or(self.child.terminal.as_ref())
        {
            add(input.as_fd(), PollFlags::OUT);
        }
        if self.verdict_is_late() {
            add(self.child.verdict.as_fd(), PollFlags::IN);
        }
        if let (Some(status), None) = (&self.child.status, &self.ended) {
            add(status.as_fd(), PollFlags::IN);
        }
    }

    /// When this exec must be looked at even if nothing happens.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
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
        // Where a reaper stands between, its own end says nothing; but without it nobody will tell of the command's.
        if self.ended.is_none() {
            self.read_status();
            self.ended.get_or_insert(Ended { reaped, wall: self.started.elapsed() });
        }
    }

    /// Sends a signal to the main process.
    pub(crate) fn signal(&self, signal: i32) -> io::Result<()> {
        if self.ended.is_some() {
            return Err(Errno::SRCH.into());
        }
        let target = match self.tree.cgroup() {
            Some(_) => self.child.pid,
            None => tree::first_child(self.child.pid).ok_or(Errno::SRCH)?,
        };
        crate::sys::signal_child(target, signal)
    }

    /// Kills the whole tree.
    pub(crate) fn kill(&mut self, timed_out: bool) {
        self.tree.kill(self.child.pid);
        self.killed.get_or_insert(Killed { at: Instant::now(), timed_out });
    }

    /// Does everything that can be done now.
    pub(crate) fn advance(mut self: Box<Self>, prepared: &Prepared) -> Next {
        if self.killed.is_none() && self.ended.is_none() && self.deadline.is_some_and(|at| Instant::now() >= at) {
            self.kill(true);
        }
        if !self.client_gone && self.take_input().is_err() {
            // Whoever asked is gone, and with them the reason to go on.
            self.client_gone = true;
            self.kill(false);
        }
        self.hear_verdict();
        self.read_status();
        let drained = self.move_output();
        if self.ended.is_none() || !drained || !self.outbox.is_empty() && !self.client_gone {
            return Next::Running(self);
        }
        let gone = self.killed.is_none_or(|_| self.tree.is_gone(self.child.pid));
        if !gone && self.killed.is_some_and(|killed| killed.at.elapsed() < GONE_WAIT) {
            return Next::Running(self);
        }
        self.finish(prepared, gone)
    }

    fn take_input(&mut self) -> io::Result<()> {
        if self.stdin.is_empty() {
            self.inbox.fill(&self.stream)?;
        } else if inbox::is_hung_up(&self.stream) {
            // Nothing is read while input waits to be taken, so the end of the stream has to be asked for.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        loop {
            // What was taken is passed on at once, because frames that already lie in the inbox wake nobody.
            self.feed();
            if !self.stdin.is_empty() {
                return Ok(());
            }
            let Some((kind, payload)) = self.inbox.next()? else { return Ok(()) };
            match kind {
                Kind::Stdin => self.stdin = payload,
                Kind::StdinEnd => self.stdin_ending = true,
                Kind::Resize => self.resize(&payload),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    fn resize(&self, payload: &[u8]) {
        let size = frame::decode::<WindowSize>(Kind::Resize, payload).ok().filter(|size| size.validate().is_ok());
        if let (Some(size), Some(terminal)) = (size, &self.child.terminal) {
            let _ = spawn::set_window_size(terminal, size);
        }
    }

    /// Passes waiting input on to the command.
    fn feed(&mut self) {
        while !self.stdin.is_empty() {
            let Some(input) = self.child.stdin.as_ref().or(self.child.terminal.as_ref()) else {
                self.stdin.clear();
                break;
            };
            match rustix::io::write(input, &self.stdin) {
                Ok(count) => drop(self.stdin.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // The command closed its input: what remains is for nobody.
                Err(_) => {
                    self.stdin.clear();
                    self.child.stdin = None;
                }
            }
        }
        if self.stdin_ending {
            self.stdin_ending = false;
            match &self.child.terminal {
                // A terminal has no end; the end-of-file character is how it is said.
                Some(_) => self.stdin.push(0x04),
                None => self.child.stdin = None,
            }
        }
    }

    fn hear_verdict(&mut self) {
        if !matches!(self.verdict, Verdict::Pending) {
            return;
        }
        let mut bytes = [0; 8];
        match rustix::io::read(&self.child.verdict, &mut bytes) {
            Ok(0) => {
                self.verdict = Verdict::Started;
                self.outbox.push(&Event::Started { pid: u32::try_from(self.child.pid).unwrap_or(0) });
            }
            Ok(_) => self.verdict = Verdict::Refused(spawn::read_verdict(bytes, &self.request)),
            Err(_) => {}
        }
    }

    /// Hears from the reaper how the command ended.
    fn read_status(&mut self) {
        let (Some(status), None) = (&self.child.status, &self.ended) else { return };
        let mut bytes = [0; STATUS_BYTES];
        match rustix::io::read(status, &mut bytes) {
            Ok(STATUS_BYTES) => {
                let number = |index: usize| {
                    let mut eight = [0; 8];
                    eight.copy_from_slice(&bytes[4 + index * 8..12 + index * 8]);
                    u64::from_ne_bytes(eight)
                };
                let reaped = Reaped {
                    pid: self.child.pid,
                    status: i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
                    user_us: number(0),
                    system_us: number(1),
                    resident_bytes_max: number(2),
                    read_bytes: number(3),
                    written_bytes: number(4),
                };
                self.ended = Some(Ended { reaped, wall: self.started.elapsed() });
            }
            Ok(_) => self.child.status = None,
            Err(_) => {}
        }
    }

    /// Moves output to the stream. True when nothing more is waiting.
    fn move_output(&mut self) -> bool {
        for _ in 0..TURNS_MAX {
            if self.client_gone {
                self.outbox = Outbox::default();
                return true;
            }
            let child = &self.child;
            let lend = |source| match source {
                Source::Stdout => child.stdout.as_ref(),
                Source::Stderr => child.stderr.as_ref(),
            };
            if self.outbox.flush(&self.stream, lend).is_err() {
                self.client_gone = true;
                self.kill(false);
                return true;
            }
            if !self.outbox.is_empty() {
                return false;
            }
            if !self.take_output() {
                return true;
            }
        }
        false
    }

    /// Takes from whichever stream has something. False when none has.
    fn take_output(&mut self) -> bool {
        let mut any = false;
        if let Some(terminal) = &self.child.terminal {
            match self.outbox.take_copy(Source::Stdout, terminal, TERMINAL_BYTES) {
                Ok(Taken::Some) => any = true,
                Ok(Taken::Nothing) => {}
                Ok(Taken::End) | Err(_) => {
                    // Nobody holds the terminal open: the command is ending. Its input has nowhere to go.
                    self.child.terminal = None;
                }
            }
        }
        for (source, pipe) in [(Source::Stdout, &mut self.child.stdout), (Source::Stderr, &mut self.child.stderr)] {
            let Some(open) = pipe else { continue };
            if any && !self.outbox.is_empty() {
                break;
            }
            match self.outbox.take_pipe(source, open) {
                Ok(Taken::Some) => any = true,
                Ok(Taken::Nothing) => {}
                Ok(Taken::End) | Err(_) => *pipe = None,
            }
        }
        any
    }

    fn finish(mut self: Box<Self>, prepared: &Prepared, gone: bool) -> Next {
        self.hear_verdict();
        let event = match &self.verdict {
            Verdict::Refused(refusal) => Event::Refused(refusal.clone()),
            Verdict::Pending | Verdict::Started => Event::Exited(self.outcome(prepared, gone)),
        };
        self.outbox.push(&event);
        let Self { stream, outbox, tree, .. } = *self;
        Next::Over { stream, outbox, tree }
    }

    fn outcome(&self, prepared: &Prepared, gone: bool) -> ExecOutcome {
        let (status, usage) = self.ended.map_or((0, Usage::default()), |ended| {
            let usage = Usage {
                wall_us: u64::try_from(ended.wall.as_micros()).unwrap_or(u64::MAX),
                cpu_user_us: ended.reaped.user_us,
                cpu_system_us: ended.reaped.system_us,
                memory_peak_bytes: ended.reaped.resident_bytes_max,
                io_read_bytes: ended.reaped.read_bytes,
                io_write_bytes: ended.reaped.written_bytes,
            };
            (ended.reaped.status, usage)
        });
        let exit = if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            Exit::Code(libc::WEXITSTATUS(status))
        };
        let (oom_killed, peak) = self.tree.memory(&prepared.memory);
        let (cpu_user_us, cpu_system_us) = self.tree.cpu_us().unwrap_or((usage.cpu_user_us, usage.cpu_system_us));
        let memory_peak_bytes = peak.unwrap_or(usage.memory_peak_bytes);
        let usage = Usage { cpu_user_us, cpu_system_us, memory_peak_bytes, ..usage };
        let timed_out = self.killed.is_some_and(|killed| killed.timed_out);
        ExecOutcome { exit, timed_out, oom_killed, tree_gone: gone && self.killed.is_some(), usage }
    }
}

fn explain_spawn(error: &io::Error) -> (RefusalCode, String) {
    match Errno::from_io_error(error) {
        Some(Errno::AGAIN) => {
            (RefusalCode::OutOfProcesses, "the box is at its process limit; end something or raise pids_limit".into())
        }
        Some(Errno::NOMEM) => {
            (RefusalCode::OutOfProcesses, "the box has no memory left for another process; raise memory_mb".into())
        }
        _ => (RefusalCode::Internal, format!("the command could not be started: {error}")),
    }
}
