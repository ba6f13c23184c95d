//! What every place where boxes can live must be able to do.

mod lazy;
mod set;

use std::fmt;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use box_wire::version::{Feature, Hello};
use box_wire::{BoxId, GuestPath, Invalid, User};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{BoxSpec, Error, Guarantees, MountSpec, Result};

pub use lazy::{LazyBackend, Opener, Opening};
pub use set::{BackendSet, Pick};

/// A place where boxes can live. Backends give boxes; everything that happens in one is the agent's work.
#[async_trait]
pub trait Backend: Send + Sync + fmt::Debug {
    /// Which one this is; where one stands for several, the one on which boxes live that name none.
    fn name(&self) -> BackendName;

    /// The backend of that name, where this one stands for several.
    fn member(&self, _name: BackendName) -> Option<Arc<dyn Backend>> {
        None
    }

    /// Those that a caller may ask for by name.
    fn offers(&self) -> Vec<BackendName> {
        vec![self.name()]
    }

    /// Whether it is there at all. Until it is, nothing is asked of it but this, [`Backend::probe`] and [`Backend::arrives`].
    fn presence(&self) -> Result<()> {
        Ok(())
    }

    /// Tries once, now, to be there.
    async fn attempt(&self) -> Result<()> {
        self.presence()
    }

    /// Waits until it is there, and does what brings it. One that is switched off never comes.
    async fn arrives(&self) {}

    /// Whether the provider ends boxes that are no longer used.
    fn ends_boxes_itself(&self) -> bool {
        false
    }

    /// Whether paths of the host mean the same to us and to its boxes.
    fn shares_filesystem(&self) -> bool {
        true
    }

    /// Whether all boxes that mount a directory of the host see one directory, and not copies of it.
    fn shares_volumes(&self) -> bool {
        self.shares_filesystem()
    }

    /// Who commands really run as in a box whose specification names this user. Where ids of the box are ids of the host, nobody in
    /// it may be the host's root.
    fn workload(&self, user: User) -> User {
        user
    }

    /// Opens what a mount would show, decided as when a box is made, to look at it.
    async fn open_source(&self, mount: &MountSpec) -> Result<OwnedFd> {
        Err(Error::Unavailable {
            what: format!("a look at {}", mount.source.display()),
            reason: format!("the {} backend does not open mounts", self.name()),
            fix: "leave workspace_quota_mb at 0".to_owned(),
        })
    }

    /// What works here, and why the rest does not.
    async fn probe(&self) -> Capabilities;

    /// How each of the backends stands that this one stands for.
    async fn survey(&self) -> Vec<Surveyed> {
        let why = "it is the only one".to_owned();
        vec![Surveyed { name: self.name(), chosen: Some(why), capabilities: Some(self.probe().await) }]
    }

    /// The image's default program for a specification. None without an image, or if the image cannot be inspected.
    async fn image_program(&self, _spec: &BoxSpec) -> Result<Option<ImageProgram>> {
        Ok(None)
    }

    /// Makes a box. On an error nothing of it is left.
    async fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle>;

    /// Finds a box again after a restart of the server.
    async fn adopt(&self, handle: &Handle) -> Result<Liveness>;

    /// Opens a stream to the agent of a box. One stream carries one operation.
    async fn dial(&self, handle: &Handle) -> Result<AgentStream>;

    /// Stops every process of the workload where it is.
    async fn pause(&self, handle: &Handle) -> Result<()>;

    /// Lets the workload go on.
    async fn resume(&self, handle: &Handle) -> Result<()>;

    /// The directory of the box's journal, for reading; see [`crate::Journal`]. It outlives the box's processes and goes when the
    /// box is destroyed. A box that keeps none, or is not there any more, is [`crate::Error::Gone`].
    async fn journal(&self, handle: &Handle) -> Result<OwnedFd>;

    /// Where in the box its journal is, when it is there and not in a directory of this machine: the box's agent is asked for it then, and
    /// [`Backend::journal`] never.
    fn journal_in_box(&self, _handle: &Handle) -> Option<GuestPath> {
        None
    }

    /// What the box consumes now.
    async fn stats(&self, handle: &Handle) -> Result<Stats>;

    /// Ends the box and removes everything that existed because of it. Doing it twice is not an error.
    async fn destroy(&self, handle: &Handle) -> Result<()>;

    /// Boxes of this instance that exist, whether or not anybody remembers them.
    async fn list_orphans(&self) -> Result<Vec<Handle>>;
}

/// The default program of an image. Used only if the caller asks for the program of the image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageProgram {
    /// The program and its fixed arguments.
    pub entrypoint: Vec<String>,
    /// The default program, or default arguments.
    pub cmd: Vec<String>,
    /// Variables, `NAME=VALUE`.
    pub env: Vec<String>,
    /// The working directory.
    pub working_dir: String,
}

impl ImageProgram {
    /// The command line, with `args` replacing the image's own arguments.
    pub fn command(&self, args: &[String]) -> Vec<String> {
        let args = if args.is_empty() { &self.cmd } else { args };
        self.entrypoint.iter().chain(args).cloned().collect()
    }
}

/// The backends there can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendName {
    /// Namespaces and cgroups of this machine.
    Native,
    /// Containers of a Docker engine.
    Docker,
    /// Containers of Podman.
    Podman,
    /// nsjail around each box.
    Nsjail,
    /// Sandboxes of E2B: machines of somebody else's.
    E2b,
}

impl BackendName {
    /// All of them, those of this machine first.
    pub const ALL: [Self; 5] = [Self::Native, Self::Podman, Self::Docker, Self::Nsjail, Self::E2b];

    /// Those that are tried unless the operator says otherwise, in this order: what needs nothing else first, then what needs no daemon of
    /// root. Nothing leaves this machine unless somebody asks for that by name.
    pub const USUAL: [Self; 4] = [Self::Native, Self::Podman, Self::Docker, Self::Nsjail];

    /// The name as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Nsjail => "nsjail",
            Self::E2b => "e2b",
        }
    }
}

impl FromStr for BackendName {
    type Err = Invalid;
    fn from_str(text: &str) -> std::result::Result<Self, Invalid> {
        let named = |name: &Self| name.as_str() == text;
        let all = || Self::ALL.map(Self::as_str).join(", ");
        Self::ALL.into_iter().find(named).ok_or_else(|| Invalid::new("backend", text, format!("one of {}", all())))
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a backend can do on this machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Capabilities {
    /// Whether boxes can be made at all.
    pub available: bool,
    /// One line for each thing that was looked at.
    pub findings: Vec<Finding>,
}

impl Capabilities {
    /// Why no box can be made, and what would change that; nothing where boxes can be made.
    pub fn absence(&self) -> Option<(String, String)> {
        if self.available {
            return None;
        }
        let missing = || self.findings.iter().filter(|finding| finding.state == FindingState::Missing);
        let reasons: Vec<_> = missing().map(|finding| finding.detail.as_str()).collect();
        let fixes: Vec<_> = missing().filter_map(|finding| finding.fix.as_deref()).collect();
        Some((reasons.join("; "), fixes.join("; ")))
    }
}

/// One backend among several: whether it is the chosen one, and how it stands.
#[derive(Debug, Clone)]
pub struct Surveyed {
    /// Which one.
    pub name: BackendName,
    /// Why boxes that name no backend live on it; nothing where they do not.
    pub chosen: Option<String>,
    /// What it says of itself; nothing where nobody has needed it yet, because then it is left alone.
    pub capabilities: Option<Capabilities>,
}

/// One thing that was looked at: how it stands and what would make it better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at, as a stable word.
    pub name: String,
    /// How it stands.
    pub state: FindingState,
    /// What was found.
    pub detail: String,
    /// The exact command or setting that would improve it.
    pub fix: Option<String>,
}

/// How a finding stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingState {
    /// As good as it gets.
    Good,
    /// Boxes can be made, but hold less.
    Weaker,
    /// No box can be made without it.
    Missing,
}

/// What finds a box again, and what it guarantees. Plain data, so that it survives the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// The box.
    pub id: BoxId,
    /// Where it lives.
    pub backend: BackendName,
    /// What was applied and verified.
    pub guarantees: Guarantees,
    /// What only the backend understands.
    pub locator: String,
    /// What the box's agent speaks; version 0 from servers that did not record it.
    #[serde(default)]
    pub agent: Hello,
}

impl Handle {
    /// For an agent of this program.
    pub fn new(id: BoxId, backend: BackendName, guarantees: Guarantees, locator: String) -> Self {
        Self { id, backend, guarantees, locator, agent: Hello::ours() }
    }

    /// Refuses what the agent is too old for.
    pub fn require(&self, feature: Feature) -> Result<()> {
        if self.agent.has(feature) { Ok(()) } else { Err(Error::AgentTooOld { feature: feature.as_str() }) }
    }
}

/// Whether a box is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// It runs and its agent can be dialled.
    Running,
    /// It is gone, and this is how that is known.
    Lost(String),
}

/// What a box consumes at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Processor time since it was made.
    pub cpu_us: Option<u64>,
    /// Memory now.
    pub memory_bytes: Option<u64>,
    /// Processes now.
    pub pids: Option<u64>,
}

/// A byte stream to an agent.
pub trait AgentIo: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> AgentIo for T {}

/// A byte stream to an agent, whatever it runs over. What comes out of it is hostile.
pub struct AgentStream(Box<dyn AgentIo>);

impl AgentStream {
    /// Wraps any stream.
    pub fn new(stream: impl AgentIo + 'static) -> Self {
        Self(Box::new(stream))
    }

    pub(crate) fn into_inner(self) -> Box<dyn AgentIo> {
        self.0
    }
}

impl fmt::Debug for AgentStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentStream")
    }
}
