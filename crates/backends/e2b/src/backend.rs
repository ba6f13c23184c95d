//! The E2B backend: sandboxes of a provider, by the contract that all backends share.

mod again;
mod open;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use async_trait::async_trait;
use box_core::backend::{Finding, FindingState};
use box_core::tasks::Start as _;
use box_core::{
    AgentStream, Backend, BackendName, BoxSpec, Capabilities, Error, Handle, Liveness, MountPolicy, MountSpec, Result,
    SafeRoot, Stats,
};
use box_host::{InstanceKind, blocking};
use box_wire::{BoxId, GuestPath, User};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::Api;
use crate::boxes::Boxes;
use crate::carrier;
use crate::config::{E2bConfig, E2bSettings, Secret};
use crate::create::{self, BOX, INSTANCE};
use crate::endpoints::Endpoints;
use crate::envd::Envd;
use crate::failure::Failure;
use crate::lease_renewer;
use crate::limits::INPUT_BYTES_MAX;
use crate::listened::Listened;
use crate::locator::Locator;
use crate::relay::relay;
use crate::sandbox::LiveSandbox;
use crate::setup;
use crate::sync::{Dial, Past, Sources, Sync};
use crate::words::Sandbox;

/// Boxes that are sandboxes of E2B.
#[derive(Debug)]
pub struct E2b {
    inner: Arc<Inner>,
}

/// What all operations share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) api: Arc<Api>,
    pub(crate) settings: E2bSettings,
    /// The name of this instance, which its sandboxes carry.
    pub(crate) instance: String,
    kind: InstanceKind,
    endpoints: Endpoints,
    client: reqwest::Client,
    mount_policy: MountPolicy,
    staging: Arc<SafeRoot>,
    boxes: Boxes,
    tasks: TaskTracker,
    /// Ends what runs in the background.
    stop: CancellationToken,
}

impl E2b {
    /// Opens the backend. The key is first used, and checked, by the first request.
    pub async fn open(config: E2bConfig) -> Result<Self> {
        blocking(move || open::open(config)).await.map(|inner| Self { inner: Arc::new(inner) })
    }

    /// Ends the backend. The boxes of an ephemeral instance are destroyed; those of a persistent one go on, for as long as the
    /// provider lets them.
    pub async fn close(self) {
        let inner = &self.inner;
        if inner.kind == InstanceKind::Ephemeral
            && let Err(error) = inner.destroy_all().await
        {
            tracing::warn!(%error, "sandboxes could not be removed; they end by themselves when their time is over");
        }
        inner.stop.cancel();
        inner.tasks.close();
        inner.tasks.wait().await;
    }
}

impl Drop for E2b {
    fn drop(&mut self) {
        self.inner.stop.cancel();
    }
}

impl Inner {
    /// How the daemon of a sandbox is reached.
    pub(crate) fn envd(&self, sandbox: Sandbox) -> Result<Envd> {
        let base = self.endpoints.envd(&sandbox.id, sandbox.domain.as_deref())?;
        Ok(Envd {
            client: self.client.clone(),
            base,
            sandbox: sandbox.id,
            token: sandbox.envd_access_token.filter(|token| !token.is_empty()).map(Secret::new),
            version: sandbox.envd_version,
        })
    }

    async fn create(self: &Arc<Self>, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        spec.validate()?;
        spec.refuse_snapshot(BackendName::E2b)?;
        let sources = self.sources(&spec.mounts).await?;
        self.boxes.take(id)?;
        match self.make(id, spec, sources).await {
            Ok(handle) => Ok(handle),
            Err(error) => {
                // The sandbox may exist although the request failed.
                let removed = self.destroy(id, None).await;
                removed.and(Err(error))
            }
        }
    }

    async fn make(self: &Arc<Self>, id: &BoxId, spec: &BoxSpec, sources: Sources) -> Result<Handle> {
        let made = create::create(self, id, spec, &sources).await?;
        let locator =
            Locator { sandbox: made.envd.sandbox.clone(), home: Some(made.home), mounts: spec.mounts.clone() };
        let text = locator.text()?;
        let sync = Sync::new(sources, Arc::clone(&self.staging), Past::None)?;
        let live = Arc::new(LiveSandbox::new(locator, made.envd, sync, self.stop.child_token()));
        if let Some(sync) = &live.sync {
            // What cannot be carried is found out now, and not by the first command.
            sync.carry_in(&Direct { inner: self, live: &live }).await?;
        }
        self.remember(id, &live);
        Ok(Handle::new(id.clone(), BackendName::E2b, made.guarantees, text))
    }

    /// Keeps a sandbox alive from now on.
    fn remember(&self, id: &BoxId, live: &Arc<LiveSandbox>) {
        self.boxes.insert(id, Arc::clone(live));
        self.tasks.start(lease_renewer::keep(Arc::clone(&self.api), Arc::clone(live), self.settings.lifetime_sec));
    }

    /// Opens the mount sources of a box, and decides whether they are allowed.
    async fn sources(self: &Arc<Self>, mounts: &[MountSpec]) -> Result<Sources> {
        if mounts.is_empty() {
            return Sources::of(Vec::new());
        }
        let (inner, mounts) = (Arc::clone(self), mounts.to_vec());
        blocking(move || {
            let grant = |mount: MountSpec| inner.mount_policy.grant(&mount).map(|grant| (mount, grant));
            Sources::of(mounts.into_iter().map(grant).collect::<Result<_>>()?)
        })
        .await
    }

    async fn dial(self: &Arc<Self>, handle: &Handle) -> Result<AgentStream> {
        let live = self.find(handle).await?;
        let direct = self.dial_agent(&live).await?;
        if live.sync.is_none() {
            return Ok(AgentStream::new(direct));
        }
        let (ours, theirs) = tokio::io::duplex(INPUT_BYTES_MAX);
        let (reader, writer) = tokio::io::split(ours);
        let (reader, hung_up) = Listened::new(reader);
        let carrier = Shared { inner: Arc::clone(self), live: Arc::clone(&live) };
        self.tasks.start(async move {
            tokio::select! {
                () = hung_up.cancelled() => {}
                () = relay(theirs, direct, live, carrier) => {}
            }
        });
        Ok(AgentStream::new(tokio::io::join(reader, writer)))
    }

    /// Dials the agent. If the sandbox is not found, another client may have paused it; then `connect` is tried once.
    async fn dial_agent(&self, live: &LiveSandbox) -> Result<impl carrier::Carried + use<>> {
        let home = live.locator.home.as_ref().ok_or_else(|| gone("it was never finished"))?;
        let gone_or = |failure: Failure| failure.told("a stream into a sandbox");
        match carrier::dial(&live.envd(), home, &live.over, &self.tasks).await {
            Err(Failure::Gone(_)) if !live.over.is_cancelled() => {
                self.wake(live).await?;
                carrier::dial(&live.envd(), home, &live.over, &self.tasks).await.map_err(gone_or)
            }
            dialled => dialled.map_err(gone_or),
        }
    }

    /// Makes sure that a sandbox runs.
    async fn wake(&self, live: &LiveSandbox) -> Result<()> {
        let connected = self.api.connect(live.id(), self.settings.lifetime_sec).await;
        let envd = self.envd(connected.map_err(|failure| failure.told("a sandbox"))?)?;
        // Not every provider repeats the token.
        let before = live.envd();
        let token = envd.token.clone().or(before.token);
        live.set_envd(Envd { token, ..envd });
        live.set_paused(false);
        Ok(())
    }

    async fn pause(self: &Arc<Self>, handle: &Handle) -> Result<()> {
        let live = self.find(handle).await?;
        self.api.pause(live.id()).await.map_err(|failure| failure.told("pausing a sandbox"))?;
        live.set_paused(true);
        Ok(())
    }

    async fn stats(self: &Arc<Self>, handle: &Handle) -> Result<Stats> {
        let live = self.find(handle).await?;
        let metric = self.api.metrics(live.id()).await.map_err(|failure| failure.told("what a sandbox consumes"))?;
        Ok(Stats { memory_bytes: metric.and_then(|metric| metric.mem_used), ..Stats::default() })
    }

    /// Ends a box, known or not: the sandbox that its handle names, and whatever else carries its id.
    async fn destroy(&self, id: &BoxId, locator: Option<Locator>) -> Result<()> {
        let live = self.boxes.find(id);
        if let Some(live) = &live {
            live.over.cancel();
        }
        let known = live.map(|live| live.id().clone()).or(locator.map(|locator| locator.sandbox));
        let failed = |failure: Failure| failure.told("ending a sandbox");
        match known {
            Some(sandbox) => self.api.delete(&sandbox).await.map_err(failed)?,
            None => {
                for one in self.api.list(&[(INSTANCE, &self.instance), (BOX, id.as_str())]).await.map_err(failed)? {
                    self.api.delete(&one.id).await.map_err(failed)?;
                }
            }
        }
        self.boxes.remove(id);
        Ok(())
    }

    async fn destroy_all(&self) -> Result<()> {
        for handle in self.list_orphans().await? {
            self.destroy(&handle.id, Locator::of(&handle).ok()).await?;
        }
        Ok(())
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        let all =
            self.api.list(&[(INSTANCE, &self.instance)]).await.map_err(|failure| failure.told("our sandboxes"))?;
        let mut handles = Vec::new();
        for one in all {
            let Some(id) = one.metadata.get(BOX).and_then(|id| id.parse().ok()) else { continue };
            let unknown = Locator { sandbox: one.id, home: None, mounts: Vec::new() };
            let locator = self.boxes.find(&id).map_or(unknown, |live| live.locator.clone()).text()?;
            handles.push(Handle::new(id, BackendName::E2b, box_core::Guarantees::default(), locator));
        }
        Ok(handles)
    }
}

/// The way to an agent past whatever carries files for others.
struct Direct<'a> {
    inner: &'a Inner,
    live: &'a LiveSandbox,
}

#[async_trait]
impl Dial for Direct<'_> {
    async fn dial(&self) -> Result<AgentStream> {
        self.inner.dial_agent(self.live).await.map(AgentStream::new)
    }
}

/// The same for tasks that outlive the call.
struct Shared {
    inner: Arc<Inner>,
    live: Arc<LiveSandbox>,
}

#[async_trait]
impl Dial for Shared {
    async fn dial(&self) -> Result<AgentStream> {
        self.inner.dial_agent(&self.live).await.map(AgentStream::new)
    }
}

fn gone(reason: &str) -> Error {
    Error::Gone { reason: reason.to_owned() }
}

#[async_trait]
impl Backend for E2b {
    fn name(&self) -> BackendName {
        BackendName::E2b
    }

    fn ends_boxes_itself(&self) -> bool {
        true
    }

    /// Directories of the host are copied into a sandbox and back.
    fn shares_volumes(&self) -> bool {
        false
    }

    fn workload(&self, _user: User) -> User {
        setup::WORKLOAD
    }

    async fn open_source(&self, mount: &MountSpec) -> Result<OwnedFd> {
        let (inner, mount) = (Arc::clone(&self.inner), mount.clone());
        blocking(move || inner.mount_policy.grant(&mount).map(|grant| grant.object)).await
    }

    async fn probe(&self) -> Capabilities {
        let name = "provider".to_owned();
        let (state, detail, fix) = match self.inner.api.look().await {
            Ok(()) => (FindingState::Good, format!("{} answers, and takes the key", self.inner.endpoints.api), None),
            Err(failure) => match failure.told("E2B") {
                Error::Unavailable { reason, fix, .. } => (FindingState::Missing, reason, Some(fix)),
                other => (FindingState::Missing, other.to_string(), None),
            },
        };
        let available = state == FindingState::Good;
        Capabilities { available, findings: vec![Finding { name, state, detail, fix }] }
    }

    async fn create(&self, id: &BoxId, spec: &BoxSpec) -> Result<Handle> {
        let (inner, id, spec) = (Arc::clone(&self.inner), id.clone(), spec.clone());
        // A task of its own: if the caller goes away, a half-made sandbox must still be recorded or removed.
        let making = self.inner.tasks.start(async move { inner.create(&id, &spec).await });
        making.await.map_err(|error| Error::io("making a box", std::io::Error::other(error)))?
    }

    async fn adopt(&self, handle: &Handle) -> Result<Liveness> {
        self.inner.adopt(handle).await
    }

    async fn dial(&self, handle: &Handle) -> Result<AgentStream> {
        self.inner.dial(handle).await
    }

    async fn pause(&self, handle: &Handle) -> Result<()> {
        self.inner.pause(handle).await
    }

    async fn resume(&self, handle: &Handle) -> Result<()> {
        let live = self.inner.find(handle).await?;
        self.inner.wake(&live).await
    }

    async fn journal(&self, _handle: &Handle) -> Result<OwnedFd> {
        Err(gone("its journal is in the sandbox"))
    }

    fn journal_in_box(&self, handle: &Handle) -> Option<GuestPath> {
        setup::journal(&Locator::of(handle).ok()?.home?)
    }

    async fn stats(&self, handle: &Handle) -> Result<Stats> {
        self.inner.stats(handle).await
    }

    async fn destroy(&self, handle: &Handle) -> Result<()> {
        let (inner, id, locator) = (Arc::clone(&self.inner), handle.id.clone(), Locator::of(handle).ok());
        let ending = self.inner.tasks.start(async move { inner.destroy(&id, locator).await });
        ending.await.map_err(|error| Error::io("ending a box", std::io::Error::other(error)))?
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        self.inner.list_orphans().await
    }
}
