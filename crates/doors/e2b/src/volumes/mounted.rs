//! Volumes in a sandbox: which are meant, and where they are to be.

use std::sync::Arc;

use box_core::session::{HostPathMode, KeptDirectory};
use box_core::store::{SandboxVolume, VolumeRow};
use box_core::{Error, TenantId};
use box_wire::GuestPath;

use super::{Opened, Volumes};
use crate::control::HOME;
use crate::failure::E2bFailure;
use crate::limits;

/// What a sandbox that is about to be made gets.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// The directories, and where each is to be.
    pub(crate) directories: Vec<KeptDirectory>,
    /// What keeps the volumes from being removed until the sandbox is known.
    pub(crate) holds: Vec<Hold>,
}

/// A volume that somebody is about to have. It stays while this lives.
#[derive(Debug)]
pub(crate) struct Hold {
    opened: Arc<Opened>,
    id: String,
}

impl Hold {
    /// Takes a volume, if it is there.
    fn take(opened: &Arc<Opened>, id: &str) -> Option<Self> {
        opened.lock().get_mut(id)?.holders += 1;
        Some(Self { opened: Arc::clone(opened), id: id.to_owned() })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(known) = self.opened.lock().get_mut(&self.id) {
            known.holders = known.holders.saturating_sub(1);
        }
    }
}

impl Volumes {
    /// Finds the volumes of a tenant that a new sandbox is to have, and keeps them there.
    pub(crate) async fn mount(&self, tenant: &TenantId, asked: &[SandboxVolume]) -> Result<Mounted, E2bFailure> {
        let mut mounted = Mounted { directories: Vec::new(), holds: Vec::new() };
        if asked.is_empty() {
            return Ok(mounted);
        }
        let opened = self.opened().await?;
        let places = places(asked)?;
        let _alone = self.changing.lock().await;
        for (SandboxVolume { name, .. }, place) in asked.iter().zip(places) {
            let unknown = || {
                let shown: String = name.chars().take(64).collect();
                E2bFailure::not_found(format!("volume {shown:?} in volumeMounts was not found; make it first"))
            };
            let row = opened.find(|row| row.tenant == *tenant && row.name == *name).ok_or_else(unknown)?;
            mounted.holds.push(Hold::take(opened, &row.id).ok_or_else(unknown)?);
            mounted.directories.push(self.directory(&row, place).await?);
        }
        Ok(mounted)
    }

    /// The directory of a volume as something that a box keeps.
    pub(super) async fn directory(&self, row: &VolumeRow, place: GuestPath) -> Result<KeptDirectory, E2bFailure> {
        let unreadable = |path: std::ffi::OsString| {
            Error::from(box_wire::Invalid::new("state_dir", path.display().to_string(), "a path that is readable text"))
        };
        let host_path = self.make_directory(&row.id).await?.into_os_string().into_string().map_err(unreadable)?;
        Ok(KeptDirectory { host_path, mount_path: place, quota_mb: self.quota_mb, mode: HostPathMode::Rw })
    }
}

/// Where volumes are to be. What else a path must not be is the same for all mounts.
fn places(asked: &[SandboxVolume]) -> Result<Vec<GuestPath>, E2bFailure> {
    if asked.len() > limits::E2B_VOLUME_MOUNTS_MAX {
        let most = limits::E2B_VOLUME_MOUNTS_MAX;
        return Err(E2bFailure::invalid(format!(
            "volumeMounts has {} entries; at most {most} are allowed",
            asked.len()
        )));
    }
    let parse = |mount: &SandboxVolume| GuestPath::parse("volumeMounts.path", &mount.path).map_err(Error::from);
    let places: Vec<GuestPath> = asked.iter().map(parse).collect::<Result<_, _>>()?;
    for (index, place) in places.iter().enumerate() {
        if place.as_str() == HOME {
            let message = format!("volumeMounts: {HOME} is the sandbox's own; mount below it, such as {HOME}/data");
            return Err(E2bFailure::invalid(message));
        }
        let overlaps = |other: &GuestPath| place.is_within(other) || other.is_within(place);
        if let Some(other) = places[..index].iter().find(|other| overlaps(other)) {
            return Err(E2bFailure::invalid(format!("volumeMounts: {place} and {other} are one in the other")));
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(paths: &[&str]) -> Option<String> {
        let mount = |path: &&str| SandboxVolume { name: "data".to_owned(), path: (*path).to_owned() };
        let asked: Vec<_> = paths.iter().map(mount).collect();
        places(&asked).err().map(|failure| failure.message().to_owned())
    }

    #[test]
    fn each_volume_has_a_place_of_its_own() {
        assert_eq!(refused(&["/mnt/a", "/mnt/ab", "/home/user/data"]), None);
        for bad in [
            &["/mnt/a", "/mnt/a"][..],
            &["/mnt/a", "/mnt/a/b"],
            &["/mnt/a/b", "/mnt/a"],
            &["mnt/a"],
            &["/home/user"],
            &["/mnt/a\n"],
            &["/m1", "/m2", "/m3", "/m4", "/m5", "/m6", "/m7", "/m8", "/m9"],
        ] {
            assert!(refused(bad).is_some_and(|message| message.contains("volumeMounts")), "{bad:?}");
        }
    }
}
