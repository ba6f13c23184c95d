//! The door as a whole, asked as a connection asks it.

mod admission;
mod service;
mod skills;
mod workspaces;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use async_trait::async_trait;
use box_core::backend::{Finding, FindingState, Handle, Liveness, Stats};
use box_core::{
    AgentStream, Backend, BackendName, BoxSpec, Capabilities, Error, Guarantees, Result, Service, ServiceConfig,
    SessionRequest, Store,
};
use box_wire::BoxId;
use serde_json::{Value, json};

use super::tenancy::TenancyScope;
use super::*;
use door_http::Gate;
use door_http::testing::MemoryStore;

/// A place where boxes are made and nothing can be done in them.
#[derive(Debug)]
struct Hollow(tempfile::TempDir);

#[async_trait]
impl Backend for Hollow {
    fn name(&self) -> BackendName {
        BackendName::Native
    }

    async fn probe(&self) -> Capabilities {
        let names = ["user_namespaces", "namespaces", "cgroups", "tmpfs"];
        let good =
            |name: &str| Finding { name: name.into(), state: FindingState::Good, detail: String::new(), fix: None };
        Capabilities { available: true, findings: names.map(good).into() }
    }

    async fn create(&self, id: &BoxId, _spec: &BoxSpec) -> Result<Handle> {
        let (guarantees, locator) = (Guarantees::default(), String::new());
        Ok(Handle::new(id.clone(), self.name(), guarantees, locator))
    }

    async fn adopt(&self, _handle: &Handle) -> Result<Liveness> {
        Ok(Liveness::Running)
    }

    async fn dial(&self, _handle: &Handle) -> Result<AgentStream> {
        Err(Error::Gone { reason: "there is nothing in it".into() })
    }

    async fn pause(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }

    async fn resume(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }

    async fn journal(&self, _handle: &Handle) -> Result<OwnedFd> {
        Ok(std::fs::File::open(self.0.path()).unwrap().into())
    }

    async fn stats(&self, _handle: &Handle) -> Result<Stats> {
        Ok(Stats::default())
    }

    async fn destroy(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        Ok(Vec::new())
    }
}

#[test]
fn programs_reach_the_paths_of_this_door_only() {
    for (path, is_ours) in [
        ("/rpc/ws", true),
        ("/v1/sessions/s/managed-process/ws", true),
        ("/v1/sessions/s/managed-process/p/ws", true),
        ("/v1/sessions/s/exec/ws", false),
        ("/rpc/ws/more", false),
        ("/", false),
    ] {
        assert_eq!(Rules.is_for_programs(path), is_ours, "{path}");
    }
}

/// A door with boxes that are hollow, and a directory for everything that it makes.
struct Scene {
    door: LangBot,
    connection: Connection,
    directory: tempfile::TempDir,
}

impl Scene {
    async fn new(client: Client) -> Self {
        Self::with(client, LangBotConfig::default()).await
    }

    async fn tenant() -> Self {
        Self::new(Client::Tenant(instance())).await
    }

    async fn with(client: Client, config: LangBotConfig) -> Self {
        Self::on(client, config, Arc::new(Hollow(tempfile::tempdir().unwrap()))).await
    }

    async fn on(client: Client, config: LangBotConfig, backend: Arc<dyn Backend>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = LangBotConfig { data_dir: directory.path().canonicalize().unwrap(), ..config };
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let service = Service::open(backend, Arc::clone(&store), None, ServiceConfig::default()).await.unwrap();
        let state = ServerState::new(service, store, Gate::default());
        Self { door: LangBot::new(config, state), connection: Connection::new(client, 1 << 20), directory }
    }

    async fn send(&self, action: &str, data: Value, context: Option<Value>) -> Option<Reply> {
        let data = data.as_object().unwrap().clone();
        let request = Request { seq_id: 7, action: action.into(), data, context };
        self.door.answer(&self.connection, request).await
    }

    /// The reply, or the text of the error.
    async fn host(&self, action: &str, data: Value) -> std::result::Result<Value, String> {
        told(self.send(action, data, None).await.unwrap())
    }

    /// The same, for a generation of the workspace `w`.
    async fn ask(&self, generation: u64, action: &str, data: Value) -> std::result::Result<Value, String> {
        told(self.send(action, data, Some(context(generation))).await.unwrap())
    }

    /// Makes a session as a client would.
    async fn session(&self, place: &TenancyScope, logical: &str, persistent: bool) {
        let request = SessionRequest { persistent: Some(persistent), ..SessionRequest::default() };
        let (caller, id) = (self.door.caller(place).unwrap(), place.session_id(logical).unwrap());
        self.door.service().create_session(&caller, &id, &request).await.unwrap();
    }

    /// Settings that have a directory for workspaces.
    async fn init(&self, more: Value) -> std::result::Result<Value, String> {
        let mut settings = json!({ "local": { "host_root": self.directory.path().canonicalize().unwrap() } });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.host("box_init", settings).await
    }
}

fn told(reply: Reply) -> std::result::Result<Value, String> {
    assert_eq!(reply.seq_id, 7);
    if reply.code == 0 { Ok(Value::Object(reply.data)) } else { Err(reply.message) }
}

fn instance() -> InstanceId {
    InstanceId::parse("an-instance").unwrap()
}

fn context(generation: u64) -> Value {
    json!({ "instance_uuid": "an-instance", "workspace_uuid": "w", "placement_generation": generation })
}

fn place(generation: u64) -> TenancyScope {
    TenancyScope::workspace(&instance(), "w", generation)
}
