//! Boxes of a time before this process, found again by what their handles say.

use std::sync::Arc;

use box_core::{Error, Handle, Liveness, Result, link};
use box_wire::BoxId;

use super::{Direct, Inner};
use crate::envd::Envd;
use crate::failure::Failure;
use crate::locator::Locator;
use crate::sandbox::LiveSandbox;
use crate::sync::{Dial, Past, Sync};
use crate::words::State;

impl Inner {
    /// Finds a box again, and whether its agent is there.
    pub(super) async fn adopt(self: &Arc<Self>, handle: &Handle) -> Result<Liveness> {
        match self.find(handle).await {
            Ok(live) if live.is_paused() => Ok(Liveness::Running),
            Ok(live) => match self.greet(&handle.id, &live).await {
                Err(Error::Gone { reason }) => Ok(Liveness::Lost(reason)),
                greeted => greeted.map(|()| Liveness::Running),
            },
            Err(Error::Gone { reason }) => Ok(Liveness::Lost(reason)),
            Err(error) => Err(error),
        }
    }

    async fn greet(&self, id: &BoxId, live: &LiveSandbox) -> Result<()> {
        let greeted = async { link::ping(Direct { inner: self, live }.dial().await?).await };
        let greeted = greeted.await;
        if matches!(greeted, Err(Error::Gone { .. })) {
            live.over.cancel();
            self.boxes.remove(id);
        }
        greeted
    }

    /// The box of a handle, found again where this process did not make it.
    pub(super) async fn find(self: &Arc<Self>, handle: &Handle) -> Result<Arc<LiveSandbox>> {
        if let Some(live) = self.boxes.find(&handle.id) {
            return Ok(live);
        }
        let locator = Locator::of(handle)?;
        if locator.home.is_none() {
            return Err(super::gone("it was never finished"));
        }
        let told = |failure: Failure| failure.told("a sandbox");
        let detail = self.api.detail(&locator.sandbox).await.map_err(told)?;
        let sources = self.sources(&locator.mounts).await?;
        let sync = Sync::new(sources, Arc::clone(&self.staging), Past::Unknown)?;
        let is_paused = detail.state == State::Paused;
        let envd = if is_paused { self.envd(detail.sandbox)? } else { self.reach(&locator, detail.sandbox).await? };
        let live = Arc::new(LiveSandbox::new(locator, envd, sync, self.stop.child_token()));
        live.set_paused(is_paused);
        self.remember(&handle.id, &live);
        Ok(live)
    }

    /// Makes sure that a sandbox lives on, and how it is reached.
    async fn reach(&self, locator: &Locator, before: crate::words::Sandbox) -> Result<Envd> {
        let connected = self.api.connect(&locator.sandbox, self.settings.lifetime_sec).await;
        let envd = self.envd(connected.map_err(|failure| failure.told("a sandbox"))?)?;
        let token = envd.token.clone().or(self.envd(before)?.token);
        Ok(Envd { token, ..envd })
    }
}
