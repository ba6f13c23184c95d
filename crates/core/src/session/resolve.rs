//! How what a caller asks becomes what a session is: its profile, the operator's defaults, and what the caller may decide.

use std::collections::BTreeSet;

use box_wire::{GuestPath, Invalid, exec::check_env, limits as wire_limits};

use super::LeaseEnd;
use super::request::{LoneMountPath, check_ttl};
use super::{SessionConfig, SessionRequest};
use crate::call::{ExecCall, ExecSpan};
use crate::profile::{LockedField, TIMEOUT_SEC_MAX, locked_deadline_sec};
use crate::snapshots::Reference;
use crate::volumes::{self, VolumeDirectory};
use crate::{Profile, Profiles, Result, ServiceConfig, TenantId, limits};

/// What the operator decided for sessions that do not say otherwise.
#[derive(Debug, Clone)]
pub struct SessionDefaults {
    /// The profiles that there are.
    pub profiles: Profiles,
    /// The one of sessions that name none.
    pub default_profile: String,
    /// Idle time after which a session is removed.
    pub ttl_sec: u64,
    /// The workspace of sessions that ask for none, where there is one.
    pub default_workspace: Option<String>,
    /// Most that a workspace may hold, where the profile does not say.
    pub workspace_quota_mb: Option<u64>,
    /// The volumes that the request names.
    pub volumes: Vec<VolumeDirectory>,
}

impl SessionDefaults {
    /// Those of a configuration. The default workspace is one directory, so only the tenant that the machine's owner works as
    /// gets it unasked: others would find each other's files in it.
    pub fn new(config: &ServiceConfig, tenant: &TenantId) -> Self {
        let shared = config.default_workspace.as_ref().filter(|_| *tenant == TenantId::default());
        Self {
            profiles: config.profiles.clone(),
            default_profile: config.default_profile.clone(),
            ttl_sec: config.session_ttl_sec,
            default_workspace: shared.map(|path| path.display().to_string()),
            workspace_quota_mb: Some(config.workspace_quota_mb).filter(|quota| *quota > 0),
            volumes: Vec::new(),
        }
    }
}

impl Default for SessionDefaults {
    fn default() -> Self {
        Self::new(&ServiceConfig::default(), &TenantId::default())
    }
}

impl SessionRequest {
    /// Decides every field, and checks it. `caller_profile` is the one to which the caller's token is bound.
    pub fn resolve(&self, defaults: &SessionDefaults, caller_profile: Option<&str>) -> Result<SessionConfig> {
        let profile = self.profile_in(defaults, caller_profile)?;
        let asked = self.without(&profile.locked);
        let quota_mb = [profile.workspace_quota_mb, defaults.workspace_quota_mb.unwrap_or(0)];
        let extra_mounts = asked.all_mounts().unwrap_or_default();
        let mount_path = match asked.mount_path {
            Some(path) => path,
            None => GuestPath::parse("mount_path", limits::WORKSPACE)?,
        };
        let asked_volumes = asked.volumes.unwrap_or_default();
        let volumes = volumes::resolve(&asked_volumes, &defaults.volumes, profile, &mount_path)?;
        let config = SessionConfig {
            profile: profile.name.clone(),
            network: asked.network.unwrap_or(profile.network),
            image: asked.image.unwrap_or_else(|| profile.image.clone()),
            host_path: asked.host_path.unwrap_or_else(|| defaults.default_workspace.clone()),
            host_path_mode: asked.host_path_mode.unwrap_or(profile.host_path_mode),
            mount_path,
            extra_mounts,
            kept: asked.rules.kept,
            volumes,
            cpus: asked.cpus.unwrap_or(profile.cpus),
            memory_mb: asked.memory_mb.unwrap_or(profile.memory_mb),
            pids_limit: asked.pids_limit.unwrap_or(profile.pids_limit),
            read_only_rootfs: asked.read_only_rootfs.unwrap_or(profile.read_only_rootfs),
            user: profile.user,
            root_capabilities: profile.root_capabilities,
            workspace_quota_mb: asked
                .workspace_quota_mb
                .unwrap_or_else(|| quota_mb.into_iter().find(|quota| *quota > 0).unwrap_or(0)),
            persistent: asked.persistent.unwrap_or(false),
            lease_end: asked.rules.lease_end,
            ttl_sec: asked.ttl_sec.unwrap_or(defaults.ttl_sec),
            timeout_sec: profile.timeout_sec,
            timeout_sec_max: self.longest_deadline(profile, caller_profile),
            on_timeout: asked.on_timeout.or(asked.rules.on_timeout).unwrap_or_default(),
            env: asked.env,
            snapshot: asked.archive,
            from_snapshot: asked.snapshot.as_deref().map(|name| Reference::read(name).to_string()),
            locked: profile.locked.clone(),
        };
        config.validate()?;
        self.check_mount_path(&config)?;
        Ok(config)
    }

    /// The profile that this asks for. `caller_profile` is the one to which the caller's token is bound.
    pub fn profile_in<'a>(&self, defaults: &'a SessionDefaults, caller_profile: Option<&str>) -> Result<&'a Profile> {
        self.check_profile(caller_profile)?;
        let name = caller_profile.or(self.profile.as_deref()).unwrap_or(&defaults.default_profile);
        Ok(defaults.profiles.get(name)?)
    }

    /// Refuses another profile than the one to which the caller's token is bound.
    pub(crate) fn check_profile(&self, caller_profile: Option<&str>) -> Result<()> {
        match (caller_profile, self.profile.as_deref()) {
            (Some(bound), Some(asked)) if asked != bound => {
                Err(Invalid::new("profile", asked, format!("{bound}, to which the token is bound")).into())
            }
            _ => Ok(()),
        }
    }

    /// The same without what does not count. The deadline is a matter of each command.
    pub(super) fn without(&self, locked: &BTreeSet<LockedField>) -> Self {
        let mut asked = self.clone();
        for field in locked {
            match field {
                LockedField::Network => asked.network = None,
                LockedField::Image => asked.image = None,
                LockedField::HostPath => asked.host_path = None,
                LockedField::HostPathMode => asked.host_path_mode = None,
                LockedField::ExtraMounts => asked.extra_mounts = None,
                LockedField::Cpus => asked.cpus = None,
                LockedField::MemoryMb => asked.memory_mb = None,
                LockedField::PidsLimit => asked.pids_limit = None,
                LockedField::ReadOnlyRootfs => asked.read_only_rootfs = None,
                LockedField::WorkspaceQuotaMb => asked.workspace_quota_mb = None,
                LockedField::Persistent => asked.persistent = None,
                // A persistent session has no idle time.
                LockedField::TtlSec => (asked.ttl_sec, asked.persistent) = (None, None),
                LockedField::TimeoutSec => {}
            }
        }
        asked
    }

    /// A door may have another bound than the profile, whose clients rely on it; not for a caller who is held to a profile.
    fn longest_deadline(&self, profile: &Profile, caller_profile: Option<&str>) -> u64 {
        self.rules.timeout_sec_max.filter(|_| caller_profile.is_none()).unwrap_or(profile.timeout_sec_max)
    }

    fn check_mount_path(&self, config: &SessionConfig) -> Result<()> {
        let is_lone = config.host_path.is_none() && config.mount_path.as_str() != limits::WORKSPACE;
        if is_lone && self.rules.lone_mount_path == LoneMountPath::Refused {
            let allowed = "/workspace where no host_path is mounted";
            return Err(Invalid::new("mount_path", config.mount_path.as_str(), allowed).into());
        }
        Ok(())
    }
}

impl SessionConfig {
    /// The deadline of a command, whichever door starts it. None where only the life of the session bounds it.
    pub fn deadline_ms(&self, call: &ExecCall) -> Option<u64> {
        let longest_ms = self.longest_ms(call)?;
        Some(if self.locked_deadline_sec().is_some() { longest_ms } else { self.requested_ms(call).min(longest_ms) })
    }

    /// The limit that a command's deadline has reached, with the fix: requesting more changes nothing.
    pub fn deadline_limit(&self, call: &ExecCall) -> Option<String> {
        let longest_ms = self.longest_ms(call).filter(|longest| self.deadline_ms(call) == Some(*longest))?;
        let (profile, seconds) = (&self.profile, longest_ms / 1000);
        Some(if self.locked_deadline_sec().is_some() {
            format!("profile {profile} locks timeout_sec to {seconds}; make a session with another profile")
        } else if is_interactive(call) {
            format!("a terminal can have a deadline of at most {seconds} s; start one without a deadline")
        } else {
            // A door may have set it, not the profile.
            format!("the session (profile {profile}) has timeout_sec_max {seconds}; make one whose profile allows more")
        })
    }

    /// The same limit, where it made the deadline shorter than requested.
    pub fn deadline_cut(&self, call: &ExecCall) -> Option<String> {
        let is_cut = self.longest_ms(call).is_some_and(|longest_ms| longest_ms < self.requested_ms(call));
        self.deadline_limit(call).filter(|_| is_cut)
    }

    fn locked_deadline_sec(&self) -> Option<u64> {
        locked_deadline_sec(&self.locked, self.timeout_sec, self.timeout_sec_max)
    }

    /// The longest deadline that a command can have.
    fn longest_ms(&self, call: &ExecCall) -> Option<u64> {
        let has_own = call.timeout_ms.is_some();
        let seconds = if let Some(locked) = self.locked_deadline_sec() {
            locked
        } else if call.span == ExecSpan::Output {
            (has_own || self.timeout_sec_max < TIMEOUT_SEC_MAX).then_some(self.timeout_sec_max)?
        } else if is_interactive(call) {
            // The deadlines of a profile are for commands.
            has_own.then_some(limits::TERMINAL_TIMEOUT_SEC_MAX)?
        } else {
            self.timeout_sec_max
        };
        Some(seconds.saturating_mul(1000))
    }

    /// Whether a command ends when no client is attached to it for long. A terminal without a deadline would otherwise keep its
    /// session forever after its client is gone. Sandboxes have an end of their own.
    pub fn ends_unattended(&self, call: &ExecCall) -> bool {
        is_interactive(call) && self.deadline_ms(call).is_none()
    }

    /// When the box ends itself without a server, whatever runs in it.
    pub(crate) fn unattended_end(&self) -> LeaseEnd {
        match self.lease_end {
            LeaseEnd::Never if !self.persistent => LeaseEnd::Within(limits::UNATTENDED_BOX_SEC),
            end => end,
        }
    }

    /// The deadline that a command requests. Without one, terminals and processes of E2B clients request as much as there is.
    fn requested_ms(&self, call: &ExecCall) -> u64 {
        let usual_sec = match call.span {
            ExecSpan::Output => u64::MAX,
            ExecSpan::Main if is_interactive(call) => u64::MAX,
            ExecSpan::Main => self.timeout_sec,
        };
        call.timeout_ms.unwrap_or(usual_sec.saturating_mul(1000))
    }

    fn validate(&self) -> Result<()> {
        check_ttl(self.ttl_sec)?;
        if self.env.len() > wire_limits::ENVIRONMENT_ENTRIES_MAX {
            let allowed = format!("at most {} entries", wire_limits::ENVIRONMENT_ENTRIES_MAX);
            return Err(Invalid::new("env", self.env.len(), allowed).into());
        }
        for (name, value) in &self.env {
            check_env(name, value)?;
        }
        Ok(())
    }
}

/// Whether a command is used through a terminal. Input alone is not enough: pipelines have it, too.
fn is_interactive(call: &ExecCall) -> bool {
    call.span == ExecSpan::Main && call.terminal.is_some()
}

#[cfg(test)]
mod tests;
