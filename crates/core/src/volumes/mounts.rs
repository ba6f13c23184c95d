//! Volumes in a session: which it asks for, and where each appears in its box.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use box_wire::{GuestPath, Invalid};
use serde::{Deserialize, Serialize};

use super::VolumeKey;
use crate::mount_policy::Origin;
use crate::profile::{LockedField, Profile};
use crate::session::{Difference, HostPathMode};
use crate::{MountMode, MountSpec, Result, limits};

/// A volume that a request asks to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeMount {
    /// The volume.
    pub volume: VolumeKey,
    /// Where it appears in the box.
    pub path: GuestPath,
    /// What the box may do with it.
    pub mode: HostPathMode,
}

/// A volume of the caller's tenant, ready to be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeDirectory {
    /// What the request calls the volume.
    pub key: VolumeKey,
    /// Its name.
    pub name: String,
    /// The real path of its directory on the host.
    pub host_path: String,
    /// The most that it may hold.
    pub quota_mb: u64,
}

/// A volume in the box of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct MountedVolume {
    /// The volume. Empty in rows of older versions, which kept only the directory.
    #[serde(default)]
    pub name: String,
    /// Where it appears in the box.
    #[serde(alias = "mount_path")]
    #[schema(value_type = String, example = "/mnt/data")]
    pub path: GuestPath,
    /// What the box may do with it.
    #[serde(default)]
    pub mode: HostPathMode,
    /// The most that it may hold.
    pub quota_mb: u64,
    /// The real path of its directory on the host. Callers do not see it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(ignore)]
    pub host_path: String,
}

impl MountedVolume {
    /// The id of the volume: the name of its directory.
    pub(crate) fn id(&self) -> Option<&str> {
        Path::new(&self.host_path).file_name().and_then(OsStr::to_str)
    }

    /// Whether the box can change what is in the volume.
    pub(crate) fn is_writable(&self) -> bool {
        self.mode == HostPathMode::Rw
    }

    /// The volume as a mount of a box.
    pub(crate) fn mount(&self) -> MountSpec {
        let source = PathBuf::from(&self.host_path);
        let mode = if self.is_writable() { MountMode::Rw } else { MountMode::Ro };
        MountSpec { origin: Origin::Kept(source.clone()), source, target: self.path.clone(), mode }
    }

    /// Whether this is what a request asks for. A locked mode is not the caller's choice.
    fn fits(&self, asked: &VolumeMount, is_mode_locked: bool) -> bool {
        let is_meant = match &asked.volume {
            VolumeKey::Name(name) => self.name.is_empty() || self.name == name.as_str(),
            VolumeKey::Id(id) => self.id() == Some(id),
        };
        is_meant && self.path == asked.path && (is_mode_locked || self.mode == asked.mode)
    }
}

impl fmt::Display for VolumeMount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.volume, self.path, self.mode)
    }
}

impl fmt::Display for MountedVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.name, self.path, self.mode)
    }
}

/// Refuses mounts that are too many, or of which one would hide another.
pub(crate) fn check(asked: &[VolumeMount]) -> Result<()> {
    let max = limits::VOLUME_MOUNTS_MAX;
    if asked.len() > max {
        return Err(Invalid::new("volumes", asked.len(), format!("at most {max} entries")).into());
    }
    for (index, mount) in asked.iter().enumerate() {
        if mount.mode == HostPathMode::None {
            return Err(Invalid::new("volumes", mount.to_string(), "mode ro or rw").into());
        }
        let overlaps = |other: &&VolumeMount| mount.path.is_within(&other.path) || other.path.is_within(&mount.path);
        if let Some(other) = asked[..index].iter().find(overlaps) {
            let allowed = format!("a path that is not in {} and does not contain it", other.path);
            return Err(Invalid::new("volumes", mount.path.as_str(), allowed).into());
        }
    }
    Ok(())
}

/// Volumes as a profile lets a session mount them. A lock that refuses mounts is an error: what was stored in a volume
/// would be missed.
pub(crate) fn resolve(
    asked: &[VolumeMount],
    directories: &[VolumeDirectory],
    profile: &Profile,
    workspace: &GuestPath,
) -> Result<Vec<MountedVolume>> {
    check(asked)?;
    let mode = if profile.locks(LockedField::HostPathMode) { profile.host_path_mode } else { HostPathMode::Rw };
    if !asked.is_empty() && (profile.locks(LockedField::ExtraMounts) || mode == HostPathMode::None) {
        let allowed = format!("none: profile {} locks mounts", profile.name);
        return Err(Invalid::new("volumes", asked.len(), allowed).into());
    }
    let mounted = |mount: &VolumeMount| {
        if workspace.is_within(&mount.path) {
            let allowed = format!("not over the workspace; mount below it, such as {workspace}/data");
            return Err(Invalid::new("volumes", mount.path.as_str(), allowed).into());
        }
        let found = directories.iter().find(|directory| directory.key == mount.volume);
        let VolumeDirectory { name, host_path, quota_mb, .. } =
            found.cloned().ok_or_else(|| mount.volume.not_found())?;
        let (path, mode) = (mount.path.clone(), mount.mode.min(mode));
        Ok(MountedVolume { name, path, mode, quota_mb, host_path })
    };
    asked.iter().map(mounted).collect()
}

/// How the volumes of a request differ from those of a session, if they do.
pub(crate) fn difference(
    existing: &[MountedVolume],
    asked: &[VolumeMount],
    is_mode_locked: bool,
) -> Option<Difference> {
    let has = |mount: &VolumeMount| existing.iter().any(|volume| volume.fits(mount, is_mode_locked));
    if existing.len() == asked.len() && asked.iter().all(has) {
        return None;
    }
    Some(Difference { field: "volumes", existing: described(existing), asked: described(asked) })
}

fn described<T: fmt::Display>(volumes: &[T]) -> String {
    let all: Vec<_> = volumes.iter().map(ToString::to_string).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(name: &str, path: &str, mode: HostPathMode) -> VolumeMount {
        VolumeMount { volume: VolumeKey::Name(name.parse().unwrap()), path: path.parse().unwrap(), mode }
    }

    #[test]
    fn no_volume_hides_another() {
        let refused = |paths: &[&str]| {
            let asked: Vec<_> = paths.iter().map(|path| mount("data", path, HostPathMode::Rw)).collect();
            check(&asked).err().map(|error| error.to_string())
        };
        assert_eq!(refused(&["/mnt/a", "/mnt/ab", "/home/user/data"]), None);
        for bad in [
            &["/mnt/a", "/mnt/a"][..],
            &["/mnt/a", "/mnt/a/b"],
            &["/mnt/a/b", "/mnt/a"],
            &["/m1", "/m2", "/m3", "/m4", "/m5", "/m6", "/m7", "/m8", "/m9"],
        ] {
            assert!(refused(bad).is_some_and(|message| message.contains("volumes")), "{bad:?}");
        }
    }

    #[test]
    fn the_workspace_is_not_hidden() {
        let workspace: GuestPath = "/home/user".parse().unwrap();
        let key = VolumeKey::Name("data".parse().unwrap());
        let directory = VolumeDirectory { key, name: "data".into(), host_path: "/srv/v".into(), quota_mb: 1 };
        let resolved = |path: &str| {
            let asked = [mount("data", path, HostPathMode::Rw)];
            resolve(&asked, std::slice::from_ref(&directory), &Profile::default(), &workspace)
        };
        for bad in ["/home/user", "/home"] {
            assert!(resolved(bad).unwrap_err().to_string().contains("workspace"), "{bad}");
        }
        assert_eq!(resolved("/home/user/data").unwrap()[0].host_path, "/srv/v");
    }

    #[test]
    fn a_session_conflicts_with_other_volumes() {
        let volume = |name: &str| MountedVolume {
            name: name.into(),
            path: "/mnt/a".parse().unwrap(),
            mode: HostPathMode::Ro,
            quota_mb: 1,
            host_path: "/srv/volumes/id1".into(),
        };
        let named = [volume("data")];
        assert_eq!(named[0].id(), Some("id1"));
        assert_eq!(difference(&named, &[mount("data", "/mnt/a", HostPathMode::Ro)], false), None);
        assert_eq!(difference(&named, &[mount("data", "/mnt/a", HostPathMode::Rw)], true), None, "locked");
        let by_id = VolumeMount { volume: VolumeKey::Id("id1".into()), ..mount("data", "/mnt/a", HostPathMode::Ro) };
        assert_eq!(difference(&named, &[by_id], false), None);
        assert_eq!(difference(&[volume("")], &[mount("any", "/mnt/a", HostPathMode::Ro)], false), None, "older row");
        let other = difference(&named, &[mount("data", "/mnt/b", HostPathMode::Rw)], false).unwrap();
        assert_eq!((other.existing.as_str(), other.asked.as_str()), ("data:/mnt/a:ro", "data:/mnt/b:rw"));
        assert_eq!(difference(&named, &[], false).unwrap().asked, "none");
    }

    #[test]
    fn rows_of_older_versions_are_read() {
        let row = serde_json::json!({ "host_path": "/srv/id1", "mount_path": "/mnt/a", "quota_mb": 7, "mode": "rw" });
        let volume: MountedVolume = serde_json::from_value(row).unwrap();
        assert_eq!((volume.name.as_str(), volume.path.as_str(), volume.is_writable()), ("", "/mnt/a", true));
    }
}
