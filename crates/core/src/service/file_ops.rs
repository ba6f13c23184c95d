//! What can be asked of the files of a session. The agent does the work, in the box.

mod owner;

use std::sync::Arc;

use crate::tasks::Start as _;
use async_recursion::async_recursion as boxed;
use box_wire::file_op::Effect;
use box_wire::version::Feature;
use box_wire::{Answer, ExecRequest, FileOp, FileRequest, GuestPath, Program, Stdin, User};
use tokio::io::AsyncRead;
use tokio::task::JoinSet;

use super::execs::new_exec_id;
use super::session::{Session, Standing, Use};
use super::sessions::{Lost, entry};
use super::{Inner, Service};
use crate::audit::{AuditEntry, Outcome};
use crate::caller::{Caller, Scope};
use crate::link::{self, FileOutput};
use crate::quota::{QuotaMoment, Workspace};
use crate::session::{SessionId, SessionRequest};
use crate::{Result, limits};

/// Something to be done with the files of a session.
#[derive(Debug, Clone)]
pub struct FileCall {
    /// What.
    pub op: FileOp,
    /// The tree outside of which nothing is touched.
    pub root: GuestPath,
    /// As whom, when not as the session's own user.
    pub user: Option<User>,
    /// Deadline, when not the usual one.
    pub timeout_ms: Option<u64>,
}

impl FileCall {
    /// FileOp in the whole box, as the session's own user, within the usual time.
    pub fn new(op: FileOp) -> Self {
        Self { op, root: GuestPath::root(), user: None, timeout_ms: None }
    }
}

/// The bytes of a file operation. The session is in use while it lives.
#[derive(Debug)]
pub struct FileBytes {
    output: FileOutput,
    _used: Use,
}

impl FileBytes {
    /// The next bytes; nothing when all were given. A file operation that broke off is an error.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        self.output.next().await
    }

    /// The next change of a tree that is followed; nothing when there will be no more.
    pub async fn happening(&mut self) -> Result<Option<box_wire::file_op::Happening>> {
        self.output.message(box_wire::limits::BOX_MESSAGE_BYTES_MAX).await
    }

    /// The next change of a watched tree; nothing when there will be no more.
    pub async fn change(&mut self) -> Result<Option<box_wire::file_op::Change>> {
        self.output.message(box_wire::limits::BOX_MESSAGE_BYTES_MAX).await
    }
}

/// No input for a file operation.
pub const NO_INPUT: Option<tokio::io::Empty> = None;

impl Service {
    /// Does something with the files of a session; makes the session if it does not exist. Returns with the answer, when all input
    /// was taken; the bytes that follow, if any, are read from what comes with it. Dropping either ends the work.
    pub async fn file_op<I: AsyncRead + Unpin + Send>(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: FileCall,
        mut input: Option<I>,
    ) -> Result<(Answer, FileBytes)> {
        let input = input.as_mut().map(|input| input as &mut (dyn AsyncRead + Unpin + Send));
        self.file_op_with(caller, id, request, call, input).await
    }

    #[boxed]
    async fn file_op_with(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: FileCall,
        input: Option<&mut (dyn AsyncRead + Unpin + Send)>,
    ) -> Result<(Answer, FileBytes)> {
        let operation = operation(&call.op);
        let done = self.inner.run_file_op(caller, id, request, call, input).await;
        self.inner.noting(caller, operation, id, done).await
    }
}

impl Inner {
    pub(super) async fn run_file_op(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: FileCall,
        input: Option<&mut (dyn AsyncRead + Unpin + Send)>,
    ) -> Result<(Answer, FileBytes)> {
        caller.require(Scope::Files)?;
        self.enabled()?;
        let writes = call.op.effect() == Effect::Writes;
        if writes {
            self.check_writable()?;
            self.check_quota(caller, id, request).await?;
        }
        let wire = wire_request(&call, input.is_some())?;
        let session = match caller.require(Scope::Exec) {
            Ok(()) => self.obtain(caller, id, request, Lost::Report).await?.0,
            // Who may only use files makes no sessions.
            Err(_) => self.find_for(caller, id, Scope::Files)?,
        };
        let (used, standing, stream) = self.dial_for(&session, call.op.feature()).await?;
        for what in subjects(&call.op) {
            let entry = AuditEntry { command: Some(what), ..entry(caller, operation(&call.op), Outcome::Started, id) };
            self.record_unless_removing(&call.op, entry).await?;
        }
        let request = link::file_op(stream, &wire, input);
        let done = if writes { within_quota(&standing.workspaces, request).await } else { request.await };
        let (answer, output) = match done {
            Ok(done) => done,
            Err(error) => return Err(owner::told(&session.config(), error).await),
        };
        Ok((answer, FileBytes { output, _used: used }))
    }

    /// Writes down what is about to be done. Removing is done all the same where that cannot be: it makes room for the log.
    async fn record_unless_removing(&self, op: &FileOp, entry: AuditEntry) -> Result<()> {
        match self.record(entry).await {
            Err(error) if op.effect() == Effect::Removes => {
                tracing::error!(error = %error, "the audit log cannot be written");
                Ok(())
            }
            recorded => recorded,
        }
    }

    /// Uses a session: wakes its box if it is stopped, and opens a stream to its agent. Refuses what the agent lacks.
    pub(super) async fn dial_for(
        self: &Arc<Self>,
        session: &Arc<Session>,
        needed: Option<Feature>,
    ) -> Result<(Use, Arc<Standing>, crate::AgentStream)> {
        let used = session.start_use();
        let (inner, session) = (Arc::clone(self), Arc::clone(session));
        let standing = self.to_the_end(async move { inner.wake(&session).await }).await?;
        if let Some(feature) = needed {
            standing.handle.require(feature)?;
        }
        let stream = self.backend.dial(&standing.handle).await?;
        Ok((used, standing, stream))
    }
}

/// Does a file operation that writes, and gives it up when the workspace holds too much. What was written stays: it can be removed, which
/// is always allowed.
async fn within_quota<T>(workspaces: &[Arc<Workspace>], request: impl Future<Output = Result<T>>) -> Result<T> {
    // They end with this call.
    let mut looks = JoinSet::new();
    for workspace in workspaces {
        let workspace = Arc::clone(workspace);
        looks.start(async move { workspace.until_exceeded().await });
    }
    let done = tokio::select! {
        done = request => done?,
        Some(Ok(error)) = looks.join_next() => return Err(error),
    };
    for workspace in workspaces {
        workspace.check(QuotaMoment::After).await?;
    }
    Ok(done)
}

pub(super) fn wire_request(call: &FileCall, has_input: bool) -> Result<ExecRequest> {
    let request = FileRequest { root: call.root.clone(), op: call.op.clone() };
    let request = ExecRequest {
        stdin: if has_input { Stdin::Stream } else { Stdin::Null },
        timeout_ms: Some(call.timeout_ms.unwrap_or_else(|| usual_timeout_ms(&call.op))),
        user: call.user,
        ..ExecRequest::new(new_exec_id()?, Program::FileOp(Box::new(request)))
    };
    request.validate()?;
    Ok(request)
}

/// How long it may take when nobody says.
fn usual_timeout_ms(op: &FileOp) -> u64 {
    match op {
        FileOp::Watch { .. } | FileOp::Follow { .. } => box_wire::limits::TIMEOUT_MS_MAX,
        FileOp::Read { .. }
        | FileOp::Write { .. }
        | FileOp::Pack { .. }
        | FileOp::Unpack { .. }
        | FileOp::Fill { .. }
        | FileOp::FillMany { .. }
        | FileOp::Join { .. }
        | FileOp::Save => limits::TRANSFER_TIMEOUT_MS,
        FileOp::InDetail { op, .. } | FileOp::OnBehalf { op, .. } => usual_timeout_ms(op),
        _ => limits::FILE_OP_TIMEOUT_MS,
    }
}

/// What the audit log calls it.
fn operation(op: &FileOp) -> &'static str {
    match op {
        FileOp::InDetail { op, .. } | FileOp::OnBehalf { op, .. } => operation(op),
        FileOp::Stat { .. } => "file_stat",
        FileOp::List { .. } => "file_list",
        FileOp::Read { .. } => "file_read",
        FileOp::Write { .. } | FileOp::Fill { .. } | FileOp::FillMany { .. } => "file_write",
        FileOp::MakeDirectory { .. } => "file_mkdir",
        FileOp::Move { .. } | FileOp::Relocate { .. } => "file_move",
        FileOp::Join { .. } => "file_join",
        FileOp::Remove { .. } => "file_remove",
        FileOp::Pack { .. } => "file_pack",
        FileOp::Unpack { .. } => "file_unpack",
        FileOp::Watch { .. } | FileOp::Follow { .. } => "file_watch",
        FileOp::Measure { .. } => "file_measure",
        FileOp::Space { .. } => "file_space",
        FileOp::Reach { .. } => "file_reach",
        FileOp::Adjust { .. } => "file_adjust",
        FileOp::Lines { .. } => "file_lines",
        FileOp::Edit { .. } => "file_edit",
        FileOp::Glob { .. } => "file_glob",
        FileOp::Grep { .. } => "file_grep",
        FileOp::Save => "box_save",
    }
}

/// The paths it acts on: one audit log entry each.
fn subjects(op: &FileOp) -> Vec<String> {
    let one = match op {
        FileOp::FillMany { files, .. } => return files.iter().map(|(path, _)| path.to_string()).collect(),
        FileOp::InDetail { op, .. } | FileOp::OnBehalf { op, .. } => return subjects(op),
        FileOp::Stat { path }
        | FileOp::List { path, .. }
        | FileOp::Read { path, .. }
        | FileOp::Write { path, .. }
        | FileOp::MakeDirectory { path, .. }
        | FileOp::Remove { path, .. }
        | FileOp::Pack { path }
        | FileOp::Unpack { path, .. }
        | FileOp::Watch { path, .. }
        | FileOp::Measure { path }
        | FileOp::Lines { path, .. }
        | FileOp::Edit { path, .. }
        | FileOp::Glob { path, .. }
        | FileOp::Grep { path, .. }
        | FileOp::Fill { path, .. }
        | FileOp::Join { path, .. }
        | FileOp::Space { path }
        | FileOp::Reach { path }
        | FileOp::Adjust { path, .. }
        | FileOp::Follow { path, .. } => path.to_string(),
        FileOp::Move { from, to, .. } | FileOp::Relocate { from, to } => format!("{from} {to}"),
        FileOp::Save => "/".to_owned(),
    };
    vec![one]
}
