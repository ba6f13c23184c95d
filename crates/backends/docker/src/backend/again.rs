//! Boxes that are found again: by a handle that outlived its server, or by a record that outlived its handle.

use std::sync::Arc;

use box_core::{Error, Guarantees, Handle, Liveness, Network, Result};
use box_host::record;
use box_wire::BoxId;

use super::Inner;
use crate::config::OnDrift;
use crate::destroy::gone;
use crate::facts::Reach;
use crate::live::{Link, LiveBox, Locator};
use crate::record::Record;
use crate::{drift, network};

impl Inner {
    /// Finds a box again, and whether it may be used.
    pub(super) async fn adopt(&self, handle: &Handle) -> Result<Liveness> {
        let lost = |reason: &str| Ok(Liveness::Lost(reason.to_owned()));
        let known = self.known().get(&handle.id).cloned();
        if let Some(live) = known {
            let running = live.is_running(&self.client).await;
            return if running { Ok(Liveness::Running) } else { lost("its agent does not answer") };
        }
        let Ok(locator) = serde_json::from_str::<Locator>(&handle.locator) else {
            return lost("its handle was not written by this backend");
        };
        let Ok(directory) = self.instance.open_box(&handle.id) else { return lost("it has no directory") };
        let Some(record) = record::read::<Record>(&directory) else { return lost("its record cannot be read") };
        if (record.container.as_ref(), record.agent) != (Some(&locator.container), locator.agent) {
            return lost("its record tells of another container");
        }
        if let Some(reason) = self.drifted(&handle.id, &record) {
            return lost(&reason);
        }
        let link = match (locator.agent, self.facts.reach) {
            (Some(agent), Reach::Shared) => match agent.open() {
                Some(pidfd) => Link::Shared { directory, pidfd, agent },
                None => return lost("its agent is not running; was the engine restarted?"),
            },
            (None, Reach::Remote) => Link::Remote,
            _ => return lost("it was made by another way of reaching the engine"),
        };
        let live = LiveBox { container: locator.container, link, _lifeline: None };
        if !live.is_running(&self.client).await {
            return lost("its agent does not answer");
        }
        if let Some(agent) = live.agent().filter(|_| self.closes_network(&record)) {
            let reserved = self.settings.reserved.clone();
            let closed = box_host::blocking(move || network::close(agent.pid, &reserved)).await;
            if let Err(error) = closed {
                tracing::warn!(r#box.id = %handle.id, %error, "the network of a container is held by its engine alone");
            }
        }
        self.known().insert(handle.id.clone(), Arc::new(live));
        Ok(Liveness::Running)
    }

    /// Whether Strongbox made the network of a box. On a network of the operator it closes nothing.
    fn closes_network(&self, record: &Record) -> bool {
        let has_network = record.spec.as_ref().is_some_and(|spec| spec.network == Network::On);
        has_network && self.settings.network.is_none()
    }

    /// Why a box may not be used any more because it was made under another configuration.
    fn drifted(&self, id: &BoxId, record: &Record) -> Option<String> {
        let today = drift::current_hash(self, record.spec.as_ref()?);
        if today.is_ok_and(|hash| hash == record.config_hash) {
            return None;
        }
        tracing::info!(r#box.id = %id, policy = self.settings.on_drift.as_str(), "a box was made under another configuration");
        (self.settings.on_drift == OnDrift::Replace).then(|| "it was made under another configuration".to_owned())
    }

    /// A box that is known, or is found again.
    pub(super) async fn find(&self, handle: &Handle) -> Result<Arc<LiveBox>> {
        let known = |inner: &Self| inner.known().get(&handle.id).cloned();
        if let Some(live) = known(self) {
            return Ok(live);
        }
        match self.adopt(handle).await? {
            Liveness::Running => known(self).ok_or_else(|| gone("it was destroyed")),
            Liveness::Lost(reason) => Err(Error::Gone { reason }),
        }
    }

    /// A handle for a box of which only the record is known. What it guarantees is not.
    pub(super) fn handle_of(&self, id: BoxId) -> Option<Handle> {
        let record = record::read::<Record>(self.instance.open_box(&id).ok()?);
        if record.as_ref().is_some_and(Record::is_waiting) {
            return None;
        }
        let (container, agent) = record.map_or((None, None), |record| (record.container, record.agent));
        let locator = locator_text(&Locator { container: container.unwrap_or_default(), agent }).ok()?;
        Some(Handle::new(id, self.client.kind.backend(), Guarantees::default(), locator))
    }
}

/// A locator as text.
pub(super) fn locator_text(locator: &Locator) -> Result<String> {
    serde_json::to_string(locator).map_err(|error| Error::io("naming the box", error))
}
