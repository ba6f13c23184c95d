//! The backend of boxes that are made out of this machine's own parts. Kinds of boxes differ only in how one is launched.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use box_core::backend::{Finding, FindingState};
use box_core::{
    AgentStream, Backend, BackendName, BoxSpec, Capabilities, Error, Grant, Guarantees, Handle, ImageProgram, Liveness,
    MountPolicy, MountSpec, Network, Result, SafeRoot, Stats,
};
use box_images::{Images, ImagesConfig, RootTree};
use box_wire::{BoxId, User};

use super::{Places, Record, dismantle, sweep};
use crate::cgroup::{self, BoxCgroup, Cgroups};
use crate::handover::Fds;
use crate::ids::Ranges;
use crate::instance::{self, Instance, InstanceKind, Remains, State};
use crate::live::{self, LiveBox, LiveBoxes};
use crate::network::{self, Method, Subnet};
use crate::process::Process;
use crate::{blocking, disk, journal, record, seccomp};

/// How a backend of this machine is set up.
#[derive(Debug, Clone)]
pub struct LocalConfig {
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

impl LocalConfig {
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

/// How boxes of one kind are launched.
pub trait Launcher: fmt::Debug + Send + Sync + Sized + 'static {
    /// What can be configured.
    type Config: Send + 'static;

    /// The backend.
    const NAME: BackendName;

    /// The directory of the state directory that is these boxes' own; nothing for the state directory itself.
    const DIRECTORY: Option<&'static str>;

    /// What names of cgroups begin with, so that no two kinds of boxes share one.
    const CGROUP_PREFIX: &'static str;

    /// Opens the backend, with [`Local::open`].
    fn open(config: Self::Config) -> Result<Local<Self>>;

    /// A step at which a test can end this process, by the name that it has for all kinds.
    fn point(step: &str);

    /// What was looked at, one finding each.
    fn findings(&self) -> Vec<Finding>;

    /// Makes a box. On an error the caller removes, by the record, whatever had been made.
    fn create(local: &Local<Self>, id: &BoxId, spec: &BoxSpec, directory: OwnedFd) -> Result<CreatedBox>;

    /// See [`Backend::workload`].
    fn workload(_local: &Local<Self>, user: User) -> User {
        user
    }

    /// Processes that count as the box's and are the launcher's.
    fn own_processes(_cgroups: &Cgroups) -> u64 {
        0
    }

    /// Releases what only new boxes need.
    fn retire(&self) {}
}

/// A box that stands.
#[derive(Debug)]
pub struct CreatedBox {
    /// Its first process.
    pub agent: Process,
    /// What this process holds of it.
    pub live: LiveBox,
    /// What was applied and verified.
    pub guarantees: Guarantees,
}

/// What is opened and decided before anything is made, so that a refusal leaves nothing to undo.
#[derive(Debug)]
pub struct Prepared {
    /// The mounts of the specification, as granted.
    pub grants: Vec<Grant>,
    /// The root file system, where it is an image's.
    pub image: Option<RootTree>,
    /// The way out, where there is one.
    pub network: Option<Method>,
    /// The system call filter.
    pub seccomp: Vec<Vec<u8>>,
}

/// What all operations share.
#[derive(Debug)]
pub struct Local<L> {
    /// Whose boxes these are.
    pub instance: Instance,
    /// The hierarchies.
    pub cgroups: Cgroups,
    /// Where ranges of ids are claimed; root only.
    pub ranges: Option<Ranges>,
    mount_policy: MountPolicy,
    network_method: Option<Method>,
    images: Images,
    disks: OwnedFd,
    journals: OwnedFd,
    boxes: LiveBoxes,
    /// What makes the boxes.
    pub launcher: L,
}

impl<L: Launcher> Local<L> {
    /// Opens what all kinds of boxes need, removes what instances that died have left behind, then asks for the launcher.
    pub fn open(config: LocalConfig, launcher: impl FnOnce(&State) -> Result<L>) -> Result<Self> {
        let directory = L::DIRECTORY.map_or_else(|| config.state_dir.clone(), |name| config.state_dir.join(name));
        let state = State::open(&directory)?;
        let ranges = rustix::process::geteuid().is_root().then(Ranges::open).transpose()?;
        let cgroups = Cgroups::detect();
        // All backends of a state directory share the images.
        let shared = if L::DIRECTORY.is_some() { state.path.parent() } else { None }.unwrap_or(&state.path);
        SafeRoot::open_path(shared)?.make_directory_all("images", 0o700)?;
        let images = Images::open(&shared.join("images"), config.images)?.for_backend(L::NAME);
        for remains in Remains::find(&state)? {
            let (disks, journals) = (&state.disks, &state.journals);
            let places = Places { cgroups: &cgroups, ranges: ranges.as_ref(), disks, journals, point: L::point };
            sweep(remains, &places, |name| images.release(name));
        }
        instance::sweep_storage(&state)?;
        images.release_the_dead(|name| state.has_box(name))?;
        let launcher = launcher(&state)?;
        let mut mount_policy = config.mount_policy;
        mount_policy.denied.push(state.path.clone());
        let instance = Instance::start(&state, &config.instance)?;
        L::point("instance_made");
        Ok(Self {
            instance,
            cgroups,
            ranges,
            mount_policy,
            network_method: config.network_method,
            images,
            disks: state.disks,
            journals: state.journals,
            boxes: LiveBoxes::new(config.reserved),
            launcher,
        })
    }

    /// Opens and decides what every box needs.
    pub fn prepare(&self, id: &BoxId, spec: &BoxSpec) -> Result<Prepared> {
        Ok(Prepared {
            grants: spec.mounts.iter().map(|mount| self.mount_policy.grant(mount)).collect::<Result<_>>()?,
            image: self.images.resolve(&spec.image, &self.instance.name_of(id))?,
            network: (spec.network == Network::On).then(|| network::choose(self.network_method)).transpose()?,
            seccomp: seccomp::programs(spec.syscalls)?,
        })
    }

    /// The record of a box that is about to be made.
    pub fn record(&self, id: &BoxId, prepared: &Prepared) -> Record {
        Record {
            id: id.clone(),
            cgroup: format!("{}{}", L::CGROUP_PREFIX, self.instance.name_of(id)),
            range: None,
            network: prepared.network.map(|method| network::intent(method, id)),
            jail: None,
            agent: None,
        }
    }

    /// The limits of a box's cgroup.
    pub fn limits(&self, spec: &BoxSpec) -> cgroup::Limits {
        let pids_max = spec.pids_limit + L::own_processes(&self.cgroups);
        cgroup::Limits { cpus: spec.cpus, memory_bytes_max: spec.memory_mb << 20, pids_max }
    }

    /// Gives a box that runs its way out.
    pub fn attach_network(&self, record: &mut Record, directory: &OwnedFd, cgroup: &BoxCgroup, pid: u32) -> Result<()> {
        record.attach_network(directory, cgroup, pid, self.boxes.reserved(), L::point)
    }

    /// Makes the file system of a box that keeps its files on disk, and mounts it nowhere yet.
    pub fn make_disk(&self, id: &BoxId, spec: &BoxSpec) -> Result<OwnedFd> {
        let (disks, name) = (self.disks.as_fd(), self.instance.name_of(id));
        disk::make_image(disks, &name, spec.disk_bytes_max(), spec.disk_inodes_max())?;
        L::point("disk_made");
        disk::mount_image(disks, &name)
    }

    /// Makes the journal of a box that keeps one, for its agent by these ids of the host, and adds it to what the agent is given.
    pub fn make_journal(
        &self,
        id: &BoxId,
        spec: &BoxSpec,
        owner: Option<(u32, u32)>,
        fds: &mut Fds,
    ) -> Result<Option<u32>> {
        if !spec.keeps_journal {
            return Ok(None);
        }
        let made = journal::make(&self.journals, &self.instance.name_of(id), owner)?;
        L::point("journal_made");
        Ok(Some(fds.add(made)))
    }

    fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        let spec = &BoxSpec { user: L::workload(self, spec.user), ..spec.clone() };
        let directory = self.instance.make_box(id)?;
        match L::create(self, id, spec, directory) {
            Ok(CreatedBox { agent, live, guarantees }) => {
                let locator = self.boxes.insert(id, agent, live)?;
                Ok(Handle::new(id.clone(), L::NAME, guarantees, locator))
            }
            Err(error) => {
                self.destroy(id)?;
                Err(error)
            }
        }
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
        let places = Places { cgroups, ranges, disks: &self.disks, journals: &self.journals, point: L::point };
        dismantle(record.as_ref(), &name, live.as_deref(), &places)?;
        self.images.release(&name)?;
        self.instance.remove_box(id)?;
        L::point("directory_removed");
        Ok(())
    }

    /// Removes what only this process needs, and the boxes of an ephemeral instance.
    fn end(local: Arc<Self>) -> Result<()> {
        if local.instance.kind == InstanceKind::Ephemeral {
            for id in local.instance.list() {
                local.destroy(&id)?;
            }
            if let Some(Self { instance, .. }) = Arc::into_inner(local) {
                instance.end();
            }
        }
        network::put_away()
    }

    fn cgroup<T>(&self, handle: &Handle, act: impl FnOnce(&BoxCgroup) -> Result<T>) -> Result<T> {
        act(&self.cgroups.require(&self.boxes.find(&self.instance, handle)?.cgroup)?)
    }

    /// What the box consumes, without what the launcher does.
    fn stats(&self, handle: &Handle) -> Result<Stats> {
        let stats = match self.cgroup(handle, |cgroup| Ok(cgroup.stats())) {
            // Where nothing counts, nothing is known; that is not an error.
            Err(Error::Unavailable { .. }) => return Ok(Stats::default()),
            stats => stats?,
        };
        let own = L::own_processes(&self.cgroups);
        Ok(Stats { pids: stats.pids.map(|count| count.saturating_sub(own)), ..stats })
    }
}

/// Boxes that are made out of this machine's own parts.
#[derive(Debug)]
pub struct LocalBackend<L> {
    local: Arc<Local<L>>,
}

impl<L: Launcher> LocalBackend<L> {
    /// Opens the backend, and removes what instances that died have left behind.
    pub async fn open(config: L::Config) -> Result<Self> {
        let local = blocking(move || L::open(config)).await?;
        Ok(Self { local: Arc::new(local) })
    }

    /// Releases what only new boxes need, while the last box is in use. Later boxes take longer to make.
    pub async fn retire(&self) {
        let retired = self.run(|local| {
            local.launcher.retire();
            Ok(())
        });
        if let Err(error) = retired.await {
            tracing::warn!(error = %error, "failed to release what only new boxes need");
        }
    }

    /// Ends the backend. The boxes of an ephemeral instance are destroyed; those of a persistent one go on.
    pub async fn close(self) {
        if let Err(error) = blocking(move || Local::end(self.local)).await {
            tracing::warn!(error = %error, "not everything could be removed; the next start will try again");
        }
    }

    /// Destroys the last box and ends the backend: two steps in one, because each waits for another thread.
    pub async fn close_after(self, last: &BoxId) -> Result<()> {
        let last = last.clone();
        blocking(move || {
            self.local.destroy(&last)?;
            Local::end(self.local)
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&Local<L>) -> Result<T> + Send + 'static) -> Result<T> {
        let local = Arc::clone(&self.local);
        blocking(move || work(&local)).await
    }
}

#[async_trait]
impl<L: Launcher> Backend for LocalBackend<L> {
    fn name(&self) -> BackendName {
        L::NAME
    }

    fn workload(&self, user: User) -> User {
        L::workload(&self.local, user)
    }

    async fn open_source(&self, mount: &MountSpec) -> Result<OwnedFd> {
        let mount = mount.clone();
        self.run(move |local| local.mount_policy.grant(&mount).map(|grant| grant.object)).await
    }

    async fn probe(&self) -> Capabilities {
        let findings = self.run(|local| Ok(local.launcher.findings())).await.unwrap_or_default();
        let available = findings.iter().all(|finding| finding.state != FindingState::Missing);
        Capabilities { available, findings }
    }

    async fn image_program(&self, spec: &BoxSpec) -> Result<Option<ImageProgram>> {
        let image = spec.image.clone();
        self.run(move |local| local.images.program(&image)).await
    }

    async fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        self.local.images.ensure(&spec.image).await?;
        let (id, spec) = (id.clone(), spec.clone());
        self.run(move |local| local.create(&id, &spec)).await
    }

    async fn adopt(&self, handle: &Handle) -> Result<Liveness> {
        let handle = handle.clone();
        self.run(move |local| local.boxes.adopt(&local.instance, &handle)).await
    }

    async fn dial(&self, handle: &Handle) -> Result<AgentStream> {
        let stream = live::dial(&self.local.boxes.find(&self.local.instance, handle)?.directory).await?;
        L::point("dialled");
        Ok(stream)
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        let handle = handle.clone();
        self.run(move |local| local.cgroup(&handle, BoxCgroup::freeze)).await
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        let handle = handle.clone();
        self.run(move |local| local.cgroup(&handle, BoxCgroup::thaw)).await
    }

    async fn journal(&self, handle: &Handle) -> Result<OwnedFd> {
        journal::open(&self.local.journals, &self.local.instance.name_of(&handle.id))
    }

    async fn stats(&self, handle: &Handle) -> Result<Stats> {
        let handle = handle.clone();
        self.run(move |local| local.stats(&handle)).await
    }

    async fn destroy(&self, handle: &Handle) -> Result<()> {
        let id = handle.id.clone();
        self.run(move |local| local.destroy(&id)).await
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        self.run(|local| Ok(live::handles(&local.instance, L::NAME))).await
    }
}
