//! How file operations are sent to a box, and what is expected of them.

use std::fmt::Debug;

use anyhow::{Result, bail, ensure};
use box_core::Error;
use box_core::link::{self, FileOutput};
use box_tests::ground::{request, with_stdin};
use box_tests::{TestBox, eventually};
use box_wire::file_op::{Entry, WriteHow};
use box_wire::{Answer, ExecRequest, FileOp, FileRequest, GuestPath, Program, User};
use tokio::io::AsyncRead;

/// A tree of a box in which file operations are done.
#[derive(Clone)]
pub(super) struct Tree {
    pub(super) one: TestBox,
    pub(super) root: GuestPath,
    pub(super) deadline_ms: u64,
    /// As whom, when not as the box's own user.
    pub(super) user: Option<User>,
}

/// A path in a box.
pub(super) fn path(text: &str) -> GuestPath {
    text.parse().unwrap_or_else(|_| unreachable!("{text} is a path"))
}

/// Most bytes that the cases write.
const BYTES_MAX: u64 = 1 << 30;

impl Tree {
    pub(super) fn new(one: &TestBox, root: &str) -> Self {
        Self { one: one.clone(), root: path(root), deadline_ms: 30_000, user: None }
    }

    fn request(&self, op: FileOp) -> ExecRequest {
        let file_request = FileRequest { root: self.root.clone(), op };
        let (timeout_ms, user) = (Some(self.deadline_ms), self.user);
        ExecRequest { timeout_ms, user, ..request(Program::FileOp(Box::new(file_request))) }
    }

    /// Sends work and returns with the answer and what follows.
    pub(super) async fn open(&self, op: FileOp) -> box_core::Result<(Answer, FileOutput)> {
        let stream = self.one.backend.dial(&self.one.handle).await?;
        link::file_op(stream, &self.request(op), None::<tokio::io::Empty>).await
    }

    /// Does work that gives no bytes.
    pub(super) async fn ask(&self, op: FileOp) -> box_core::Result<Answer> {
        let (answer, mut output) = self.open(op).await?;
        match output.next().await? {
            None => Ok(answer),
            Some(bytes) => Err(Error::Gone { reason: format!("{} bytes too many", bytes.len()) }),
        }
    }

    /// Does work that gives bytes.
    pub(super) async fn collect(&self, op: FileOp) -> box_core::Result<(Answer, Vec<u8>)> {
        let (answer, mut output) = self.open(op).await?;
        let mut all = Vec::new();
        while let Some(bytes) = output.next().await? {
            all.extend(bytes);
        }
        Ok((answer, all))
    }

    /// Does work that takes bytes.
    pub(super) async fn send(&self, op: FileOp, input: impl AsyncRead + Unpin) -> box_core::Result<Answer> {
        let stream = self.one.backend.dial(&self.one.handle).await?;
        let (answer, mut output) = link::file_op(stream, &with_stdin(self.request(op)), Some(input)).await?;
        match output.next().await? {
            None => Ok(answer),
            Some(bytes) => Err(Error::Gone { reason: format!("{} bytes too many", bytes.len()) }),
        }
    }

    pub(super) async fn stat(&self, name: &str) -> box_core::Result<Entry> {
        self.ask(FileOp::Stat { path: path(name) }).await.and_then(one_entry)
    }

    pub(super) async fn read(&self, name: &str) -> box_core::Result<String> {
        let op = FileOp::Read { path: path(name), offset: 0, bytes_max: None };
        self.collect(op).await.map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned())
    }

    pub(super) async fn write(&self, name: &str, how: WriteHow, bytes: &str) -> box_core::Result<Entry> {
        let op = FileOp::Write { path: path(name), how, mode: None, bytes_max: BYTES_MAX };
        self.send(op, bytes.as_bytes()).await.and_then(one_entry)
    }

    pub(super) async fn remove(&self, name: &str, recursive: bool) -> box_core::Result<Answer> {
        self.ask(FileOp::Remove { path: path(name), recursive }).await
    }

    pub(super) async fn rename(&self, from: &str, to: &str, replace: bool) -> box_core::Result<Entry> {
        self.ask(FileOp::Move { from: path(from), to: path(to), replace }).await.and_then(one_entry)
    }

    pub(super) async fn make_directory(&self, name: &str, exclusive: bool) -> box_core::Result<Entry> {
        self.ask(FileOp::MakeDirectory { path: path(name), exclusive }).await.and_then(one_entry)
    }

    pub(super) async fn pack(&self, name: &str) -> box_core::Result<Vec<u8>> {
        self.collect(FileOp::Pack { path: path(name) }).await.map(|(_, bytes)| bytes)
    }

    pub(super) async fn unpack(&self, name: &str, archive: &[u8], bytes_max: u64) -> box_core::Result<Answer> {
        self.send(FileOp::Unpack { path: path(name), bytes_max }, archive).await
    }

    /// The bytes of a file.
    pub(super) async fn collect_file(&self, name: &str) -> box_core::Result<Vec<u8>> {
        let op = FileOp::Read { path: path(name), offset: 0, bytes_max: None };
        self.collect(op).await.map(|(_, bytes)| bytes)
    }

    /// Makes a file of bytes.
    pub(super) async fn put(&self, name: &str, bytes: &[u8]) -> box_core::Result<Entry> {
        let op = FileOp::Write { path: path(name), how: WriteHow::Replace, mode: None, bytes_max: BYTES_MAX };
        self.send(op, bytes).await.and_then(one_entry)
    }

    /// Waits until no file operation runs in the box.
    pub(super) async fn quiet(&self) -> Result<()> {
        eventually("the end of abandoned file operations", || async {
            let running = link::list(self.one.backend.dial(&self.one.handle).await?).await?;
            Ok(running.is_empty().then_some(()))
        })
        .await
    }
}

pub(super) fn one_entry(answer: Answer) -> box_core::Result<Entry> {
    match answer {
        Answer::Entry(entry) => Ok(entry),
        other => Err(Error::Gone { reason: format!("not an entry: {other:?}") }),
    }
}

/// Holds that something was refused for this reason, in words that name what it is about.
pub(super) fn refused<T: Debug>(done: box_core::Result<T>, code: &str, about: &str) -> Result<()> {
    match done {
        Err(error @ Error::File(_)) => {
            ensure!(error.code() == code, "{about}: {} instead of {code}: {error}", error.code());
            ensure!(error.to_string().contains(about), "{about} is not named: {error}");
            Ok(())
        }
        other => bail!("{about}: expected {code}, got {other:?}"),
    }
}
