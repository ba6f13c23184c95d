//! Following a journalled exec: events come out, input goes in, and hanging up ends neither.

use std::fmt;

use box_wire::frame::{self, HEADER_BYTES};
use box_wire::{Event, ExecId, ExecRequest, FrameError, Header, Invalid, Kind, Output, Request, WindowSize};
use tokio::io::{AsyncReadExt, ReadHalf, WriteHalf};

use super::{STDIN_CHUNK_BYTES, gone, send};
use crate::backend::AgentIo;
use crate::{AgentStream, Error, Result};

/// How much is read at once. Events are small.
const READ_BYTES: usize = 1 << 10;

/// A stream that follows a journalled exec. Dropping it leaves the exec alone.
pub struct Attached {
    reader: AttachedReader,
    writer: AttachedWriter,
}

/// What is heard of a journalled exec.
pub struct AttachedReader {
    stream: ReadHalf<Box<dyn AgentIo>>,
    bytes: Vec<u8>,
}

/// What can be sent to a journalled exec.
pub struct AttachedWriter {
    stream: WriteHalf<Box<dyn AgentIo>>,
    is_torn: bool,
}

/// Starts a journalled exec. Nothing is waited for: that it runs, or why it does not, is the first thing that
/// [`AttachedReader::next`] tells.
pub async fn start(stream: AgentStream, request: &ExecRequest) -> Result<Attached> {
    request.validate()?;
    if request.output == Output::Stream {
        return Err(Invalid::new("output", request.output, "a journal; a streamed exec ends with its stream").into());
    }
    Attached::open(stream, &Request::Exec(request.clone())).await
}

/// Follows a journalled exec that is running. Nothing is waited for: that it is not running any more is the first thing that
/// [`AttachedReader::next`] tells.
pub async fn attach(stream: AgentStream, exec: ExecId) -> Result<Attached> {
    Attached::open(stream, &Request::Attach { exec }).await
}

impl Attached {
    async fn open(stream: AgentStream, request: &Request) -> Result<Self> {
        let (reader, mut writer) = tokio::io::split(stream.into_inner());
        send(&mut writer, &frame::encode(Kind::Request, request)?).await?;
        let reader = AttachedReader { stream: reader, bytes: Vec::new() };
        Ok(Self { reader, writer: AttachedWriter { stream: writer, is_torn: false } })
    }

    /// Both directions, each to be used by itself. The stream is closed when both are dropped.
    pub fn split(self) -> (AttachedReader, AttachedWriter) {
        (self.reader, self.writer)
    }
}

impl AttachedReader {
    /// The next event: [`Event::Started`], [`Event::Progress`] or [`Event::Exited`], which is the last. A refusal is an error.
    ///
    /// Cancel-safe: whoever drops the future loses nothing.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.next_if_ready() {
                return event;
            }
            self.bytes.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.bytes).await.map_err(gone)? == 0 {
                return Err(gone(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// The next event, if it has come already with those before it.
    pub(crate) fn next_if_ready(&mut self) -> Option<Result<Event>> {
        Some(match self.take().transpose()? {
            Ok(event @ (Event::Started { .. } | Event::Progress { .. } | Event::Exited(_))) => Ok(event),
            Ok(Event::Refused(refusal)) => Err(refusal.into()),
            Ok(_) => Err(FrameError::Unexpected(Kind::Event).into()),
            Err(error) => Err(error),
        })
    }

    /// Cuts the next whole event out of what has come.
    fn take(&mut self) -> Result<Option<Event>> {
        let Some(header) = self.bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let header = Header::from_bytes(*header)?;
        if header.kind != Kind::Event {
            return Err(FrameError::Unexpected(header.kind).into());
        }
        let end = HEADER_BYTES + header.payload_bytes;
        if self.bytes.len() < end {
            return Ok(None);
        }
        let event = frame::decode(Kind::Event, &self.bytes[HEADER_BYTES..end])?;
        self.bytes.drain(..end);
        Ok(Some(event))
    }
}

impl AttachedWriter {
    /// Sends standard input. Waits while the command does not read it.
    ///
    /// Not cancel-safe: whoever drops the future before it is done has torn a frame, and has to attach again.
    pub async fn stdin(&mut self, bytes: &[u8]) -> Result<()> {
        for chunk in bytes.chunks(STDIN_CHUNK_BYTES) {
            let header = Header::new(Kind::Stdin, chunk.len())?.to_bytes();
            self.send(&[header.as_slice(), chunk].concat()).await?;
        }
        Ok(())
    }

    /// Ends standard input, for everybody who is attached.
    pub async fn stdin_end(&mut self) -> Result<()> {
        self.send(&Header::new(Kind::StdinEnd, 0)?.to_bytes()).await
    }

    /// Changes the size of the terminal.
    pub async fn resize(&mut self, size: WindowSize) -> Result<()> {
        size.validate()?;
        self.send(&frame::encode(Kind::Resize, &size)?).await
    }

    async fn send(&mut self, frame: &[u8]) -> Result<()> {
        if self.is_torn {
            return Err(Error::Gone { reason: "a frame was sent only in part; attach again".to_owned() });
        }
        self.is_torn = true;
        send(&mut self.stream, frame).await?;
        self.is_torn = false;
        Ok(())
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Attached")
    }
}

impl fmt::Debug for AttachedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachedReader").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for AttachedWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AttachedWriter").field("is_torn", &self.is_torn).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_wire::{Refusal, RefusalCode};
    use tokio::io::{AsyncWriteExt, DuplexStream};

    async fn attached() -> (AttachedReader, AttachedWriter, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(64);
        let (reader, writer) = attach(AgentStream::new(ours), "x".parse().unwrap()).await.unwrap().split();
        (reader, writer, theirs)
    }

    #[tokio::test]
    async fn a_dropped_wait_for_an_event_loses_nothing() {
        let (mut reader, _writer, mut theirs) = attached().await;
        let event = Event::Progress { stdout_bytes: u64::MAX, stderr_bytes: 7 };
        for byte in frame::encode(Kind::Event, &event).unwrap() {
            // Looks once at what has come so far, and gives up.
            tokio::select! {
                biased;
                early = reader.next() => panic!("half a frame is no event: {early:?}"),
                () = std::future::ready(()) => {}
            }
            theirs.write_all(&[byte]).await.unwrap();
        }
        assert_eq!(reader.next().await.unwrap(), event);
    }

    #[tokio::test]
    async fn only_what_a_journalled_exec_can_say_is_heard() {
        let refusal = Refusal { code: RefusalCode::BadExecId, message: "no".to_owned() };
        for (event, code) in [(Event::Refused(refusal), "refused"), (Event::Done, "protocol")] {
            let (mut reader, _writer, mut theirs) = attached().await;
            theirs.write_all(&frame::encode(Kind::Event, &event).unwrap()).await.unwrap();
            assert_eq!(reader.next().await.unwrap_err().code(), code);
        }
        for bytes in [[Kind::Event as u8, 255, 255, 255, 255], [Kind::Stdout as u8, 1, 0, 0, 0]] {
            let (mut reader, _writer, mut theirs) = attached().await;
            theirs.write_all(&bytes).await.unwrap();
            assert_eq!(reader.next().await.unwrap_err().code(), "protocol");
        }
        let (mut reader, _writer, theirs) = attached().await;
        drop(theirs);
        assert_eq!(reader.next().await.unwrap_err().code(), "box_gone");
    }

    #[tokio::test]
    async fn a_torn_frame_is_not_followed_by_another() {
        let (_reader, mut writer, _theirs) = attached().await;
        tokio::select! {
            biased;
            sent = writer.stdin(&[0; 1000]) => panic!("nobody reads, and yet it was sent: {sent:?}"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(writer.stdin_end().await.unwrap_err().code(), "box_gone");
    }
}
