//! The files of a sandbox or of a volume, as one of the users of its box sees them and is told of them.

use box_core::profile::Account;
use box_core::service::{FileBytes, FileCall, NO_INPUT};
use box_core::session::SessionRequest;
use box_core::{Caller, Error, Service, SessionId};
use box_e2b_wire::BoxUser;
use box_wire::file_op::{Attributes, Detail};
use box_wire::{Answer, FileError, FileErrorCode, FileOp, GuestPath, User};
use bytes::Bytes;
use tokio::io::AsyncRead;

use crate::app::App;
use crate::failure::E2bFailure;
use crate::files;
use crate::sandbox_request::{Acting, SandboxRequest};

/// How the names of extended attributes begin in which clients keep what they say of a file.
pub(crate) const METADATA: &str = "user.e2b.";

/// The files of a box, as one of its users sees them.
#[derive(Debug)]
pub(crate) struct BoxFiles {
    pub(super) service: Service,
    pub(super) caller: Caller,
    pub(super) session: SessionId,
    /// How the session is to be, where it may be made for this.
    pub(super) request: SessionRequest,
    /// The tree outside of which nothing is touched.
    pub(super) root: GuestPath,
    pub(super) user: BoxUser,
    /// What clients are told when something goes wrong.
    pub(super) tells: fn(Error) -> E2bFailure,
}

impl BoxFiles {
    /// Those of the sandbox that a request is meant for.
    pub(crate) fn new(app: &App, sandbox_request: SandboxRequest, user: BoxUser) -> Self {
        let SandboxRequest { caller, session, .. } = sandbox_request;
        Self {
            service: app.service().clone(),
            caller,
            session,
            // Files never make a sandbox.
            request: SessionRequest::of_existing(),
            root: GuestPath::root(),
            user,
            tells: files::told,
        }
    }

    /// What a client is told.
    pub(crate) fn told(&self, error: Error) -> E2bFailure {
        (self.tells)(error)
    }

    /// The path that a client means.
    pub(crate) fn path(&self, text: &str) -> Result<GuestPath, Error> {
        resolve(self.user.home(), text).map_err(Error::File)
    }

    /// Asks for something that takes no bytes. What the user may not, root does for it: in E2B's sandboxes files are everybody's.
    pub(crate) async fn ask(&self, op: FileOp) -> Result<(Answer, FileBytes), Error> {
        match self.give(self.user.wire(), op.clone(), NO_INPUT).await {
            Err(denied) if self.may_ask_root(&denied) => {
                self.give(Some(User::ROOT), on_behalf(op), NO_INPUT).await.map_err(|error| denied_unless(error, denied))
            }
            done => done,
        }
    }

    /// Asks root for something that takes no bytes and that nobody else may.
    pub(crate) async fn ask_root(&self, op: FileOp) -> Result<(Answer, FileBytes), Error> {
        self.give(Some(User::ROOT), op, NO_INPUT).await
    }

    /// Asks for something, with bytes where it takes some.
    async fn give<I: AsyncRead + Unpin + Send>(
        &self,
        user: Option<User>,
        op: FileOp,
        input: Option<I>,
    ) -> Result<(Answer, FileBytes), Error> {
        let call = FileCall { user, root: self.root.clone(), ..FileCall::new(op) };
        self.service.file_op(&self.caller, &self.session, &self.request, call, input).await
    }

    fn may_ask_root(&self, error: &Error) -> bool {
        self.user == BoxUser::User && matches!(error, Error::File(error) if error.code == FileErrorCode::Denied)
    }

    /// Asks for something that is answered with one entry.
    pub(crate) async fn detail(&self, op: FileOp) -> Result<Detail, Error> {
        detail_of(self.ask(in_detail(op)).await?.0)
    }

    /// Asks for something that is answered with entries, and whether there are more.
    pub(crate) async fn details(&self, op: FileOp) -> Result<(Vec<Detail>, bool), Error> {
        match self.ask(in_detail(op)).await?.0 {
            Answer::Details { entries, truncated } => Ok((entries, truncated)),
            other => Err(unexpected(&other)),
        }
    }

    /// Fills a file with bytes, and with what is said of it where that is kept.
    pub(crate) async fn fill<I: AsyncRead + Unpin + Send>(
        &self,
        path: GuestPath,
        metadata: Option<Vec<(String, String)>>,
        bytes_max: u64,
        input: I,
    ) -> Result<Detail, Error> {
        let attributes = metadata.map(|values| Attributes { prefix: METADATA.to_owned(), values });
        let op = in_detail(FileOp::Fill { path: path.clone(), bytes_max, attributes });
        let (user, op) = match self.reach(path).await? {
            Reached::Directly => (self.user.wire(), op),
            Reached::ThroughRoot => (Some(User::ROOT), on_behalf(op)),
        };
        detail_of(self.give(user, op, Some(input)).await?.0)
    }

    /// Fills files from buffered bytes, with one file operation if the user may fill all of them. Files that the user owns are
    /// grouped apart, so that a file that only root may fill does not slow them.
    pub(crate) async fn fill_many(
        &self,
        files: &[(GuestPath, Bytes)],
        metadata: &[(String, String)],
    ) -> Result<Vec<Detail>, Error> {
        let mut written = Vec::with_capacity(files.len());
        for files in files.chunk_by(|(one, _), (next, _)| self.owns(one) == self.owns(next)) {
            let together = if files.len() > 1 { self.fill_together(files, metadata).await } else { None };
            match together {
                Some(together) => written.append(&mut together?),
                None => {
                    for (path, bytes) in files {
                        let (path, metadata) = (path.clone(), Some(metadata.to_vec()));
                        written.push(self.fill(path, metadata, bytes.len() as u64, &bytes[..]).await?);
                    }
                }
            }
        }
        Ok(written)
    }

    /// Fills files with one file operation. None if they must be filled one by one: boxes of older servers do not support it, and
    /// only root may fill some files.
    async fn fill_together(
        &self,
        files: &[(GuestPath, Bytes)],
        metadata: &[(String, String)],
    ) -> Option<Result<Vec<Detail>, Error>> {
        let sizes = files.iter().map(|(path, bytes)| (path.clone(), bytes.len() as u64)).collect();
        let attributes = Some(Attributes { prefix: METADATA.to_owned(), values: metadata.to_vec() });
        let op = in_detail(FileOp::FillMany { files: sizes, attributes });
        let all: Vec<u8> = files.iter().flat_map(|(_, bytes)| bytes).copied().collect();
        match self.give(self.user.wire(), op, Some(&all[..])).await {
            Ok((Answer::Details { entries, .. }, _)) if entries.len() == files.len() => Some(Ok(entries)),
            Ok((other, _)) => Some(Err(unexpected(&other))),
            Err(Error::AgentTooOld { .. }) => None,
            Err(error) if self.may_ask_root(&error) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Whether files below a path usually belong to the user.
    fn owns(&self, path: &GuestPath) -> bool {
        let is_within = |place: &str| place.parse().is_ok_and(|place| path.is_within(&place));
        self.user == BoxUser::Root || is_within(self.user.home()) || is_within("/tmp")
    }

    /// Who can fill a file. Bytes come once, so this is looked at before; where everything is the user's own, it need not be.
    async fn reach(&self, path: GuestPath) -> Result<Reached, Error> {
        if self.owns(&path) {
            return Ok(Reached::Directly);
        }
        let op = FileOp::Reach { path };
        match self.give(self.user.wire(), op.clone(), NO_INPUT).await {
            Err(denied) if self.may_ask_root(&denied) => match self.give(Some(User::ROOT), op, NO_INPUT).await {
                Ok(_) => Ok(Reached::ThroughRoot),
                Err(error) => Err(denied_unless(error, denied)),
            },
            reached => reached.map(|_| Reached::Directly),
        }
    }
}

/// Who can fill a file.
enum Reached {
    Directly,
    ThroughRoot,
}

/// What root says, unless that it may not either: then the user is told what it was told first.
fn denied_unless(error: Error, denied: Error) -> Error {
    match &error {
        Error::File(error) if error.code == FileErrorCode::Denied => denied,
        _ => error,
    }
}

/// FileOp of root whose results are the user's.
fn on_behalf(op: FileOp) -> FileOp {
    FileOp::OnBehalf { op: Box::new(op), owner: Account::User.user() }
}

fn in_detail(op: FileOp) -> FileOp {
    FileOp::InDetail { op: Box::new(op), attributes: Some(METADATA.to_owned()) }
}

fn detail_of(answer: Answer) -> Result<Detail, Error> {
    match answer {
        Answer::Detail(detail) => Ok(*detail),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn unexpected(answer: &Answer) -> Error {
    let name: String = format!("{answer:?}").chars().take_while(char::is_ascii_alphanumeric).collect();
    Error::Protocol(box_wire::FrameError::Malformed {
        kind: box_wire::Kind::Stdout,
        reason: format!("a file operation was answered with {name}"),
    })
}

/// Absolute as it is, from the home of the user on where it is not. `..` is taken by the letter, as clients do.
fn resolve(home: &str, text: &str) -> Result<GuestPath, FileError> {
    let invalid = |message: String| FileError::new(FileErrorCode::InvalidPath, message);
    let whole = match text.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{home}{rest}"),
        Some(_) => {
            return Err(invalid(format!(
                "invalid path: {text:.80?} (~ is the home of the user, and there is no other)"
            )));
        }
        None if text.starts_with('/') => text.to_owned(),
        None => format!("{home}/{text}"),
    };
    GuestPath::parse("path", &by_the_letter(&whole)).map_err(|error| invalid(error.to_string()))
}

/// An absolute path without `.` and `..`, which are taken as they are written and not as links would have them.
pub(super) fn by_the_letter(text: &str) -> String {
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_start_at_the_home_of_the_user() {
        for (text, meant) in [
            ("", "/home/user"),
            ("~", "/home/user"),
            ("~/", "/home/user"),
            ("~/a", "/home/user/a"),
            ("a/./b//c/", "/home/user/a/b/c"),
            ("/tmp/ä b", "/tmp/ä b"),
            ("/a/../../b", "/b"),
            ("../x", "/home/x"),
            ("a~", "/home/user/a~"),
            ("/", "/"),
        ] {
            assert_eq!(resolve("/home/user", text).unwrap().as_str(), meant, "{text}");
        }
        for bad in ["~root", "~other/x", "/a\0b", "/a\nb", &format!("/{}", "x".repeat(256))] {
            assert_eq!(resolve("/home/user", bad).unwrap_err().code, FileErrorCode::InvalidPath, "{bad}");
        }
    }
}
