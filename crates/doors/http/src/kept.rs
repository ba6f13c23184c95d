//! Connections that are kept between two requests, and for how long.
//!
//! Clients with a pool take any connection of it for the next request, and some give up when we have just closed that one. So a
//! connection over which a good token was shown may be idle for longer than those pools keep it; any other only for seconds. A
//! connection over which only refused requests came is closed with the answer, and the answer says so, so that no pool takes it again.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::Response;
use http::HeaderValue;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::limits;
use crate::seats::Seat;

/// The phase of a connection. Its stream and its requests share it.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    at: Arc<Mutex<At>>,
    /// Whether any answer so far was good.
    is_good: Arc<AtomicBool>,
    seat: Seat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// A head is on its way, or the first one is waited for.
    Head(Instant),
    /// A request is being answered, or the connection speaks another protocol by now.
    Request,
    /// No request is in progress.
    Idle(Instant),
}

impl Stage {
    /// That of a connection that begins now.
    pub(crate) fn new(seat: Seat) -> Self {
        let at = At::Head(Instant::now() + limits::HEADER_TIME_MAX);
        Self { at: Arc::new(Mutex::new(at)), is_good: Arc::default(), seat }
    }

    /// A request has come.
    pub(crate) fn begin(&self) {
        *self.lock() = At::Request;
        self.seat.set_waiting(false);
    }

    /// The answer is there; what follows its last byte is for the next request.
    pub(crate) fn end_with(&self, mut response: Response) -> Response {
        if response.status() == http::StatusCode::SWITCHING_PROTOCOLS {
            return response;
        }
        let is_good = response.status().as_u16() < 400;
        if !self.is_good.fetch_or(is_good, Ordering::Relaxed) && !is_good {
            response.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        let ending = Ending { stage: self.clone() };
        response.map(|body| Body::new(Answer { body, _ending: ending }))
    }

    fn bytes_came(&self) {
        let mut at = self.lock();
        if matches!(*at, At::Idle(_)) {
            *at = At::Head(Instant::now() + limits::HEADER_TIME_MAX);
        }
    }

    /// The time by which the peer has to send data.
    fn deadline(&self) -> Option<Instant> {
        match *self.lock() {
            At::Head(until) | At::Idle(until) => Some(until),
            At::Request => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped with the body of an answer.
#[derive(Debug)]
struct Ending {
    stage: Stage,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Stage { seat, .. } = &self.stage;
        let time = if seat.is_trusted() { limits::IDLE_TIME_MAX } else { limits::STRANGER_IDLE_TIME_MAX };
        *self.stage.lock() = At::Idle(Instant::now() + time);
        seat.set_waiting(true);
    }
}

/// The body of an answer.
#[derive(Debug)]
struct Answer {
    body: Body,
    _ending: Ending,
}

impl hyper::body::Body for Answer {
    type Data = bytes::Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<bytes::Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that breaks when its peer is silent for too long while data is expected.
#[derive(Debug)]
pub(crate) struct Kept<S> {
    inner: S,
    stage: Stage,
    give_up: Option<Pin<Box<Sleep>>>,
}

impl<S> Kept<S> {
    /// Wraps the stream of a connection.
    pub(crate) fn new(inner: S, stage: Stage) -> Self {
        Self { inner, stage, give_up: None }
    }

    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(deadline) = self.stage.deadline() else {
            self.give_up = None;
            return Poll::Pending;
        };
        let give_up = self.give_up.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if give_up.deadline() != deadline {
            give_up.as_mut().reset(deadline);
        }
        ready!(give_up.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer asks for nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Kept<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if read.is_pending() {
            return self.wait(context);
        }
        if buffer.filled().len() > before {
            self.stage.bytes_came();
        }
        // A byte now and then does not make a head last longer.
        match self.stage.deadline() {
            Some(deadline) if Instant::now() > deadline => self.wait(context),
            _ => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Kept<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
