//! Starts journalled commands, listens to them until they end, and finds them again after a restart.

use std::sync::Arc;

use crate::tasks::Start as _;
use box_wire::{EndRecord, Ending, Event, ExecRequest, RefusalCode};
use jiff::Timestamp;

use super::exec::{End, Exec};
use super::execs::clipped_output;
use super::session::{Phase, Session, Standing, lock};
use super::{Inner, Resource};
use crate::audit::{AuditEntry, Outcome};
use crate::call::ExecStatus;
use crate::caller::TenantId;
use crate::link::{self, AttachedReader};
use crate::store::{Change, Wait};
use crate::{Error, Result, fault, limits};

/// How often a command whose stream broke is attached to again before it is given up.
const ATTACHES_MAX: u32 = 3;

impl Inner {
    /// Starts a command that is in the session's list, and listens to it in a task of its own. Returns when it runs, has ended or was
    /// refused.
    pub(super) async fn launch(
        self: &Arc<Self>,
        session: &Arc<Session>,
        standing: &Arc<Standing>,
        exec: &Arc<Exec>,
        request: &ExecRequest,
    ) -> Result<()> {
        // Side by side, because both take as long as each other. Nobody is told of a command that a restart would not know of.
        let remembered = self.store.write(Change::PutExec(Box::new(exec.row())), Wait::Committed);
        let (remembered, running) = tokio::join!(remembered, self.start(session, standing, exec, request));
        running?;
        if let Err(error) = remembered {
            link::kill(self.backend.dial(&standing.handle).await?, exec.id.clone()).await?;
            return Err(error);
        }
        Ok(())
    }

    async fn start(
        self: &Arc<Self>,
        session: &Arc<Session>,
        standing: &Arc<Standing>,
        exec: &Arc<Exec>,
        request: &ExecRequest,
    ) -> Result<()> {
        let started = async {
            fault::point("exec_row_queued");
            link::start(self.backend.dial(&standing.handle).await?, request).await
        };
        match started.await {
            Ok(attached) => {
                fault::point("exec_started");
                for workspace in &standing.workspaces {
                    workspace.started.notify_one();
                }
                let (mut reader, writer) = attached.split();
                *exec.writer.lock().await = Some(writer);
                self.watched.execs_started.add();
                // Most commands are over when they are first heard of, and then nobody has to listen.
                match first_words(exec, &mut reader).await {
                    Ok(Some(record)) => self.finish_at_once(session, standing, exec, exec.end_of(record)).await,
                    // A stream that broke is dealt with by whoever listens to it.
                    Ok(None) | Err(_) => self.listen(session, standing, exec, reader),
                }
            }
            Err(error) => {
                exec.has_ended(exec.lost_end(&error.to_string()));
                self.discard(session, exec).await;
                if matches!(error, Error::Gone { .. }) {
                    self.lose(session, &error.to_string()).await;
                }
                return Err(error);
            }
        }
        match exec.underway().await.end.as_deref() {
            Some(End::Refused(refusal)) => Err(refusal.replica()),
            _ => Ok(()),
        }
    }

    /// Listens to a command until its end, in a task of its own.
    pub(super) fn listen(
        self: &Arc<Self>,
        session: &Arc<Session>,
        standing: &Arc<Standing>,
        exec: &Arc<Exec>,
        reader: AttachedReader,
    ) {
        let (inner, session) = (Arc::clone(self), Arc::clone(session));
        let (standing, exec) = (Arc::clone(standing), Arc::clone(exec));
        self.tasks.start(async move {
            let end = tokio::select! {
                // The command goes on without us; the next start finds it again.
                () = inner.stopping.cancelled() => return,
                end = inner.hear(&session, &standing, &exec, reader) => end,
            };
            inner.finish(&session, &standing, &exec, end).await;
        });
    }

    /// Hears a command out, attaching again when the stream breaks.
    async fn hear(
        self: &Arc<Self>,
        session: &Arc<Session>,
        standing: &Standing,
        exec: &Exec,
        mut reader: AttachedReader,
    ) -> End {
        for _ in 0..ATTACHES_MAX {
            let broken = match hear_once(exec, &mut reader).await {
                Ok(record) => return exec.end_of(record),
                Err(error) => error,
            };
            *exec.writer.lock().await = None;
            match self.find_again(standing, exec).await {
                Ok(Again::Ended(end)) => return *end,
                Ok(Again::Runs(again)) => reader = again,
                Err(error) => {
                    let going = matches!(session.phase(), Phase::Destroying(_) | Phase::Gone(_));
                    let reason = if going { "its session was removed".to_owned() } else { error.to_string() };
                    if !going && matches!(error, Error::Gone { .. }) {
                        self.lose(session, &error.to_string()).await;
                    }
                    tracing::debug!(exec.id = %exec.id, error = %broken, "a stream to an agent broke");
                    return exec.lost_end(&reason);
                }
            }
        }
        exec.lost_end("its stream broke again and again")
    }

    /// Finds a command again: by its end in the journal, or by attaching to it.
    pub(super) async fn find_again(&self, standing: &Standing, exec: &Exec) -> Result<Again> {
        let ended = |record: Option<EndRecord>| record.map(|record| Again::Ended(Box::new(exec.end_of(record))));
        if let Some(again) = ended(standing.journal.end(&exec.id).await?) {
            return Ok(again);
        }
        let attached = link::attach(self.backend.dial(&standing.handle).await?, exec.id.clone()).await;
        let refused = match attached {
            Ok(attached) => {
                let (mut reader, writer) = attached.split();
                match take(exec, reader.next().await) {
                    Ok(None) => {
                        *exec.writer.lock().await = Some(writer);
                        return Ok(Again::Runs(reader));
                    }
                    Ok(Some(record)) => return Ok(Again::Ended(Box::new(exec.end_of(record)))),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        // It may have ended between the two looks.
        ended(standing.journal.end(&exec.id).await?).ok_or(refused)
    }

    /// Tells everybody of an end, writes it down and makes room.
    pub(super) async fn finish(
        self: &Arc<Self>,
        session: &Arc<Session>,
        standing: &Standing,
        exec: &Arc<Exec>,
        end: End,
    ) {
        if self.tell_end(session, standing, exec, end).await {
            self.settle(session, standing, exec).await;
        }
    }

    /// The same, without making anybody wait for more than the telling.
    async fn finish_at_once(
        self: &Arc<Self>,
        session: &Arc<Session>,
        standing: &Arc<Standing>,
        exec: &Arc<Exec>,
        end: End,
    ) {
        if self.tell_end(session, standing, exec, end).await {
            let (inner, session) = (Arc::clone(self), Arc::clone(session));
            let (standing, exec) = (Arc::clone(standing), Arc::clone(exec));
            self.tasks.start(async move { inner.settle(&session, &standing, &exec).await });
        }
    }

    /// Tells everybody who waits. False when nothing ran and nothing is left to do.
    async fn tell_end(&self, session: &Session, standing: &Standing, exec: &Exec, end: End) -> bool {
        exec.writer.lock().await.take();
        if matches!(end, End::Refused(_)) {
            exec.has_ended(end);
            self.discard(session, exec).await;
            return false;
        }
        fault::point("exec_told_to_end");
        session.touch();
        let end = self.judged(standing, exec, end).await;
        if let End::Told { info } = &end
            && info.status == ExecStatus::TimedOut
        {
            fault::point("exec_timed_out");
            self.watched.execs_timed_out.add();
            if exec.destroys_on_timeout {
                *lock(&exec.captured) = clipped_output(standing, exec, info).await.ok();
            }
        }
        exec.has_ended(end);
        true
    }

    /// An end, with what became of the workspace.
    async fn judged(&self, standing: &Standing, exec: &Exec, end: End) -> End {
        let End::Told { mut info } = end else { return end };
        self.check_after(standing, exec).await;
        info.quota_exceeded = exec.over_quota().is_some();
        End::Told { info }
    }

    /// What has to be done after an end was told.
    async fn settle(self: &Arc<Self>, session: &Arc<Session>, standing: &Standing, exec: &Exec) {
        self.note_end(exec).await;
        if exec.ends_session() {
            if let Err(error) = self.remove(session).await {
                tracing::error!(session.id = %session.key.id, error = %error, "a session that should go with its command stays");
            }
            return;
        }
        if let Err(error) = self.store.write(Change::PutExec(Box::new(exec.row())), Wait::Queued).await {
            tracing::error!(exec.id = %exec.id, error = %error, "the end of a command cannot be written down");
        }
        fault::point("exec_end_queued");
        exec.settle_journal();
        if exec.process.is_none() {
            self.make_room(session, standing).await;
            self.make_room_for_tenant(&session.key.tenant).await;
        }
    }

    async fn note_end(&self, exec: &Exec) {
        let info = exec.info();
        let verdict = match info.status {
            ExecStatus::Running | ExecStatus::Completed => Outcome::Completed,
            ExecStatus::TimedOut => Outcome::TimedOut,
            ExecStatus::Lost => Outcome::Lost,
        };
        let target = exec.process.as_ref().map_or_else(|| exec.id.to_string(), ToString::to_string);
        self.audit(AuditEntry {
            tenant: Some(exec.key.tenant.clone()),
            session: Some(exec.session_id().clone()),
            target: Some(target),
            detail: match exec.over_quota() {
                Some(error) => Some(error.to_string()),
                None => info.shell_code().map(|code| format!("exit code {code}")),
            },
            receipt: info.receipt,
            ..AuditEntry::anonymous("strongbox", "end", verdict, Timestamp::now())
        })
        .await;
    }

    /// Writes down what is about to be done. What cannot be written down is not done.
    pub(super) async fn record(&self, entry: AuditEntry) -> Result<()> {
        match &self.audit {
            Some(log) => log.record(entry).await,
            None => Ok(()),
        }
    }

    /// Appends to the audit log. What cannot be written is told once, where operators look.
    pub(super) async fn audit(&self, entry: AuditEntry) {
        let Some(log) = &self.audit else { return };
        if let Err(error) = log.append(entry).await {
            tracing::error!(error = %error, "the audit log cannot be written");
        }
    }

    /// Forgets a command that never ran.
    pub(super) async fn discard(&self, session: &Session, exec: &Exec) {
        lock(&session.execs).remove(&exec.id);
        let gone = Change::DeleteExec(session.key.clone(), exec.id.clone());
        if let Err(error) = self.store.write(gone, Wait::Queued).await {
            tracing::error!(exec.id = %exec.id, error = %error, "a command cannot be forgotten");
        }
    }

    /// Forgets the oldest finished commands where there are too many, or where they keep too much.
    async fn make_room(&self, session: &Session, standing: &Standing) {
        let bytes_max = self.config().journal_session_bytes_max;
        for exec in superfluous(session, bytes_max, self.config().journal_bytes_max) {
            self.forget_output(session, standing, &exec).await;
        }
    }

    async fn forget_output(&self, session: &Session, standing: &Standing, exec: &Exec) {
        if let Err(error) = standing.journal.remove(&exec.id).await {
            tracing::warn!(exec.id = %exec.id, error = %error, "output of a finished command cannot be removed");
        }
        self.discard(session, exec).await;
    }

    /// Forgets the oldest finished commands of a tenant while all its output takes more than it may.
    async fn make_room_for_tenant(&self, tenant: &TenantId) {
        let is_over = || self.budgets.held(tenant, Resource::JournalBytes) > self.config().journal_tenant_bytes_max;
        if !is_over() {
            return;
        }
        let sessions: Vec<_> = self.lock_sessions().values().filter(|it| it.key.tenant == *tenant).cloned().collect();
        let mut finished: Vec<_> = sessions
            .iter()
            .flat_map(|session| {
                let all: Vec<_> = lock(&session.execs).values().filter(|it| is_forgettable(it)).cloned().collect();
                all.into_iter().map(move |exec| (session, exec))
            })
            .collect();
        finished.sort_by(|(_, one), (_, other)| one.id.cmp(&other.id));
        for (session, exec) in finished {
            if !is_over() {
                return;
            }
            if let Ok(standing) = session.standing() {
                self.forget_output(session, &standing, &exec).await;
            }
        }
    }
}

/// What looking for a command came to.
pub(super) enum Again {
    Runs(AttachedReader),
    Ended(Box<End>),
}

/// Whether a command has ended and belongs to no managed process.
fn is_forgettable(exec: &Exec) -> bool {
    !exec.is_running() && exec.process.is_none()
}

/// Finished commands beyond what a session keeps, oldest first.
fn superfluous(session: &Session, bytes_max: u64, stream_bytes_max: u64) -> Vec<Arc<Exec>> {
    let execs = lock(&session.execs);
    // Ids begin with the time, so their order is the order in which the commands were started.
    let finished: Vec<_> = execs.values().filter(|exec| is_forgettable(exec)).collect();
    let (mut count, mut bytes) = (0, 0_u64);
    let beyond = |exec: &&&Arc<Exec>| {
        count += 1;
        bytes += exec.journal_bytes(stream_bytes_max);
        count > limits::FINISHED_EXECS_MAX || bytes > bytes_max
    };
    finished.iter().rev().filter(beyond).map(|exec| Arc::clone(exec)).collect()
}

/// Hears what a command says first, and whatever came with it.
async fn first_words(exec: &Exec, reader: &mut AttachedReader) -> Result<Option<EndRecord>> {
    let mut ended = take(exec, reader.next().await)?;
    while ended.is_none()
        && let Some(event) = reader.next_if_ready()
    {
        ended = take(exec, event)?;
    }
    Ok(ended)
}

/// Hears a command until it ends or its stream does.
async fn hear_once(exec: &Exec, reader: &mut AttachedReader) -> Result<EndRecord> {
    loop {
        if let Some(record) = take(exec, reader.next().await)? {
            return Ok(record);
        }
    }
}

/// Takes one event; returns the end when it was that. A refusal is an end too, unless it says that there is no such exec.
fn take(exec: &Exec, event: Result<Event>) -> Result<Option<EndRecord>> {
    let ending = match event {
        Ok(Event::Started { pid }) => {
            exec.has_started(pid);
            return Ok(None);
        }
        Ok(Event::Progress { stdout_bytes, stderr_bytes }) => {
            exec.has_progressed(stdout_bytes, stderr_bytes);
            return Ok(None);
        }
        Ok(Event::Exited(outcome)) => Ending::Exited(outcome),
        Err(Error::Refused(refusal)) if refusal.code != RefusalCode::BadExecId => Ending::Refused(refusal),
        Ok(Event::Done | Event::Running(_) | Event::Refused(_) | Event::Connected) => {
            return Err(box_wire::FrameError::Unexpected(box_wire::Kind::Event).into());
        }
        Err(error) => return Err(error),
    };
    let news = exec.latest();
    Ok(Some(EndRecord { ending, stdout_bytes: news.stdout_bytes, stderr_bytes: news.stderr_bytes }))
}
