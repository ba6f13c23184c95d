//! The nsjail backend: boxes of this machine, by the contract that all backends share.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use box_core::backend::Finding;
use box_core::{BackendName, BoxSpec, Result};
use box_host::cgroup::{Cgroups, DriverKind};
use box_host::local::{CreatedBox, Launcher, Local, LocalBackend, LocalConfig};
use box_wire::BoxId;

use crate::layout::MountMethod;
use crate::{create, fault, probe};

/// How an nsjail backend is set up.
#[derive(Debug, Clone)]
pub struct NsjailConfig {
    /// What every backend of this machine needs to know. The state is kept in a directory `nsjail` of its own.
    pub local: LocalConfig,
    /// nsjail, when not the one that is installed where programs of the system are.
    pub program: Option<PathBuf>,
}

/// Boxes around which nsjail puts namespaces. Whether nsjail is there is asked when one is made, not when this is opened.
pub type Nsjail = LocalBackend<Jails>;

/// What makes such boxes.
#[derive(Debug)]
pub struct Jails {
    pub(crate) way: MountMethod,
    program: Option<PathBuf>,
}

impl Launcher for Jails {
    type Config = NsjailConfig;

    const NAME: BackendName = BackendName::Nsjail;
    const DIRECTORY: Option<&'static str> = Some("nsjail");
    const CGROUP_PREFIX: &'static str = "nsjail-";

    fn open(config: NsjailConfig) -> Result<Local<Self>> {
        let NsjailConfig { local, program } = config;
        let root = rustix::process::geteuid().is_root();
        let way = if root { MountMethod::Staged } else { MountMethod::Paths };
        Local::open(local, |_| Ok(Self { way, program }))
    }

    fn point(step: &str) {
        fault::common(step);
    }

    fn findings(&self) -> Vec<Finding> {
        probe::findings(self.program.as_deref())
    }

    fn create(local: &Local<Self>, id: &BoxId, spec: &BoxSpec, directory: OwnedFd) -> Result<CreatedBox> {
        create::create(local, id, spec, directory)
    }

    /// nsjail itself counts as a process of its box where the agent does.
    fn own_processes(cgroups: &Cgroups) -> u64 {
        u64::from(cgroups.kind() == DriverKind::Hybrid)
    }
}

impl Jails {
    /// nsjail.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        probe::program(self.program.as_deref())
    }
}
