//! What all doors share: the service, the tokens, and the running tasks.

use std::sync::Arc;

use box_core::{Service, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Tokens;
use crate::gate::Gate;
use crate::metrics::Metrics;

/// State that the handlers of all doors share. Cheap to clone. A door keeps one beside its own state.
#[derive(Debug, Clone)]
pub struct ServerState(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    service: Service,
    store: Arc<dyn Store>,
    tokens: Tokens,
    gate: Gate,
    metrics: Metrics,
    tasks: TaskTracker,
    closing: CancellationToken,
    abort: CancellationToken,
}

impl ServerState {
    /// The state of a server that starts.
    pub fn new(service: Service, store: Arc<dyn Store>, gate: Gate) -> Self {
        Self(Arc::new(Inner {
            metrics: Metrics::new(service.clone()),
            tokens: Tokens::new(Arc::clone(&store)).telling(service.clone()),
            store,
            gate,
            service,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
        }))
    }

    /// The service.
    pub fn service(&self) -> &Service {
        &self.0.service
    }

    /// The store for rows of doors.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// The tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// From where.
    pub fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Everything that runs in the background. The server waits for it when it stops.
    pub fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    /// Fires when the server stops: streams end then.
    pub fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    /// Fires when the server stops waiting for requests.
    pub fn abort(&self) -> &CancellationToken {
        &self.0.abort
    }
}
