//! The native backend: boxes of this machine, by the contract that all backends share.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use box_core::backend::Finding;
use box_core::{BackendName, BoxSpec, Error, Result};
use box_host::doctor;
use box_host::ids::IdMaps;
use box_host::instance::State;
use box_host::local::{CreatedBox, Launcher, Local, LocalBackend, LocalConfig};
use box_wire::{BoxId, User};
use rustix::fs::{Mode, OFlags};

use crate::skeleton::Skeleton;
use crate::trees::{HostTrees, MountMethod};
use crate::zygote::Zygotes;
use crate::{fault, spawn};

/// Boxes made of namespaces and cgroups of this machine.
pub type Native = LocalBackend<Namespaces>;

/// What makes such boxes.
#[derive(Debug)]
pub struct Namespaces {
    /// The ids of every box of an ordinary user, found when first needed.
    rootless_maps: OnceLock<IdMaps>,
    pub(crate) way: MountMethod,
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
}

impl Launcher for Namespaces {
    type Config = LocalConfig;

    const NAME: BackendName = BackendName::Native;
    const DIRECTORY: Option<&'static str> = None;
    const CGROUP_PREFIX: &'static str = "";

    fn open(config: LocalConfig) -> Result<Local<Self>> {
        let root = rustix::process::geteuid().is_root();
        // `strongbox run` waits for both, and the skeleton needs nothing of the state directory.
        std::thread::scope(|scope| {
            let skeleton = scope.spawn(|| if root { Skeleton::make() } else { Ok(None) });
            let opened = Local::open(config, |state| Self::new(state, root));
            let skeleton = skeleton.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            let mut local = opened?;
            local.launcher.skeleton = Mutex::new(skeleton.map(Arc::new));
            Ok(local)
        })
    }

    fn point(step: &str) {
        fault::point(step);
    }

    fn findings(&self) -> Vec<Finding> {
        doctor::findings()
    }

    fn create(local: &Local<Self>, id: &BoxId, spec: &BoxSpec, directory: OwnedFd) -> Result<CreatedBox> {
        spawn::create(local, id, spec, directory)
    }

    /// Every range has the ordinary user of a box.
    fn workload(local: &Local<Self>, user: User) -> User {
        if local.ranges.is_some() { user } else { local.launcher.maps(None).workload(user) }
    }

    fn retire(&self) {
        drop(self.skeleton.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Namespaces {
    /// Everything but the skeleton.
    fn new(state: &State, root: bool) -> Result<Self> {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| Error::io("opening /dev/null", error))?;
        Ok(Self {
            rootless_maps: OnceLock::new(),
            way: if root { MountMethod::Mounts } else { MountMethod::Paths },
            null,
            agent: box_host::agent_program(state)?,
            shown_agent: OnceLock::new(),
            state: state.path.clone(),
            zygotes: Zygotes::default(),
            skeleton: Mutex::new(None),
            host_trees: HostTrees::default(),
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

    /// The ids of a box: those of its range, else what an ordinary user can have.
    pub(crate) fn maps(&self, range: Option<u32>) -> IdMaps {
        range.map_or_else(|| self.rootless_maps.get_or_init(IdMaps::rootless).clone(), IdMaps::of_range)
    }

    /// What boxes without an image share, if there is such a thing.
    pub(crate) fn skeleton(&self) -> Option<Arc<Skeleton>> {
        self.skeleton.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
