//! A caller with a token, while connections without one come faster than the server has places for them.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::boxes::Boxes;
use crate::options::Options;
use crate::report::Report;
use crate::samples::Samples;
use crate::server::Server;

const GROUP: &str = "strangers";
/// A request on a connection of its own, before strangers come.
const ALONE: &str = "GET status with a token, alone";
/// The same among strangers.
pub(crate) const CROWDED: &str = "GET status with a token, among strangers";
/// Requests with a token that failed.
pub(crate) const FAILED: &str = "requests with a token that failed";
/// Strangers that came.
pub(crate) const STRANGERS: &str = "connections without a token";

const STRANGERS_MAX: u32 = 5000;
/// Who opens them.
const CROWD: u32 = 4;
/// Connections that each of them holds: together more than the server has places for.
const HELD_MAX: usize = 200;
/// Requests without strangers.
const CALLS: usize = 200;
/// Between two requests of the caller, so that the strangers are what the server is busy with.
const PAUSE: Duration = Duration::from_millis(2);

/// The group.
pub(crate) fn measure(_: &Boxes, _: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    let server = Server::start(&directory.join("state-of-strangers"))?;
    let token = server.token()?;
    let mut alone = Samples::default();
    for _ in 0..CALLS {
        alone.push(call(&server, &token)?);
    }
    let (mut crowded, mut failed) = (Samples::default(), 0_u32);
    let (came, left) = (AtomicU32::new(0), AtomicU32::new(CROWD));
    std::thread::scope(|scope| {
        for _ in 0..CROWD {
            scope.spawn(|| {
                crowd(&server, &came);
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while left.load(Ordering::Relaxed) > 0 {
            match call(&server, &token) {
                Ok(took) => crowded.push(took),
                Err(error) => {
                    eprintln!("bench: {error:#}");
                    failed += 1;
                }
            }
            std::thread::sleep(PAUSE);
        }
    });
    let came = came.into_inner();
    ensure!(came >= STRANGERS_MAX, "only {came} strangers came");
    report.time(GROUP, ALONE, &alone);
    report.time(GROUP, CROWDED, &crowded);
    report.figure(GROUP, STRANGERS, f64::from(came), "connections");
    report.figure(GROUP, FAILED, f64::from(failed), "requests");
    Ok(())
}

/// One request on a new connection, which is a stranger's until its token was seen.
fn call(server: &Server, token: &str) -> Result<Duration> {
    let start = Instant::now();
    server.connect()?.exchange("GET", "/v1/status", &format!("authorization: Bearer {token}\r\n"), "")?;
    Ok(start.elapsed())
}

/// Opens connections, asks on each what needs no token, and holds the newest of them.
fn crowd(server: &Server, came: &AtomicU32) {
    let mut held = VecDeque::new();
    while came.fetch_add(1, Ordering::Relaxed) < STRANGERS_MAX {
        let Ok(mut stranger) = TcpStream::connect(server.address()) else { continue };
        let asked = stranger.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
        // Another stranger may have taken its place already.
        let _ = asked.and_then(|()| stranger.read(&mut [0; 512]));
        held.push_back(stranger);
        if held.len() > HELD_MAX {
            held.pop_front();
        }
    }
}
