//! Signals to us that are meant for the command.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals by which a caller ends a program.
#[derive(Debug)]
pub(crate) struct Signals {
    hangup: Option<Signal>,
    interrupt: Option<Signal>,
    quit: Option<Signal>,
    terminate: Option<Signal>,
}

impl Signals {
    /// Takes them over from now on, except for those that the caller had us ignore, as `nohup` does.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored_mask();
        let take = |kind: SignalKind| {
            if ignored >> (kind.as_raw_value() - 1) & 1 == 1 { Ok(None) } else { signal(kind).map(Some) }
        };
        Ok(Self {
            hangup: take(SignalKind::hangup())?,
            interrupt: take(SignalKind::interrupt())?,
            quit: take(SignalKind::quit())?,
            terminate: take(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one and gives its number.
    pub(crate) async fn next(&mut self) -> i32 {
        let kind = tokio::select! {
            () = came(&mut self.hangup) => SignalKind::hangup(),
            () = came(&mut self.interrupt) => SignalKind::interrupt(),
            () = came(&mut self.quit) => SignalKind::quit(),
            () = came(&mut self.terminate) => SignalKind::terminate(),
        };
        kind.as_raw_value()
    }
}

async fn came(signal: &mut Option<Signal>) {
    let came = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if came.is_none() {
        std::future::pending::<()>().await;
    }
}

/// One bit for each signal that is ignored, the lowest for signal 1. What cannot be read counts as none.
fn ignored_mask() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}
