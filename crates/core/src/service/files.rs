//! The files of one session, for every door: the sequences of calls around [`Service::file_op`] that more than one needs.
//!
//! The wire has pairs that do nearly the same: `Write` and `Fill`, `Move` and `Relocate`, `Watch` and `Follow`. Boxes
//! outlive servers, so agents of released versions know exactly these forms, and both stay: one of each pair is for
//! callers who need the old content until the new is whole, the other for E2B's clients, who write in place. What is one
//! here is how they are asked: who acts, who helps where the user may not, how bytes are passed on, and how an answer is
//! checked.

use std::ops::ControlFlow;

use box_wire::file_op::{Attributes, Detail, Entry};
use box_wire::{Answer, FileErrorCode, FileOp, FrameError, GuestPath, Kind, User};
use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream};

use super::Service;
use super::file_ops::{FileBytes, FileCall, NO_INPUT};
use crate::caller::Caller;
use crate::session::{SessionId, SessionRequest};
use crate::{Error, Result, limits};

/// The files of one session, as one of its users sees them.
#[derive(Debug, Clone)]
pub struct SessionFiles {
    /// The service.
    pub service: Service,
    /// Who asks.
    pub caller: Caller,
    /// The session.
    pub session: SessionId,
    /// What the session is to be, where it may be created for this.
    pub request: SessionRequest,
    /// The tree outside of which nothing is touched.
    pub root: GuestPath,
    /// As whom files are used; the session's own user when not given.
    pub user: Option<User>,
    /// How root helps where the user may not.
    pub help: Option<RootHelp>,
    /// The prefix of extended attributes that details tell and filled files get.
    pub attributes: Option<String>,
}

/// Root does what the user may not, and gives the user what it creates.
#[derive(Debug, Clone)]
pub struct RootHelp {
    /// Whose the results become.
    pub owner: User,
    /// Directories in which the user usually needs no help.
    pub own: Vec<GuestPath>,
}

/// Where the bytes of a file come from, in pieces.
pub trait Source {
    /// How it fails.
    type Error;

    /// The next piece; nothing at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<bytes::Bytes>, Self::Error>> + Send;
}

/// Who can fill a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filler {
    User,
    Root,
}

impl SessionFiles {
    /// The whole box of a session that must exist, as the session's own user.
    pub fn of_existing(service: Service, caller: Caller, session: SessionId) -> Self {
        let request = SessionRequest::of_existing();
        let root = GuestPath::root();
        Self { service, caller, session, request, root, user: None, help: None, attributes: None }
    }

    /// Asks for something that takes no bytes.
    pub async fn ask(&self, op: FileOp) -> Result<(Answer, FileBytes)> {
        let Some(help) = &self.help else { return self.give(op, NO_INPUT).await };
        match self.give(op.clone(), NO_INPUT).await {
            Err(denied) if is_denied(&denied) => {
                let helped = self.ask_root(on_behalf(op, help.owner)).await;
                helped.map_err(|error| if is_denied(&error) { denied } else { error })
            }
            done => done,
        }
    }

    /// Asks root for something that takes no bytes.
    pub async fn ask_root(&self, op: FileOp) -> Result<(Answer, FileBytes)> {
        self.give_as(Some(User::ROOT), op, NO_INPUT).await
    }

    /// Asks for something, with bytes where it takes some.
    pub async fn give<I>(&self, op: FileOp, input: Option<I>) -> Result<(Answer, FileBytes)>
    where
        I: AsyncRead + Unpin + Send,
    {
        self.give_as(self.user, op, input).await
    }

    async fn give_as<I>(&self, user: Option<User>, op: FileOp, input: Option<I>) -> Result<(Answer, FileBytes)>
    where
        I: AsyncRead + Unpin + Send,
    {
        let call = FileCall { user, root: self.root.clone(), ..FileCall::new(op) };
        self.service.file_op(&self.caller, &self.session, &self.request, call, input).await
    }

    /// Asks for something that is answered with one entry.
    pub async fn entry(&self, op: FileOp) -> Result<Entry> {
        entry_of(self.ask(op).await?.0)
    }

    /// Asks for something that is answered with entries, and whether there are more.
    pub async fn entries(&self, op: FileOp) -> Result<(Vec<Entry>, bool)> {
        match self.ask(op).await?.0 {
            Answer::Entries { entries, truncated } => Ok((entries, truncated)),
            other => Err(unexpected(&other)),
        }
    }

    /// The same as [`Self::entry`], with what else is known of it.
    pub async fn detail(&self, op: FileOp) -> Result<Detail> {
        detail_of(self.ask(self.in_detail(op)).await?.0)
    }

    /// The same as [`Self::entries`], with what else is known of them.
    pub async fn details(&self, op: FileOp) -> Result<(Vec<Detail>, bool)> {
        match self.ask(self.in_detail(op)).await?.0 {
            Answer::Details { entries, truncated } => Ok((entries, truncated)),
            other => Err(unexpected(&other)),
        }
    }

    /// Opens a file, and reads it from an offset on.
    pub async fn read(&self, path: &GuestPath, offset: u64, bytes_max: Option<u64>) -> Result<(Entry, FileBytes)> {
        let (answer, bytes) = self.ask(FileOp::Read { path: path.clone(), offset, bytes_max }).await?;
        Ok((entry_of(answer)?, bytes))
    }

    /// Opens a file, and reads the part of it that `choose` decides on by what it is: an offset and a length. `choose`
    /// can also break off with an answer of its own. Where the file changes in between, it is decided again.
    pub async fn read_part<P, A>(
        &self,
        path: &GuestPath,
        mut choose: impl FnMut(&Entry) -> ControlFlow<A, (P, u64, u64)>,
    ) -> Result<ControlFlow<A, (Entry, P, FileBytes)>> {
        for _ in 0..limits::READ_ATTEMPTS_MAX {
            let (seen, _) = self.read(path, 0, Some(0)).await?;
            let (part, offset, length) = match choose(&seen) {
                ControlFlow::Continue(chosen) => chosen,
                ControlFlow::Break(answer) => return Ok(ControlFlow::Break(answer)),
            };
            let (entry, bytes) = self.read(path, offset, Some(length)).await?;
            if (entry.size, entry.modified_ns) == (seen.size, seen.modified_ns) {
                return Ok(ControlFlow::Continue((entry, part, bytes)));
            }
        }
        let what = format!("{path} changes faster than it can be read");
        Err(Error::Conflict { what, fix: "read all of it, or read it when no process writes to it".to_owned() })
    }

    /// Fills a file in place, with extended attributes where some are given.
    pub async fn fill<I: AsyncRead + Unpin + Send>(
        &self,
        path: GuestPath,
        attributes: Option<Vec<(String, String)>>,
        bytes_max: u64,
        input: I,
    ) -> Result<Detail> {
        let attributes = attributes.and_then(|values| self.attributes_of(values));
        let op = self.in_detail(FileOp::Fill { path: path.clone(), bytes_max, attributes });
        let answer = match (self.filler(path).await?, &self.help) {
            (Filler::Root, Some(help)) => {
                self.give_as(Some(User::ROOT), on_behalf(op, help.owner), Some(input)).await?.0
            }
            _ => self.give(op, Some(input)).await?.0,
        };
        detail_of(answer)
    }

    /// Fills files from buffered bytes, with one file operation where the user may fill all of them. Files that need help
    /// are grouped apart, so that they do not slow the others.
    pub async fn fill_many(
        &self,
        files: &[(GuestPath, bytes::Bytes)],
        attributes: &[(String, String)],
    ) -> Result<Vec<Detail>> {
        let mut written = Vec::with_capacity(files.len());
        for files in files.chunk_by(|(one, _), (next, _)| self.owns(one) == self.owns(next)) {
            let together = if files.len() > 1 { self.fill_together(files, attributes).await } else { None };
            if let Some(together) = together {
                written.append(&mut together?);
                continue;
            }
            for (path, bytes) in files {
                let (path, attributes) = (path.clone(), Some(attributes.to_vec()));
                written.push(self.fill(path, attributes, bytes.len() as u64, &bytes[..]).await?);
            }
        }
        Ok(written)
    }

    /// Fills files with one file operation. None if they must be filled one by one: agents of older versions do not
    /// support it, and only root may fill some files.
    async fn fill_together(
        &self,
        files: &[(GuestPath, bytes::Bytes)],
        attributes: &[(String, String)],
    ) -> Option<Result<Vec<Detail>>> {
        let sizes = files.iter().map(|(path, bytes)| (path.clone(), bytes.len() as u64)).collect();
        let op = self.in_detail(FileOp::FillMany { files: sizes, attributes: self.attributes_of(attributes.to_vec()) });
        let all: Vec<u8> = files.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        match self.give(op, Some(&all[..])).await {
            Ok((Answer::Details { entries, .. }, _)) if entries.len() == files.len() => Some(Ok(entries)),
            Ok((other, _)) => Some(Err(unexpected(&other))),
            Err(Error::AgentTooOld { .. }) => None,
            Err(error) if self.help.is_some() && is_denied(&error) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Whether the user usually needs no help below a path.
    fn owns(&self, path: &GuestPath) -> bool {
        self.help.as_ref().is_none_or(|help| help.own.iter().any(|own| path.is_within(own)))
    }

    /// Who can fill a file. Bytes come once, so this is asked before; not where everything is the user's own.
    async fn filler(&self, path: GuestPath) -> Result<Filler> {
        if self.owns(&path) {
            return Ok(Filler::User);
        }
        let op = FileOp::Reach { path };
        match self.give(op.clone(), NO_INPUT).await {
            Err(denied) if is_denied(&denied) => match self.ask_root(op).await {
                Ok(_) => Ok(Filler::Root),
                Err(error) => Err(if is_denied(&error) { denied } else { error }),
            },
            reached => reached.map(|_| Filler::User),
        }
    }

    fn in_detail(&self, op: FileOp) -> FileOp {
        FileOp::InDetail { op: Box::new(op), attributes: self.attributes.clone() }
    }

    fn attributes_of(&self, values: Vec<(String, String)>) -> Option<Attributes> {
        Some(Attributes { prefix: self.attributes.clone()?, values })
    }
}

/// Passes a source on to a file operation that takes its bytes. When the source breaks off, the file operation is dropped
/// before it hears of an end, so that half of a file is never taken for all of it.
pub async fn pass_on<S, T, F>(source: &mut S, operation: impl FnOnce(DuplexStream) -> F) -> Result<Result<T>, S::Error>
where
    S: Source,
    F: Future<Output = Result<T>>,
{
    let (near, far) = tokio::io::duplex(limits::UPLOAD_BUFFER_BYTES);
    let operation = operation(far);
    tokio::pin!(operation);
    tokio::select! {
        done = &mut operation => Ok(done),
        fed = feed(source, near) => {
            fed?;
            Ok(operation.await)
        }
    }
}

/// Passes bytes on to their end.
async fn feed<S: Source>(source: &mut S, mut near: DuplexStream) -> Result<(), S::Error> {
    while let Some(piece) = source.next().await? {
        if near.write_all(&piece).await.is_err() {
            // The file operation takes no more: its answer is awaited elsewhere.
            return std::future::pending().await;
        }
    }
    // Closing it now is the end that the file operation waits for.
    Ok(())
}

/// The entry in an answer.
pub fn entry_of(answer: Answer) -> Result<Entry> {
    match answer {
        Answer::Entry(entry) => Ok(entry),
        other => Err(unexpected(&other)),
    }
}

fn detail_of(answer: Answer) -> Result<Detail> {
    match answer {
        Answer::Detail(detail) => Ok(*detail),
        other => Err(unexpected(&other)),
    }
}

/// The error for an answer that does not fit what was asked. Boxes can be hostile.
pub fn unexpected(answer: &Answer) -> Error {
    let name: String = format!("{answer:?}").chars().take_while(char::is_ascii_alphanumeric).collect();
    let reason = format!("a file operation was answered with {name}");
    FrameError::Malformed { kind: Kind::Stdout, reason }.into()
}

/// Work of root whose results become a user's.
fn on_behalf(op: FileOp, owner: User) -> FileOp {
    FileOp::OnBehalf { op: Box::new(op), owner }
}

fn is_denied(error: &Error) -> bool {
    matches!(error, Error::File(error) if error.code == FileErrorCode::Denied)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::io::AsyncReadExt;

    use super::*;

    struct Pieces(VecDeque<Result<&'static str, &'static str>>);

    impl Source for Pieces {
        type Error = &'static str;

        async fn next(&mut self) -> Result<Option<bytes::Bytes>, &'static str> {
            self.0.pop_front().map(|piece| piece.map(bytes::Bytes::from)).transpose()
        }
    }

    async fn passed(pieces: &[Result<&'static str, &'static str>]) -> Result<String, &'static str> {
        let mut source = Pieces(pieces.iter().copied().collect());
        let read = async |mut input: DuplexStream| {
            let mut text = String::new();
            input.read_to_string(&mut text).await.map_err(|error| Error::io("reading", error))?;
            Ok(text)
        };
        pass_on(&mut source, read).await.map(Result::unwrap)
    }

    #[tokio::test]
    async fn a_source_is_passed_on_and_then_ended() {
        assert_eq!(passed(&[Ok("some "), Ok("words"), Ok("")]).await, Ok("some words".to_owned()));
    }

    #[tokio::test]
    async fn a_source_that_breaks_off_is_an_error_and_no_end() {
        assert_eq!(passed(&[Ok("half"), Err("hung up")]).await, Err("hung up"));
    }

    #[tokio::test]
    async fn a_file_operation_that_takes_no_more_answers_all_the_same() {
        let mut source = Pieces(VecDeque::from([Ok("ignored"); 2]));
        let refuse = async |_: DuplexStream| Err::<(), _>(Error::Stopping);
        assert_eq!(pass_on(&mut source, refuse).await.unwrap().unwrap_err().code(), "stopping");
    }
}
