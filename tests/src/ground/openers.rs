//! How each backend is opened for the suites.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use box_core::{Backend, BackendName, MountPolicy};
use box_docker::{Engine, EngineConfig, EngineKind, EngineSettings, PullPolicy};
use box_e2b::{E2b, E2bConfig, E2bSettings, Secret};
use box_host::InstanceKind;
use box_host::local::LocalConfig;
use box_native::Native;
use box_nsjail::{Nsjail, NsjailConfig};

use crate::{e2b, engines};

/// Opens a backend.
pub(super) async fn open(
    name: BackendName,
    state: &Path,
    mount_policy: MountPolicy,
    instance: InstanceKind,
) -> Result<Arc<dyn Backend>> {
    let state_dir = state.to_owned();
    let local =
        |mount_policy, instance| LocalConfig { mount_policy, instance, ..LocalConfig::ephemeral(state.to_owned()) };
    Ok(match name {
        BackendName::Native => Arc::new(Native::open(local(mount_policy, instance)).await?),
        BackendName::Docker | BackendName::Podman => {
            let kind = if name == BackendName::Docker { EngineKind::Docker } else { EngineKind::Podman };
            let settings = settings(name)?;
            Arc::new(Engine::open(EngineConfig { kind, state_dir, mount_policy, instance, settings }).await?)
        }
        BackendName::E2b => {
            let settings = E2bSettings {
                api_key: Some(Secret::new(e2b::KEY)),
                api_url: Some(e2b::url().context("the suite has started no provider")?),
                ..E2bSettings::default()
            };
            Arc::new(E2b::open(E2bConfig { state_dir, mount_policy, instance, settings }).await?)
        }
        BackendName::Nsjail => {
            let program = Some(PathBuf::from(place(name)?));
            Arc::new(Nsjail::open(NsjailConfig { local: local(mount_policy, instance), program }).await?)
        }
    })
}

/// The engine that was started for the suites, with the image that it was given. Nothing is ever fetched.
fn settings(name: BackendName) -> Result<EngineSettings> {
    let address = Some(place(name)?);
    Ok(EngineSettings { address, image: engines::image(), pull: PullPolicy::Never, ..EngineSettings::default() })
}

fn place(name: BackendName) -> Result<String> {
    engines::place(name).with_context(|| format!("the test run provides no {name}"))
}

/// The part of a state directory that is this backend's own.
pub(super) fn state_of(name: BackendName, state: &Path) -> PathBuf {
    if name == BackendName::Native { state.to_owned() } else { state.join(name.as_str()) }
}
