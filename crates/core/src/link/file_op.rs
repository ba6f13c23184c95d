//! FileOp that the agent does itself: one reply, and bytes in one direction.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use box_wire::file_op::{PREFIX_BYTES, Reply, decode};
use box_wire::frame;
use box_wire::{
    Answer, Event, ExecOutcome, ExecRequest, Exit, FileError, FileErrorCode, FrameError, Kind, Request, Stdin, limits,
};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf, ReadHalf};
use tokio::sync::oneshot;

use super::{REPORT_GRACE, feed, gone, read_event, read_header, send};
use crate::backend::AgentIo;
use crate::{AgentStream, Error, Result};

/// Sends a file operation, and its input where it takes some; returns with the reply. What it gives besides is read from the output.
///
/// Dropping the future or the output closes the stream, and the agent then ends the file operation.
pub async fn file_op<I>(stream: AgentStream, request: &ExecRequest, input: Option<I>) -> Result<(Answer, FileOutput)>
where
    I: AsyncRead + Unpin,
{
    request.validate()?;
    let (reader, mut writer) = tokio::io::split(stream.into_inner());
    send(&mut writer, &frame::encode(Kind::Request, &Request::Exec(request.clone()))?).await?;
    let deadline = request.timeout_ms.map(|ms| Duration::from_millis(ms) + REPORT_GRACE);
    let mut output = FileOutput { reader, buffer: Vec::new(), taken: 0, reason: Vec::new(), ended: false };
    let reply = {
        let (failed, failure) = oneshot::channel();
        let input = input.filter(|_| request.stdin == Stdin::Stream);
        let feed = feed(&mut writer, input.map(|input| Checked { input, failed: Some(failed) }), None);
        let replied = output.message::<Reply>(limits::REPLY_BYTES_MAX);
        let both = async {
            tokio::pin!(feed, replied);
            tokio::select! {
                reply = &mut replied => reply,
                Ok(error) = failure => Err(Error::io("reading the input of a file operation", error)),
                // Feeding ends only when the box closed its end: what it still has to say is in the other direction.
                _ = &mut feed => replied.await,
            }
        };
        match deadline {
            None => both.await?,
            Some(limit) => tokio::time::timeout(limit, both).await.map_err(|_| silent())??,
        }
    };
    let reply = reply.ok_or_else(|| FileError::new(FileErrorCode::Failed, "it ended without a word"))?;
    Ok((reply?, output))
}

/// Input that never ends by failing: half of a file must not be taken for all of it.
struct Checked<I> {
    input: I,
    failed: Option<oneshot::Sender<io::Error>>,
}

impl<I: AsyncRead + Unpin> AsyncRead for Checked<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let error = match Pin::new(&mut self.input).poll_read(context, buffer) {
            Poll::Ready(Err(error)) => error,
            read => return read,
        };
        // Whoever waits for this is not waiting any more when it was told.
        let _ = self.failed.take().map(|failed| failed.send(error));
        Poll::Pending
    }
}

fn silent() -> Error {
    Error::Gone { reason: "its agent did not report the end of a file operation in time".to_owned() }
}

/// What a file operation gives after its reply.
pub struct FileOutput {
    reader: ReadHalf<Box<dyn AgentIo>>,
    /// Bytes that came and were not taken, from `taken` on.
    buffer: Vec<u8>,
    taken: usize,
    /// The beginning of what it said on standard error.
    reason: Vec<u8>,
    ended: bool,
}

impl fmt::Debug for FileOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileOutput")
    }
}

impl FileOutput {
    /// The next bytes; nothing when all were given. A file operation that broke off is an error.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.taken == self.buffer.len() && !self.fill().await? {
            return Ok(None);
        }
        let rest = self.buffer.split_off(self.taken);
        self.buffer.clear();
        self.taken = 0;
        Ok(Some(rest))
    }

    /// The next message with its length before it; nothing when there is none.
    pub async fn message<T: DeserializeOwned>(&mut self, bytes_max: usize) -> Result<Option<T>> {
        if !self.gather(PREFIX_BYTES).await? {
            return Ok(None);
        }
        let prefix = &self.buffer[self.taken..self.taken + PREFIX_BYTES];
        let length = prefix.iter().rev().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
        if length > bytes_max {
            return Err(malformed(format!("a file operation announces {length} bytes, more than {bytes_max}")));
        }
        if !self.gather(PREFIX_BYTES + length).await? {
            return Err(malformed("a file operation ended in the middle of a message".to_owned()));
        }
        let start = self.taken + PREFIX_BYTES;
        self.taken = start + length;
        decode(&self.buffer[start..self.taken]).map(Some).map_err(|error| malformed(error.to_string()))
    }

    /// Waits until so many bytes are there; not when it ends before.
    async fn gather(&mut self, count: usize) -> Result<bool> {
        while self.buffer.len() - self.taken < count {
            if !self.fill().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for more bytes; none when it has ended well.
    async fn fill(&mut self) -> Result<bool> {
        while !self.ended {
            let header = read_header(&mut self.reader).await?;
            match header.kind {
                Kind::Stdout => {
                    self.buffer.drain(..std::mem::take(&mut self.taken));
                    // Read straight into room that nobody had to clear before.
                    self.buffer.reserve(header.payload_bytes);
                    let mut payload = (&mut self.reader).take(header.payload_bytes as u64);
                    let count = payload.read_to_end(&mut self.buffer).await.map_err(gone)?;
                    if count < header.payload_bytes {
                        return Err(gone(io::ErrorKind::UnexpectedEof.into()));
                    }
                    if count > 0 {
                        return Ok(true);
                    }
                }
                Kind::Stderr => {
                    let mut said = vec![0; header.payload_bytes];
                    self.reader.read_exact(&mut said).await.map_err(gone)?;
                    said.truncate(limits::REASON_BYTES_MAX.saturating_sub(self.reason.len()));
                    self.reason.append(&mut said);
                }
                Kind::Event => match read_event(&mut self.reader, header).await? {
                    Event::Started { .. } => {}
                    Event::Exited(outcome) => {
                        self.ended = true;
                        check(&outcome, &self.reason)?;
                    }
                    Event::Refused(refusal) => return Err(refusal.into()),
                    _ => return Err(FrameError::Unexpected(Kind::Event).into()),
                },
                other => return Err(FrameError::Unexpected(other).into()),
            }
        }
        Ok(false)
    }
}

/// Files of a box that lie in memory count too, so removing some can be enough.
const OUT_OF_MEMORY: &str = "out of memory: the box reached its memory_mb while working on the file: end a process or remove \
    files in the box, or make it with a larger memory_mb";

/// How a file operation ended must be well.
fn check(outcome: &ExecOutcome, reason: &[u8]) -> Result<()> {
    let (code, message) = match outcome.exit {
        _ if outcome.timed_out => (FileErrorCode::Timeout, "it took too long and was ended".to_owned()),
        _ if outcome.oom_killed => (FileErrorCode::NoSpace, OUT_OF_MEMORY.to_owned()),
        Exit::Code(0) => return Ok(()),
        Exit::Code(_) => (FileErrorCode::Failed, format!("it broke off: {}", String::from_utf8_lossy(reason).trim())),
        Exit::Signal(signal) => (FileErrorCode::Failed, format!("signal {signal} ended it")),
    };
    Err(FileError::new(code, message).into())
}

fn malformed(reason: String) -> Error {
    FrameError::Malformed { kind: Kind::Stdout, reason }.into()
}

#[cfg(test)]
mod tests {
    use box_wire::file_op::WriteHow;
    use box_wire::{FileOp, FileRequest, GuestPath, Header, Program};

    use super::*;

    #[tokio::test]
    async fn input_that_fails_is_not_input_that_ended() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let op = FileOp::Write { path: "/x".parse().unwrap(), how: WriteHow::Create, mode: None, bytes_max: 100 };
        let program = Program::FileOp(Box::new(FileRequest { root: GuestPath::root(), op }));
        let mut request = ExecRequest::new("x".parse().unwrap(), program);
        request.stdin = Stdin::Stream;
        let input = half_of_something();
        let error = file_op(AgentStream::new(ours), &request, Some(input)).await.unwrap_err();
        assert_eq!(error.code(), "io", "{error}");
        let mut sent = Vec::new();
        theirs.read_to_end(&mut sent).await.unwrap();
        let end = Header::new(Kind::StdinEnd, 0).unwrap().to_bytes();
        assert!(!sent.windows(end.len()).any(|window| window == end), "the box was told that all is there");
    }

    #[test]
    fn a_kill_for_lack_of_memory_names_the_limit_and_what_helps() {
        let (exit, usage) = (Exit::Signal(9), box_wire::Usage::default());
        let outcome = ExecOutcome { exit, timed_out: false, oom_killed: true, tree_gone: true, usage };
        let error = check(&outcome, b"").unwrap_err().to_string();
        assert!(error.contains("out of memory: the box reached its memory_mb"), "{error}");
        assert!(error.contains("remove files"), "{error}");
    }

    /// Some bytes, then a failure.
    fn half_of_something() -> impl AsyncRead + Unpin {
        struct Broken;
        impl AsyncRead for Broken {
            fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
        }
        (&b"half"[..]).chain(Broken)
    }
}
