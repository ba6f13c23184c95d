//! Boxes on an engine, by the contract that all backends share.

mod again;
mod open;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bollard::errors::Error as EngineError;
use box_core::backend::FindingState;
use box_core::tasks::Start as _;
use box_core::{
    AgentStream, Backend, BackendName, BoxSpec, Capabilities, Error, Handle, ImageProgram, Liveness, MountPolicy,
    MountSpec, Result, Stats, SyscallSet,
};
use box_host::instance::Instance;
use box_host::{InstanceKind, blocking, journal, record};
use box_wire::{BoxId, GuestPath, User};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::client::{Client, status};
use crate::config::{EngineConfig, EngineKind, EngineSettings};
use crate::container::{self, Mounts};
use crate::create::{self, CreatedBox, Purpose};
use crate::destroy::{self, Owner, gone};
use crate::facts::{EngineFacts, Reach};
use crate::images::EngineImages;
use crate::labels::Identity;
use crate::live::{LiveBox, Locator};
use crate::pool::{self, Pool};
use crate::record::Record;
use crate::{cgroup, fault, probe, reference, remote};

/// Boxes that are containers of Docker or Podman.
#[derive(Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

/// State that all operations share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) client: Client,
    pub(crate) settings: EngineSettings,
    pub(crate) facts: EngineFacts,
    pub(crate) instance: Instance,
    pub(crate) identity: Identity,
    pub(crate) mount_policy: MountPolicy,
    /// How mounts get into containers.
    pub(crate) mounts: Mounts,
    /// The state directory of this backend.
    pub(crate) state: PathBuf,
    pub(crate) disks: OwnedFd,
    pub(crate) journals: OwnedFd,
    /// The agent's program, for engines that share our files.
    pub(crate) agent: PathBuf,
    pub(crate) pool: Pool,
    /// Ends what runs in the background.
    stop: CancellationToken,
    profiles: Profiles,
    /// Whether the engine can bound what is written to a root; believed until it says otherwise.
    storage_quota: AtomicBool,
    tasks: TaskTracker,
    /// Boxes that this process made or adopted. Never locked while one is being made.
    boxes: Mutex<HashMap<BoxId, Arc<LiveBox>>>,
}

/// The filter of system calls for containers, in the form that the engine takes; nothing where it takes none.
#[derive(Debug, Default)]
struct Profiles {
    default: Option<String>,
    debug: Option<String>,
}

impl Engine {
    /// Opens the backend: finds the engine, takes the lease, and removes what instances that died have left behind.
    pub async fn open(config: EngineConfig) -> Result<Self> {
        let inner = Arc::new(open::open(config).await?);
        match (inner.settings.pool_size, inner.facts.reach) {
            (0, _) => {}
            (_, Reach::Shared) => inner.pool.begin(&inner),
            (_, Reach::Remote) => tracing::warn!("pool_size has no meaning for an engine that shares nothing with us"),
        }
        Ok(Self { inner })
    }

    /// Ends the backend. The boxes of an ephemeral instance are destroyed; those of a persistent one go on.
    pub async fn close(self) {
        let inner = self.inner;
        inner.tasks.close();
        inner.pool_is_over().await;
        if inner.instance.kind == InstanceKind::Ephemeral {
            for id in inner.instance.list() {
                if let Err(error) = inner.destroy(&id).await {
                    tracing::warn!(r#box.id = %id, error = %error, "a box could not be removed; the next start will try again");
                }
            }
        }
        inner.stop.cancel();
        inner.tasks.wait().await;
        if let Some(inner) = Arc::into_inner(inner) {
            inner.instance.end();
        }
    }

    /// The engine's images.
    pub fn images(&self) -> EngineImages {
        self.inner.images()
    }
}

impl Inner {
    /// The engine's images.
    pub(crate) fn images(&self) -> EngineImages {
        EngineImages::new(self.client.clone(), &self.settings)
    }

    /// The filter of system calls for a container.
    pub(crate) fn profile(&self, set: SyscallSet) -> Option<String> {
        match set {
            SyscallSet::Default => self.profiles.default.clone(),
            SyscallSet::Debug => self.profiles.debug.clone(),
        }
    }

    /// Whether the engine is asked to bound what is written to a root.
    pub(crate) fn tries_storage_quota(&self) -> bool {
        self.storage_quota.load(Ordering::Relaxed)
    }

    /// The engine cannot.
    pub(crate) fn forget_storage_quota(&self) {
        self.storage_quota.store(false, Ordering::Relaxed);
    }

    /// The limit of processes for a container. Podman's default may exceed what the machine grants, which fails; a
    /// limit that the machine can grant does not.
    pub(crate) fn nproc(&self) -> Option<i64> {
        let own = rustix::process::getrlimit(rustix::process::Resource::Nproc).maximum;
        let there_can_be =
            std::fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok());
        let most = own.unwrap_or(u64::MAX).min(there_can_be.unwrap_or(u64::MAX));
        (self.client.kind == EngineKind::Podman).then(|| i64::try_from(most).unwrap_or(-1))
    }

    /// How many files a tmpfs holds where only the engine's word is known: Podman takes no such number.
    pub(crate) fn inodes_by_word(&self, asked: u64) -> u64 {
        if self.client.kind == EngineKind::Docker { asked } else { u64::MAX }
    }

    /// Whether limits of a running container can be changed.
    pub(crate) fn can_update_limits(&self) -> bool {
        self.client.kind == EngineKind::Docker
    }

    /// Whether we may write to the cgroups of containers ourselves.
    pub(crate) fn can_limit_pids(&self) -> bool {
        self.facts.reach == Reach::Shared && rustix::process::geteuid().is_root()
    }

    async fn create(self: &Arc<Self>, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        let prepared = create::prepare(self, spec).await?;
        let waiting = self.pool.take(self, &prepared);
        let directory = match &waiting {
            Some(standing) => self.instance.rename_box(&standing.record.id, id).map(|()| None),
            None => self.instance.make_box(id).map(Some),
        };
        let made = match (waiting, directory) {
            (None, Err(error)) => return Err(error),
            (Some(standing), Err(error)) => {
                self.destroy(&standing.record.id).await?;
                return Err(error);
            }
            (Some(standing), Ok(_)) => match pool::adapt(self, standing, id, spec).await {
                Ok(standing) => create::move_in(self, standing, prepared).await,
                Err(error) => Err(error),
            },
            (None, Ok(Some(directory))) if self.facts.reach == Reach::Remote => {
                remote::create(self, id, directory, prepared).await
            }
            (None, Ok(Some(directory))) => {
                match create::stand_up(self, id, directory, &prepared, Purpose::Wanted).await {
                    Ok(standing) => create::move_in(self, standing, prepared).await,
                    Err(error) => Err(error),
                }
            }
            (None, Ok(None)) => Err(gone("its directory was not made")),
        };
        match made {
            Ok(made) => self.remember(id, made),
            Err(error) => {
                self.destroy(id).await?;
                Err(error)
            }
        }
    }

    fn remember(&self, id: &BoxId, made: CreatedBox) -> Result<Handle> {
        let CreatedBox { live, guarantees } = made;
        let locator = again::locator_text(&Locator { container: live.container.clone(), agent: live.agent() })?;
        self.known().insert(id.clone(), Arc::new(live));
        Ok(Handle::new(id.clone(), self.client.kind.backend(), guarantees, locator))
    }

    /// Ends a box, known or not, and removes everything by its record.
    pub(crate) async fn destroy(&self, id: &BoxId) -> Result<()> {
        let live = self.known().remove(id);
        let Ok(directory) = self.instance.open_box(id) else {
            // After a reboot nothing is left of a box but what it had said and stored.
            let name = self.instance.name_of(id);
            journal::remove(&self.disks, &name)?;
            return journal::remove(&self.journals, &name);
        };
        if let Some(record) = record::read::<Record>(&directory) {
            let places = destroy::Places { client: &self.client, disks: &self.disks, journals: &self.journals };
            destroy::dismantle(&record, &Owner::Ourselves(&self.identity), live.as_deref(), &places).await?;
        }
        self.instance.remove_box(id)?;
        fault::point("engine_directory_removed");
        Ok(())
    }

    /// Ends what was started ahead.
    async fn pool_is_over(&self) {
        for id in self.pool.end().await {
            if let Err(error) = self.destroy(&id).await {
                tracing::warn!(r#box.id = %id, error = %error, "a container that waited could not be removed");
            }
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<BoxId, Arc<LiveBox>>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the engine to stop or continue a container; one that is so already is fine.
    async fn set_motion(&self, handle: &Handle, wanted: Motion) -> Result<()> {
        let live = self.find(handle).await?;
        self.client.ping().await?;
        let (docker, container) = (&self.client.docker, live.container.as_str());
        let asked = match wanted {
            Motion::Still => docker.pause_container(container).await,
            Motion::Going => docker.unpause_container(container).await,
        };
        let Err(error) = asked else { return Ok(()) };
        let state = create::inspect(self, container).await.ok().and_then(|found| found.state).unwrap_or_default();
        match (state.running, state.paused) {
            (Some(true), Some(paused)) if paused == (wanted == Motion::Still) => Ok(()),
            (Some(true), _) => Err(cannot_pause(&self.client.explain("pause", &error))),
            _ => Err(self.explain_absence(&error)),
        }
    }

    fn explain_absence(&self, error: &EngineError) -> Error {
        match status(error) {
            Some(_) => gone("the engine says that its container does not run"),
            None => self.client.explain("engine", error),
        }
    }
}

/// An ordinary user's engine can stop nothing where cgroups are not delegated.
fn cannot_pause(error: &Error) -> Error {
    Error::Unavailable {
        what: "pausing a box".to_owned(),
        reason: error.to_string(),
        fix: "run the engine as root, or with cgroup v2".to_owned(),
    }
}

/// Whether the processes of a container go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Motion {
    Still,
    Going,
}

#[async_trait]
impl Backend for Engine {
    fn name(&self) -> BackendName {
        self.inner.client.kind.backend()
    }

    fn shares_filesystem(&self) -> bool {
        self.inner.facts.reach == Reach::Shared
    }

    fn workload(&self, user: User) -> User {
        self.inner.facts.workload(user)
    }

    async fn open_source(&self, mount: &MountSpec) -> Result<OwnedFd> {
        let (inner, mount) = (Arc::clone(&self.inner), mount.clone());
        blocking(move || inner.mount_policy.grant(&mount).map(|grant| grant.object)).await
    }

    async fn probe(&self) -> Capabilities {
        let findings = probe::findings(&self.inner).await;
        let available = findings.iter().all(|finding| finding.state != FindingState::Missing);
        Capabilities { available, findings }
    }

    async fn image_program(&self, spec: &BoxSpec) -> Result<Option<ImageProgram>> {
        let reference = reference::asked(spec, &self.inner.settings.image)?;
        self.images().program(&reference).await.map(Some)
    }

    async fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        let (inner, id, spec) = (Arc::clone(&self.inner), id.clone(), spec.clone());
        // A task of its own: if the caller goes away, a half-made container must still be recorded or removed.
        let making = self.inner.tasks.start(async move { inner.create(&id, &spec).await });
        making.await.map_err(|error| Error::io("making a box", std::io::Error::other(error)))?
    }

    async fn adopt(&self, handle: &Handle) -> Result<Liveness> {
        self.inner.adopt(handle).await
    }

    async fn dial(&self, handle: &Handle) -> Result<AgentStream> {
        let stream = self.inner.find(handle).await?.dial(&self.inner.client).await?;
        fault::point("engine_dialled");
        Ok(stream)
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        self.inner.set_motion(handle, Motion::Still).await
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        self.inner.set_motion(handle, Motion::Going).await
    }

    async fn journal(&self, handle: &Handle) -> Result<OwnedFd> {
        journal::open(&self.inner.journals, &self.inner.instance.name_of(&handle.id))
    }

    fn journal_in_box(&self, _handle: &Handle) -> Option<GuestPath> {
        (self.inner.facts.reach == Reach::Remote).then(|| container::known(container::JOURNAL))
    }

    async fn stats(&self, handle: &Handle) -> Result<Stats> {
        let live = self.inner.find(handle).await?;
        match live.agent() {
            Some(agent) => blocking(move || Ok(cgroup::stats(agent.pid))).await,
            None => remote::stats(&self.inner.client, &live.container).await,
        }
    }

    async fn destroy(&self, handle: &Handle) -> Result<()> {
        let (inner, id) = (Arc::clone(&self.inner), handle.id.clone());
        let ending = self.inner.tasks.start(async move { inner.destroy(&id).await });
        ending.await.map_err(|error| Error::io("ending a box", std::io::Error::other(error)))?
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        let inner = &self.inner;
        Ok(inner.instance.list().into_iter().filter_map(|id| inner.handle_of(id)).collect())
    }
}
