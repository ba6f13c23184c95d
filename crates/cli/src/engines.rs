//! Every backend that this program has, and how each is opened. No other place knows more than one of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use box_core::backend::{BackendSet, Opener, Opening, Pick};
use box_core::{Backend, BackendName, Error, Handle, ImageStore, MountPolicy, Result};
use box_docker::{Engine, EngineConfig, EngineKind, EngineSettings};
use box_e2b::{E2b, E2bConfig, E2bSettings};
use box_host::InstanceKind;
use box_host::instance::State;
use box_host::local::LocalConfig;
use box_host::network::{Method, Subnet};
use box_images::{Images, ImagesConfig};
use box_native::Native;
use box_nsjail::{Nsjail, NsjailConfig};

use crate::config::Config;

/// What all backends need to be opened.
#[derive(Debug, Clone)]
pub(crate) struct Engines {
    state_dir: PathBuf,
    mount_policy: MountPolicy,
    instance: InstanceKind,
    network_method: Option<Method>,
    reserved: Vec<Subnet>,
    images: ImagesConfig,
    docker: EngineSettings,
    podman: EngineSettings,
    nsjail_program: Option<PathBuf>,
    e2b: E2bSettings,
}

/// A backend that is open and whose kind is still known, so that it can be closed.
#[derive(Debug)]
pub(crate) enum Opened {
    Native(Native),
    Engine(Box<Engine>),
    Nsjail(Nsjail),
    E2b(Box<E2b>),
}

impl Opened {
    /// As what all of them are.
    pub(crate) fn backend(&self) -> &dyn Backend {
        match self {
            Self::Native(native) => native,
            Self::Engine(engine) => &**engine,
            Self::Nsjail(nsjail) => nsjail,
            Self::E2b(e2b) => &**e2b,
        }
    }

    fn into_backend(self) -> Arc<dyn Backend> {
        match self {
            Self::Native(native) => Arc::new(native),
            Self::Engine(engine) => Arc::new(*engine),
            Self::Nsjail(nsjail) => Arc::new(nsjail),
            Self::E2b(e2b) => Arc::new(*e2b),
        }
    }

    /// Says that no more boxes are going to be made, so that what only making one needs is given back while the last is in use.
    pub(crate) async fn retire(&self) {
        if let Self::Native(native) = self {
            native.retire().await;
        }
    }

    /// Destroys its last box, and ends it.
    pub(crate) async fn close_after(self, last: &Handle) -> Result<()> {
        match self {
            Self::Native(native) => native.close_after(&last.id).await,
            other => {
                let destroyed = other.backend().destroy(last).await;
                other.close().await;
                destroyed
            }
        }
    }

    /// Ends it. What an instance of this process alone has made is removed.
    pub(crate) async fn close(self) {
        match self {
            Self::Native(native) => native.close().await,
            Self::Engine(engine) => engine.close().await,
            Self::Nsjail(nsjail) => nsjail.close().await,
            Self::E2b(e2b) => e2b.close().await,
        }
    }
}

/// Removes what boxes of this machine shared and none needs any more. Whoever keeps boxes beyond its own life does this in the end.
pub(crate) async fn put_away() {
    if let Err(error) = box_host::blocking(box_host::network::put_away).await {
        tracing::warn!(error = %error, "packet rules of boxes could not be removed");
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
            reserved: Vec::new(),
            images: ImagesConfig::default(),
            docker: EngineSettings::default(),
            podman: EngineSettings::default(),
            nsjail_program: None,
            e2b: E2bSettings::default(),
        }
    }

    /// For boxes of an instance that is known by its name across restarts.
    pub(crate) fn persistent(state_dir: &Path, mount_policy: MountPolicy, instance: String) -> Self {
        let instance = InstanceKind::Persistent(instance);
        Self { mount_policy, instance, ..Self::ephemeral(state_dir.to_owned()) }
    }

    /// The same, with engines used as the configuration says.
    pub(crate) fn configured(self, config: &Config) -> Self {
        let (docker, podman, e2b) = (config.docker.settings(), config.podman.settings(), config.e2b.settings());
        let nsjail_program = config.nsjail.program.clone();
        let network_method = self.network_method.or(config.network_method);
        let reserved = if self.reserved.is_empty() { config.reserved.clone() } else { self.reserved };
        let images = match self.instance {
            InstanceKind::Persistent(_) => config.image_store(),
            // A command without a server is run by the operator.
            InstanceKind::Ephemeral => ImagesConfig { named_registries: None, ..config.image_store() },
        };
        Self { network_method, reserved, images, docker, podman, nsjail_program, e2b, ..self }
    }

    /// The same, with boxes that get out by this way and reach these reserved networks.
    pub(crate) fn with_network(self, network_method: Option<Method>, reserved: Vec<Subnet>) -> Self {
        Self { network_method, reserved, ..self }
    }

    /// All of them as one, each opened when it is first needed.
    pub(crate) fn set(self, pick: Pick) -> BackendSet {
        let engines = Arc::new(self);
        let opener = |name: BackendName| -> (BackendName, Opener) {
            let engines = Arc::clone(&engines);
            let open = move || -> Opening {
                let engines = Arc::clone(&engines);
                Box::pin(async move { Ok(engines.open(name).await?.into_backend()) })
            };
            (name, Box::new(open))
        };
        BackendSet::new(BackendName::ALL.map(opener).into(), pick)
    }

    /// Opens one of them.
    pub(crate) async fn open(&self, name: BackendName) -> Result<Opened> {
        let opened = match name {
            BackendName::Native => self.open_native().await,
            BackendName::Docker => self.open_engine(EngineKind::Docker, &self.docker).await,
            BackendName::Podman => self.open_engine(EngineKind::Podman, &self.podman).await,
            BackendName::Nsjail => self.open_nsjail().await,
            BackendName::E2b => self.open_e2b().await,
        };
        opened.map_err(|error| named(name, error))
    }

    fn local(&self) -> LocalConfig {
        LocalConfig {
            state_dir: self.state_dir.clone(),
            mount_policy: self.mount_policy(),
            instance: self.instance.clone(),
            network_method: self.network_method,
            reserved: self.reserved.clone(),
            images: self.images.clone(),
        }
    }

    async fn open_native(&self) -> Result<Opened> {
        Ok(Opened::Native(Native::open(self.local()).await?))
    }

    async fn open_engine(&self, kind: EngineKind, settings: &EngineSettings) -> Result<Opened> {
        Ok(Opened::Engine(Box::new(self.connect(kind, settings).await?)))
    }

    async fn connect(&self, kind: EngineKind, settings: &EngineSettings) -> Result<Engine> {
        let config = EngineConfig {
            kind,
            state_dir: self.state_dir.clone(),
            mount_policy: self.mount_policy(),
            instance: self.instance.clone(),
            settings: EngineSettings { reserved: self.reserved.clone(), ..settings.clone() },
        };
        Engine::open(config).await
    }

    async fn open_nsjail(&self) -> Result<Opened> {
        let config = NsjailConfig { local: self.local(), program: self.nsjail_program.clone() };
        Ok(Opened::Nsjail(Nsjail::open(config).await?))
    }

    async fn open_e2b(&self) -> Result<Opened> {
        let config = E2bConfig {
            state_dir: self.state_dir.clone(),
            mount_policy: self.mount_policy(),
            instance: self.instance.clone(),
            settings: self.e2b.clone(),
        };
        Ok(Opened::E2b(Box::new(E2b::open(config).await?)))
    }

    /// The images of one of them.
    pub(crate) async fn images(&self, name: BackendName) -> Result<Arc<dyn ImageStore>> {
        match name {
            BackendName::Docker => Ok(Arc::new(self.connect(EngineKind::Docker, &self.docker).await?.images())),
            BackendName::Podman => Ok(Arc::new(self.connect(EngineKind::Podman, &self.podman).await?.images())),
            BackendName::E2b => Err(Error::Unavailable {
                what: "a store of images".to_owned(),
                reason: "E2B has templates, which are built there".to_owned(),
                fix: "name a template of E2B as the image".to_owned(),
            }),
            BackendName::Native | BackendName::Nsjail => {
                let (path, config) = (self.state_dir.clone(), self.images.clone());
                let opened = box_host::blocking(move || {
                    let state = State::open(&path)?;
                    let images = Images::open(&state.path.join("images"), config)?;
                    images.release_the_dead(|name| state.has_box(name))?;
                    Ok(images)
                });
                Ok(Arc::new(opened.await?))
            }
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
