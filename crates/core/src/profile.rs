//! Presets of limits, and which of them a caller cannot change.

mod account;
mod draft;
mod registry;
mod seconds;

use std::collections::BTreeSet;
use std::fmt;

use box_wire::Invalid;
use serde::{Deserialize, Serialize, Serializer};

use crate::session::HostPathMode;
use crate::{BackendName, BoxSpec, Error, Floors, Image, Network, Persistence, SyscallSet, spec};

pub use account::Account;
pub use draft::{DraftProblem, ProfileDraft};
pub use registry::Profiles;
pub(crate) use registry::locked_deadline_sec;
pub use seconds::lax_seconds;

/// Longest deadline that a profile can allow, as long as the agent takes.
pub const TIMEOUT_SEC_MAX: u64 = box_wire::limits::TIMEOUT_MS_MAX / 1000;

/// A named preset of limits.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is for, in a few words.
    pub about: String,
    /// What a box can reach.
    #[schema(value_type = String, example = "off")]
    pub network: Network,
    /// Root file system: `host`, or a name that the operator gave to one.
    pub image: String,
    /// What a box may do with its workspace, where that is a directory of the host.
    pub host_path_mode: HostPathMode,
    /// Processors.
    pub cpus: f64,
    /// Memory limit.
    pub memory_mb: u64,
    /// Most processes.
    pub pids_limit: u64,
    /// Whether the root is read-only.
    pub read_only_rootfs: bool,
    /// Who commands are when they do not say.
    pub user: Account,
    /// Whether root of a box has capabilities over what is the box's own: the few that package managers need. No caller can ask for
    /// them.
    pub root_capabilities: bool,
    /// Most that the workspace may hold; 0 leaves it to the configuration.
    pub workspace_quota_mb: u64,
    /// What a box may do with skills that are mounted in it: `ro` or `rw`.
    pub skills_mode: HostPathMode,
    /// Deadline of a command that names none.
    pub timeout_sec: u64,
    /// Longest deadline that a caller can ask for. More is cut to this.
    pub timeout_sec_max: u64,
    /// Which system calls there are; told as whether `ptrace` is among them.
    #[serde(rename = "ptrace", serialize_with = "as_ptrace")]
    #[schema(value_type = bool)]
    pub syscalls: SyscallSet,
    /// The backend on which boxes of this profile live, where it is not the server's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "docker")]
    pub backend: Option<BackendName>,
    /// What a caller cannot change: for these, what it asks does not count.
    pub locked: BTreeSet<LockedField>,
}

/// What a caller can ask of a session, and a profile can lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LockedField {
    /// What the box can reach.
    Network,
    /// Its root file system.
    Image,
    /// The directory of the host that is its workspace: the default workspace where there is one, else none.
    HostPath,
    /// What it may do with that.
    HostPathMode,
    /// More trees of the host: none.
    ExtraMounts,
    /// Processors.
    Cpus,
    /// Memory limit.
    MemoryMb,
    /// Most processes.
    PidsLimit,
    /// Whether its root is read-only.
    ReadOnlyRootfs,
    /// Most that its workspace may hold.
    WorkspaceQuotaMb,
    /// Whether it outlives idleness: it does not.
    Persistent,
    /// Idle time after which it is removed.
    TtlSec,
    /// The deadline of its commands: always the usual one.
    TimeoutSec,
}

impl LockedField {
    /// All there are.
    pub const ALL: [Self; 13] = [
        Self::Network,
        Self::Image,
        Self::HostPath,
        Self::HostPathMode,
        Self::ExtraMounts,
        Self::Cpus,
        Self::MemoryMb,
        Self::PidsLimit,
        Self::ReadOnlyRootfs,
        Self::WorkspaceQuotaMb,
        Self::Persistent,
        Self::TtlSec,
        Self::TimeoutSec,
    ];

    /// The field as callers know it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Image => "image",
            Self::HostPath => "host_path",
            Self::HostPathMode => "host_path_mode",
            Self::ExtraMounts => "extra_mounts",
            Self::Cpus => "cpus",
            Self::MemoryMb => "memory_mb",
            Self::PidsLimit => "pids_limit",
            Self::ReadOnlyRootfs => "read_only_rootfs",
            Self::WorkspaceQuotaMb => "workspace_quota_mb",
            Self::Persistent => "persistent",
            Self::TtlSec => "ttl_sec",
            Self::TimeoutSec => "timeout_sec",
        }
    }
}

impl fmt::Display for LockedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            about: "no network, one processor, 512 MiB".to_owned(),
            network: Network::Off,
            image: "host".to_owned(),
            host_path_mode: HostPathMode::Rw,
            cpus: 1.0,
            memory_mb: 512,
            pids_limit: 128,
            read_only_rootfs: true,
            user: Account::Root,
            root_capabilities: false,
            workspace_quota_mb: 0,
            skills_mode: HostPathMode::Rw,
            timeout_sec: 30,
            timeout_sec_max: 120,
            syscalls: SyscallSet::Default,
            backend: None,
            locked: BTreeSet::new(),
        }
    }
}

impl Profile {
    /// The profiles that are always there. The first is the default.
    pub fn all_built_in() -> [Self; 6] {
        let named =
            |name: &str, about: &str| Self { name: name.to_owned(), about: about.to_owned(), ..Self::default() };
        [
            Self::default(),
            Self {
                host_path_mode: HostPathMode::Ro,
                cpus: 0.5,
                memory_mb: 256,
                pids_limit: 64,
                timeout_sec_max: 60,
                locked: [LockedField::Network, LockedField::HostPathMode, LockedField::ReadOnlyRootfs].into(),
                ..named("offline_readonly", "no network, half a processor, 256 MiB, workspace read-only")
            },
            Self { network: Network::On, ..named("network_basic", "outbound network, one processor, 512 MiB") },
            Self {
                network: Network::On,
                cpus: 2.0,
                memory_mb: 1024,
                pids_limit: 256,
                read_only_rootfs: false,
                timeout_sec_max: 300,
                ..named("network_extended", "outbound network, two processors, 1 GiB, writable root")
            },
            Self {
                syscalls: SyscallSet::Debug,
                ..named("debug", "as default, and ptrace works between processes of the box")
            },
            Self {
                network: Network::On,
                cpus: 2.0,
                memory_mb: 1024,
                pids_limit: 512,
                read_only_rootfs: false,
                user: Account::User,
                root_capabilities: true,
                timeout_sec: 60,
                timeout_sec_max: 24 * 3600,
                ..named(
                    "e2b",
                    "outbound network, two processors, 1 GiB, writable root, user and root as in E2B's sandboxes",
                )
            },
        ]
    }

    /// The built-in profile of that name.
    pub fn built_in(name: &str) -> Option<Self> {
        Self::all_built_in().into_iter().find(|profile| profile.name == name)
    }

    /// A box with the limits of this profile and nothing else.
    pub fn spec(&self) -> BoxSpec {
        BoxSpec {
            network: self.network,
            image: Image::Host,
            image_name: self.image.clone(),
            backend: self.backend,
            session: None,
            mounts: Vec::new(),
            cpus: self.cpus,
            memory_mb: self.memory_mb,
            pids_limit: self.pids_limit,
            disk_mb: self.workspace_quota_mb,
            read_only_rootfs: self.read_only_rootfs,
            user: self.user.user(),
            root_capabilities: self.root_capabilities,
            home: spec::workspace(),
            syscalls: self.syscalls,
            persistence: Persistence::Memory,
            snapshot: None,
            dies_with_maker: false,
            keeps_journal: false,
            floors: Floors::default(),
        }
    }

    /// Checks every value; the error names the field.
    pub fn validate(&self) -> Result<(), Invalid> {
        match self.spec().validate() {
            Err(Error::Invalid(invalid)) if invalid.field == "disk_mb" => {
                return Err(Invalid { field: "workspace_quota_mb", ..invalid });
            }
            Err(Error::Invalid(invalid)) => return Err(invalid),
            _ => {}
        }
        if self.skills_mode == HostPathMode::None {
            return Err(Invalid::new("skills_mode", "none", "ro or rw"));
        }
        if !(1..=TIMEOUT_SEC_MAX).contains(&self.timeout_sec_max) {
            let allowed = format!("a whole number from 1 to {TIMEOUT_SEC_MAX}");
            return Err(Invalid::new("timeout_sec_max", self.timeout_sec_max, allowed));
        }
        if !(1..=self.timeout_sec_max).contains(&self.timeout_sec) {
            let allowed = format!("a whole number from 1 to timeout_sec_max, which is {}", self.timeout_sec_max);
            return Err(Invalid::new("timeout_sec", self.timeout_sec, allowed));
        }
        Ok(())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands fields over like this")]
fn as_ptrace<S: Serializer>(syscalls: &SyscallSet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(*syscalls == SyscallSet::Debug)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, network, mode of the workspace, processors, memory, processes, read-only root, deadlines, locks.
    type Row = (&'static str, Network, HostPathMode, f64, u64, u64, bool, (u64, u64), &'static [LockedField]);

    #[test]
    fn built_in_profiles_have_the_values_that_langbots_had() {
        use HostPathMode::{Ro, Rw};
        use Network::{Off, On};
        let locked = &[LockedField::Network, LockedField::HostPathMode, LockedField::ReadOnlyRootfs];
        let table: [Row; 6] = [
            ("default", Off, Rw, 1.0, 512, 128, true, (30, 120), &[]),
            ("offline_readonly", Off, Ro, 0.5, 256, 64, true, (30, 60), locked),
            ("network_basic", On, Rw, 1.0, 512, 128, true, (30, 120), &[]),
            ("network_extended", On, Rw, 2.0, 1024, 256, false, (30, 300), &[]),
            ("debug", Off, Rw, 1.0, 512, 128, true, (30, 120), &[]),
            ("e2b", On, Rw, 2.0, 1024, 512, false, (60, 86400), &[]),
        ];
        let shown = Profile::all_built_in().map(|profile| {
            let Profile { network, host_path_mode, cpus, memory_mb, pids_limit, read_only_rootfs, .. } = profile;
            let (deadlines, locked) = ((profile.timeout_sec, profile.timeout_sec_max), profile.locked);
            let limits = (cpus, memory_mb, pids_limit, read_only_rootfs);
            (profile.name, network, host_path_mode, limits, deadlines, locked)
        });
        for ((name, network, mode, cpus, memory, pids, root, deadlines, locked), shown) in table.into_iter().zip(shown)
        {
            let limits = (cpus, memory, pids, root);
            assert_eq!(shown, (name.to_owned(), network, mode, limits, deadlines, locked.iter().copied().collect()));
        }
        for profile in Profile::all_built_in() {
            assert_eq!((profile.workspace_quota_mb, profile.image.as_str()), (0, "host"), "{}", profile.name);
            assert_eq!(profile.skills_mode, HostPathMode::Rw, "{}", profile.name);
            assert_eq!(profile.syscalls == SyscallSet::Debug, profile.name == "debug");
            let is_e2b = profile.name == "e2b";
            assert_eq!(
                (profile.root_capabilities, profile.user == Account::User),
                (is_e2b, is_e2b),
                "{}",
                profile.name
            );
        }
    }

    #[test]
    fn built_in_profiles_are_consistent() {
        let named = |name: &str| Profile::built_in(name).unwrap();
        let (default, offline, extended) = (named("default"), named("offline_readonly"), named("network_extended"));
        assert!(offline.timeout_sec_max <= default.timeout_sec_max);
        assert_eq!((offline.network, offline.host_path_mode), (Network::Off, HostPathMode::Ro));
        for field in [LockedField::Network, LockedField::HostPathMode, LockedField::ReadOnlyRootfs] {
            assert!(offline.locked.contains(&field), "{field:?}");
        }
        let basic = named("network_basic");
        assert_eq!((basic.network, basic.read_only_rootfs), (Network::On, true));
        assert_eq!((extended.network, extended.read_only_rootfs), (Network::On, false));
        assert!(extended.cpus > default.cpus && extended.memory_mb > default.memory_mb);
        for profile in Profile::all_built_in() {
            assert_eq!(profile.validate(), Ok(()), "{}", profile.name);
        }
    }

    #[test]
    fn a_locked_field_is_written_as_callers_know_it() {
        for field in LockedField::ALL {
            assert_eq!(serde_json::to_value(field).unwrap(), field.as_str());
        }
    }

    #[test]
    fn what_no_box_can_have_is_refused_by_field() {
        let refused = |change: fn(&mut Profile)| {
            let mut profile = Profile::default();
            change(&mut profile);
            profile.validate().unwrap_err().field
        };
        assert_eq!(refused(|profile| profile.cpus = 0.0), "cpus");
        assert_eq!(refused(|profile| profile.memory_mb = 1), "memory_mb");
        assert_eq!(refused(|profile| profile.workspace_quota_mb = u64::MAX), "workspace_quota_mb");
        assert_eq!(refused(|profile| profile.skills_mode = HostPathMode::None), "skills_mode");
        assert_eq!(refused(|profile| profile.timeout_sec = 0), "timeout_sec");
        assert_eq!(refused(|profile| profile.timeout_sec = 121), "timeout_sec");
        assert_eq!(refused(|profile| profile.timeout_sec_max = TIMEOUT_SEC_MAX + 1), "timeout_sec_max");
    }
}
