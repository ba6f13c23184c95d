//! What every handler of this door works with.

use std::ops::Deref;
use std::sync::Arc;

use box_core::snapshots::SnapshotStore;
use door_http::ServerState;

use crate::{E2b, E2bConfig};

/// The server's state and what this door adds to it. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: ServerState,
    e2b: E2b,
}

impl Deref for App {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.0.state
    }
}

impl App {
    /// This door of a server.
    pub(crate) fn new(state: ServerState, config: E2bConfig) -> Self {
        let e2b = E2b::new(config, Arc::clone(state.store()));
        Self(Arc::new(Inner { state, e2b }))
    }

    /// The saved boxes of all tenants.
    pub(crate) fn snapshots(&self) -> &SnapshotStore {
        self.service().snapshot_store()
    }

    /// What this door knows.
    pub(crate) fn e2b(&self) -> &E2b {
        &self.0.e2b
    }
}
