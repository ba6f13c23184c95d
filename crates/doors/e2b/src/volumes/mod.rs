//! Volumes in E2B's words: the volumes of the service, mounted in sandboxes, and their content for who has their token.

mod content;
mod reached;
mod views;

use box_core::Error;
use box_core::session::HostPathMode;
use box_core::store::SandboxVolume;
use box_core::volumes::{VolumeKey, VolumeMount};
use box_wire::GuestPath;

use super::failure::E2bFailure;

pub(super) use self::content::routes as content_routes;

/// The volumes that a sandbox asks for, as its session is asked for them.
pub(crate) fn mounts(asked: &[SandboxVolume]) -> Result<Option<Vec<VolumeMount>>, E2bFailure> {
    let mount = |SandboxVolume { name, path }: &SandboxVolume| {
        let path = GuestPath::parse("volumeMounts.path", path).map_err(Error::from)?;
        // No volume has another name.
        let key = name.parse().map(VolumeKey::Name).map_err(|_| absent(name))?;
        Ok(VolumeMount { volume: key, path, mode: HostPathMode::Rw })
    };
    let mounts = asked.iter().map(mount).collect::<Result<Vec<_>, E2bFailure>>()?;
    Ok((!mounts.is_empty()).then_some(mounts))
}

/// The error of a call about volumes, in terms that clients know.
pub(crate) fn told(error: Error) -> E2bFailure {
    match error {
        Error::Unsupported { .. } => E2bFailure::not_served("volumes"),
        // E2B has no word for a limit on volumes.
        Error::Capacity { .. } => E2bFailure::invalid(error.to_string()),
        error => error.into(),
    }
}

fn absent(name: &str) -> E2bFailure {
    let shown: String = name.chars().take(box_core::limits::VOLUME_NAME_BYTES_MAX).collect();
    Error::VolumeNotFound { volume: shown }.into()
}

#[cfg(test)]
mod tests;
