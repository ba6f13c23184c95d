//! Our own terminal: its size, and its keys passed on untouched.

use std::convert::Infallible;

use box_wire::{WindowSize, limits};
use rustix::termios::{OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Keys go to the command as they are typed, until this is dropped.
#[derive(Debug)]
pub(crate) struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Switches our terminal over; `None` where standard input is none.
    pub(crate) fn enter() -> Option<Self> {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // A terminal that has gone away needs no restoring.
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}

/// One more key ends a line, until this is dropped, so that it is seen without waiting for the end of the line.
#[derive(Debug)]
pub(crate) struct LineKey {
    _restored: RawMode,
}

impl LineKey {
    /// Adds the key; `None` where standard input is no terminal.
    pub(crate) fn enter(key: u8) -> Option<Self> {
        let stdin = rustix::stdio::stdin();
        let before = tcgetattr(stdin).ok()?;
        let mut changed = before.clone();
        changed.special_codes[SpecialCodeIndex::VEOL] = key;
        tcsetattr(stdin, OptionalActions::Now, &changed).ok()?;
        Some(Self { _restored: RawMode { before } })
    }
}

/// The size of our terminal, whichever of our streams is one; else the size of old.
pub(crate) fn size() -> WindowSize {
    let streams = [rustix::stdio::stdout(), rustix::stdio::stdin(), rustix::stdio::stderr()];
    let found = streams.into_iter().find_map(|stream| tcgetwinsize(stream).ok());
    let usual = WindowSize { rows: 24, columns: 80 };
    found.map_or(usual, |size| WindowSize {
        rows: cells(size.ws_row, usual.rows),
        columns: cells(size.ws_col, usual.columns),
    })
}

/// A terminal that does not know its size says 0.
fn cells(told: u16, usual: u16) -> u16 {
    if told == 0 { usual } else { told.min(limits::WINDOW_CELLS_MAX) }
}

/// Sends our terminal's size each time that it changes.
pub(crate) async fn watch_size(sizes: mpsc::Sender<WindowSize>) -> Infallible {
    if let Ok(mut changes) = signal(SignalKind::window_change()) {
        while changes.recv().await.is_some() {
            if sizes.send(size()).await.is_err() {
                break;
            }
        }
    }
    std::future::pending().await
}
