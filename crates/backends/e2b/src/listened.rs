//! Tells the writing half of a connection when the reading half was dropped.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A reader whose drop is observable. The end of the writer does not suffice: it only means that nothing more will be
/// written.
#[derive(Debug)]
pub(crate) struct Listened<R> {
    reader: R,
    _hung_up: DropGuard,
}

impl<R> Listened<R> {
    /// Wraps a reader; the token is cancelled when it is dropped.
    pub(crate) fn new(reader: R) -> (Self, CancellationToken) {
        let hung_up = CancellationToken::new();
        (Self { reader, _hung_up: hung_up.clone().drop_guard() }, hung_up)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Listened<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, buffer)
    }
}
