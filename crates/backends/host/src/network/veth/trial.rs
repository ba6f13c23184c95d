//! Whether the machine's packet filters let the packets of boxes through.
//!
//! Rules of other programs can stop forwarded packets (Docker's do), which cannot be derived from reading them. So a
//! connection is tried through a veth pair, towards the name server of boxes, and the very last rule, which is
//! Strongbox's, refuses it. It never leaves the machine.
#![expect(unsafe_code, reason = "a network namespace is made, which a thread may always do")]

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use box_core::{Error, Result};
use rustix::thread::UnshareFlags;

use super::rules::Rules;
use super::{Links, add_veth, configure, in_a_thread, inside, name, put_away, switch_off};
use crate::network::{Obstacle, netlink, open_read};

/// How long the refusal may take. A first packet that is lost is sent again after a second.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a trial holds although rules have changed since: others may change theirs all the time.
const HOLDS: Duration = Duration::from_secs(10);

const NAMES_PORT: u16 = 53;

/// What came of the last trial.
#[derive(Debug, Clone)]
enum Outcome {
    NotTried,
    Passed {
        at: Instant,
        generation: Option<u32>,
    },
    /// Why not. There are other ways out, so it is not tried again.
    Stopped(String),
}

static LAST: Mutex<Outcome> = Mutex::new(Outcome::NotTried);

pub(super) fn check(server: IpAddr) -> Result<(), Obstacle> {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let holds = match &*last {
        Outcome::NotTried => false,
        Outcome::Passed { at, generation } => {
            at.elapsed() < HOLDS || generation.is_some() && *generation == netlink::rules_generation()
        }
        Outcome::Stopped(_) => true,
    };
    if !holds {
        let tried = try_out(server);
        let settled = if matches!(tried, Ok(Outcome::Passed { .. })) { Ok(()) } else { put_away() };
        let outcome = settled.and(tried);
        *last = outcome.unwrap_or_else(|error| Outcome::Stopped(format!("a veth pair was tried in vain: {error}")));
    }
    match &*last {
        Outcome::Stopped(reason) => {
            let fix = "accept what is forwarded from and to the interfaces `sbx*`, or `apt-get install passt`";
            Err(Obstacle::new(reason, fix))
        }
        _ => Ok(()),
    }
}

fn try_out(server: IpAddr) -> Result<Outcome> {
    let links = Links::open()?;
    let mut rules = Rules::lock()?;
    let net = new_network()?;
    let (number, index) = add_veth(&links, 0, &net)?;
    let tried = rules.enforce_with(&last_rule(&name(number))).and_then(|()| {
        configure(&links, number, &net)?;
        inside(&net, || TcpStream::connect_timeout(&SocketAddr::new(server, NAMES_PORT), PATIENCE))
    });
    // Whatever came of it, nothing of it stays.
    let switched_off = switch_off(&links, index);
    let generation = rules.enforce()?;
    switched_off?;
    Ok(match tried? {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            Outcome::Passed { at: Instant::now(), generation }
        }
        _ => Outcome::Stopped("a packet filter of this machine stops what boxes send".to_owned()),
    })
}

/// Comes after the rules of all other programs.
fn last_rule(interface: &str) -> String {
    format!(
        r#"chain trial {{
        type filter hook forward priority 2147483647; policy accept;
        iifname "{interface}" meta l4proto tcp reject with tcp reset
    }}"#
    )
}

/// It lasts as long as the descriptor.
fn new_network() -> Result<OwnedFd> {
    in_a_thread(|| {
        // SAFETY: only this thread moves, and it ends there.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(|error| Error::io("make a network namespace", error))?;
        open_read("/proc/thread-self/ns/net")
    })
}
