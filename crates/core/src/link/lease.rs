//! A stream that shows a box that its host is there.

use std::fmt;
use std::time::Duration;

use box_wire::frame;
use box_wire::{Event, FrameError, Kind, Request};
use tokio::io::{ReadHalf, WriteHalf};

use super::{drain_event, send};
use crate::backend::AgentIo;
use crate::{AgentStream, Error, Result};

/// Shows a box that its host is there, until it is dropped or the box hangs up.
pub struct Lease {
    reader: ReadHalf<Box<dyn AgentIo>>,
    _writer: WriteHalf<Box<dyn AgentIo>>,
}

/// How long a box may be without its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    /// How long it may be left alone: nothing runs in it.
    pub idle: Duration,
    /// How long it may go on from now, whatever runs in it.
    pub left: Option<Duration>,
}

/// Shows a box that its host is there, and sets how long it may be without one after the stream ends. The kernel ends the
/// stream when the host dies, so nothing needs renewal and a slow host loses no box.
pub async fn lease(stream: AgentStream, terms: LeaseTerms) -> Result<Lease> {
    let (reader, mut writer) = tokio::io::split(stream.into_inner());
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let request = Request::Lease { idle_ms: milliseconds(terms.idle), left_ms: terms.left.map(milliseconds) };
    send(&mut writer, &frame::encode(Kind::Request, &request)?).await?;
    Ok(Lease { reader, _writer: writer })
}

impl Lease {
    /// Waits for the end, and returns why it ended. Older agents refuse leases.
    pub async fn ended(&mut self) -> Error {
        match drain_event(&mut self.reader).await {
            Ok(Event::Refused(refusal)) => refusal.into(),
            Ok(_) => FrameError::Unexpected(Kind::Event).into(),
            Err(error) => error,
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use box_wire::frame::HEADER_BYTES;
    use box_wire::{Refusal, RefusalCode};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_lease_lasts_until_the_box_refuses_it_or_hangs_up() {
        let refusal = Refusal { code: RefusalCode::BadRequest, message: "unknown request".to_owned() };
        let refused = frame::encode(Kind::Event, &Event::Refused(refusal)).unwrap();
        for (answer, code) in [(refused, "refused"), (Vec::new(), "box_gone")] {
            let (ours, mut theirs) = tokio::io::duplex(1 << 10);
            let terms = LeaseTerms { idle: Duration::from_mins(5), left: Some(Duration::from_mins(1)) };
            let mut lease = lease(AgentStream::new(ours), terms).await.unwrap();
            let request = Request::Lease { idle_ms: 300_000, left_ms: Some(60_000) };
            let request = frame::encode(Kind::Request, &request).unwrap();
            let mut heard = vec![0; request.len()];
            theirs.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard[HEADER_BYTES..], request[HEADER_BYTES..]);
            tokio::select! {
                biased;
                error = lease.ended() => panic!("it ended by itself: {error}"),
                () = std::future::ready(()) => {}
            }
            theirs.write_all(&answer).await.unwrap();
            drop(theirs);
            assert_eq!(lease.ended().await.code(), code);
        }
    }
}
