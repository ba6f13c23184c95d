//! The nsjail backend: boxes of this machine, by the contract that all backends share.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use box_core::backend::FindingState;
use box_core::{
    AgentStream, Backend, BackendName, BoxSpec, Capabilities, Error, Handle, ImageProgram, Liveness, MountPolicy,
    MountSpec, Result, SafeRoot, Stats,
};
use box_host::cgroup::{BoxCgroup, Cgroups, DriverKind};
use box_host::ids::Ranges;
use box_host::instance::{self, Instance, InstanceKind, Remains, State};
use box_host::live::{self, LiveBoxes};
use box_host::local::{self, Places, Record};
use box_host::network::{self, Method, Subnet};
use box_host::{blocking, disk, journal, record};
use box_images::{Images, ImagesConfig};
use box_wire::BoxId;

use crate::layout::MountMethod;
use crate::{create, fault, probe};

/// How an nsjail backend is set up.
#[derive(Debug, Clone)]
pub struct NsjailConfig {
    /// Where state is kept, in a directory `nsjail` of its own; made with mode 0700 if it does not exist.
    pub state_dir: PathBuf,
    /// Which trees of the host boxes may see.
    pub mount_policy: MountPolicy,
    /// Whether the boxes outlive this process.
    pub instance: InstanceKind,
    /// How outbound network is made, instead of the best that works here.
    pub network_method: Option<Method>,
    /// Reserved networks that boxes may reach; see `docs/config.md`.
    pub reserved: Vec<Subnet>,
    /// nsjail, when not the one that is installed where programs of the system are.
    pub program: Option<PathBuf>,
    /// How images are fetched. They are those of the native backend, in the directory `images`.
    pub images: ImagesConfig,
}

impl NsjailConfig {
    /// Boxes that die with this process, and no mounts but the operator's.
    pub fn ephemeral(state_dir: PathBuf) -> Self {
        let (mount_policy, instance) = (MountPolicy::default(), InstanceKind::Ephemeral);
        let images = ImagesConfig::default();
        Self { state_dir, mount_policy, instance, network_method: None, reserved: Vec::new(), program: None, images }
    }
}

/// Boxes around which nsjail puts namespaces.
#[derive(Debug)]
pub struct Nsjail {
    inner: Arc<Inner>,
}

/// What all operations share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) instance: Instance,
    pub(crate) cgroups: Cgroups,
    /// Where ranges of ids are claimed; root only.
    pub(crate) ranges: Option<Ranges>,
    pub(crate) way: MountMethod,
    pub(crate) mount_policy: MountPolicy,
    pub(crate) network_method: Option<Method>,
    pub(crate) images: Images,
    pub(crate) disks: OwnedFd,
    pub(crate) journals: OwnedFd,
    program: Option<PathBuf>,
    pub(crate) boxes: LiveBoxes,
}

/// The images that all backends of this machine share.
fn open_images(state_dir: &Path, config: ImagesConfig) -> Result<Images> {
    SafeRoot::open_path(state_dir)?.make_directory_all("images", 0o700)?;
    Ok(Images::open(&state_dir.join("images"), config)?.for_backend(BackendName::Nsjail))
}

impl Nsjail {
    /// Opens the backend, and removes what instances that died have left behind. Whether nsjail is there is not asked yet.
    pub async fn open(config: NsjailConfig) -> Result<Self> {
        blocking(move || Self::open_now(config)).await
    }

    fn open_now(config: NsjailConfig) -> Result<Self> {
        let state = State::open(&config.state_dir.join("nsjail"))?;
        let root = rustix::process::geteuid().is_root();
        let ranges = root.then(Ranges::open).transpose()?;
        let cgroups = Cgroups::detect();
        let images = open_images(&config.state_dir, config.images)?;
        for remains in Remains::find(&state)? {
            let (disks, journals) = (&state.disks, &state.journals);
            let places = Places { cgroups: &cgroups, ranges: ranges.as_ref(), disks, journals, point: fault::common };
            local::sweep(remains, &places, |name| images.release(name));
        }
        instance::sweep_storage(&state)?;
        images.release_the_dead(|name| state.has_box(name))?;
        let mut mount_policy = config.mount_policy;
        mount_policy.denied.push(state.path.clone());
        let instance = Instance::start(&state, &config.instance)?;
        fault::point("jail_instance_made");
        let inner = Inner {
            instance,
            cgroups,
            ranges,
            way: if root { MountMethod::Staged } else { MountMethod::Paths },
            mount_policy,
            network_method: config.network_method,
            images,
            disks: state.disks,
            journals: state.journals,
            program: config.program,
            boxes: LiveBoxes::new(config.reserved),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Ends the backend. The boxes of an ephemeral instance are destroyed; those of a persistent one go on.
    pub async fn close(self) {
        let inner = self.inner;
        let done = blocking(move || {
            if inner.instance.kind == InstanceKind::Ephemeral {
                for id in inner.instance.list() {
                    inner.destroy(&id)?;
                }
                if let Some(inner) = Arc::into_inner(inner) {
                    inner.instance.end();
                }
            }
            network::put_away()
        });
        if let Err(error) = done.await {
            tracing::warn!(error = %error, "not everything could be removed; the next start will try again");
        }
    }
}

impl Inner {
    /// nsjail.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        probe::program(self.program.as_deref())
    }

    fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        let directory = self.instance.make_box(id)?;
        let made = match create::create(self, id, spec, directory) {
            Ok(made) => made,
            Err(error) => {
                self.destroy(id)?;
                return Err(error);
            }
        };
        let create::CreatedBox { agent, live, guarantees } = made;
        let locator = self.boxes.insert(id, agent, live)?;
        Ok(Handle::new(id.clone(), BackendName::Nsjail, guarantees, locator))
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
        let places = Places { cgroups, ranges, disks: &self.disks, journals: &self.journals, point: fault::common };
        local::dismantle(record.as_ref(), &name, live.as_deref(), &places)?;
        self.images.release(&name)?;
        self.instance.remove_box(id)?;
        fault::point("jail_directory_removed");
        Ok(())
    }

    fn cgroup<T>(&self, handle: &Handle, act: impl FnOnce(&BoxCgroup) -> Result<T>) -> Result<T> {
        act(&self.cgroups.require(&self.boxes.find(&self.instance, handle)?.cgroup)?)
    }

    /// What the box consumes, nsjail not counted.
    fn stats(&self, handle: &Handle) -> Result<Stats> {
        let stats = match self.cgroup(handle, |cgroup| Ok(cgroup.stats())) {
            // Where nothing counts, nothing is known; that is not an error.
            Err(Error::Unavailable { .. }) => return Ok(Stats::default()),
            told => told?,
        };
        let nsjail = if self.cgroups.kind() == DriverKind::Hybrid { create::NSJAIL_PROCESSES } else { 0 };
        Ok(Stats { pids: stats.pids.map(|count| count.saturating_sub(nsjail)), ..stats })
    }
}

#[async_trait]
impl Backend for Nsjail {
    fn name(&self) -> BackendName {
        BackendName::Nsjail
    }

    async fn open_source(&self, mount: &MountSpec) -> Result<OwnedFd> {
        let (inner, mount) = (Arc::clone(&self.inner), mount.clone());
        blocking(move || inner.mount_policy.grant(&mount).map(|grant| grant.object)).await
    }

    async fn probe(&self) -> Capabilities {
        let inner = Arc::clone(&self.inner);
        let findings = blocking(move || Ok(probe::findings(inner.program.as_deref()))).await.unwrap_or_default();
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
        fault::point("jail_dialled");
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
        blocking(move || inner.stats(&handle)).await
    }

    async fn destroy(&self, handle: &Handle) -> Result<()> {
        let (inner, id) = (Arc::clone(&self.inner), handle.id.clone());
        blocking(move || inner.destroy(&id)).await
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        let inner = Arc::clone(&self.inner);
        blocking(move || Ok(live::handles(&inner.instance, BackendName::Nsjail))).await
    }
}
