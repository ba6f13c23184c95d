//! Signals as orders to the server.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Read the configuration again.
    Reload,
    /// Stop; which signal said so.
    Stop(i32),
}

/// The signals that are orders.
#[derive(Debug)]
pub(crate) struct Orders {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Orders {
    /// Takes them over from now on.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next order.
    pub(crate) async fn next(&mut self) -> Order {
        tokio::select! {
            _ = self.hangup.recv() => Order::Reload,
            _ = self.interrupt.recv() => Order::Stop(SignalKind::interrupt().as_raw_value()),
            _ = self.terminate.recv() => Order::Stop(SignalKind::terminate().as_raw_value()),
        }
    }
}
