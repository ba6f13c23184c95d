//! The native backend: boxes of this machine, by the contract that all backends share.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use box_core::backend::FindingState;
use box_core::{
    AgentStream, Backend, BackendName, BoxSpec, Capabilities, Error, Handle, ImageProgram, Liveness, MountPolicy,
    MountSpec, Result, Stats,
};
use box_host::cgroup::{BoxCgroup, Cgroups};
use box_host::ids::{IdMaps, Ranges};
use box_host::instance::{self, Instance, InstanceKind, Remains, State};
use box_host::live::{self, LiveBoxes};
use box_host::local::{self, Places, Record};
use box_host::network::{self, Method, Subnet};
use box_host::{blocking, disk, doctor, journal, record};
use box_images::{Images, ImagesConfig};
use box_wire::{BoxId, User};
use rustix::fs::{Mode, OFlags};

use crate::skeleton::Skeleton;
use crate::trees::{HostTrees, MountMethod};
use crate::zygote::Zygotes;
use crate::{fault, spawn};

/// How a native backend is set up.
#[derive(Debug, Clone)]
pub struct NativeConfig {
    /// Where state is kept; made with mode 0700 if it does not exist.
    pub state_dir: PathBuf,
    /// Which trees of the host boxes may see.
    pub mount_policy: MountPolicy,
    /// Whether the boxes outlive this process.
    pub instance: InstanceKind,
    /// How boxes get out, when not by the first way that works.
    pub network_method: Option<Method>,
    /// Reserved networks that boxes may reach; see `docs/config.md`.
    pub reserved: Vec<Subnet>,
    /// How images are kept and fetched.
    pub images: ImagesConfig,
}

impl NativeConfig {
    /// Boxes that die with this process, and no mounts but the operator's.
    pub fn ephemeral(state_dir: PathBuf) -> Self {
        Self {
            state_dir,
            mount_policy: MountPolicy::default(),
            instance: InstanceKind::Ephemeral,
            network_method: None,
            reserved: Vec::new(),
            images: ImagesConfig::default(),
        }
    }
}

/// Boxes made of namespaces and cgroups of this machine.
#[derive(Debug)]
pub struct Native {
    inner: Arc<Inner>,
}

/// What all operations share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) instance: Instance,
    pub(crate) cgroups: Cgroups,
    /// Where ranges of ids are claimed; root only.
    pub(crate) ranges: Option<Ranges>,
    /// The ids of every box of an ordinary user, found when first needed.
    rootless_maps: OnceLock<IdMaps>,
    pub(crate) way: MountMethod,
    pub(crate) mount_policy: MountPolicy,
    pub(crate) network_method: Option<Method>,
    pub(crate) images: Images,
    pub(crate) disks: OwnedFd,
    pub(crate) journals: OwnedFd,
    pub(crate) null: OwnedFd,
    /// The program that boxes are started from.
    pub(crate) agent: OwnedFd,
    /// The same as a file that boxes show, found when first needed.
    shown_agent: OnceLock<Option<PathBuf>>,
    state: PathBuf,
    pub(crate) zygotes: Zygotes,
    /// What boxes without an image share; root only.
    skeleton: Mutex<Option<Arc<Skeleton>>>,
    /// Files of the host that are always shown, opened once.
    pub(crate) host_trees: HostTrees,
    pub(crate) boxes: LiveBoxes,
}

impl Native {
    /// Opens the backend, and removes what instances that died have left behind.
    pub async fn open(config: NativeConfig) -> Result<Self> {
        let root = rustix::process::geteuid().is_root();
        // `strongbox run` waits for both, and the skeleton needs nothing of the state directory.
        let (skeleton, opened) = tokio::join!(
            blocking(move || if root { Skeleton::make() } else { Ok(None) }),
            blocking(move || Inner::open(config, root)),
        );
        let skeleton = Mutex::new(skeleton?.map(Arc::new));
        Ok(Self { inner: Arc::new(Inner { skeleton, ..opened? }) })
    }

    /// Releases what only new boxes need, while the last box is in use. Later boxes take longer to make.
    pub async fn retire(&self) {
        let inner = Arc::clone(&self.inner);
        let retired = blocking(move || {
            drop(inner.skeleton.lock().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        });
        if let Err(error) = retired.await {
            tracing::warn!(error = %error, "failed to release what only new boxes need");
        }
    }

    /// Ends the backend. The boxes of an ephemeral instance are destroyed; those of a persistent one go on.
    pub async fn close(self) {
        let inner = self.inner;
        if let Err(error) = blocking(move || Inner::end(inner)).await {
            tracing::warn!(error = %error, "not everything could be removed; the next start will try again");
        }
    }

    /// Destroys the last box and ends the backend: two steps in one, because each waits for another thread.
    pub async fn close_after(self, last: &BoxId) -> Result<()> {
        let (inner, last) = (self.inner, last.clone());
        blocking(move || {
            inner.destroy(&last)?;
            Inner::end(inner)
        })
        .await
    }
}

impl Inner {
    /// Opens everything but the skeleton.
    fn open(config: NativeConfig, root: bool) -> Result<Self> {
        let state = State::open(&config.state_dir)?;
        let ranges = root.then(Ranges::open).transpose()?;
        let cgroups = Cgroups::detect();
        let images = Images::open(&state.path.join("images"), config.images)?;
        for remains in Remains::find(&state)? {
            let (disks, journals) = (&state.disks, &state.journals);
            let places = Places { cgroups: &cgroups, ranges: ranges.as_ref(), disks, journals, point: fault::point };
            local::sweep(remains, &places, |name| images.release(name));
        }
        instance::sweep_storage(&state)?;
        images.release_the_dead(|name| state.has_box(name))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| Error::io("opening /dev/null", error))?;
        let agent = box_host::agent_program(&state)?;
        let mut mount_policy = config.mount_policy;
        mount_policy.denied.push(state.path.clone());
        let instance = Instance::start(&state, &config.instance)?;
        fault::point("instance_made");
        Ok(Self {
            instance,
            cgroups,
            ranges,
            way: if root { MountMethod::Mounts } else { MountMethod::Paths },
            mount_policy,
            network_method: config.network_method,
            images,
            disks: state.disks,
            journals: state.journals,
            null,
            agent,
            shown_agent: OnceLock::new(),
            state: state.path,
            zygotes: Zygotes::default(),
            skeleton: Mutex::new(None),
            host_trees: HostTrees::default(),
            rootless_maps: OnceLock::new(),
            boxes: LiveBoxes::new(config.reserved),
        })
    }

    /// The agent as a file that a box can show and execute, where there is one.
    pub(crate) fn shown_agent(&self) -> Option<PathBuf> {
        let found = self.shown_agent.get_or_init(|| {
            box_host::agent_for_boxes(&self.state).unwrap_or_else(|error| {
                tracing::warn!(error = %error, "failed to store the agent; boxes have no sudo");
                None
            })
        });
        found.clone().filter(|path| path.exists())
    }

    /// Removes what only this process needs, and the boxes of an ephemeral instance.
    fn end(inner: Arc<Self>) -> Result<()> {
        if inner.instance.kind == InstanceKind::Ephemeral {
            for id in inner.instance.list() {
                inner.destroy(&id)?;
            }
            if let Some(Self { instance, .. }) = Arc::into_inner(inner) {
                instance.end();
            }
        }
        network::put_away()
    }

    /// The ids of a box: those of its range, else what an ordinary user can have.
    pub(crate) fn maps(&self, range: Option<u32>) -> IdMaps {
        range.map_or_else(|| self.rootless_maps.get_or_init(IdMaps::rootless).clone(), IdMaps::of_range)
    }

    /// Who commands really are. Every range has the ordinary user of a box.
    fn workload(&self, user: User) -> User {
        if self.ranges.is_some() { user } else { self.maps(None).workload(user) }
    }

    fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        let spec = &BoxSpec { user: self.workload(spec.user), ..spec.clone() };
        let directory = self.instance.make_box(id)?;
        let made = match spawn::create(self, id, spec, directory) {
            Ok(made) => made,
            Err(error) => {
                self.destroy(id)?;
                return Err(error);
            }
        };
        let spawn::CreatedBox { agent, live, guarantees } = made;
        let locator = self.boxes.insert(id, agent, live)?;
        Ok(Handle::new(id.clone(), BackendName::Native, guarantees, locator))
    }

    /// Ends a box, known or not, and removes everything by its record.
    fn destroy(&self, id: &BoxId) -> Result<()> {
        let (live, name) = (self.boxes.remove(id), self.instance.name_of(id));
        let Ok(directory) = self.instance.open_box(id) else {
            // After a reboot only the journal and the storage of a box are left.
            self.images.release(&name)?;
            disk::remove_image(self.disks.as_fd(), &name)?;
            return journal::remove(&self.journals, &name);
        };
        let record: Option<Record> = record::read(&directory);
        let (cgroups, ranges) = (&self.cgroups, self.ranges.as_ref());
        let places = Places { cgroups, ranges, disks: &self.disks, journals: &self.journals, point: fault::point };
        local::dismantle(record.as_ref(), &name, live.as_deref(), &places)?;
        self.images.release(&name)?;
        self.instance.remove_box(id)?;
        fault::point("directory_removed");
        Ok(())
    }

    /// What boxes without an image share, if there is such a thing.
    pub(crate) fn skeleton(&self) -> Option<Arc<Skeleton>> {
        self.skeleton.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn cgroup<T>(&self, handle: &Handle, act: impl FnOnce(&BoxCgroup) -> Result<T>) -> Result<T> {
        act(&self.cgroups.require(&self.boxes.find(&self.instance, handle)?.cgroup)?)
    }
}

#[async_trait]
impl Backend for Native {
    fn name(&self) -> BackendName {
        BackendName::Native
    }

    fn workload(&self, user: User) -> User {
        self.inner.workload(user)
    }

    async fn open_source(&self, mount: &MountSpec) -> Result<OwnedFd> {
        let (inner, mount) = (Arc::clone(&self.inner), mount.clone());
        blocking(move || inner.mount_policy.grant(&mount).map(|grant| grant.object)).await
    }

    async fn probe(&self) -> Capabilities {
        let findings = blocking(|| Ok(doctor::findings())).await.unwrap_or_default();
        let available = findings.iter().all(|finding| finding.state != FindingState::Missing);
        Capabilities { available, findings }
    }

    async fn image_program(&self, spec: &BoxSpec) -> Result<Option<ImageProgram>> {
        let (inner, image) = (Arc::clone(&self.inner), spec.image.clone());
        blocking(move || inner.images.program(&image)).await
    }

    async fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        self.inner.images.ensure(&spec.image).await?;
        let (inner, id, spec) = (Arc::clone(&self.inner), id.clone(), spec.clone());
        blocking(move || inner.create(&id, &spec)).await
    }

    async fn adopt(&self, handle: &Handle) -> Result<Liveness> {
        let (inner, handle) = (Arc::clone(&self.inner), handle.clone());
        blocking(move || inner.boxes.adopt(&inner.instance, &handle)).await
    }

    async fn dial(&self, handle: &Handle) -> Result<AgentStream> {
        let stream = live::dial(&self.inner.boxes.find(&self.inner.instance, handle)?.directory).await?;
        fault::point("dialled");
        Ok(stream)
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        let (inner, handle) = (Arc::clone(&self.inner), handle.clone());
        blocking(move || inner.cgroup(&handle, BoxCgroup::freeze)).await
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        let (inner, handle) = (Arc::clone(&self.inner), handle.clone());
        blocking(move || inner.cgroup(&handle, BoxCgroup::thaw)).await
    }

    async fn journal(&self, handle: &Handle) -> Result<OwnedFd> {
        journal::open(&self.inner.journals, &self.inner.instance.name_of(&handle.id))
    }

    async fn stats(&self, handle: &Handle) -> Result<Stats> {
        let (inner, handle) = (Arc::clone(&self.inner), handle.clone());
        // Where nothing counts, nothing is known; that is not an error.
        blocking(move || match inner.cgroup(&handle, |cgroup| Ok(cgroup.stats())) {
            Err(Error::Unavailable { .. }) => Ok(Stats::default()),
            told => told,
        })
        .await
    }

    async fn destroy(&self, handle: &Handle) -> Result<()> {
        let (inner, id) = (Arc::clone(&self.inner), handle.id.clone());
        blocking(move || inner.destroy(&id)).await
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        let inner = Arc::clone(&self.inner);
        blocking(move || Ok(live::handles(&inner.instance, BackendName::Native))).await
    }
}
