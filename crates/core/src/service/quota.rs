//! Holds sessions to the quota of their workspace: before something starts, while it runs, when it has ended.

use std::sync::Arc;

use crate::tasks::Start as _;
use tokio::time::Instant;

use super::Inner;
use super::exec::Exec;
use super::session::{Phase, Session, Standing, lock};
use crate::caller::{Caller, Scope};
use crate::quota::{self, Activity, Pace, Quota, QuotaMoment, Usage, Workspace};
use crate::session::{AbsentSession, SessionConfig, SessionId, SessionRequest};
use crate::store::SessionKey;
use crate::{Backend, BoxSpec, Dimension, Error, Handle, Level, Origin, Result, link};

impl Inner {
    /// Refuses to start something in a session whose workspace holds too much, before anything is made for it.
    pub(super) async fn check_quota(&self, caller: &Caller, id: &SessionId, request: &SessionRequest) -> Result<()> {
        // First: what another session holds must not be told.
        caller.check_session(id)?;
        let key = SessionKey { tenant: caller.tenant.clone(), id: id.clone() };
        let existing = self.lock_sessions().get(&key).cloned();
        if let Some(session) = &existing {
            session.with_config(|config| caller.check_profile(id, &config.profile))?;
        }
        let workspaces = match existing.map(|session| session.standing()) {
            Some(Ok(standing)) => standing.workspaces.clone(),
            // Whoever may not make it, or does not want it made, is told by who would have to.
            _ if request.rules.absent_session == AbsentSession::Refused => Vec::new(),
            _ if caller.require(Scope::Exec).is_err() => Vec::new(),
            _ => {
                let held = self.hold_volumes(caller, id, request).await?;
                let (config, spec) = self.decide(caller, request, &held)?;
                self.workspaces_of(&config, &spec).await?
            }
        };
        for workspace in workspaces {
            workspace.check(QuotaMoment::Before).await?;
        }
        Ok(())
    }

    /// The workspace of a session and what it keeps, where they have a quota that nothing but us holds.
    async fn open_workspaces(
        &self,
        backend: &dyn Backend,
        config: &SessionConfig,
        origin: Origin,
    ) -> Result<Vec<Arc<Workspace>>> {
        let filled = quota::filled(config, origin);
        if filled.is_empty() {
            return Ok(Vec::new());
        }
        // Only one that is there can say, and it may be needed here for the first time.
        backend.attempt().await?;
        if !backend.shares_filesystem() {
            return Ok(Vec::new());
        }
        let mut opened = Vec::with_capacity(filled.len());
        for (quota, mount) in filled {
            let root = backend.open_source(&mount).await?;
            opened.push(Arc::new(Workspace::new(root, mount.target, quota)));
        }
        Ok(opened)
    }

    /// What a box that is about to be made fills within a quota.
    pub(super) async fn workspaces_of(&self, config: &SessionConfig, spec: &BoxSpec) -> Result<Vec<Arc<Workspace>>> {
        self.open_workspaces(&*self.backend_for(spec), config, origin(config, spec)).await
    }

    /// The same of a box that was found again. What cannot be looked at any more is said to be held by nothing.
    pub(super) async fn workspaces_again(&self, config: &SessionConfig, handle: &mut Handle) -> Vec<Arc<Workspace>> {
        // It was decided when the session was made. What no box ever sees is refused all the same.
        match self.open_workspaces(&*self.backend_of(handle.backend), config, Origin::Operator).await {
            Ok(workspaces) => workspaces,
            Err(error) => {
                tracing::warn!(r#box.id = %handle.id, error = %error, "a workspace cannot be looked at any more");
                for dimension in [Dimension::DiskBytes, Dimension::DiskInodes] {
                    handle.guarantees.set(dimension, Level::Absent, format!("the quota is not held: {error}"));
                }
                Vec::new()
            }
        }
    }

    /// Looks at what a session fills while its box stands, each in a task of its own.
    pub(super) fn watch_workspaces(self: &Arc<Self>, session: &Arc<Session>, standing: &Arc<Standing>) {
        for workspace in &standing.workspaces {
            let workspace = Arc::clone(workspace);
            let (inner, session, standing) = (Arc::clone(self), Arc::clone(session), Arc::clone(standing));
            self.tasks.start(async move {
                let mut phases = session.phases();
                tokio::select! {
                    () = inner.stopping.cancelled() => {}
                    _ = phases.wait_for(|phase| !matches!(phase, Phase::Running(_) | Phase::Paused(_))) => {}
                    () = inner.hold(&session, &standing, &workspace) => {}
                }
            });
        }
    }

    /// Looks again and again, and ends what writes too much.
    async fn hold(self: &Arc<Self>, session: &Arc<Session>, standing: &Standing, workspace: &Workspace) {
        let mut pace = Pace::default();
        loop {
            wait(session, workspace, &mut pace).await;
            let activity = activity(session);
            if activity == Activity::Idle && !self.has_strays(standing).await {
                continue;
            }
            let Some(usage) = workspace.look(&mut pace).await.filter(|it| workspace.quota.is_exceeded_by(it)) else {
                continue;
            };
            match activity {
                Activity::Running => self.end_running(session, standing, &workspace.quota, &usage).await,
                // Nobody can name what a command has left behind. The whole box can be ended.
                Activity::Idle => return self.end_strays(session, &workspace.quota, &usage),
            }
        }
    }

    /// Whether processes run that no command of ours has, as far as that is counted.
    async fn has_strays(&self, standing: &Standing) -> bool {
        let stats = self.backend.stats(&standing.handle).await;
        stats.is_ok_and(|stats| stats.pids.is_some_and(|pids| pids > 0))
    }

    /// Kills the whole tree of everything that runs in a session, and tells those who wait for it why.
    async fn end_running(&self, session: &Session, standing: &Standing, quota: &Quota, usage: &Usage) {
        let running: Vec<_> = lock(&session.execs).values().filter(|exec| exec.is_running()).cloned().collect();
        let error = || quota.exceeded(QuotaMoment::During, usage);
        for exec in running {
            if exec.exceeds(error()) {
                tracing::warn!(exec.id = %exec.id, session.id = %session.key.id, error = %error(), "a command is killed");
                self.remember_exceeding(&exec, &error());
            }
            let killed = async { link::kill(self.backend.dial(&standing.handle).await?, exec.id.clone()).await };
            if let Err(error) = killed.await {
                tracing::debug!(exec.id = %exec.id, error = %error, "a command that writes too much was not killed");
            }
        }
    }

    fn remember_exceeding(&self, exec: &Exec, error: &Error) {
        let query_id = exec.query_id.get().map(String::as_str);
        self.watched.remember(&exec.key.tenant, query_id, "exec", Some(exec.session_id()), error);
    }

    /// Removes a session in which something that nobody can name writes too much.
    fn end_strays(self: &Arc<Self>, session: &Arc<Session>, quota: &Quota, usage: &Usage) {
        let error = quota.exceeded(QuotaMoment::During, usage);
        tracing::warn!(session.id = %session.key.id, error = %error, "a session is removed: processes were left behind in it");
        self.watched.remember(&session.key.tenant, None, "workspace_quota", Some(&session.key.id), &error);
        let (inner, session) = (Arc::clone(self), Arc::clone(session));
        // Not by the task that looks, which ends with the box.
        self.tasks.start(async move {
            if let Err(error) = inner.remove(&session).await {
                tracing::error!(session.id = %session.key.id, error = %error, "a session that holds too much stays");
            }
        });
    }

    /// Looks at what a session fills when a command has ended.
    pub(super) async fn check_after(&self, standing: &Standing, exec: &Exec) {
        for workspace in &standing.workspaces {
            // A process is looked at while it runs; its end is not the end of what was asked.
            if exec.process.is_none() && exec.over_quota().is_none() {
                self.check_one_after(workspace, exec).await;
            }
        }
    }

    async fn check_one_after(&self, workspace: &Workspace, exec: &Exec) {
        match workspace.usage().await {
            Ok(usage) if workspace.quota.is_exceeded_by(&usage) => {
                let error = workspace.quota.exceeded(QuotaMoment::After, &usage);
                tracing::warn!(exec.id = %exec.id, session.id = %exec.key.id, error = %error, "a session is removed");
                self.remember_exceeding(exec, &error);
                exec.exceeds(error);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(exec.id = %exec.id, error = %error, "a workspace cannot be measured"),
        }
    }
}

/// Waits for the time of the next look, which comes sooner when something is started.
async fn wait(session: &Session, workspace: &Workspace, pace: &mut Pace) {
    let mut next = Instant::now() + pace.wait(activity(session));
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next) => return,
            () = workspace.started.notified() => {
                pace.is_stirred();
                next = next.min(Instant::now() + pace.wait(Activity::Running));
            }
        }
    }
}

fn activity(session: &Session) -> Activity {
    let runs = lock(&session.execs).values().any(|exec| exec.is_running());
    if runs { Activity::Running } else { Activity::Idle }
}

/// Who asked for the workspace to be mounted.
fn origin(config: &SessionConfig, spec: &BoxSpec) -> Origin {
    let mount = spec.mounts.iter().find(|mount| mount.target == config.mount_path);
    mount.map_or(Origin::Caller, |mount| mount.origin.clone())
}
