//! The nsjail backend: boxes of this machine, by the contract that all backends share.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use box_core::backend::FindingState;
use box_core::{
    AgentStream, Backend, BackendName, BoxSpec, Capabilities, Error, Handle, Liveness, MountPolicy, MountSpec, Result,
    SafeRoot, Stats,
};
use box_host::cgroup::{BoxCgroup, Cgroups, DriverKind};
use box_host::ids::Ranges;
use box_host::instance::{self, Instance, InstanceKind, Remains, State};
use box_host::process::Process;
use box_host::{blocking, handover, journal};
use box_images::{Images, ImagesConfig};
use box_wire::BoxId;
use tokio::net::UnixStream;

use crate::house::Way;
use crate::record::Record;
use crate::{create, destroy, fault, probe};

/// How an nsjail backend is set up.
#[derive(Debug, Clone)]
pub struct NsjailConfig {
    /// Where state is kept, in a directory `nsjail` of its own; made with mode 0700 if it does not exist.
    pub state_dir: PathBuf,
    /// Which trees of the host boxes may see.
    pub mount_policy: MountPolicy,
    /// Whether the boxes outlive this process.
    pub instance: InstanceKind,
    /// nsjail, when not the one that is installed where programs of the system are.
    pub program: Option<PathBuf>,
    /// How images are fetched. They are those of the native backend, in the directory `images`.
    pub images: ImagesConfig,
}

impl NsjailConfig {
    /// Boxes that die with this process, and no mounts but the operator's.
    pub fn ephemeral(state_dir: PathBuf) -> Self {
        let (mount_policy, instance) = (MountPolicy::default(), InstanceKind::Ephemeral);
        Self { state_dir, mount_policy, instance, program: None, images: ImagesConfig::default() }
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
    pub(crate) way: Way,
    pub(crate) mount_policy: MountPolicy,
    pub(crate) images: Images,
    pub(crate) disks: OwnedFd,
    pub(crate) journals: OwnedFd,
    program: Option<PathBuf>,
    /// Boxes that this process made or adopted. Never locked while one is being made.
    boxes: Mutex<HashMap<BoxId, Arc<LiveBox>>>,
}

/// A box that this process knows.
#[derive(Debug)]
pub(crate) struct LiveBox {
    /// Its first process.
    pub(crate) agent: OwnedFd,
    cgroup: String,
    directory: OwnedFd,
    _lifeline: Option<std::os::unix::net::UnixStream>,
}

impl LiveBox {
    /// Whether somebody still answers. Asked by dialling: a process that is being torn down exists for a while longer.
    fn is_running(&self) -> bool {
        std::os::unix::net::UnixStream::connect(self.socket()).is_ok()
    }

    /// The agent's socket, by way of the descriptor, because a socket's path may only have 107 bytes.
    fn socket(&self) -> String {
        format!("/proc/self/fd/{}/{}", self.directory.as_raw_fd(), handover::SOCKET)
    }
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
            let places =
                destroy::Places { cgroups: &cgroups, ranges: ranges.as_ref(), disks, journals, images: &images };
            destroy::sweep(remains, &places);
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
            way: if root { Way::Staged } else { Way::Paths },
            mount_policy,
            images,
            disks: state.disks,
            journals: state.journals,
            program: config.program,
            boxes: Mutex::default(),
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
            Ok(())
        });
        if let Err(error) = done.await {
            tracing::warn!(error = %error, "a box could not be removed; the next start will try again");
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
        let locator = serde_json::to_string(&made.agent).map_err(|error| Error::io("naming the box", error))?;
        let create::Made { pidfd, cgroup, directory, guarantees, lifeline, .. } = made;
        let live = LiveBox { agent: pidfd, cgroup, directory, _lifeline: lifeline };
        self.known().insert(id.clone(), Arc::new(live));
        Ok(Handle { id: id.clone(), backend: BackendName::Nsjail, guarantees, locator })
    }

    fn adopt(&self, handle: &Handle) -> Result<Liveness> {
        let lost = |reason: &str| Ok(Liveness::Lost(reason.to_owned()));
        let known = self.known().get(&handle.id).cloned();
        if let Some(live) = known {
            return if live.is_running() { Ok(Liveness::Running) } else { lost("its agent does not answer") };
        }
        let Ok(agent) = serde_json::from_str::<Process>(&handle.locator) else {
            return lost("its handle was not written by this backend");
        };
        let Ok(directory) = self.instance.open_box(&handle.id) else { return lost("it has no directory") };
        let Some(record) = Record::read(&directory) else { return lost("its record cannot be read") };
        if record.agent != Some(agent) {
            return lost("its record tells of another process");
        }
        let Some(pidfd) = agent.open() else { return lost("its agent is not running") };
        let live = LiveBox { agent: pidfd, cgroup: record.cgroup, directory, _lifeline: None };
        if !live.is_running() {
            return lost("its agent does not answer");
        }
        self.known().insert(handle.id.clone(), Arc::new(live));
        Ok(Liveness::Running)
    }

    /// Ends a box, known or not, and removes everything by its record.
    fn destroy(&self, id: &BoxId) -> Result<()> {
        let live = self.known().remove(id);
        let Ok(directory) = self.instance.open_box(id) else {
            // After a reboot nothing is left of a box but what it had said.
            self.images.release(&self.instance.name_of(id))?;
            return journal::remove(&self.journals, &self.instance.name_of(id));
        };
        let record = Record::read(&directory);
        let (cgroups, ranges) = (&self.cgroups, self.ranges.as_ref());
        let (disks, journals, images) = (&self.disks, &self.journals, &self.images);
        let places = destroy::Places { cgroups, ranges, disks, journals, images };
        destroy::dismantle(record.as_ref(), live.as_deref(), &places)?;
        self.images.release(&self.instance.name_of(id))?;
        self.instance.remove_box(id)?;
        fault::point("jail_directory_removed");
        Ok(())
    }

    fn find(&self, handle: &Handle) -> Result<Arc<LiveBox>> {
        if let Some(live) = self.known().get(&handle.id) {
            return Ok(Arc::clone(live));
        }
        match self.adopt(handle)? {
            Liveness::Running => self.find(handle),
            Liveness::Lost(reason) => Err(Error::Gone { reason }),
        }
    }

    fn cgroup<T>(&self, handle: &Handle, act: impl FnOnce(&BoxCgroup) -> Result<T>) -> Result<T> {
        let live = self.find(handle)?;
        match (self.cgroups.open(&live.cgroup)?, self.cgroups.absence()) {
            (Some(cgroup), _) => act(&cgroup),
            (None, Some((reason, fix))) => {
                let (what, reason, fix) = ("a cgroup for the box".to_owned(), reason.to_owned(), fix.to_owned());
                Err(Error::Unavailable { what, reason, fix })
            }
            (None, None) => Err(Error::Gone { reason: "its cgroup is gone".to_owned() }),
        }
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

    /// A handle for a box of which only the record is known. What it guarantees is not.
    fn handle_of(&self, id: BoxId) -> Option<Handle> {
        let record = Record::read(self.instance.open_box(&id).ok()?);
        let agent = record.and_then(|record| record.agent);
        let locator = serde_json::to_string(&agent).ok()?;
        Some(Handle { id, backend: BackendName::Nsjail, guarantees: box_core::Guarantees::default(), locator })
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<BoxId, Arc<LiveBox>>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
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

    async fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        self.inner.images.ensure(&spec.image).await?;
        let (inner, id, spec) = (Arc::clone(&self.inner), id.clone(), spec.clone());
        blocking(move || inner.create(&id, &spec)).await
    }

    async fn adopt(&self, handle: &Handle) -> Result<Liveness> {
        let (inner, handle) = (Arc::clone(&self.inner), handle.clone());
        blocking(move || inner.adopt(&handle)).await
    }

    async fn dial(&self, handle: &Handle) -> Result<AgentStream> {
        let live = self.inner.find(handle)?;
        let stream = UnixStream::connect(live.socket()).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => Error::Gone { reason: "its agent is not listening".to_owned() },
            _ => Error::io("dialling the agent", error),
        })?;
        fault::point("jail_dialled");
        Ok(AgentStream::new(stream))
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
        blocking(move || Ok(inner.instance.list().into_iter().filter_map(|id| inner.handle_of(id)).collect())).await
    }
}
