//! A connection from the host to a TCP port of the box.
//!
//! The agent lives in the network namespace of its box, so it connects without any right and without a process of its own, and
//! what it carries it does not look at. Two sockets, two directions, one chunk in each: a service that does not read, or a host
//! that does not, holds up its own connection and nothing else.

mod flow;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use box_wire::{Event, Kind, Refusal, RefusalCode, frame, limits};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::exec::{Inbox, is_hung_up};
use flow::Flow;

/// Addresses to connect to, in this order. A service that listens on all addresses listens here too.
const PLACES: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Kernel buffer of a connection in each direction. The agent is outside of the box's memory limit, and so is this.
const BUFFER_BYTES: usize = 256 << 10;

/// Things that are done for one connection before others are looked at.
const TURNS_MAX: usize = 32;

/// How long a service may take to read what a host that is gone has sent.
const LINGER: Duration = Duration::from_secs(10);

/// A connection to a port, on its way or open.
#[derive(Debug)]
pub(crate) struct Port {
    stream: OwnedFd,
    number: NonZeroU16,
    phase: Phase,
    /// From the host to the service.
    outgoing: Flow,
    /// From the service to the host.
    incoming: Flow,
    /// When the service is given up, once the host is gone.
    linger_until: Option<Instant>,
}

#[derive(Debug)]
enum Phase {
    /// Nothing was tried yet at this place and those behind it.
    Trying { place: usize },
    /// This place has not answered yet.
    Connecting { place: usize, socket: OwnedFd, deadline: Instant },
    /// Bytes are carried.
    Open { socket: OwnedFd },
}

/// What to do with a connection after a turn.
#[derive(Debug)]
pub(crate) enum Next {
    /// It goes on.
    Going(Box<Port>),
    /// There is none; this is to be said.
    Refused(OwnedFd, Refusal),
    /// It is over.
    Over,
}

impl Port {
    /// A connection for the caller at the other end of this stream.
    pub(crate) fn new(number: NonZeroU16, stream: OwnedFd, inbox: Inbox) -> Self {
        let outgoing = Flow::starting_with(inbox.into_rest());
        let phase = Phase::Trying { place: 0 };
        Self { stream, number, phase, outgoing, incoming: Flow::default(), linger_until: None }
    }

    pub(crate) fn interests<'a>(&'a self, add: &mut impl FnMut(BorrowedFd<'a>, PollFlags)) {
        let wanted = |reads: bool, writes: bool| {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, reads);
            events.set(PollFlags::OUT, writes);
            events
        };
        match &self.phase {
            Phase::Trying { .. } => {}
            Phase::Connecting { socket, .. } => {
                add(socket.as_fd(), PollFlags::OUT);
                // No events: `poll` reports a host that hung up anyway.
                add(self.stream.as_fd(), PollFlags::empty());
            }
            Phase::Open { socket } => {
                let of_host = wanted(self.outgoing.takes(), self.incoming.is_waiting());
                // `poll` would report a host that is gone again and again.
                if !of_host.is_empty() || self.linger_until.is_none() {
                    add(self.stream.as_fd(), of_host);
                }
                let of_service = wanted(self.incoming.takes(), self.outgoing.is_waiting());
                // So would a service that is gone while the host has yet to take what it said.
                if !of_service.is_empty() || (self.incoming.has_ended() && !self.incoming.is_waiting()) {
                    add(socket.as_fd(), of_service);
                }
            }
        }
    }

    pub(crate) fn wake_at(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Trying { .. } => None,
            Phase::Connecting { deadline, .. } => Some(*deadline),
            Phase::Open { .. } => self.linger_until,
        }
    }

    /// Does everything that can be done now.
    pub(crate) fn advance(mut self: Box<Self>) -> Next {
        if let Err(refusal) = self.connect() {
            return Next::Refused(self.stream, refusal);
        }
        let is_over = match &self.phase {
            Phase::Open { .. } => self.carry(),
            Phase::Trying { .. } | Phase::Connecting { .. } => is_hung_up(&self.stream),
        };
        if is_over { Next::Over } else { Next::Going(self) }
    }

    /// Comes as far with connecting as is possible without waiting.
    fn connect(&mut self) -> Result<(), Refusal> {
        loop {
            let (place, socket, deadline) = match std::mem::replace(&mut self.phase, Phase::Trying { place: 0 }) {
                open @ Phase::Open { .. } => {
                    self.phase = open;
                    return Ok(());
                }
                Phase::Connecting { place, socket, deadline } => (place, socket, deadline),
                Phase::Trying { place } => {
                    let time = Duration::from_millis(limits::PORT_CONNECT_MS_MAX);
                    (place, Self::socket(place)?, Instant::now() + time)
                }
            };
            // A second connect returns the result of the first.
            match rustix::net::connect(&socket, &SocketAddr::new(PLACES[place], self.number.get())) {
                Ok(()) | Err(Errno::ISCONN) => return self.open(socket),
                Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) if Instant::now() < deadline => {
                    self.phase = Phase::Connecting { place, socket, deadline };
                    return Ok(());
                }
                Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => {
                    return Err(closed("the service accepts no connection"));
                }
                Err(_) if place + 1 < PLACES.len() => self.phase = Phase::Trying { place: place + 1 },
                Err(_) => return Err(closed("nothing listens there")),
            }
        }
    }

    /// A socket for a place, bounded before anything can come to it.
    fn socket(place: usize) -> Result<OwnedFd, Refusal> {
        let family = if PLACES[place].is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let made = rustix::net::socket_with(family, SocketType::STREAM, flags, None).and_then(|socket| {
            sockopt::set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
            sockopt::set_socket_send_buffer_size(&socket, BUFFER_BYTES)?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            Ok(socket)
        });
        made.map_err(|error| {
            if error == Errno::AFNOSUPPORT {
                return closed("nothing listens there");
            }
            let message = format!("the box has no room for another connection: {error}");
            Refusal { code: RefusalCode::OutOfProcesses, message }
        })
    }

    fn open(&mut self, socket: OwnedFd) -> Result<(), Refusal> {
        let internal =
            |error: box_wire::FrameError| Refusal { code: RefusalCode::Internal, message: error.to_string() };
        self.incoming = Flow::starting_with(frame::encode(Kind::Event, &Event::Connected).map_err(internal)?);
        self.phase = Phase::Open { socket };
        Ok(())
    }

    /// Carries what can be carried. True when nothing more will come of it.
    fn carry(&mut self) -> bool {
        let Phase::Open { socket } = &self.phase else { return false };
        for _ in 0..TURNS_MAX {
            let sent = self.outgoing.step(&self.stream, socket);
            let received = self.incoming.step(socket, &self.stream);
            if !sent && !received {
                break;
            }
        }
        if self.incoming.has_ended() && !self.outgoing.is_over() && is_hung_up(socket) {
            self.outgoing.give_up();
        }
        let host_is_gone = self.incoming.is_broken() || (!self.outgoing.takes() && is_hung_up(&self.stream));
        if host_is_gone && self.linger_until.is_none() {
            self.linger_until = Some(Instant::now() + LINGER);
            self.incoming.give_up();
        }
        let is_late = self.linger_until.is_some_and(|until| Instant::now() >= until);
        is_late || (self.outgoing.is_over() && self.incoming.is_over())
    }
}

/// Why the connection was refused; the host names the port.
fn closed(why: &str) -> Refusal {
    Refusal { code: RefusalCode::PortClosed, message: why.to_owned() }
}
