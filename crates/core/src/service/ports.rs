//! Connections to services in a session's box.

use std::fmt;
use std::io;
use std::num::NonZeroU16;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_recursion::async_recursion as boxed;
use box_wire::RefusalCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::session::{PortPlace, Use};
use super::sessions::entry;
use super::{Inner, Reservation, Resource, Service};
use crate::audit::{AuditEntry, Outcome};
use crate::backend::AgentIo;
use crate::caller::Caller;
use crate::session::SessionId;
use crate::{Error, Result, limits, link};

/// A connection to a service in a box. Its session is in use while it lives. What comes out of it is hostile.
pub struct PortStream {
    io: Box<dyn AgentIo>,
    _place: PortPlace,
    _held: Reservation,
    _used: Use,
}

impl fmt::Debug for PortStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PortStream")
    }
}

impl AsyncRead for PortStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for PortStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl Service {
    /// Connects to a TCP port on the loopback of a session's box. A session that is paused is woken; one that does not exist is not
    /// made, because nothing would listen in it.
    #[boxed]
    pub async fn dial_port(&self, caller: &Caller, id: &SessionId, port: NonZeroU16) -> Result<PortStream> {
        let dialled = self.inner.dial_port(caller, id, port).await;
        self.inner.noting(caller, "port", id, dialled).await
    }
}

impl Inner {
    async fn dial_port(self: &Arc<Self>, caller: &Caller, id: &SessionId, port: NonZeroU16) -> Result<PortStream> {
        let session = self.find(caller, id)?;
        session.made().await;
        let place = session.port_place().ok_or_else(too_many)?;
        let held = self.take(&caller.tenant, Resource::Streams, 1)?;
        let (used, _standing, stream) = self.dial_for(&session, None).await?;
        let entry = AuditEntry { target: Some(port.to_string()), ..entry(caller, "port", Outcome::Started, id) };
        self.record(entry).await?;
        let io = link::port(stream, port).await.map_err(|error| explain(error, id, port))?;
        Ok(PortStream { io, _place: place, _held: held, _used: used })
    }
}

/// What the box said, in the words of callers.
fn explain(error: Error, session: &SessionId, port: NonZeroU16) -> Error {
    match error {
        Error::Refused(refusal) if refusal.code == RefusalCode::PortClosed => {
            Error::PortClosed { session: session.clone(), port: port.get(), reason: refusal.message }
        }
        Error::Refused(refusal) if refusal.code == RefusalCode::OutOfProcesses => too_many(),
        other => other,
    }
}

fn too_many() -> Error {
    Error::Capacity {
        what: "connections to ports of one session".to_owned(),
        limit: limits::PORT_STREAMS_PER_SESSION_MAX,
        fix: "close some of them, or end commands that run there".to_owned(),
    }
}
