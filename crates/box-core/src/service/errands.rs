//! What can be asked of the files of a session. The agent does the work, in the box.

use std::sync::Arc;

use crate::tasks::Start as _;
use async_recursion::async_recursion as boxed;
use box_wire::errand::Effect;
use box_wire::{Answer, Errand, ExecRequest, GuestPath, Program, Stdin, User, Work};
use tokio::io::AsyncRead;
use tokio::task::JoinSet;

use super::execs::new_exec_id;
use super::session::{Session, Standing, Use};
use super::sessions::{Lost, entry};
use super::{Inner, Service};
use crate::audit::{AuditEntry, Outcome};
use crate::caller::{Caller, Scope};
use crate::link::{self, ErrandOutput};
use crate::quota::{QuotaMoment, Workspace};
use crate::session::{SessionId, SessionRequest};
use crate::{Result, limits};

/// Something to be done with the files of a session.
#[derive(Debug, Clone)]
pub struct ErrandCall {
    /// What.
    pub work: Work,
    /// The tree outside of which nothing is touched.
    pub root: GuestPath,
    /// As whom, when not as the session's own user.
    pub user: Option<User>,
    /// Deadline, when not the usual one.
    pub timeout_ms: Option<u64>,
}

impl ErrandCall {
    /// Work in the whole box, as the session's own user, within the usual time.
    pub fn new(work: Work) -> Self {
        Self { work, root: GuestPath::root(), user: None, timeout_ms: None }
    }
}

/// The bytes of an errand. The session is in use while it lives.
#[derive(Debug)]
pub struct ErrandBytes {
    output: ErrandOutput,
    _used: Use,
}

impl ErrandBytes {
    /// The next bytes; nothing when all were given. An errand that broke off is an error.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        self.output.next().await
    }

    /// The next change of a tree that is followed; nothing when there will be no more.
    pub async fn happening(&mut self) -> Result<Option<box_wire::errand::Happening>> {
        self.output.message(box_wire::limits::BOX_MESSAGE_BYTES_MAX).await
    }

    /// The next change of a watched tree; nothing when there will be no more.
    pub async fn change(&mut self) -> Result<Option<box_wire::errand::Change>> {
        self.output.message(box_wire::limits::BOX_MESSAGE_BYTES_MAX).await
    }
}

/// No input for an errand.
pub const NO_INPUT: Option<tokio::io::Empty> = None;

impl Service {
    /// Does something with the files of a session; makes the session if it does not exist. Returns with the answer, when all input
    /// was taken; the bytes that follow, if any, are read from what comes with it. Dropping either ends the work.
    pub async fn errand<I: AsyncRead + Unpin + Send>(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: ErrandCall,
        mut input: Option<I>,
    ) -> Result<(Answer, ErrandBytes)> {
        let input = input.as_mut().map(|input| input as &mut (dyn AsyncRead + Unpin + Send));
        self.errand_with(caller, id, request, call, input).await
    }

    #[boxed]
    async fn errand_with(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: ErrandCall,
        input: Option<&mut (dyn AsyncRead + Unpin + Send)>,
    ) -> Result<(Answer, ErrandBytes)> {
        let operation = operation(&call.work);
        let done = self.inner.run_errand(caller, id, request, call, input).await;
        self.inner.noting(caller, operation, id, done).await
    }
}

impl Inner {
    async fn run_errand(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        call: ErrandCall,
        input: Option<&mut (dyn AsyncRead + Unpin + Send)>,
    ) -> Result<(Answer, ErrandBytes)> {
        caller.require(Scope::Files)?;
        self.enabled()?;
        let writes = call.work.effect() == Effect::Writes;
        if writes {
            self.check_quota(caller, id, request).await?;
        }
        let wire = wire_request(&call, input.is_some())?;
        let session = match caller.require(Scope::Exec) {
            Ok(()) => self.obtain(caller, id, request, Lost::Report).await?.0,
            // Who may only use files makes no sessions.
            Err(_) => self.find_for(caller, id, Scope::Files)?,
        };
        let (used, standing, stream) = self.dial_for(&session).await?;
        let (operation, what) = (operation(&call.work), subject(&call.work));
        let entry = AuditEntry { command: Some(what), ..entry(caller, operation, Outcome::Started, id) };
        self.record(entry).await?;
        let errand = link::errand(stream, &wire, input);
        let (answer, output) = if writes { within_quota(&standing.workspaces, errand).await? } else { errand.await? };
        Ok((answer, ErrandBytes { output, _used: used }))
    }

    /// Uses a session: wakes its box if it is stopped, and opens a stream to its agent.
    pub(super) async fn dial_for(
        self: &Arc<Self>,
        session: &Arc<Session>,
    ) -> Result<(Use, Arc<Standing>, crate::AgentStream)> {
        let used = session.start_use();
        let (inner, session) = (Arc::clone(self), Arc::clone(session));
        let standing = self.to_the_end(async move { inner.wake(&session).await }).await?;
        let stream = self.backend.dial(&standing.handle).await?;
        Ok((used, standing, stream))
    }
}

/// Does an errand that writes, and gives it up when the workspace holds too much. What was written stays: it can be removed, which
/// is always allowed.
async fn within_quota<T>(workspaces: &[Arc<Workspace>], errand: impl Future<Output = Result<T>>) -> Result<T> {
    // They end with this call.
    let mut looks = JoinSet::new();
    for workspace in workspaces {
        let workspace = Arc::clone(workspace);
        looks.start(async move { workspace.until_exceeded().await });
    }
    let done = tokio::select! {
        done = errand => done?,
        Some(Ok(error)) = looks.join_next() => return Err(error),
    };
    for workspace in workspaces {
        workspace.check(QuotaMoment::After).await?;
    }
    Ok(done)
}

pub(super) fn wire_request(call: &ErrandCall, has_input: bool) -> Result<ExecRequest> {
    let errand = Errand { root: call.root.clone(), work: call.work.clone() };
    let request = ExecRequest {
        stdin: if has_input { Stdin::Stream } else { Stdin::Null },
        timeout_ms: Some(call.timeout_ms.unwrap_or_else(|| usual_timeout_ms(&call.work))),
        user: call.user,
        ..ExecRequest::new(new_exec_id()?, Program::Errand(Box::new(errand)))
    };
    request.validate()?;
    Ok(request)
}

/// How long it may take when nobody says.
fn usual_timeout_ms(work: &Work) -> u64 {
    match work {
        Work::Watch { .. } | Work::Follow { .. } => box_wire::limits::TIMEOUT_MS_MAX,
        Work::Read { .. }
        | Work::Write { .. }
        | Work::Pack { .. }
        | Work::Unpack { .. }
        | Work::Fill { .. }
        | Work::Join { .. }
        | Work::Save => limits::TRANSFER_TIMEOUT_MS,
        Work::InDetail { work, .. } | Work::OnBehalf { work, .. } => usual_timeout_ms(work),
        _ => limits::ERRAND_TIMEOUT_MS,
    }
}

/// What the audit log calls it.
fn operation(work: &Work) -> &'static str {
    match work {
        Work::InDetail { work, .. } | Work::OnBehalf { work, .. } => operation(work),
        Work::Stat { .. } => "file_stat",
        Work::List { .. } => "file_list",
        Work::Read { .. } => "file_read",
        Work::Write { .. } | Work::Fill { .. } => "file_write",
        Work::MakeDirectory { .. } => "file_mkdir",
        Work::Move { .. } | Work::Relocate { .. } => "file_move",
        Work::Join { .. } => "file_join",
        Work::Remove { .. } => "file_remove",
        Work::Pack { .. } => "file_pack",
        Work::Unpack { .. } => "file_unpack",
        Work::Watch { .. } | Work::Follow { .. } => "file_watch",
        Work::Measure { .. } => "file_measure",
        Work::Space { .. } => "file_space",
        Work::Reach { .. } => "file_reach",
        Work::Adjust { .. } => "file_adjust",
        Work::Lines { .. } => "file_lines",
        Work::Edit { .. } => "file_edit",
        Work::Glob { .. } => "file_glob",
        Work::Grep { .. } => "file_grep",
        Work::Save => "box_save",
    }
}

/// What it is done to.
fn subject(work: &Work) -> String {
    match work {
        Work::Stat { path }
        | Work::List { path, .. }
        | Work::Read { path, .. }
        | Work::Write { path, .. }
        | Work::MakeDirectory { path, .. }
        | Work::Remove { path, .. }
        | Work::Pack { path }
        | Work::Unpack { path, .. }
        | Work::Watch { path, .. }
        | Work::Measure { path }
        | Work::Lines { path, .. }
        | Work::Edit { path, .. }
        | Work::Glob { path, .. }
        | Work::Grep { path, .. }
        | Work::Fill { path, .. }
        | Work::Join { path, .. }
        | Work::Space { path }
        | Work::Reach { path }
        | Work::Adjust { path, .. }
        | Work::Follow { path, .. } => path.to_string(),
        Work::Move { from, to, .. } | Work::Relocate { from, to } => format!("{from} {to}"),
        Work::InDetail { work, .. } | Work::OnBehalf { work, .. } => subject(work),
        Work::Save => "/".to_owned(),
    }
}
