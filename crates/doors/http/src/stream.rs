//! A connection that does not wait forever for a peer that takes nothing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::limits;
use crate::seats::Seat;

/// A connection that breaks when the peer takes nothing of what is written for a while. It also holds the place of the
/// connection among all, for as long as it lives, whatever protocol it came to speak.
pub(crate) struct Patient<S> {
    inner: S,
    give_up: Option<Pin<Box<Sleep>>>,
    lost: Pin<Box<WaitForCancellationFutureOwned>>,
    _seat: Seat,
}

impl<S> Patient<S> {
    /// Wraps a connection.
    pub(crate) fn new(inner: S, seat: Seat) -> Self {
        Self { inner, give_up: None, lost: Box::pin(seat.lost()), _seat: seat }
    }

    /// Breaks the connection when another one takes its place.
    fn check_seat(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.lost.as_mut().poll(context) {
            Poll::Ready(()) => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "too many connections without a token"))
            }
            Poll::Pending => Ok(()),
        }
    }

    /// Passes on what became of a write, and gives up when nothing came of it for too long.
    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.give_up = None;
            return written;
        }
        let give_up = self.give_up.get_or_insert_with(|| Box::pin(sleep(limits::WRITE_PAUSE_MAX)));
        ready!(give_up.as_mut().poll(context));
        give_up.as_mut().reset(Instant::now() + limits::WRITE_PAUSE_MAX);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check_seat(context)?;
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check_seat(context)?;
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, pieces);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watch(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::seats::Seats;

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (near, far) = tokio::io::duplex(16);
        let mut near = Patient::new(near, Seats::new().take(ADDRESS));
        let started = Instant::now();
        let error = near.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), limits::WRITE_PAUSE_MAX);
        drop((near, far));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_waited_for() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Patient::new(near, Seats::new().take(ADDRESS));
        let reading = tokio::spawn(async move {
            let mut piece = [0; 16];
            for _ in 0..4 {
                sleep(limits::WRITE_PAUSE_MAX / 2).await;
                far.read_exact(&mut piece).await.unwrap();
            }
        });
        near.write_all(&[0; 64]).await.unwrap();
        reading.await.unwrap();
    }
}
