//! A connection that may not say much before its answer begins. Without this, a box could send interim answers without end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection with a bound on what is read from it until its answer has begun.
#[derive(Debug)]
pub(super) struct Bounded<S> {
    inner: S,
    left: Arc<AtomicUsize>,
}

/// By which the bound is lifted.
#[derive(Debug)]
pub(super) struct Head(Arc<AtomicUsize>);

impl Head {
    /// The answer has begun: from here on its reader decides how much is read.
    pub(super) fn has_come(self) {
        self.0.store(usize::MAX, Ordering::Relaxed);
    }
}

impl<S> Bounded<S> {
    /// Wraps a connection.
    pub(super) fn new(inner: S, bytes_max: usize) -> (Self, Head) {
        let left = Arc::new(AtomicUsize::new(bytes_max));
        (Self { inner, left: Arc::clone(&left) }, Head(left))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let count = buffer.filled().len() - before;
        let left = self.left.load(Ordering::Relaxed);
        if left == usize::MAX {
            return Poll::Ready(Ok(()));
        }
        // A concurrent lift of the bound must not be undone.
        let _ = self.left.compare_exchange(left, left.saturating_sub(count), Ordering::Relaxed, Ordering::Relaxed);
        if count > left {
            return Poll::Ready(Err(io::Error::other("it sent too much before its response")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
