//! What a caller asks of a session, how it becomes a box, and how it differs from one that exists.

use std::collections::BTreeMap;
use std::path::PathBuf;

use box_wire::{GuestPath, Invalid};
use serde::{Deserialize, Serialize};

use super::{HostPathMode, KeptDirectory, LeaseEnd, OnTimeout, SessionConfig};
use crate::profile::LockedField;
use crate::snapshots::Reference;
use crate::volumes::{self, MountedVolume, VolumeMount};
use crate::{
    BackendName, BoxSpec, ImagePolicy, MountMode, MountSpec, Network, Origin, Profiles, Result, limits, skills,
};

/// What a caller asks of a session. What is not asked comes from the profile, and does not matter to a session that exists.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionRequest {
    /// Preset of everything below.
    pub profile: Option<String>,
    /// What the box can reach.
    pub network: Option<Network>,
    /// Root file system: `host`, or a name that the operator gave to one.
    pub image: Option<String>,
    /// Directory of the host that becomes the workspace. `Some(None)` asks for none.
    pub host_path: Option<Option<String>>,
    /// What the box may do with it.
    pub host_path_mode: Option<HostPathMode>,
    /// Where the workspace is in the box.
    pub mount_path: Option<GuestPath>,
    /// More trees of the host.
    pub extra_mounts: Option<Vec<ExtraMount>>,
    /// Processors.
    pub cpus: Option<f64>,
    /// Memory limit.
    pub memory_mb: Option<u64>,
    /// Most processes at once.
    pub pids_limit: Option<u64>,
    /// Whether everything but the work places is read-only.
    pub read_only_rootfs: Option<bool>,
    /// Most that the box can store, and most that a writable workspace of the host may hold; 0 = the default, and no limit there.
    pub workspace_quota_mb: Option<u64>,
    /// Whether the session outlives idleness and a stop of the server.
    pub persistent: Option<bool>,
    /// Idle time after which the session is removed.
    pub ttl_sec: Option<u64>,
    /// What a passed deadline does to the session.
    pub on_timeout: Option<OnTimeout>,
    /// Environment of every command of the session. An empty map requests nothing.
    pub env: Vec<(String, String)>,
    /// Volumes of the tenant to mount.
    pub volumes: Option<Vec<VolumeMount>>,
    /// The snapshot or template from which the session is made, `NAME[:TAG]` or `ID[:TAG]`.
    pub snapshot: Option<String>,
    /// The archive of a snapshot on this machine, from which the box is made. Only this process names one, never its callers;
    /// it matters only when the session is made.
    pub archive: Option<PathBuf>,
    /// What the door handles in a way of its own.
    pub rules: DoorRules,
}

/// What a door handles in a way of its own, because its clients rely on that.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DoorRules {
    /// What becomes of an image that nobody gave a meaning.
    pub unknown_image: UnknownImage,
    /// What becomes of a session that is asked for with other `extra_mounts`.
    pub changed_mounts: ChangedMounts,
    /// The door's default action when the deadline passes. Its clients do not request it, so a session with another action is
    /// not a conflict.
    pub on_timeout: Option<OnTimeout>,
    /// Real paths below which the session may mount, instead of those that hold for everybody.
    pub mount_roots: Option<Vec<PathBuf>>,
    /// Skills that the session shows, besides what the caller mounts.
    pub skills: Option<SkillMounts>,
    /// A directory in which the box keeps what outlives it. It is the service's own affair: no profile keeps it away, and it matters only when the session
    /// is made.
    pub kept: Option<KeptDirectory>,
    /// Longest deadline that a command may ask for, instead of the profile's.
    pub timeout_sec_max: Option<u64>,
    /// What becomes of a call for a session that does not exist.
    pub absent_session: AbsentSession,
    /// What becomes of a call for a session whose box has vanished.
    pub vanished_box: VanishedBox,
    /// What becomes of a `mount_path` where nothing is mounted.
    pub lone_mount_path: LoneMountPath,
    /// When the box ends itself although something runs in it, if no server is there. It matters only when the session is made.
    pub lease_end: LeaseEnd,
    /// The backend on which a session is made, where its profile names none. It matters only then.
    pub backend: Option<BackendName>,
}

/// Packages that a session shows. They are the service's own affair, and no profile keeps them away.
#[derive(Debug, Clone, PartialEq)]
pub struct SkillMounts {
    /// Real path below which all of them lie.
    pub root: PathBuf,
    /// Where each is, among the skills of the workspace.
    pub mounts: Vec<ExtraMount>,
}

/// What becomes of a `mount_path` where nothing is mounted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoneMountPath {
    /// It is refused: the workspace of a box of its own is in one place only.
    #[default]
    Refused,
    /// It is kept, told and compared, and means nothing else.
    Kept,
    /// The box's own workspace is there, and is the home of its user.
    Own,
}

/// What becomes of a call for a session that does not exist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AbsentSession {
    /// The session is made.
    #[default]
    Made,
    /// The call is refused.
    Refused,
}

/// What becomes of a call for a session whose box has vanished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VanishedBox {
    /// Whoever does not ask for the session itself is told.
    #[default]
    Told,
    /// The session gets a new box, and nobody is told. The box is looked for at every call.
    Replaced,
}

/// What becomes of an image that nobody gave a meaning.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnknownImage {
    /// It is refused.
    #[default]
    Refused,
    /// The host's own system stands in for it. Sessions differ in their image only if it means something else.
    Host,
}

/// What becomes of a session that is asked for with other `extra_mounts`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ChangedMounts {
    /// It conflicts.
    #[default]
    Conflict,
    /// Its box is made anew.
    Rebuild,
    /// It keeps those that it has. They matter only when it is made.
    Keep,
}

/// One more tree of the host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtraMount {
    /// Path on the host.
    pub host_path: String,
    /// Path in the box.
    #[schema(value_type = String)]
    pub mount_path: GuestPath,
    /// What the box may do with it.
    #[serde(default)]
    pub mode: HostPathMode,
}

/// A field in which a request differs from the session that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which field.
    pub field: &'static str,
    /// What the session has.
    pub existing: String,
    /// What was asked.
    pub asked: String,
}

impl PartialOrd for HostPathMode {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HostPathMode {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

impl SessionRequest {
    /// What is to be mounted besides the workspace, by whomever. Nothing, when nobody said anything.
    pub(super) fn all_mounts(&self) -> Option<Vec<ExtraMount>> {
        match &self.rules.skills {
            None => self.extra_mounts.clone(),
            Some(skills) => Some(self.extra_mounts.iter().flatten().chain(&skills.mounts).cloned().collect()),
        }
    }

    /// Asks nothing, but that the session exists.
    pub fn of_existing() -> Self {
        let rules = DoorRules { absent_session: AbsentSession::Refused, ..DoorRules::default() };
        Self { rules, ..Self::default() }
    }
}

impl SessionConfig {
    /// Fields in which a request differs from this session. What the request does not ask cannot differ, and what the session's
    /// profile locked is not the caller's choice. The idle time is not compared: it can be changed, see [`Self::new_ttl`].
    pub fn differences(&self, request: &SessionRequest, images: &ImagePolicy<'_>) -> Vec<Difference> {
        let request = &request.without(&self.locked);
        let mut found = Vec::new();
        let mut compare = |field, existing: String, asked: Option<String>| {
            if let Some(asked) = asked.filter(|asked| *asked != existing) {
                found.push(Difference { field, existing, asked });
            }
        };
        let path = |path: &Option<String>| path.clone().unwrap_or_else(|| "none".to_owned());
        compare("profile", self.profile.clone(), request.profile.clone());
        compare("network", self.network.to_string(), request.network.map(|network| network.to_string()));
        compare(
            "image",
            self.image.clone(),
            request.image.clone().filter(|asked| !self.is_same_image(asked, request, images)),
        );
        compare("host_path", path(&self.host_path), request.host_path.as_ref().map(path));
        compare("host_path_mode", self.host_path_mode.to_string(), request.host_path_mode.map(|mode| mode.to_string()));
        compare("mount_path", self.mount_path.to_string(), request.mount_path.as_ref().map(ToString::to_string));
        compare("persistent", self.persistent.to_string(), request.persistent.map(|value| value.to_string()));
        compare("cpus", self.cpus.to_string(), request.cpus.map(|value| value.to_string()));
        compare("memory_mb", self.memory_mb.to_string(), request.memory_mb.map(|value| value.to_string()));
        compare("pids_limit", self.pids_limit.to_string(), request.pids_limit.map(|value| value.to_string()));
        let asked = request.read_only_rootfs.map(|value| value.to_string());
        compare("read_only_rootfs", self.read_only_rootfs.to_string(), asked);
        let asked = request.workspace_quota_mb.map(|value| value.to_string());
        compare("workspace_quota_mb", self.workspace_quota_mb.to_string(), asked);
        let asked = request.all_mounts().as_deref().map(describe_mounts);
        compare("extra_mounts", describe_mounts(&self.extra_mounts), asked);
        let is_mode_locked = self.locked.contains(&LockedField::HostPathMode);
        let asked = request.volumes.as_deref();
        let volumes = asked.and_then(|asked| volumes::difference(&self.volumes, asked, is_mode_locked));
        compare("on_timeout", self.on_timeout.to_string(), request.on_timeout.map(|what| what.to_string()));
        found.extend(volumes);
        let asked = request.snapshot.as_deref().map(|name| Reference::read(name).to_string());
        let existing = self.from_snapshot.clone().unwrap_or_else(|| "none".to_owned());
        if let Some(asked) = asked.filter(|asked| *asked != existing) {
            found.push(Difference { field: "snapshot", existing, asked });
        }
        found.extend(self.different_env(&request.env));
        found
    }

    /// How the environment of a request differs from that of the session. Values are secrets, so it lists only names.
    fn different_env(&self, asked: &[(String, String)]) -> Option<Difference> {
        let of = |env: &[(String, String)]| env.iter().cloned().collect::<BTreeMap<_, _>>();
        let (existing, asked) = (of(&self.env), of(asked));
        // A snapshot brings variables of its own.
        let is_part =
            self.from_snapshot.is_some() && asked.iter().all(|(name, value)| existing.get(name) == Some(value));
        if asked.is_empty() || asked == existing || is_part {
            return None;
        }
        let told = |(name, value): (&String, &String)| match existing.get(name) {
            Some(other) if other != value => format!("{name} (another value)"),
            _ => name.clone(),
        };
        let asked = asked.iter().map(told).collect::<Vec<_>>().join(",");
        let names = existing.keys().map(String::as_str).collect::<Vec<_>>().join(",");
        let existing = if names.is_empty() { "none".to_owned() } else { names };
        Some(Difference { field: "env", existing, asked })
    }

    /// The requested idle time, if it is a new one and the session's profile allows the change.
    pub(crate) fn new_ttl(&self, request: &SessionRequest) -> Option<u64> {
        request.ttl_sec.filter(|asked| *asked != self.ttl_sec && !self.locked.contains(&LockedField::TtlSec))
    }

    /// Whether another name means the image that the session has, where names that mean nothing all mean the host.
    fn is_same_image(&self, asked: &str, request: &SessionRequest, images: &ImagePolicy<'_>) -> bool {
        let meaning = |name: &str| images.decide(name, UnknownImage::Host).ok();
        request.rules.unknown_image == UnknownImage::Host && meaning(&self.image) == meaning(asked)
    }

    /// Who asks for a mount at a place of the box.
    fn origin(&self, target: &GuestPath, rules: &DoorRules) -> Origin {
        let is_skill = || Some(target.parent()) == skills::directory(&self.mount_path);
        match &rules.skills {
            Some(skills) if is_skill() => Origin::Skills(skills.root.clone()),
            _ => rules.mount_roots.clone().map_or(Origin::Caller, Origin::Within),
        }
    }

    /// Where the user of the box is at home: in the workspace, unless `mount_path` means nothing.
    fn home(&self, rules: &DoorRules) -> Result<GuestPath> {
        let is_mounted = self.host_path.is_some() && self.host_path_mode != HostPathMode::None;
        if is_mounted || rules.lone_mount_path == LoneMountPath::Own {
            return Ok(self.mount_path.clone());
        }
        Ok(GuestPath::parse("mount_path", limits::WORKSPACE)?)
    }

    /// The box that this session asks for. `profiles` has its own, and `images` says what its image means.
    pub fn box_spec(&self, profiles: &Profiles, images: &ImagePolicy<'_>, rules: &DoorRules) -> Result<BoxSpec> {
        let profile = profiles.get(&self.profile)?;
        let workspace = self.host_path.iter().map(|path| (path, &self.mount_path, self.host_path_mode));
        let extra = self.extra_mounts.iter().map(|mount| (&mount.host_path, &mount.mount_path, mount.mode));
        let mount = |(source, target, mode): (&String, &GuestPath, HostPathMode)| {
            let mode = mode.mounted()?;
            let origin = self.origin(target, rules);
            Some(MountSpec { source: source.into(), target: target.clone(), mode, origin })
        };
        let spec = BoxSpec {
            network: self.network,
            image: images.decide(&self.image, rules.unknown_image)?,
            image_name: images.engine_name(&self.image),
            mounts: workspace
                .chain(extra)
                .filter_map(mount)
                .chain(self.kept.iter().map(KeptDirectory::mount))
                .chain(self.volumes.iter().map(MountedVolume::mount))
                .collect(),
            cpus: self.cpus,
            memory_mb: self.memory_mb,
            pids_limit: self.pids_limit,
            disk_mb: self.workspace_quota_mb,
            read_only_rootfs: self.read_only_rootfs,
            user: self.user.user(),
            root_capabilities: self.root_capabilities,
            home: self.home(rules)?,
            snapshot: self.snapshot.clone(),
            backend: profile.backend.or(rules.backend),
            ..profile.spec()
        };
        spec.validate()?;
        Ok(spec)
    }
}

impl KeptDirectory {
    /// The directory as a mount.
    pub(crate) fn mount(&self) -> MountSpec {
        let source = PathBuf::from(&self.host_path);
        let origin = Origin::Kept(source.clone());
        // Nothing is kept without being mounted.
        let mode = self.mode.mounted().unwrap_or(MountMode::Ro);
        MountSpec { source, target: self.mount_path.clone(), mode, origin }
    }
}

/// Checks an idle time.
pub(crate) fn check_ttl(ttl_sec: u64) -> Result<()> {
    if (1..=limits::TTL_SEC_MAX).contains(&ttl_sec) {
        return Ok(());
    }
    Err(Invalid::new("ttl_sec", ttl_sec, format!("from 1 to {} seconds", limits::TTL_SEC_MAX)).into())
}

impl HostPathMode {
    /// How a workspace is mounted; nothing where it is not.
    pub fn mounted(self) -> Option<MountMode> {
        match self {
            Self::None => None,
            Self::Ro => Some(MountMode::Ro),
            Self::Rw => Some(MountMode::Rw),
        }
    }
}

impl std::fmt::Display for HostPathMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Ro => "ro",
            Self::Rw => "rw",
        })
    }
}

impl std::fmt::Display for OnTimeout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Keep => "keep",
            Self::Destroy => "destroy",
        })
    }
}

/// Mounts as text, in one order, without those that mount nothing.
fn describe_mounts(mounts: &[ExtraMount]) -> String {
    let mut parts: Vec<_> = mounts.iter().filter(|mount| mount.mode != HostPathMode::None).collect();
    parts.sort();
    let text = |mount: &&ExtraMount| format!("{}:{}:{}", mount.host_path, mount.mount_path, mount.mode);
    if parts.is_empty() { "none".to_owned() } else { parts.iter().map(text).collect::<Vec<_>>().join(",") }
}

#[cfg(test)]
mod tests;
