//! What a caller asks of a box, checked field by field before anything is made.

use std::path::PathBuf;

use box_wire::{GuestPath, Invalid, User};
use serde::{Deserialize, Serialize};

use crate::{BackendName, Error, Floors, Result, limits, mount_policy::Origin, quota};

/// What a box shall be. Made from a [`crate::Profile`] and checked by [`BoxSpec::validate`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, and no two answers belong together")]
pub struct BoxSpec {
    /// What the box can reach.
    pub network: Network,
    /// Where its root file system comes from.
    pub image: Image,
    /// The image as it was asked for, by a name that an engine may know better than we do; `host` for one that an engine
    /// must not look for.
    pub image_name: String,
    /// The backend that it must live on, where not any will do.
    pub backend: Option<BackendName>,
    /// The session that it is for, as its caller knows it; told to people who look at an engine's list.
    pub session: Option<String>,
    /// Trees of the host that it sees.
    pub mounts: Vec<MountSpec>,
    /// Processors; fractions count.
    pub cpus: f64,
    /// Memory limit; there is no swap on top.
    pub memory_mb: u64,
    /// Most processes at once, the agent not counted.
    pub pids_limit: u64,
    /// Most that the box can store outside of mounts; 0 = [`limits::DISK_MB_DEFAULT`].
    pub disk_mb: u64,
    /// Whether everything but the work places is read-only.
    pub read_only_rootfs: bool,
    /// Who commands run as.
    pub user: User,
    /// The home of that user, unless it is root: the box's own place, or what is mounted there.
    #[serde(default = "workspace")]
    pub home: GuestPath,
    /// Whether root of the box has capabilities over what is the box's own, where the backend can give them.
    #[serde(default)]
    pub root_capabilities: bool,
    /// Which system calls there are.
    pub syscalls: SyscallSet,
    /// Where the box keeps what it stores.
    pub persistence: Persistence,
    /// Archive of a snapshot, on this machine, from which it is made. It differs from that box in its limits at most.
    #[serde(rename = "seed", default)]
    pub snapshot: Option<PathBuf>,
    /// Whether the box dies with the process that made it.
    pub dies_with_maker: bool,
    /// Whether the box has a journal, in which the output of execs is kept while nobody listens.
    pub keeps_journal: bool,
    /// Guarantees without which it must not be made.
    pub floors: Floors,
}

/// What a box can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// Its own loopback.
    Off,
    /// Everything but the host's loopback, by a way of its own.
    On,
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::On => "on",
        })
    }
}

/// Where a root file system comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Image {
    /// The host's own `/usr`, read-only, with an `/etc` of the box's own.
    Host,
    /// A directory that holds a root file system.
    Directory(PathBuf),
    /// A tar file of a root file system.
    Tar(PathBuf),
    /// An image by its name in a registry, such as `python:3.12-slim`.
    Named(String),
}

/// A tree of the host that a box sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// Path on the host.
    pub source: PathBuf,
    /// Path in the box.
    pub target: GuestPath,
    /// What the box may do with it.
    pub mode: MountMode,
    /// Who asked for it.
    pub origin: Origin,
}

/// What a box may do with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountMode {
    /// Read it.
    Ro,
    /// Read and write it.
    Rw,
}

/// Which system calls a box has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyscallSet {
    /// The allow-list.
    Default,
    /// The allow-list and `ptrace`, so that debuggers work between processes of the box.
    Debug,
}

/// Where a box keeps what it stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Persistence {
    /// In memory, charged to the box.
    Memory,
    /// In a file system image on disk.
    Disk,
}

/// Places of a box where nothing may be mounted: they are the box's own, or would change what programs are run.
const RESERVED_TARGETS: [&str; 13] =
    ["/proc", "/sys", "/dev", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/boot", "/run"];

/// The usual home.
pub(crate) fn workspace() -> GuestPath {
    GuestPath::parse("home", limits::WORKSPACE).unwrap_or_else(|_| GuestPath::root())
}

/// Places of a box that belong to somebody else than its user.
const HOMES_OF_OTHERS: [&str; 2] = ["/root", "/tmp"];

impl BoxSpec {
    /// Mounts through which the box can leave files on the host. What the service keeps lies in its own state directory, which no
    /// other user can enter.
    pub fn host_writable(&self) -> impl Iterator<Item = &MountSpec> {
        let is_kept = |mount: &MountSpec| matches!(mount.origin, Origin::Kept(_));
        self.mounts.iter().filter(move |mount| mount.mode == MountMode::Rw && !is_kept(mount))
    }

    /// Checks every field; the error names the field, the value and what is allowed.
    pub fn validate(&self) -> Result<()> {
        let whole = |field, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(Invalid::new(field, value, format!("a whole number from {min} to {max}")))
        };
        if !(self.cpus.is_finite() && (limits::CPUS_MIN..=limits::CPUS_MAX).contains(&self.cpus)) {
            let allowed = format!("a number from {} to {}", limits::CPUS_MIN, limits::CPUS_MAX);
            return Err(Invalid::new("cpus", self.cpus, allowed).into());
        }
        whole("memory_mb", self.memory_mb, limits::MEMORY_MB_MIN, limits::MEMORY_MB_MAX)?;
        whole("pids_limit", self.pids_limit, 1, limits::PIDS_MAX)?;
        whole("disk_mb", self.disk_mb, 0, limits::DISK_MB_MAX)?;
        whole("user", self.user.uid.into(), 0, limits::GUEST_ID_MAX.into())?;
        whole("group", self.user.gid.into(), 0, limits::GUEST_ID_MAX.into())?;
        check_target("mount_path", &self.home)?;
        let is_mounted = self.mounts.iter().any(|mount| mount.target == self.home);
        if !is_mounted && HOMES_OF_OTHERS.contains(&self.home.as_str()) {
            let allowed = "a directory of its own, such as /workspace or /home/user";
            return Err(Invalid::new("mount_path", self.home.as_str(), allowed).into());
        }
        self.validate_mounts()
    }

    fn validate_mounts(&self) -> Result<()> {
        if self.mounts.len() > limits::MOUNTS_MAX {
            let allowed = format!("at most {}", limits::MOUNTS_MAX);
            return Err(Invalid::new("mounts", self.mounts.len(), allowed).into());
        }
        for (index, mount) in self.mounts.iter().enumerate() {
            mount.validate()?;
            if self.mounts[..index].iter().any(|earlier| earlier.target == mount.target) {
                let allowed = "each target once";
                return Err(Invalid::new("mount_path", mount.target.as_str(), allowed).into());
            }
        }
        Ok(())
    }

    /// Refuses a box that is made from a saved one, for backends that cannot do that.
    pub fn refuse_snapshot(&self, backend: BackendName) -> Result<()> {
        match &self.snapshot {
            None => Ok(()),
            Some(_) => Err(Error::Unsupported {
                what: "a box made from a snapshot".to_owned(),
                reason: format!("the backend {backend} has no storage that it could fill"),
                fix: "use the native backend".to_owned(),
            }),
        }
    }

    /// Bytes that the box can store outside of mounts.
    pub fn disk_bytes_max(&self) -> u64 {
        let mb = if self.disk_mb == 0 { limits::DISK_MB_DEFAULT } else { self.disk_mb };
        mb << 20
    }

    /// Files that the box can store outside of mounts.
    pub fn disk_inodes_max(&self) -> u64 {
        quota::inodes_of_mb(self.disk_bytes_max() >> 20)
    }
}

impl MountSpec {
    fn validate(&self) -> Result<()> {
        check_target("mount_path", &self.target)
    }
}

/// Refuses what is the box's own system, and what could be read as something else than one path.
fn check_target(field: &'static str, path: &GuestPath) -> Result<()> {
    let target = path.as_str();
    let refuse = |allowed: &str| Err(Invalid::new(field, target, allowed).into());
    if target == "/" {
        return refuse("a directory below /, such as /workspace");
    }
    let reserved = |place: &&str| GuestPath::parse(field, place).is_ok_and(|p| path.is_within(&p));
    if RESERVED_TARGETS.iter().any(reserved) {
        return refuse("a place that is not part of the box's own system, such as /workspace or /mnt/data");
    }
    // Engines write mounts as `a:b:c` or `k=v,k=v`; a path that could be read as two is refused on every backend.
    if target.contains([':', ',', ' ', '\\', '"']) {
        return refuse("no colons, commas, blanks, quotes or backslashes");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    fn spec() -> BoxSpec {
        Profile::default().spec()
    }

    fn field(spec: &BoxSpec) -> Option<&'static str> {
        match spec.validate() {
            Err(crate::Error::Invalid(invalid)) => Some(invalid.field),
            _ => None,
        }
    }

    #[test]
    fn numbers_are_finite_and_in_range() {
        assert!(spec().validate().is_ok());
        for cpus in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e308, 0.009] {
            assert_eq!(field(&BoxSpec { cpus, ..spec() }), Some("cpus"), "{cpus}");
        }
        for memory_mb in [0, 31, limits::MEMORY_MB_MAX + 1, u64::MAX] {
            assert_eq!(field(&BoxSpec { memory_mb, ..spec() }), Some("memory_mb"));
        }
        for pids_limit in [0, u64::MAX] {
            assert_eq!(field(&BoxSpec { pids_limit, ..spec() }), Some("pids_limit"));
        }
        assert_eq!(field(&BoxSpec { disk_mb: u64::MAX, ..spec() }), Some("disk_mb"));
        assert_eq!(field(&BoxSpec { user: User { uid: 65535, gid: 0 }, ..spec() }), Some("user"));
        assert_eq!(field(&BoxSpec { user: User { uid: 1, gid: u32::MAX }, ..spec() }), Some("group"));
    }

    #[test]
    fn a_home_is_a_place_of_its_own() {
        let at = |home: &str| field(&BoxSpec { home: home.parse().unwrap(), ..spec() });
        for bad in ["/", "/root", "/tmp", "/proc/self", "/usr/share", "/etc", "/a b"] {
            assert_eq!(at(bad), Some("mount_path"), "{bad}");
        }
        assert_eq!((at("/home/user"), at("/workspace"), at("/srv/work")), (None, None, None));
    }

    #[test]
    fn targets_stay_out_of_the_boxs_own_system() {
        let with = |targets: &[&str]| {
            let mount = |target: &&str| MountSpec {
                source: "/srv".into(),
                target: target.parse().unwrap(),
                mode: MountMode::Ro,
                origin: Origin::Caller,
            };
            field(&BoxSpec { mounts: targets.iter().map(mount).collect(), ..spec() })
        };
        for bad in ["/", "/proc", "/proc/self", "/sys", "/dev/null", "/usr/bin", "/bin/sh", "/etc/ld.so.preload"] {
            assert_eq!(with(&[bad]), Some("mount_path"), "{bad}");
        }
        for bad in ["/a:b", "/a,b", "/a b"] {
            assert_eq!(with(&[bad]), Some("mount_path"), "{bad}");
        }
        assert_eq!(with(&["/workspace", "/workspace"]), Some("mount_path"), "twice");
        assert_eq!(with(&["/workspace", "/workspace/.skills/a", "/mnt/x", "/usrx"]), None);
        let many: Vec<String> = (0..40).map(|n| format!("/mnt/{n}")).collect();
        assert_eq!(with(&many.iter().map(String::as_str).collect::<Vec<_>>()), Some("mounts"));
    }
}
