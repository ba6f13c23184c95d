//! The process of a server in its session, and its standard streams as a stream of bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use box_core::call::{Cursor, FollowEvent, ProcessId, ProcessInfo, ProcessStatus, StdinChunk, StreamName, Target};
use box_core::service::Follow;
use box_core::tasks::Start as _;
use box_core::{Caller, Error, Result, Service, SessionId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::seen::Seen;
use crate::retry::ProcessState;

/// Bytes in flight between a process and its client, in each direction.
const UNDER_WAY_BYTES_MAX: usize = 256 << 10;
/// Bytes that are written to a process at once.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// Bytes at the end of the standard error of an adopted process that are read again.
const STDERR_AGAIN_BYTES: u64 = 8 << 10;

/// Said of a server or its installation that the kernel killed for lack of memory.
pub(super) const OUT_OF_MEMORY: &str = ": its box ran out of memory; raise box.memory_mb in its definition";

/// The process of a server in a session.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// The service that runs it.
    pub(super) service: Service,
    /// In whose name.
    pub(super) caller: Caller,
    /// In which session.
    pub(super) session: SessionId,
    /// What it is called there.
    pub(super) process: ProcessId,
    /// Whether a previous client wrote only a part of a line.
    torn: Arc<AtomicBool>,
}

/// What was seen of a process.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// How it stands.
    pub(super) state: ProcessState,
    /// The same in words.
    pub(super) words: String,
}

impl Line {
    /// The process of that name in a session.
    pub(super) fn new(service: Service, caller: Caller, session: SessionId, process: ProcessId) -> Self {
        Self { service, caller, session, process, torn: Arc::default() }
    }

    /// The process, if there is one.
    pub(super) async fn find(&self) -> Result<ProcessInfo> {
        self.service.get_process(&self.caller, &self.session, &self.process).await
    }

    /// Looks at the process.
    pub(super) async fn look(&self) -> Look {
        match self.find().await {
            Ok(info) if info.status == ProcessStatus::Running => {
                Look { state: ProcessState::Running, words: "its process runs".to_owned() }
            }
            Ok(info) => Look { state: ProcessState::Exited, words: ending(&info) },
            Err(error @ (Error::ProcessNotFound { .. } | Error::SessionNotFound { .. } | Error::Gone { .. })) => {
                Look { state: ProcessState::Exited, words: error.to_string() }
            }
            Err(error) => Look { state: ProcessState::Unknown, words: error.to_string() },
        }
    }

    /// Streams of the process from a cursor on. They end with the process, and when they are not needed any more, which the process does not notice.
    pub(super) async fn open(
        &self,
        from: Cursor,
        seen: &Seen,
        tasks: &TaskTracker,
        unneeded: CancellationToken,
    ) -> Result<DuplexStream> {
        let target = Target::Process(self.process.clone());
        let follow = self.service.follow(&self.caller, &self.session, &target, from).await?;
        let (near, far) = tokio::io::duplex(UNDER_WAY_BYTES_MAX);
        let pump = pump(self.clone(), follow, far, seen.clone());
        // A process that does not read would keep the pump for ever.
        tasks.start(async move { unneeded.run_until_cancelled(pump).await });
        Ok(near)
    }

    /// Ends the process, and nothing else of its session. One that is not there has ended.
    pub(super) async fn stop(&self) -> Result<()> {
        match self.service.stop_process(&self.caller, &self.session, &self.process).await {
            Ok(_) | Err(Error::ProcessNotFound { .. } | Error::SessionNotFound { .. } | Error::Gone { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The end of its standard error, at most `bytes_max`.
    pub(super) async fn stderr(&self, bytes_max: usize) -> Result<Vec<u8>> {
        let total = self.find().await?.cursor.stderr;
        let target = Target::Process(self.process.clone());
        let from = total.saturating_sub(bytes_max as u64);
        let read = self.service.read_output(&self.caller, &self.session, &target, StreamName::Stderr, from, bytes_max);
        Ok(read.await?.bytes)
    }
}

/// From where a process is followed that was there before: what it answered others is not for us, and what it complained of lately is.
pub(super) fn from_now(info: &ProcessInfo) -> Cursor {
    Cursor { stderr: info.cursor.stderr.saturating_sub(STDERR_AGAIN_BYTES), ..info.cursor }
}

fn ending(info: &ProcessInfo) -> String {
    let code = info.exit_code.map(|code| format!(" with {code}")).unwrap_or_default();
    let reason = if info.oom_killed { OUT_OF_MEMORY } else { "" };
    format!("its process ended{code}{reason}")
}

/// Carries bytes in both directions until one of the two is gone.
async fn pump(line: Line, follow: Follow, far: DuplexStream, seen: Seen) {
    let (mut reader, mut writer) = tokio::io::split(far);
    tokio::select! {
        () = speak(follow, &mut writer, &seen) => {}
        () = listen(&mut reader, &line) => {}
    }
}

/// What the process says. Ends where something is missing: a message that lacks a part, or an answer that never came, would be waited for in vain.
async fn speak(mut follow: Follow, writer: &mut (impl AsyncWriteExt + Unpin), seen: &Seen) {
    loop {
        let event = match follow.next().await {
            Ok(Some(event)) => event,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "the output of an MCP server cannot be followed");
                return;
            }
        };
        match event {
            FollowEvent::Output { stream: StreamName::Stdout, bytes, .. } => {
                if writer.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            FollowEvent::Output { stream: StreamName::Stderr, bytes, .. } => seen.stderr(&bytes),
            FollowEvent::Gap { stream: StreamName::Stderr, .. } => {}
            FollowEvent::Gap { stream: StreamName::Stdout, .. }
            | FollowEvent::Restarted { .. }
            | FollowEvent::Ended { .. } => return,
        }
    }
}

/// Writes what the client sends to the process.
async fn listen(reader: &mut (impl AsyncReadExt + Unpin), line: &Line) {
    let mut buffer = vec![0; WRITE_BYTES_MAX];
    // Our first message must not continue the unfinished line of a previous client.
    let mut told = if line.torn.load(Ordering::Relaxed) { line.write(b"\n").await } else { Ok(()) };
    while told.is_ok() {
        let Ok(count @ 1..) = reader.read(&mut buffer).await else { return };
        told = line.write(&buffer[..count]).await;
    }
    if let Err(error) = told {
        tracing::debug!(%error, "an MCP server does not take its input");
    }
}

impl Line {
    async fn write(&self, bytes: &[u8]) -> Result<()> {
        self.torn.store(true, Ordering::Relaxed);
        let (target, chunk) = (Target::Process(self.process.clone()), StdinChunk::Bytes(bytes.to_vec()));
        self.service.write_stdin(&self.caller, &self.session, &target, chunk).await?;
        self.torn.store(!bytes.ends_with(b"\n"), Ordering::Relaxed);
        Ok(())
    }
}
