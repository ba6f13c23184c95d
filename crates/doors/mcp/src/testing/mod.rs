//! Servers and clients for tests: both are rmcp's own, and only what they say is ours.
#![expect(deprecated, reason = "what is tested are clients and servers of before 2026-07-28, too")]

mod client;
mod computer;
mod server;

use std::sync::Arc;

use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RunningService, ServiceExt};
use rmcp::{RoleClient, RoleServer};
use tokio::io::DuplexStream;
use tokio_util::task::TaskTracker;

use box_core::Caller;

pub(crate) use client::{Client, Heard};
pub(crate) use computer::Parrot;
pub(crate) use server::Everything;

use crate::gateway::{Around, Gateway, Registry, View};
use crate::stdio::{Garbage, Stdio};
use crate::upstream::{Beginning, Upstream};

/// How much a stream of a test holds. Small, so that both ends wait for each other now and then.
const STREAM_BYTES: usize = 1 << 12;

/// A gateway with servers of the test.
pub(crate) struct TestGateway {
    pub(crate) registry: Registry,
    pub(crate) tasks: TaskTracker,
    around: Around,
}

impl TestGateway {
    pub(crate) fn new() -> Self {
        let tasks = TaskTracker::new();
        Self::around(Registry::new(tasks.clone()), tasks)
    }

    /// One around servers that somebody else looks after.
    pub(crate) fn around(registry: Registry, tasks: TaskTracker) -> Self {
        let around = Around::new(Arc::new(registry.clone()), tasks.clone());
        Self { registry, tasks, around }
    }

    /// Starts a server, connects it and shows it to callers of the default tenant. It lives as long as what is returned.
    pub(crate) async fn start(
        &self,
        name: &str,
        server: Everything,
    ) -> (Upstream, RunningService<RoleServer, Everything>) {
        let (upstream, running) = connect(name, server, &self.tasks).await;
        self.registry.insert(&Caller::local().tenant, upstream.clone());
        (upstream, running)
    }

    /// The same, with a wire that can be cut.
    pub(crate) async fn start_on_a_wire(&self, name: &str, server: Everything) -> tokio::task::AbortHandle {
        let (ours, mut here) = tokio::io::duplex(STREAM_BYTES);
        let (mut there, theirs) = tokio::io::duplex(STREAM_BYTES);
        let wire = self.tasks.spawn(async move { drop(tokio::io::copy_bidirectional(&mut here, &mut there).await) });
        let (reader, writer) = tokio::io::split(ours);
        let connecting =
            Upstream::over_streams(name.parse().unwrap(), Beginning::Handshake, (reader, writer), None, &self.tasks);
        let (upstream, running) = tokio::join!(connecting, server.serve(theirs));
        self.registry.insert(&Caller::local().tenant, upstream.unwrap());
        self.tasks.spawn(running.unwrap().waiting());
        wire.abort_handle()
    }

    /// A client of the gateway, with a view of its servers.
    pub(crate) async fn client(&self, client: Client, view: View) -> RunningService<RoleClient, Client> {
        client.serve(self.stream(view)).await.unwrap()
    }

    /// The same for a client of 2026-07-28, which begins without a handshake.
    pub(crate) async fn new_client(&self, client: Client, view: View) -> RunningService<RoleClient, Client> {
        let lifecycle = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] };
        client.serve_with_lifecycle(self.stream(view), lifecycle).await.unwrap()
    }

    /// The client's end of a stream to a gateway.
    fn stream(&self, view: View) -> DuplexStream {
        let gateway = Gateway::new(self.around.clone(), Caller::local(), view);
        let (ours, theirs) = tokio::io::duplex(STREAM_BYTES);
        self.tasks.spawn(async move {
            let (reader, writer) = tokio::io::split(ours);
            let running = rmcp::serve_server(gateway, Stdio::new(reader, writer, Garbage::default())).await.unwrap();
            running.waiting().await.unwrap();
        });
        theirs
    }
}

/// Starts a server and connects it.
pub(crate) async fn connect(
    name: &str,
    server: Everything,
    tasks: &TaskTracker,
) -> (Upstream, RunningService<RoleServer, Everything>) {
    let (ours, theirs) = tokio::io::duplex(STREAM_BYTES);
    let (reader, writer) = tokio::io::split(ours);
    let connecting = Upstream::over_streams(name.parse().unwrap(), Beginning::Handshake, (reader, writer), None, tasks);
    let (upstream, running) = tokio::join!(connecting, server.serve(theirs));
    (upstream.unwrap(), running.unwrap())
}
