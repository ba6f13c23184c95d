//! Every backend that this program has, and how each is opened. No other place knows more than one of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use box_core::backend::{Choice, Opener, Opening, Pick};
use box_core::{Backend, BackendName, Error, ImageStore, MountPolicy, Result};
use box_host::InstanceKind;
use box_host::instance::State;
use box_host::network::Method;
use box_images::{Images, ImagesConfig};
use box_native::{Native, NativeConfig};

use crate::config::{Config, EngineTable};

/// What all backends need to be opened.
#[derive(Debug, Clone)]
pub(crate) struct Engines {
    state_dir: PathBuf,
    mount_policy: MountPolicy,
    instance: InstanceKind,
    network_method: Option<Method>,
    images: ImagesConfig,
    settings: EngineSettings,
}

/// What the configuration says of engines.
#[expect(dead_code, reason = "the engines that read it are not in this program yet")]
#[derive(Debug, Clone, Default)]
struct EngineSettings {
    docker: EngineTable,
    podman: EngineTable,
    nsjail_program: Option<PathBuf>,
}

/// A backend that is open and whose kind is still known, so that it can be closed.
#[derive(Debug)]
pub(crate) enum Opened {
    Native(Native),
}

impl Opened {
    /// As what all of them are.
    pub(crate) fn backend(&self) -> &dyn Backend {
        match self {
            Self::Native(native) => native,
        }
    }

    fn into_backend(self) -> Arc<dyn Backend> {
        match self {
            Self::Native(native) => Arc::new(native),
        }
    }

    /// Ends it. What an instance of this process alone has made is removed.
    pub(crate) async fn close(self) {
        match self {
            Self::Native(native) => native.close().await,
        }
    }
}

impl Engines {
    /// For boxes that die with this process, and no mounts but the operator's.
    pub(crate) fn ephemeral(state_dir: PathBuf) -> Self {
        Self {
            state_dir,
            mount_policy: MountPolicy::default(),
            instance: InstanceKind::Ephemeral,
            network_method: None,
            images: ImagesConfig::default(),
            settings: EngineSettings::default(),
        }
    }

    /// For boxes of an instance that is known by its name across restarts.
    pub(crate) fn persistent(state_dir: &Path, mount_policy: MountPolicy, instance: String) -> Self {
        let instance = InstanceKind::Persistent(instance);
        Self { mount_policy, instance, ..Self::ephemeral(state_dir.to_owned()) }
    }

    /// The same, with engines used as the configuration says.
    pub(crate) fn configured(self, config: &Config) -> Self {
        let (docker, podman) = (config.docker.clone(), config.podman.clone());
        let settings = EngineSettings { docker, podman, nsjail_program: config.nsjail.program.clone() };
        Self { settings, images: config.image_store(), ..self }
    }

    /// The same, with native boxes that get out by this way.
    pub(crate) fn with_network_method(self, network_method: Option<Method>) -> Self {
        Self { network_method, ..self }
    }

    /// All of them as one, each opened when it is first needed.
    pub(crate) fn choice(self, pick: Pick) -> Choice {
        let engines = Arc::new(self);
        let opener = |name: BackendName| -> (BackendName, Opener) {
            let engines = Arc::clone(&engines);
            let open = move || -> Opening {
                let engines = Arc::clone(&engines);
                Box::pin(async move { Ok(engines.open(name).await?.into_backend()) })
            };
            (name, Box::new(open))
        };
        Choice::new(BackendName::ALL.map(opener).into(), pick)
    }

    /// Opens one of them.
    pub(crate) async fn open(&self, name: BackendName) -> Result<Opened> {
        match name {
            BackendName::Native => {
                let config = NativeConfig {
                    state_dir: self.state_dir.clone(),
                    mount_policy: self.mount_policy(),
                    instance: self.instance.clone(),
                    network_method: self.network_method,
                    images: self.images.clone(),
                };
                Ok(Opened::Native(Native::open(config).await?))
            }
            BackendName::Docker => self.open_engine(name, &self.settings.docker).await,
            BackendName::Podman => self.open_engine(name, &self.settings.podman).await,
            BackendName::Nsjail => self.open_nsjail().await,
        }
        .map_err(|error| named(name, error))
    }

    #[expect(clippy::unused_async, reason = "engines are opened over their sockets")]
    async fn open_engine(&self, name: BackendName, _settings: &EngineTable) -> Result<Opened> {
        Err(not_built(name))
    }

    #[expect(clippy::unused_async, reason = "nsjail is asked for its version")]
    async fn open_nsjail(&self) -> Result<Opened> {
        Err(not_built(BackendName::Nsjail))
    }

    /// The images of one of them.
    pub(crate) async fn images(&self, name: BackendName) -> Result<Arc<dyn ImageStore>> {
        match name {
            BackendName::Native => {
                let (path, config) = (self.state_dir.clone(), self.images.clone());
                let opened = box_host::blocking(move || {
                    let state = State::open(&path)?;
                    let images = Images::open(&state.path.join("images"), config)?;
                    images.release_the_dead(|name| state.has_box(name))?;
                    Ok(images)
                });
                Ok(Arc::new(opened.await?))
            }
            BackendName::Docker | BackendName::Podman | BackendName::Nsjail => Err(not_built(name)),
        }
    }

    /// No box of any backend may see the state of all: tokens are in it, and journals of others.
    fn mount_policy(&self) -> MountPolicy {
        let mut policy = self.mount_policy.clone();
        policy.denied.push(self.state_dir.clone());
        policy
    }
}

/// Says of which backend it is that something is not available.
fn named(name: BackendName, error: Error) -> Error {
    match error {
        Error::Unavailable { reason, fix, .. } if name != BackendName::Native => {
            Error::Unavailable { what: format!("the {name} backend"), reason, fix }
        }
        other => other,
    }
}

fn not_built(name: BackendName) -> Error {
    Error::Unavailable {
        what: format!("the {name} backend"),
        reason: "this program was built without it".to_owned(),
        fix: "use another backend".to_owned(),
    }
}
