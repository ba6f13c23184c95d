//! Against real sockets of this machine.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use box_wire::frame::HEADER_BYTES;
use rustix::event::{PollFd, Timespec};

use super::*;

/// A connection, and the host's end of its stream.
fn connection(number: u16, said_at_once: &[u8]) -> (Box<Port>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut inbox = Inbox::default();
    let (mut feeder, fed) = UnixStream::pair().unwrap();
    feeder.write_all(said_at_once).unwrap();
    if !said_at_once.is_empty() {
        inbox.fill(&fed.into()).unwrap();
    }
    (Box::new(Port::new(NonZeroU16::new(number).unwrap(), ours.into(), inbox)), theirs)
}

/// Lets a connection run as the agent's loop does, until it has nothing to do for a while.
fn settle(port: Box<Port>) -> Next {
    let mut next = port.advance();
    for _ in 0..100_000 {
        let Next::Going(port) = next else { return next };
        let mut polled = Vec::new();
        port.interests(&mut |descriptor, events| polled.push(PollFd::from_borrowed_fd(descriptor, events)));
        let quiet = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if rustix::event::poll(&mut polled, Some(&quiet)).unwrap() == 0 {
            return Next::Going(port);
        }
        drop(polled);
        next = port.advance();
    }
    panic!("it never rests");
}

fn going(next: Next) -> Box<Port> {
    match next {
        Next::Going(port) => port,
        other => panic!("not going on: {other:?}"),
    }
}

/// Waits for the answer, as the host does.
fn hear_connected(host: &mut UnixStream) {
    let answer = frame::encode(Kind::Event, &Event::Connected).unwrap();
    let mut heard = vec![0; answer.len()];
    host.read_exact(&mut heard).unwrap();
    assert_eq!(frame::decode::<Event>(Kind::Event, &heard[HEADER_BYTES..]).unwrap(), Event::Connected);
}

fn open(said_at_once: &[u8]) -> (Box<Port>, UnixStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, mut host) = connection(listener.local_addr().unwrap().port(), said_at_once);
    let port = going(settle(port));
    let (service, _) = listener.accept().unwrap();
    service.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    hear_connected(&mut host);
    (port, host, service)
}

#[test]
fn both_directions_are_carried_and_what_came_with_the_request_goes_first() {
    let (port, mut host, mut service) = open(b"early ");
    host.write_all(b"late").unwrap();
    service.write_all(b"answer").unwrap();
    going(settle(port));
    let mut heard = [0; 10];
    service.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"early late");
    let mut answer = [0; 6];
    host.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"answer");
}

#[test]
fn each_direction_ends_by_itself() {
    let (port, mut host, mut service) = open(b"");
    host.write_all(b"all").unwrap();
    host.shutdown(Shutdown::Write).unwrap();
    let port = going(settle(port));
    let mut heard = String::new();
    service.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "all");
    service.write_all(b"still here").unwrap();
    drop(service);
    assert!(matches!(settle(port), Next::Over));
    heard.clear();
    host.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "still here");
}

#[test]
fn a_service_that_has_said_everything_still_listens() {
    let (port, mut host, mut service) = open(b"");
    service.shutdown(Shutdown::Write).unwrap();
    let port = going(settle(port));
    assert_eq!(host.read(&mut [0; 8]).unwrap(), 0);
    host.write_all(b"more").unwrap();
    drop(host);
    assert!(matches!(settle(port), Next::Over));
    let mut heard = String::new();
    service.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "more");
}

#[test]
fn a_closed_port_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let number = listener.local_addr().unwrap().port();
    drop(listener);
    let (port, _host) = connection(number, b"");
    let Next::Refused(_, refusal) = settle(port) else { panic!("it was taken") };
    assert_eq!(refusal.code, RefusalCode::PortClosed);
    assert_eq!(refusal.message, "nothing listens there");
}

#[test]
fn a_service_on_the_other_loopback_is_found() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        return crate::skip("IPv6 loopback is missing; sysctl -w net.ipv6.conf.lo.disable_ipv6=0");
    };
    let (port, mut host) = connection(listener.local_addr().unwrap().port(), b"");
    going(settle(port));
    hear_connected(&mut host);
}

#[test]
fn a_service_that_takes_nobody_is_given_up_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let number = listener.local_addr().unwrap().port();
    let _queued: Vec<_> = (0..4).map(|_| connection(number, b"").0.advance()).collect();
    let (port, _host) = connection(number, b"");
    let mut port = going(port.advance());
    let Phase::Connecting { deadline, .. } = &mut port.phase else { panic!("the queue has room") };
    *deadline = Instant::now();
    assert!(port.wake_at().is_some_and(|at| at <= Instant::now()));
    let Next::Refused(_, refusal) = port.advance() else { panic!("it was taken") };
    assert_eq!(refusal.code, RefusalCode::PortClosed);
}

#[test]
fn whoever_does_not_read_holds_up_only_the_writer_and_little_memory() {
    let (port, _host, mut service) = open(b"");
    service.set_nonblocking(true).unwrap();
    let mut port = Some(port);
    let mut written = 0;
    for _ in 0..64 {
        while let Ok(count) = service.write(&[7; 8 << 10]) {
            written += count;
        }
        port = port.map(|port| going(settle(port)));
    }
    assert!(written < 8 << 20, "{written} bytes are held for a host that reads nothing");
}

#[test]
fn a_host_that_is_gone_ends_the_connection_even_when_the_service_does_not_read() {
    let (port, host, mut service) = open(b"");
    host.set_nonblocking(true).unwrap();
    let mut port = port;
    for _ in 0..64 {
        while let Ok(1..) = (&host).write(&[7; 8 << 10]) {}
        port = going(settle(port));
    }
    drop(host);
    let mut port = going(settle(port));
    assert!(port.linger_until.is_some(), "the service has a while to read");
    port.linger_until = Some(Instant::now());
    assert!(matches!(port.advance(), Next::Over));
    let mut rest = Vec::new();
    let _ = service.read_to_end(&mut rest);
    assert!(rest.iter().all(|byte| *byte == 7));
}

#[test]
fn a_service_that_resets_ends_the_connection() {
    let (port, host, service) = open(b"unread");
    let port = going(settle(port));
    // What it has not read makes the kernel reset.
    drop(service);
    let next = settle(port);
    drop(host);
    if let Next::Going(port) = next {
        assert!(matches!(settle(port), Next::Over));
    }
}
