//! The loop of the agent: new streams, running commands, dead children, and the word that ends the box.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use box_wire::plan::Lifeline;
use box_wire::{Event, ExecId, Kind, Refusal, RefusalCode, Request, frame, limits};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::absence::{Absence, Presence};
use crate::exec::{self, Exec, Inbox, Next, Tree};
use crate::locks::LockWatch;
use crate::outbox::Outbox;
use crate::port::{self, Port};
use crate::setup::{Callers, Prepared, Tracker};
use crate::sudo::Sudo;
use crate::sys::{self, Block, Reaped};

/// Streams that may be open at once and ask, those of running execs included. More than that wait in the listener's queue.
const STREAMS_MAX: usize = limits::STREAMS_PER_BOX_MAX + 64;

/// Descriptors for execs, their streams and connections to ports: 1024 without what asks and what is the agent's own.
const DESCRIPTORS_MAX: usize = 944;

/// Descriptors of one exec, without its streams: three pipes, the one that reports its end, and two files of its
/// journal.
const DESCRIPTORS_PER_EXEC: usize = 6;

/// Descriptors of one connection to a port: its stream and its socket.
const DESCRIPTORS_PER_PORT: usize = 2;

/// One dialed stream.
#[derive(Debug)]
enum Stream {
    /// Has not said yet what it wants.
    Asking { stream: OwnedFd, inbox: Inbox },
    /// Runs a command.
    Running(Box<Exec>),
    /// Is carried to a port and back.
    Port(Box<Port>),
    /// Records that the host is there.
    Lease { stream: OwnedFd, inbox: Inbox },
    /// Receives the last messages of an ended exec.
    Parting { stream: OwnedFd, outbox: Outbox },
}

struct Server {
    prepared: Prepared,
    signals: OwnedFd,
    /// Held while its other end means life.
    control: Option<OwnedFd>,
    streams: Vec<Stream>,
    /// Trees of execs that are over but left processes behind.
    lingering: Vec<Tree>,
    locks: LockWatch,
    absence: Absence,
    /// Serves `sudo`, in boxes whose root has capabilities.
    sudo: Option<Sudo>,
    ended: bool,
}

/// Serves until the host ends the box.
pub(crate) fn serve(mut prepared: Prepared, control: OwnedFd) -> i32 {
    let Ok(signals) = sys::signal_descriptor(&[libc::SIGCHLD, libc::SIGTERM]) else { return 6 };
    let control = (prepared.lifeline == Lifeline::Maker).then_some(control);
    let (streams, lingering) = (Vec::new(), Vec::new());
    let (locks, absence) = (LockWatch::default(), Absence::default());
    let sudo = prepared.sudo.take().map(Sudo::new);
    let mut server = Server { prepared, signals, control, streams, lingering, locks, absence, sudo, ended: false };
    while !server.ended {
        if server.turn().is_err() {
            return 7;
        }
    }
    0
}

/// Continues reapers that the workload stopped, which it can where both run as the same user: a stopped reaper never
/// reports how its command ended. In this mode every child of the agent is a reaper, or an orphan that a spurious
/// SIGCONT does not harm.
fn wake_reapers() {
    while let Some(pid) = sys::stopped_child() {
        let _ = sys::signal_child(pid, libc::SIGCONT);
    }
}

impl Server {
    /// Waits for events and handles them.
    fn turn(&mut self) -> io::Result<()> {
        let ready = self.wait()?;
        if ready.control {
            // The maker is gone; so is the reason for this box.
            self.ended = true;
            return Ok(());
        }
        if ready.signals {
            self.take_signals();
        }
        if ready.listener {
            self.accept();
        }
        self.look_at(&ready.streams);
        if ready.sudo {
            self.take_sudo();
        }
        self.locks.turn(&self.prepared.tracking);
        self.look_for_host();
        Ok(())
    }

    /// Lets one command of an exec ask for a command of root.
    fn take_sudo(&mut self) {
        let running = self.streams.iter().filter_map(|stream| match stream {
            Stream::Running(exec) => Some(exec.tree()),
            _ => None,
        });
        let trees: Vec<&Tree> = running.chain(&self.lingering).collect();
        if let Some(sudo) = &mut self.sudo {
            sudo.take(&trees, &self.prepared);
        }
    }

    /// Ends the box if no host came back in time. Call it after accepting connections.
    fn look_for_host(&mut self) {
        let now = Instant::now();
        let is_host = |stream: &Stream| matches!(stream, Stream::Asking { .. } | Stream::Lease { .. });
        let presence = match self.streams.as_slice() {
            [] => Presence::Alone,
            streams if streams.iter().any(is_host) => Presence::Host,
            _ => Presence::Busy,
        };
        self.absence.note(presence, now);
        if self.absence.is_over(now) {
            if let Some(journal) = &self.prepared.journal {
                exec::note_left_alone(journal);
            }
            self.ended = true;
        }
    }

    fn wait(&self) -> io::Result<Ready> {
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(3 + 4 * self.streams.len());
        polled.push(PollFd::new(&self.signals, PollFlags::IN));
        let room = if self.open_streams() < STREAMS_MAX { PollFlags::IN } else { PollFlags::empty() };
        polled.push(PollFd::new(&self.prepared.listener, room));
        if let Some(control) = &self.control {
            polled.push(PollFd::new(control, PollFlags::IN));
        }
        let sudo = self.sudo.as_ref().and_then(Sudo::interest);
        polled.extend(sudo.map(|listener| PollFd::new(listener, PollFlags::IN)));
        let mut owners = Vec::with_capacity(polled.capacity());
        let first = polled.len();
        for (index, stream) in self.streams.iter().enumerate() {
            stream.interests(&mut |descriptor, events| {
                polled.push(PollFd::from_borrowed_fd(descriptor, events));
                owners.push(index);
            });
        }
        let timeout = self.time_to_wait();
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let now = Instant::now();
        let due = |stream: &Stream| stream.wake_at().is_some_and(|at| at <= now);
        let mut streams: Vec<bool> = self.streams.iter().map(due).collect();
        for (owner, descriptor) in owners.into_iter().zip(&polled[first..]) {
            streams[owner] |= !descriptor.revents().is_empty();
        }
        Ok(Ready {
            signals: !polled[0].revents().is_empty(),
            listener: !polled[1].revents().is_empty(),
            control: self.control.is_some() && !polled[2].revents().is_empty(),
            sudo: sudo.is_some() && !polled[first - 1].revents().is_empty(),
            streams,
        })
    }

    fn time_to_wait(&self) -> Option<Timespec> {
        let sudo = self.sudo.as_ref().and_then(Sudo::wake_at);
        let others = self.locks.wake_at().into_iter().chain(self.absence.wake_at()).chain(sudo);
        let next = self.streams.iter().filter_map(Stream::wake_at).chain(others).min()?;
        let wait = next.saturating_duration_since(Instant::now()).max(Duration::from_micros(100));
        Timespec::try_from(wait).ok()
    }

    fn take_signals(&mut self) {
        while let Some((signal, is_from_outside)) = sys::read_signal(&self.signals) {
            if signal == libc::SIGTERM && is_from_outside {
                self.ended = true;
            }
        }
        while let Ok(Some(reaped)) = sys::reap(Block::No) {
            self.on_reaped(reaped);
        }
        if let Tracker::Ancestry = self.prepared.tracking {
            wake_reapers();
        }
    }

    fn on_reaped(&mut self, reaped: Reaped) {
        for stream in &mut self.streams {
            if let Stream::Running(exec) = stream
                && exec.pid() == reaped.pid
            {
                exec.on_reaped(reaped);
                return;
            }
        }
        if self.sudo.as_mut().is_some_and(|sudo| sudo.on_reaped(reaped.pid)) {
            return;
        }
        // An orphan. It may have been the last of a tree.
        let tracker = &self.prepared.tracking;
        self.lingering.retain(|tree| tree.remove(tracker).is_err());
    }

    fn accept(&mut self) {
        for _ in self.open_streams()..STREAMS_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.prepared.listener, flags) {
                Ok(stream) if self.takes(&stream) => {
                    self.streams.push(Stream::Asking { stream, inbox: Inbox::default() });
                }
                // Hung up on, or asked again.
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether the peer may make requests.
    fn takes(&self, stream: &OwnedFd) -> bool {
        self.prepared.callers == Callers::Anybody
            || rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root())
    }

    /// Lets every stream do what it can: those with news, and those whose command was just reaped.
    fn look_at(&mut self, ready: &[bool]) {
        let mut look = Vec::new();
        for (index, stream) in std::mem::take(&mut self.streams).into_iter().enumerate() {
            let has_news = ready.get(index).copied().unwrap_or(true);
            // Requests may refer to other execs, so streams without news are put back before any is served.
            let place = if has_news || stream.is_ending() { &mut look } else { &mut self.streams };
            place.push(stream);
        }
        look.sort_by_key(|stream| matches!(stream, Stream::Asking { .. }));
        for stream in look {
            if let Some(stream) = self.advance(stream) {
                self.streams.push(stream);
            }
        }
    }

    fn advance(&mut self, stream: Stream) -> Option<Stream> {
        match stream {
            Stream::Asking { stream, mut inbox } => {
                inbox.fill(&stream).ok()?;
                match inbox.next() {
                    Ok(None) => Some(Stream::Asking { stream, inbox }),
                    Ok(Some((Kind::Request, payload))) => match frame::decode(Kind::Request, &payload) {
                        Ok(request) => self.answer(request, stream, inbox),
                        Err(error) => part(stream, &refused(RefusalCode::BadRequest, error.to_string())),
                    },
                    Ok(Some(_)) | Err(_) => None,
                }
            }
            Stream::Running(exec) => match exec.advance(&self.prepared) {
                Next::Running(exec) => Some(Stream::Running(exec)),
                Next::Over { partings, tree } => {
                    for (stream, outbox) in partings {
                        let parting = self.advance(Stream::Parting { stream, outbox });
                        self.streams.extend(parting);
                    }
                    if tree.remove(&self.prepared.tracking).is_err() {
                        self.lingering.push(tree);
                    }
                    None
                }
            },
            Stream::Port(port) => match port.advance() {
                port::Next::Going(port) => Some(Stream::Port(port)),
                port::Next::Refused(stream, refusal) => part(stream, &Event::Refused(refusal)),
                port::Next::Over => None,
            },
            Stream::Lease { stream, mut inbox } => {
                inbox.fill(&stream).ok()?;
                // The host sends nothing more on this stream.
                matches!(inbox.next(), Ok(None)).then_some(Stream::Lease { stream, inbox })
            }
            Stream::Parting { stream, mut outbox } => {
                outbox.flush(&stream, |_| None).ok()?;
                (!outbox.is_empty()).then_some(Stream::Parting { stream, outbox })
            }
        }
    }

    fn answer(&mut self, request: Request, stream: OwnedFd, inbox: Inbox) -> Option<Stream> {
        let event = match request {
            Request::Ping => Event::Done,
            Request::Exec(request) => match self.refuse_exec(&request.id) {
                None => {
                    return match Exec::start(request, stream, inbox, &self.prepared) {
                        Ok(exec) => Some(Stream::Running(Box::new(exec))),
                        Err((stream, refusal)) => part(stream, &Event::Refused(refusal)),
                    };
                }
                Some(refusal) => refusal,
            },
            Request::Attach { exec } => return self.join(&exec, stream, |exec, stream| exec.attach(stream, inbox)),
            Request::Pace { exec, taken } => {
                return self.join(&exec, stream, |exec, stream| exec.pace(stream, inbox, taken));
            }
            Request::List => Event::Running(self.execs().map(|exec| exec.listed()).collect()),
            Request::Signal { exec, signal, scope } => self.on_exec(&exec, |exec| match exec.signal(signal, scope) {
                Ok(()) => Event::Done,
                Err(error) => refused(RefusalCode::BadRequest, format!("signal {signal}: {error}")),
            }),
            Request::Kill { exec } => self.on_exec(&exec, |exec| {
                exec.kill(false);
                Event::Done
            }),
            Request::Port { port } => match self.refuse_port() {
                None => return self.advance(Stream::Port(Box::new(Port::new(port, stream, inbox)))),
                Some(refusal) => refusal,
            },
            Request::Lease { idle_ms, left_ms } => {
                let (idle, left) = (Duration::from_millis(idle_ms), left_ms.map(Duration::from_millis));
                self.absence.allow(idle, left, Instant::now());
                return Some(Stream::Lease { stream, inbox });
            }
        };
        part(stream, &event)
    }

    /// Why no exec of this name can be started now.
    fn refuse_exec(&mut self, id: &ExecId) -> Option<Event> {
        let (running, held) = (self.execs().count(), self.held_streams());
        if self.execs().any(|exec| exec.id() == id.as_str()) {
            return Some(refused(RefusalCode::BadExecId, format!("an exec {id} is running")));
        }
        if running >= limits::EXECS_PER_BOX_MAX {
            let message = format!("{running} execs are running, the most a box takes");
            return Some(refused(RefusalCode::OutOfProcesses, message));
        }
        if self.descriptors() + DESCRIPTORS_PER_EXEC >= DESCRIPTORS_MAX {
            let message = format!("{} connections to ports leave no room for another exec; close some", self.ports());
            return Some(refused(RefusalCode::OutOfProcesses, message));
        }
        (held >= limits::STREAMS_PER_BOX_MAX).then(|| too_many_streams(held))
    }

    /// Why no connection to a port can be made now.
    fn refuse_port(&mut self) -> Option<Event> {
        let open = self.ports();
        let has_room = self.descriptors() + DESCRIPTORS_PER_PORT <= DESCRIPTORS_MAX;
        let message = || format!("{open} connections to ports of the box are open, the most it takes now; close some");
        let is_full = open >= limits::PORT_STREAMS_PER_BOX_MAX || !has_room;
        is_full.then(|| refused(RefusalCode::OutOfProcesses, message()))
    }

    /// Gives a stream to a running exec.
    fn join(
        &mut self,
        id: &ExecId,
        stream: OwnedFd,
        join: impl FnOnce(&mut Exec, OwnedFd) -> Result<(), (OwnedFd, Refusal)>,
    ) -> Option<Stream> {
        let held = self.held_streams();
        if held >= limits::STREAMS_PER_BOX_MAX {
            return part(stream, &too_many_streams(held));
        }
        let is_meant = |stream: &Stream| matches!(stream, Stream::Running(exec) if exec.id() == id.as_str());
        let found = self.streams.iter().position(is_meant).map(|index| self.streams.swap_remove(index));
        let Some(Stream::Running(mut exec)) = found else { return part(stream, &not_running(id)) };
        if let Err((stream, refusal)) = join(&mut exec, stream) {
            self.streams.extend(part(stream, &Event::Refused(refusal)));
        }
        // Start at once: what is already known must be sent, and frames that came with the request cause no further
        // `poll` event.
        self.advance(Stream::Running(exec))
    }

    fn on_exec(&mut self, id: &ExecId, act: impl FnOnce(&mut Exec) -> Event) -> Event {
        match self.execs().find(|exec| exec.id() == id.as_str()) {
            Some(exec) => act(exec),
            None => not_running(id),
        }
    }

    fn execs(&mut self) -> impl Iterator<Item = &mut Box<Exec>> {
        self.streams.iter_mut().filter_map(|stream| match stream {
            Stream::Running(exec) => Some(exec),
            _ => None,
        })
    }

    /// Streams that execs hold.
    fn held_streams(&self) -> usize {
        let held = |stream: &Stream| if let Stream::Running(exec) = stream { exec.attached() } else { 0 };
        self.streams.iter().map(held).sum()
    }

    /// Connections to ports.
    fn ports(&self) -> usize {
        self.streams.iter().filter(|stream| matches!(stream, Stream::Port(_))).count()
    }

    /// Descriptors that execs, their streams and connections to ports may come to hold.
    fn descriptors(&mut self) -> usize {
        self.execs().count() * DESCRIPTORS_PER_EXEC + self.held_streams() + self.ports() * DESCRIPTORS_PER_PORT
    }

    /// Open streams, except those of port connections, which were counted when they were requested.
    fn open_streams(&self) -> usize {
        let is_other = |stream: &&Stream| !matches!(stream, Stream::Running(_) | Stream::Port(_));
        self.streams.iter().filter(is_other).count() + self.held_streams()
    }
}

/// The work that a turn found.
#[expect(clippy::struct_excessive_bools, reason = "one for each descriptor that is polled")]
struct Ready {
    signals: bool,
    listener: bool,
    control: bool,
    sudo: bool,
    streams: Vec<bool>,
}

impl Stream {
    fn interests<'a>(&'a self, add: &mut impl FnMut(BorrowedFd<'a>, PollFlags)) {
        match self {
            Self::Asking { stream, .. } | Self::Lease { stream, .. } => add(stream.as_fd(), PollFlags::IN),
            Self::Running(exec) => exec.interests(add),
            Self::Port(port) => port.interests(add),
            Self::Parting { stream, .. } => add(stream.as_fd(), PollFlags::OUT),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Running(exec) => exec.wake_at(),
            Self::Port(port) => port.wake_at(),
            _ => None,
        }
    }

    /// Whether there is work for which no descriptor becomes ready.
    fn is_ending(&self) -> bool {
        matches!(self, Self::Running(exec) if exec.has_ended())
    }
}

/// Sends last words on a stream that nothing was sent on before; it is then closed by being dropped.
fn part(stream: OwnedFd, event: &Event) -> Option<Stream> {
    let mut outbox = Outbox::default();
    outbox.push(event);
    outbox.flush(&stream, |_| None).ok()?;
    (!outbox.is_empty()).then_some(Stream::Parting { stream, outbox })
}

fn not_running(id: &ExecId) -> Event {
    refused(RefusalCode::BadExecId, format!("no exec {id} is running"))
}

fn too_many_streams(held: usize) -> Event {
    refused(RefusalCode::OutOfProcesses, format!("{held} streams are open to execs, the most a box takes; close some"))
}

fn refused(code: RefusalCode, message: String) -> Event {
    Event::Refused(Refusal { code, message })
}
