//! The host's end of a stream to an agent. Beyond this module everything is untrusted.

mod attached;
mod file_op;
mod lease;
mod pacer;
mod port;

use std::time::Duration;

use box_wire::frame::{self, HEADER_BYTES};
use box_wire::{
    Event, ExecId, ExecOutcome, ExecRequest, FrameError, Header, Invalid, Kind, Output, Request, RunningExec,
    SignalScope, WindowSize, limits,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use crate::backend::AgentIo;
use crate::{AgentStream, Error, Result};

pub use attached::{Attached, AttachedReader, AttachedWriter, attach, start};
pub use file_op::{FileOutput, file_op};
pub use lease::{Lease, LeaseTerms, lease};
pub use pacer::{Pacer, Step, pace};
pub use port::port;

/// How long after its deadline an exec may stay unreported before the agent itself is given up.
const REPORT_GRACE: Duration = Duration::from_secs(5);

/// How much standard input travels in one frame.
const STDIN_CHUNK_BYTES: usize = 64 << 10;

/// Where the streams of an exec come from and go to.
#[derive(Debug)]
pub struct ExecIo<I, O, E> {
    /// Standard input; read only when the request streams it.
    pub stdin: I,
    /// Takes standard output, or everything a terminal shows. A slow taker slows the command, not the host.
    pub stdout: O,
    /// Takes standard error.
    pub stderr: E,
    /// New sizes of the terminal.
    pub resizes: Option<mpsc::Receiver<WindowSize>>,
}

/// Runs one command and moves its streams until it ends. For one whose output is journalled, see [`start`].
///
/// Dropping the future closes the stream, and the agent then kills the command.
pub async fn exec<I, O, E>(stream: AgentStream, request: &ExecRequest, io: ExecIo<I, O, E>) -> Result<ExecOutcome>
where
    I: AsyncRead + Unpin,
    O: AsyncWrite + Unpin,
    E: AsyncWrite + Unpin,
{
    request.validate()?;
    if request.output != Output::Stream {
        return Err(Invalid::new("output", request.output, "a stream; start a journalled exec by itself").into());
    }
    let (mut reader, mut writer) = tokio::io::split(stream.into_inner());
    send(&mut writer, &frame::encode(Kind::Request, &Request::Exec(request.clone()))?).await?;
    let streams_stdin = request.stdin == box_wire::Stdin::Stream;
    let ExecIo { stdin, mut stdout, mut stderr, resizes } = io;
    let feed = feed(&mut writer, streams_stdin.then_some(stdin), resizes);
    let drain = drain(&mut reader, &mut stdout, &mut stderr);
    let both = async {
        tokio::pin!(feed, drain);
        tokio::select! {
            outcome = &mut drain => outcome,
            // Feeding ends only when the box closed its end: what it still has to say is in the other direction.
            _ = &mut feed => drain.await,
        }
    };
    match request.timeout_ms {
        None => both.await,
        Some(ms) => match tokio::time::timeout(Duration::from_millis(ms) + REPORT_GRACE, both).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Gone { reason: "its agent did not report the end of an exec in time".to_owned() }),
        },
    }
}

/// Sends a signal to the main process of an exec, or to its whole tree.
pub async fn signal(stream: AgentStream, exec: ExecId, signal: i32, scope: SignalScope) -> Result<()> {
    request(stream, &Request::Signal { exec, signal, scope }).await
}

/// The execs that are running in the box, streamed ones included.
pub async fn list(stream: AgentStream) -> Result<Vec<RunningExec>> {
    match ask(stream, &Request::List).await? {
        Event::Running(execs) if execs.len() <= limits::EXECS_PER_BOX_MAX => Ok(execs),
        _ => Err(FrameError::Unexpected(Kind::Event).into()),
    }
}

/// Kills the whole process tree of an exec.
pub async fn kill(stream: AgentStream, exec: ExecId) -> Result<()> {
    request(stream, &Request::Kill { exec }).await
}

/// Asks whether the agent is there.
pub async fn ping(stream: AgentStream) -> Result<()> {
    request(stream, &Request::Ping).await
}

async fn request(stream: AgentStream, request: &Request) -> Result<()> {
    match ask(stream, request).await? {
        Event::Done => Ok(()),
        _ => Err(FrameError::Unexpected(Kind::Event).into()),
    }
}

/// Sends a request that is answered by one event.
async fn ask(stream: AgentStream, request: &Request) -> Result<Event> {
    let (mut reader, mut writer) = tokio::io::split(stream.into_inner());
    send(&mut writer, &frame::encode(Kind::Request, request)?).await?;
    match drain_event(&mut reader).await? {
        Event::Refused(refusal) => Err(refusal.into()),
        event => Ok(event),
    }
}

/// Sends standard input and window sizes until the box closes its end. Never returns because input ended.
async fn feed<I: AsyncRead + Unpin>(
    writer: &mut WriteHalf<Box<dyn AgentIo>>,
    mut stdin: Option<I>,
    mut resizes: Option<mpsc::Receiver<WindowSize>>,
) -> Result<()> {
    let mut chunk = vec![0; if stdin.is_some() { HEADER_BYTES + STDIN_CHUNK_BYTES } else { 0 }];
    loop {
        tokio::select! {
            read = read_stdin(&mut stdin, &mut chunk), if stdin.is_some() => match read {
                0 => {
                    stdin = None;
                    send(writer, &Header::new(Kind::StdinEnd, 0)?.to_bytes()).await?;
                }
                count => {
                    let header = Header::new(Kind::Stdin, count)?.to_bytes();
                    chunk[..HEADER_BYTES].copy_from_slice(&header);
                    send(writer, &chunk[..HEADER_BYTES + count]).await?;
                }
            },
            size = next_size(&mut resizes), if resizes.is_some() => match size {
                Some(size) => send(writer, &frame::encode(Kind::Resize, &size)?).await?,
                None => resizes = None,
            },
            else => return std::future::pending().await,
        }
    }
}

/// Reads input behind room for a header. An unreadable input counts as ended: the command must not wait for it forever.
async fn read_stdin<I: AsyncRead + Unpin>(stdin: &mut Option<I>, chunk: &mut [u8]) -> usize {
    match stdin {
        Some(stdin) => stdin.read(&mut chunk[HEADER_BYTES..]).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

async fn next_size(resizes: &mut Option<mpsc::Receiver<WindowSize>>) -> Option<WindowSize> {
    match resizes {
        Some(resizes) => resizes.recv().await,
        None => std::future::pending().await,
    }
}

/// Takes output until the last event.
async fn drain<O, E>(reader: &mut ReadHalf<Box<dyn AgentIo>>, stdout: &mut O, stderr: &mut E) -> Result<ExecOutcome>
where
    O: AsyncWrite + Unpin,
    E: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; limits::DATA_BYTES_MAX];
    loop {
        let header = read_header(reader).await?;
        match header.kind {
            Kind::Stdout | Kind::Stderr => {
                let payload = &mut buffer[..header.payload_bytes];
                reader.read_exact(payload).await.map_err(gone)?;
                let taken = match header.kind {
                    Kind::Stdout => stdout.write_all(payload).await,
                    _ => stderr.write_all(payload).await,
                };
                taken.map_err(|error| Error::io("passing on output", error))?;
            }
            Kind::Event => match read_event(reader, header).await? {
                Event::Started { .. } => {}
                Event::Exited(outcome) => {
                    flush(stdout).await?;
                    flush(stderr).await?;
                    return Ok(outcome);
                }
                Event::Refused(refusal) => return Err(refusal.into()),
                Event::Done | Event::Progress { .. } | Event::Running(_) | Event::Connected => {
                    return Err(FrameError::Unexpected(Kind::Event).into());
                }
            },
            other => return Err(FrameError::Unexpected(other).into()),
        }
    }
}

async fn flush(sink: &mut (impl AsyncWrite + Unpin)) -> Result<()> {
    sink.flush().await.map_err(|error| Error::io("passing on output", error))
}

async fn drain_event(reader: &mut ReadHalf<Box<dyn AgentIo>>) -> Result<Event> {
    let header = read_header(reader).await?;
    read_event(reader, header).await
}

async fn read_header(reader: &mut ReadHalf<Box<dyn AgentIo>>) -> Result<Header> {
    let mut bytes = [0; HEADER_BYTES];
    reader.read_exact(&mut bytes).await.map_err(gone)?;
    Ok(Header::from_bytes(bytes)?)
}

async fn read_event(reader: &mut ReadHalf<Box<dyn AgentIo>>, header: Header) -> Result<Event> {
    if header.kind != Kind::Event {
        return Err(FrameError::Unexpected(header.kind).into());
    }
    let mut payload = vec![0; header.payload_bytes];
    reader.read_exact(&mut payload).await.map_err(gone)?;
    Ok(frame::decode(Kind::Event, &payload)?)
}

async fn send(writer: &mut WriteHalf<Box<dyn AgentIo>>, bytes: &[u8]) -> Result<()> {
    writer.write_all(bytes).await.map_err(gone)
}

fn gone(error: std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof
        | std::io::ErrorKind::BrokenPipe
        | std::io::ErrorKind::ConnectionReset
        | std::io::ErrorKind::NotConnected => Error::Gone { reason: "its agent hung up".to_owned() },
        _ => Error::io("talking to the agent", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_wire::Program;

    fn io() -> ExecIo<tokio::io::Empty, Vec<u8>, Vec<u8>> {
        ExecIo { stdin: tokio::io::empty(), stdout: Vec::new(), stderr: Vec::new(), resizes: None }
    }

    async fn exec_against(answer: Vec<u8>) -> Result<ExecOutcome> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        theirs.write_all(&answer).await.unwrap();
        drop(theirs.shutdown().await);
        let request = ExecRequest::new("x".parse().unwrap(), Program::Shell("true".into()));
        exec(AgentStream::new(ours), &request, io()).await
    }

    #[tokio::test]
    async fn a_box_that_lies_about_lengths_is_dropped_before_memory_is_spent() {
        let error = exec_against(vec![Kind::Stdout as u8, 0xff, 0xff, 0xff, 0xff]).await.unwrap_err();
        assert!(matches!(error, Error::Protocol(FrameError::TooLong { .. })), "{error}");
    }

    #[tokio::test]
    async fn a_box_that_plays_the_host_is_dropped() {
        let error = exec_against(frame::encode(Kind::Request, &Request::Ping).unwrap()).await.unwrap_err();
        assert!(matches!(error, Error::Protocol(FrameError::Unexpected(Kind::Request))), "{error}");
    }

    #[tokio::test]
    async fn a_box_that_lists_more_than_it_can_run_is_dropped() {
        let one = RunningExec { id: "x".parse().unwrap(), pid: 1, stdin_open: false };
        for (count, good) in [(limits::EXECS_PER_BOX_MAX, true), (limits::EXECS_PER_BOX_MAX + 1, false)] {
            let (ours, mut theirs) = tokio::io::duplex(1 << 20);
            let answer = frame::encode(Kind::Event, &Event::Running(vec![one.clone(); count])).unwrap();
            theirs.write_all(&answer).await.unwrap();
            assert_eq!(list(AgentStream::new(ours)).await.is_ok(), good, "{count}");
        }
    }

    #[tokio::test]
    async fn a_journalled_exec_is_not_run_as_a_streamed_one() {
        let (ours, _theirs) = tokio::io::duplex(1 << 10);
        let mut request = ExecRequest::new("x".parse().unwrap(), Program::Shell("true".into()));
        request.output = Output::JOURNAL;
        assert_eq!(exec(AgentStream::new(ours), &request, io()).await.unwrap_err().code(), "invalid");
    }

    #[tokio::test]
    async fn a_box_that_hangs_up_is_gone() {
        assert_eq!(exec_against(vec![]).await.unwrap_err().code(), "box_gone");
        assert_eq!(exec_against(vec![Kind::Stdout as u8, 9, 0, 0, 0, 1]).await.unwrap_err().code(), "box_gone");
    }
}
