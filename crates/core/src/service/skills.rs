//! What can be asked of skills in a session: mounted, activated, used.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use box_wire::{ExecRequest, GuestPath, RefusalCode};
use tokio::io::AsyncReadExt;

use super::execs::{environment_of, new_exec_id};
use super::session::{Session, lock};
use super::sessions::{Lost, entry};
use super::{Inner, Service};
use crate::audit::{AuditEntry, Outcome};
use crate::caller::{Caller, Scope};
use crate::link::{self, ExecIo};
use crate::session::{
    ChangedMounts, ExtraMount, HostPathMode, SessionDefaults, SessionId, SessionRequest, SkillMounts,
};
use crate::skills::{
    Activation, BoxReport, Environment, Files, SkillError, SkillInfo, SkillUse, Skills, is_there, mount_path, mounts,
    prepare_command, used_skill,
};
use crate::store::SessionKey;
use crate::{Error, MountMode, MountPolicy, MountSpec, Origin, Result, limits};

impl Service {
    /// Gives the service skills. Only the first ones that it is given count.
    #[must_use]
    pub fn with_skills(self, skills: Arc<dyn Skills>) -> Self {
        if self.inner.skills.set(skills).is_err() {
            tracing::warn!("the service has skills already; others are ignored");
        }
        self
    }

    /// The same request, for a session that shows the skills of the caller's tenant. One that exists stays as it is: a skill that it
    /// does not show comes in when it is activated.
    #[boxed]
    pub async fn with_skill_mounts(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: SessionRequest,
    ) -> Result<SessionRequest> {
        let key = SessionKey { tenant: caller.tenant.clone(), id: id.clone() };
        let exists = self.inner.lock_sessions().contains_key(&key);
        if exists { Ok(request) } else { self.inner.showing_skills(caller, request, &BTreeSet::new()).await }
    }

    /// Activates a skill in a session; makes the session if it does not exist, and its box anew if it does not show the skill.
    #[boxed]
    pub async fn activate_skill(
        &self,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        name: &str,
    ) -> Result<Activation> {
        let done = self.inner.activate(caller, id, request, name.trim()).await;
        self.inner.noting(caller, "skill_activate", id, done).await
    }

    /// The skills that are activated in a session.
    pub fn activated_skills(&self, caller: &Caller, id: &SessionId) -> Result<BTreeSet<String>> {
        Ok(lock(&self.inner.find(caller, id)?.activated).clone())
    }

    /// The line for the shell that a command of a tool means: as it is if it uses no skill, else within the environment of the one
    /// skill that it uses, which is prepared now if need be. `named` is the skill that the caller says it uses.
    #[boxed]
    pub async fn skill_line(
        &self,
        caller: &Caller,
        id: &SessionId,
        named: Option<&str>,
        workdir: Option<&GuestPath>,
        command: &str,
    ) -> Result<String> {
        let (session, activated, workspace) = match self.inner.find(caller, id) {
            Ok(session) => {
                let activated = lock(&session.activated).clone();
                let workspace = session.with_config(|config| config.mount_path.clone());
                (Some(session), activated, workspace)
            }
            Err(Error::SessionNotFound { .. }) => (None, BTreeSet::new(), limits::WORKSPACE.parse()?),
            Err(error) => return Err(error),
        };
        let used = used_skill(&activated, &workspace, named, workdir, command)?;
        let (Some(used), Some(session)) = (used, session) else { return Ok(command.to_owned()) };
        if !self.inner.skill(caller, &used.name).await?.python_project {
            return Ok(command.to_owned());
        }
        let inner = Arc::clone(&self.inner);
        let entry =
            AuditEntry { target: Some(used.name.clone()), ..entry(caller, "skill_prepare", Outcome::Started, id) };
        self.inner.record(entry).await?;
        // To its end, because the next one who needs the environment would begin anew.
        let environment = self.inner.to_the_end(async move { inner.prepare(&session, &used).await }).await?;
        Ok(environment.line(command)?)
    }
}

impl Service {
    /// Whether the backend of such a session sees the files of this machine, so that they can be mounted.
    #[boxed]
    pub async fn shares_files(&self, caller: &Caller, request: &SessionRequest) -> Result<bool> {
        Ok(self.inner.files(caller, request).await? == Files::Shared)
    }
}

impl Inner {
    async fn showing_skills(
        &self,
        caller: &Caller,
        mut request: SessionRequest,
        first: &BTreeSet<String>,
    ) -> Result<SessionRequest> {
        request.rules.changed_mounts = ChangedMounts::Keep;
        let Some(skills) = self.skills.get() else { return Ok(request) };
        let workspace = workspace_of(&request)?;
        let mut all = skills.list(&caller.tenant).await?;
        // Those that must be there come first, because there may not be room for all.
        all.sort_by_key(|skill| !first.contains(&skill.name));
        let files = self.files(caller, &request).await?;
        let mounts = mounts(&all, &workspace, self.skills_mode(caller, &request)?, files);
        if !mounts.is_empty() {
            let shown = SkillMounts { root: skills.root(&caller.tenant).await?, mounts };
            let shown = if files == Files::Shared { without_refused(shown).await? } else { shown };
            request.rules.skills = Some(shown);
        }
        Ok(request)
    }

    /// What boxes may do with packages.
    fn skills_mode(&self, caller: &Caller, request: &SessionRequest) -> Result<HostPathMode> {
        let defaults = SessionDefaults::new(&self.config(), &caller.tenant);
        Ok(request.profile_in(&defaults, caller.profile.as_deref())?.skills_mode)
    }

    /// Whether what skills say of places can be looked at here, for a session that is asked for like this.
    async fn files(&self, caller: &Caller, request: &SessionRequest) -> Result<Files> {
        let defaults = SessionDefaults::new(&self.config(), &caller.tenant);
        let profile = request.profile_in(&defaults, caller.profile.as_deref())?;
        let named = profile.backend.or(request.rules.backend);
        let backend = self.backend_of(named.unwrap_or_else(|| self.backend.name()));
        // Only one that is there can say. Where it is not, whoever makes the session is told.
        drop(backend.attempt().await);
        Ok(Files::of(backend.shares_filesystem()))
    }

    async fn activate(
        self: &Arc<Self>,
        caller: &Caller,
        id: &SessionId,
        request: &SessionRequest,
        name: &str,
    ) -> Result<Activation> {
        caller.require(Scope::Exec)?;
        let skill = self.skill(caller, name).await?;
        if !is_there(&skill, self.files(caller, request).await?) {
            return Err(SkillError::Stale { name: skill.name }.into());
        }
        let existing = self.find(caller, id).ok();
        let mut activated = existing.as_ref().map(|session| lock(&session.activated).clone()).unwrap_or_default();
        if !activated.contains(&skill.name) && activated.len() >= limits::SKILLS_ACTIVATED_MAX {
            return Err(Error::Capacity {
                what: "activated skill".to_owned(),
                limit: limits::SKILLS_ACTIVATED_MAX,
                fix: "use another session".to_owned(),
            });
        }
        activated.insert(skill.name.clone());
        let mut request = self.showing_skills(caller, request.clone(), &activated).await?;
        if existing.is_some_and(|session| mode_of(&session, &skill).is_none()) {
            request.rules.changed_mounts = ChangedMounts::Rebuild;
        }
        let (session, _) = self.obtain(caller, id, &request, Lost::Rebuild).await?;
        let Some(mode) = mode_of(&session, &skill) else { return Err(SkillError::Stale { name: skill.name }.into()) };
        lock(&session.activated).append(&mut activated);
        let entry =
            AuditEntry { target: Some(skill.name.clone()), ..entry(caller, "skill_activate", Outcome::Completed, id) };
        self.audit(entry).await;
        let path = mount_path(&session.with_config(|config| config.mount_path.clone()), &skill.name)?;
        Ok(Activation::new(skill, &path, mode == HostPathMode::Rw))
    }

    async fn skill(&self, caller: &Caller, name: &str) -> Result<SkillInfo> {
        let Some(skills) = self.skills.get() else { return Err(SkillError::not_found(name, &[]).into()) };
        match skills.get(&caller.tenant, name).await? {
            Some(skill) => Ok(skill),
            None => Err(SkillError::not_found(name, &skills.list(&caller.tenant).await?).into()),
        }
    }

    /// Has the box make the environment of a skill, or find that it is there.
    async fn prepare(self: &Arc<Self>, session: &Arc<Session>, used: &SkillUse) -> Result<Environment> {
        let _used = session.start_use();
        let standing = self.wake(session).await?;
        let config = session.config();
        let request = ExecRequest {
            env: environment_of(&config, self.workload(&standing.handle, config.user.user()), &[]),
            cwd: GuestPath::root(),
            timeout_ms: Some((limits::SKILL_ENVIRONMENT_SEC_MAX + 10) * 1000),
            ..ExecRequest::new(new_exec_id()?, prepare_command(used, &config.mount_path, config.network))
        };
        let (ours, theirs) = tokio::io::duplex(4 << 10);
        let io = ExecIo { stdin: tokio::io::empty(), stdout: theirs, stderr: tokio::io::sink(), resizes: None };
        let stream = self.backend.dial(&standing.handle).await?;
        // Whoever says more than is listened to is cut off, instead of waiting to be heard.
        let listen = async move {
            let mut said = Vec::new();
            ours.take(limits::SKILL_ANSWER_BYTES_MAX).read_to_end(&mut said).await.map(|_| said).unwrap_or_default()
        };
        let (outcome, said) = tokio::join!(link::exec(stream, &request, io), listen);
        let failed = |reason: &str| SkillError::Environment { name: used.name.clone(), reason: reason.to_owned() };
        match outcome {
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::NotFound => {
                return Err(failed("this box has no python3; use an image that has").into());
            }
            Err(error) => return Err(error),
            Ok(outcome) if outcome.timed_out => return Err(failed("it took too long").into()),
            Ok(outcome) if outcome.oom_killed => return Err(failed("the box ran out of memory").into()),
            Ok(_) => {}
        }
        let told = BoxReport::read(&said).ok_or_else(|| failed("the box did not say what came of it"))?;
        Ok(told.environment(&used.name, config.network)?)
    }
}

/// Leaves out what may not be mounted, for instance because a box has put a socket into it: one bad package must not keep all
/// sessions of its tenant from being made.
async fn without_refused(mut shown: SkillMounts) -> Result<SkillMounts> {
    let look = move || {
        let origin = Origin::Skills(shown.root.clone());
        shown.mounts.retain(|mount| {
            let (source, target, origin) = ((&mount.host_path).into(), mount.mount_path.clone(), origin.clone());
            let granted = MountPolicy::default().grant(&MountSpec { source, target, mode: MountMode::Ro, origin });
            if let Err(error) = &granted {
                tracing::warn!(skill.path = %mount.mount_path, error = %error, "a skill is not mounted");
            }
            granted.is_ok()
        });
        shown
    };
    let looked = crate::tasks::blocking(look).await;
    looked.map_err(|error| Error::io("looking at skills", std::io::Error::other(error)))
}

/// Where the workspace of a session will be.
fn workspace_of(request: &SessionRequest) -> Result<GuestPath> {
    match &request.mount_path {
        Some(path) => Ok(path.clone()),
        None => Ok(limits::WORKSPACE.parse()?),
    }
}

/// How a session shows a skill; nothing if it does not.
fn mode_of(session: &Session, skill: &SkillInfo) -> Option<HostPathMode> {
    session.with_config(|config| {
        let path = mount_path(&config.mount_path, &skill.name).ok()?;
        let is_it = |mount: &&ExtraMount| mount.mount_path == path && mount.host_path == skill.package_root.trim();
        config.extra_mounts.iter().find(is_it).map(|mount| mount.mode)
    })
}

#[cfg(test)]
mod tests;
