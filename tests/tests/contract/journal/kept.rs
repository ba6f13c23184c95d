//! A box that keeps a journal, and how its execs are followed.

use anyhow::{Result, bail, ensure};
use box_core::{AttachedReader, AttachedWriter, BoxSpec, Journal, Profile, link};
use box_tests::ground::{request, shell};
use box_tests::{Difference, Ground, TestBox, eventually};
use box_wire::{
    EndRecord, Ending, Event, ExecId, ExecOutcome, ExecRequest, Exit, Output, Program, RefusalCode, StreamName,
};

/// A box that keeps a journal, and the journal.
pub(super) struct Kept {
    pub(super) one: TestBox,
    pub(super) journal: Journal,
}

impl Kept {
    pub(super) async fn new(ground: &Ground) -> Result<Self> {
        ground.unless(Difference::JournalInBox)?;
        Self::of(ground.make(&spec()).await?).await
    }

    pub(super) async fn of(one: TestBox) -> Result<Self> {
        let journal = Journal::open(one.backend.journal(&one.handle).await?);
        Ok(Self { one, journal })
    }

    pub(super) async fn start(&self, request: &ExecRequest) -> Result<(AttachedReader, AttachedWriter)> {
        Ok(link::start(self.one.backend.dial(&self.one.handle).await?, request).await?.split())
    }

    /// Starts a command and hangs up when it is known to run.
    pub(super) async fn start_and_leave(&self, request: &ExecRequest) -> Result<()> {
        let (mut reader, _writer) = self.start(request).await?;
        started(&mut reader).await.map(drop)
    }

    pub(super) async fn attach(&self, exec: &ExecId) -> Result<(AttachedReader, AttachedWriter)> {
        Ok(link::attach(self.one.backend.dial(&self.one.handle).await?, exec.clone()).await?.split())
    }

    /// Attaches when there is room: the agent may not have noticed yet that a reader left.
    pub(super) async fn attach_when_possible(&self, exec: &ExecId) -> Result<(AttachedReader, AttachedWriter)> {
        eventually("room for another stream", || async {
            let (mut reader, writer) = self.attach(exec).await?;
            Ok(started(&mut reader).await.is_ok().then_some((reader, writer)))
        })
        .await
    }

    /// Waits for the end of an exec without attached readers.
    pub(super) async fn end(&self, exec: &ExecId) -> Result<EndRecord> {
        eventually(&format!("the end of exec {exec}"), || async { Ok(self.journal.end(exec)?) }).await
    }

    /// Everything that is kept of a stream, and how many bytes are not.
    pub(super) async fn read(&self, exec: &ExecId, stream: StreamName) -> Result<(Vec<u8>, u64)> {
        let (mut bytes, mut missing, mut from) = (Vec::new(), 0, 0);
        loop {
            let chunk = self.journal.read(exec, stream, from, 1 << 20).await?;
            if chunk.bytes.is_empty() {
                return Ok((bytes, missing));
            }
            ensure!(chunk.gap == (chunk.start > from), "a gap that is none, or none that is one: {chunk:?}");
            missing += chunk.start - from;
            from = chunk.start + chunk.bytes.len() as u64;
            bytes.extend(chunk.bytes);
        }
    }

    pub(super) async fn stdout(&self, exec: &ExecId) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.read(exec, StreamName::Stdout).await?.0).into_owned())
    }
}

pub(super) fn spec() -> BoxSpec {
    BoxSpec { keeps_journal: true, ..Profile::default().spec() }
}

pub(super) fn journalled(line: &str) -> ExecRequest {
    ExecRequest { output: Output::JOURNAL, ..shell(line) }
}

/// Waits in the box until a file is there.
pub(super) fn until(file: &str) -> String {
    format!("while [ ! -e /workspace/{file} ]; do sleep 0.02; done")
}

pub(super) async fn started(reader: &mut AttachedReader) -> Result<u32> {
    match reader.next().await? {
        Event::Started { pid } => Ok(pid),
        other => bail!("not a start: {other:?}"),
    }
}

/// Reads events to the last one; returns the reported totals and the outcome.
pub(super) async fn follow(reader: &mut AttachedReader) -> Result<((u64, u64), ExecOutcome)> {
    let mut told = (0, 0);
    loop {
        match reader.next().await? {
            Event::Started { .. } => {}
            Event::Progress { stdout_bytes, stderr_bytes } => {
                ensure!(stdout_bytes >= told.0 && stderr_bytes >= told.1, "totals shrink");
                told = (stdout_bytes, stderr_bytes);
            }
            Event::Exited(outcome) => return Ok((told, outcome)),
            other => bail!("unexpected: {other:?}"),
        }
    }
}

pub(super) async fn progress(reader: &mut AttachedReader, stdout_bytes: u64) -> Result<()> {
    loop {
        match reader.next().await? {
            Event::Progress { stdout_bytes: bytes, .. } if bytes >= stdout_bytes => return Ok(()),
            Event::Started { .. } | Event::Progress { .. } => {}
            other => bail!("unexpected: {other:?}"),
        }
    }
}

pub(super) fn exit_of(record: &EndRecord) -> Result<Exit> {
    match &record.ending {
        Ending::Exited(outcome) => Ok(outcome.exit),
        Ending::Refused(refusal) => bail!("refused: {refusal}"),
    }
}

pub(super) fn refused<T>(result: box_core::Result<T>, code: RefusalCode, word: &str) -> Result<()> {
    match result.map(drop) {
        Err(box_core::Error::Refused(refusal)) if refusal.code == code && refusal.message.contains(word) => Ok(()),
        other => bail!("expected {code:?} with {word:?}, got {other:?}"),
    }
}

pub(super) fn request_of(argv: &[&str]) -> ExecRequest {
    request(Program::Argv(argv.iter().map(|&part| part.to_owned()).collect()))
}
