//! What tests of several modules of this door need.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use box_core::store::{
    SandboxRow, SessionKey, TemplateBase, TemplateDefaults, TemplateKey, TemplateOrigin, TemplateRow, TemplateState,
};
use box_core::{
    AgentStream, Backend, BackendName, BoxSpec, Caller, Capabilities, Error, Guarantees, Handle, Liveness, MountSpec,
    Result, Service, ServiceConfig, SessionRequest, Stats, Store, TenantId,
};
use box_wire::BoxId;
use http::{Request, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::Value;
use tower::ServiceExt;

use super::E2bConfig;
use crate::Door;
use crate::app::App;
use door_http::{Gate, Peer, ServerState};

/// The domain of sandboxes in tests.
pub(crate) const DOMAIN: &str = "box.example";

/// A sandbox that was made by nobody in particular. Its token is made of its name.
pub(crate) fn row(name: &str) -> SandboxRow {
    SandboxRow {
        key: SessionKey { tenant: TenantId::default(), id: name.parse().unwrap() },
        template: "base".into(),
        metadata: std::collections::BTreeMap::new(),
        env: [("KEY".to_owned(), "value".to_owned())].into(),
        started_at: Timestamp::now(),
        ends_at: Timestamp::MAX,
        timeout_sec: 300,
        auto_pause: false,
        auto_resume: false,
        access_token: token(name),
        traffic_token: None,
        allow_internet_access: None,
        network: None,
        volume_mounts: Vec::new(),
        defaults: TemplateDefaults::default(),
        idempotency: None,
    }
}

/// The access token of such a sandbox.
pub(crate) fn token(name: &str) -> String {
    box_core::hexadecimal::sha256(name.as_bytes())
}

/// A template that was built, and is ready.
pub(crate) fn snapshot_row(id: &str, template: &str, tags: &[&str]) -> TemplateRow {
    let at = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(i64::from(id.as_bytes()[0]));
    TemplateRow {
        key: TemplateKey { tenant: TenantId::default(), id: id.to_owned() },
        template: template.to_owned(),
        build: format!("build-{id}"),
        name: Some("mine".to_owned()),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        origin: TemplateOrigin::Build,
        state: TemplateState::Ready,
        base: TemplateBase::default(),
        archive_bytes: 1 << 20,
        env: std::collections::BTreeMap::new(),
        defaults: TemplateDefaults::default(),
        created_at: at,
        updated_at: at,
    }
}

/// All doors of a service, with a domain for sandboxes.
pub(crate) fn app(service: Service, store: Arc<dyn Store>) -> App {
    app_with(service, store, E2bConfig::default())
}

/// The same, with what else the operator says.
pub(crate) fn app_with(service: Service, store: Arc<dyn Store>, config: E2bConfig) -> App {
    let config = E2bConfig { domain: Some(DOMAIN.to_owned()), ..config };
    let gate = Gate::default().with_rules(Arc::new(crate::Rules::new(&config)));
    service.serve_snapshots(config.snapshot_config());
    App::new(ServerState::new(service, store, gate), config)
}

/// Somebody on this machine who knocks at all routes.
pub(crate) struct Visitor(Router);

impl Visitor {
    pub(crate) fn new(app: App) -> Self {
        let elsewhere = Router::new().route("/v1/status", get(async || "server"));
        let state = ServerState::clone(&app);
        Self(door_http::surround(&state, Door(app).join(elsewhere)))
    }

    /// Sends a request with headers and a body, and reads the answer as JSON where it is that.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> (u16, http::HeaderMap, Value) {
        let (local, remote) = ("127.0.0.1:5410".parse().unwrap(), "127.0.0.1:9".parse().unwrap());
        let mut request = Request::builder().method(method).uri(path).extension(Peer::Tcp { local, remote });
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(header::HOST, "localhost");
        }
        if !body.is_null() && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let response = self.0.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (parts.status.as_u16(), parts.headers, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

impl Visitor {
    /// Sends bytes to where somebody was told to, and shows no key.
    pub(crate) async fn put(&self, path: &str, body: Body) -> u16 {
        let (local, remote) = ("127.0.0.1:5410".parse().unwrap(), "127.0.0.1:9".parse().unwrap());
        let request = Request::put(path).extension(Peer::Tcp { local, remote }).header(header::HOST, "localhost");
        self.0.clone().oneshot(request.body(body).unwrap()).await.unwrap().status().as_u16()
    }
}

/// Boxes in which nothing can be done, but which can be made, stopped and removed.
#[derive(Debug, Default)]
pub(crate) struct Still {
    /// Whether boxes cannot be stopped where they are.
    pub(crate) is_restless: AtomicBool,
}

fn nobody<T>() -> Result<T> {
    Err(Error::Unavailable { what: "an agent".into(), reason: "this is a test".into(), fix: "use a real box".into() })
}

#[async_trait]
impl Backend for Still {
    fn name(&self) -> BackendName {
        BackendName::Native
    }

    async fn open_source(&self, mount: &MountSpec) -> Result<OwnedFd> {
        let opened = std::fs::File::open(&mount.source);
        opened.map(Into::into).map_err(|error| Error::io("opening a mount", error))
    }

    async fn probe(&self) -> Capabilities {
        Capabilities { available: true, findings: Vec::new() }
    }

    async fn create(&self, id: &BoxId, _spec: &BoxSpec) -> Result<Handle> {
        let (backend, locator) = (BackendName::Native, String::new());
        Ok(Handle::new(id.clone(), backend, Guarantees::default(), locator))
    }

    async fn adopt(&self, _handle: &Handle) -> Result<Liveness> {
        nobody()
    }

    async fn dial(&self, _handle: &Handle) -> Result<AgentStream> {
        nobody()
    }

    async fn pause(&self, _handle: &Handle) -> Result<()> {
        if self.is_restless.load(Ordering::Relaxed) { nobody() } else { Ok(()) }
    }

    async fn resume(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }

    async fn journal(&self, _handle: &Handle) -> Result<OwnedFd> {
        tempfile::tempfile().map(Into::into).map_err(|error| Error::io("making a journal", error))
    }

    async fn stats(&self, _handle: &Handle) -> Result<Stats> {
        Ok(Stats { cpu_us: Some(1_000_000), memory_bytes: Some(64 << 20), pids: Some(2) })
    }

    async fn destroy(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        Ok(Vec::new())
    }
}

/// A service with such boxes.
pub(crate) async fn service(backend: Arc<Still>, store: Arc<dyn Store>) -> Service {
    service_with(backend, store, ServiceConfig::default()).await
}

/// The same, with what the operator says.
pub(crate) async fn service_with(backend: Arc<Still>, store: Arc<dyn Store>, config: ServiceConfig) -> Service {
    Service::open(backend, store, None, config).await.unwrap()
}

/// Makes a sandbox that the door knows of.
pub(crate) async fn make(app: &App, row: SandboxRow) {
    app.service().create_session(&Caller::local(), &row.key.id, &SessionRequest::default()).await.unwrap();
    app.e2b().directory().intend(&row).await.unwrap();
    app.e2b().directory().add(row.key.id.as_str().parse().unwrap(), row).await.unwrap();
}
