//! Boxes that this process knows, and how they are found again by a handle that outlived its server.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use box_core::{AgentStream, BackendName, Error, Guarantees, Handle, Liveness, Result};
use box_wire::BoxId;
use tokio::net::UnixStream;

use crate::instance::Instance;
use crate::local::Record;
use crate::network::{self, Subnet};
use crate::process::{Process, has_ended};
use crate::{handover, record};

/// A box that this process knows.
#[derive(Debug)]
pub struct LiveBox {
    /// Its first process.
    pub agent: OwnedFd,
    /// Name of its cgroup, which is opened when it is needed: every descriptor that we hold is copied and closed again by each agent that we
    /// start.
    pub cgroup: String,
    /// Its directory, with the agent's socket.
    pub directory: OwnedFd,
    /// Held while the box is to die with us.
    pub lifeline: Option<BlockingStream>,
}

/// Boxes that this process made or adopted. Never locked while one is being made.
#[derive(Debug)]
pub struct LiveBoxes {
    known: Mutex<HashMap<BoxId, Arc<LiveBox>>>,
    reserved: Vec<Subnet>,
}

impl LiveBoxes {
    /// `reserved` are the reserved networks that boxes may reach.
    pub fn new(reserved: Vec<Subnet>) -> Self {
        Self { known: Mutex::default(), reserved }
    }

    /// Reserved networks that boxes may reach.
    pub fn reserved(&self) -> &[Subnet] {
        &self.reserved
    }

    /// Records a box, and returns the text that finds it again.
    pub fn insert(&self, id: &BoxId, agent: Process, live: LiveBox) -> Result<String> {
        let locator = serde_json::to_string(&agent).map_err(|error| Error::io("naming the box", error))?;
        self.lock().insert(id.clone(), Arc::new(live));
        Ok(locator)
    }

    /// Forgets a box, to end it.
    pub fn remove(&self, id: &BoxId) -> Option<Arc<LiveBox>> {
        self.lock().remove(id)
    }

    /// Finds a box again, if it lives.
    pub fn adopt(&self, instance: &Instance, handle: &Handle) -> Result<Liveness> {
        let lost = |reason: &str| Ok(Liveness::Lost(reason.to_owned()));
        let known = self.lock().get(&handle.id).cloned();
        if let Some(live) = known {
            // A copy of its socket may be open for a moment in a process that this one is starting.
            if has_ended(&live.agent) {
                return lost("its agent is not running");
            }
            return if answers(&live.directory) { Ok(Liveness::Running) } else { lost("its agent does not answer") };
        }
        let Ok(agent) = serde_json::from_str::<Process>(&handle.locator) else {
            return lost("its handle was not written by this backend");
        };
        let Ok(directory) = instance.open_box(&handle.id) else { return lost("it has no directory") };
        let Some(record) = record::read::<Record>(&directory) else { return lost("its record cannot be read") };
        if record.agent != Some(agent) {
            return lost("its record tells of another process");
        }
        let process = agent;
        let Some(agent) = agent.open() else { return lost("its agent is not running") };
        if !answers(&directory) {
            return lost("its agent does not answer");
        }
        if let Some(attachment) = &record.network
            && let Err(error) = network::adopt(attachment, process, &self.reserved)
        {
            return lost(&format!("failed to keep its network closed: {error}"));
        }
        let live = LiveBox { agent, cgroup: record.cgroup, directory, lifeline: None };
        self.lock().insert(handle.id.clone(), Arc::new(live));
        Ok(Liveness::Running)
    }

    /// A box that is known, or is found again.
    pub fn find(&self, instance: &Instance, handle: &Handle) -> Result<Arc<LiveBox>> {
        let known = || self.lock().get(&handle.id).cloned();
        if let Some(live) = known() {
            return Ok(live);
        }
        match self.adopt(instance, handle)? {
            Liveness::Running => known().ok_or_else(|| Error::Gone { reason: "it was destroyed".to_owned() }),
            Liveness::Lost(reason) => Err(Error::Gone { reason }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BoxId, Arc<LiveBox>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handles for all boxes of an instance, from their records. What they guarantee is not known.
pub fn handles(instance: &Instance, backend: BackendName) -> Vec<Handle> {
    let handle = |id: BoxId| {
        let record = record::read::<Record>(instance.open_box(&id).ok()?);
        let locator = serde_json::to_string(&record.and_then(|record| record.agent)).ok()?;
        Some(Handle::new(id, backend, Guarantees::default(), locator))
    };
    instance.list().into_iter().filter_map(handle).collect()
}

/// Whether the agent of a box answers. Dialing is the check, because a process that is being torn down exists for a
/// while longer.
pub fn answers(directory: &OwnedFd) -> bool {
    BlockingStream::connect(socket(directory)).is_ok()
}

/// A stream to the agent of a box.
pub async fn dial(directory: &OwnedFd) -> Result<AgentStream> {
    let stream = UnixStream::connect(socket(directory)).await.map_err(|error| match error.kind() {
        // Reset: it stopped to listen while the connection waited to be taken.
        std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::ConnectionReset => {
            Error::Gone { reason: "its agent is not listening".to_owned() }
        }
        _ => Error::io("dialling the agent", error),
    })?;
    Ok(AgentStream::new(stream))
}

/// The agent's socket, by way of the descriptor, because a socket's path may only have 107 bytes.
fn socket(directory: &OwnedFd) -> String {
    format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), handover::SOCKET)
}
