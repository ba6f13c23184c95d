//! Whether input that we sent has arrived. A lost connection may have taken some of it along.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a ping behind the end of input carries. The server takes one message after the other, so the answer to it says that
/// everything before has arrived.
pub(super) const INPUT_END: &[u8] = b"input-end";

/// What is known of our input. The writer and the reader share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Delivery {
    is_open: Arc<AtomicBool>,
}

impl Delivery {
    /// Something was sent.
    pub(super) fn send(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Everything has arrived.
    pub(super) fn arrive(&self) {
        self.is_open.store(false, Ordering::Relaxed);
    }

    /// Whether a lost connection may have cost input. What is typed on a terminal is seen to be missing, and typed again.
    pub(super) fn may_be_lost(&self) -> bool {
        self.is_open.load(Ordering::Relaxed) && !rustix::termios::isatty(rustix::stdio::stdin())
    }
}
