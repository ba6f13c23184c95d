//! What tests of several doors need.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc, reason = "only tests use it")]

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use box_core::backend::{Finding, FindingState};
use box_core::call::{Cursor, ExecInfo, ExecStatus, ProcessId, ProcessInfo, ProcessStatus, RestartPolicy};
use box_core::store::{Change, Effect, Row, StoredRow, Table, Wait};
use box_core::token::{TokenRow, mint};
use box_core::{
    AgentStream, Backend, BackendName, BoxSpec, Capabilities, Error, Handle, Liveness, Result, Scope, Service,
    ServiceConfig, Stats, Store, TenantId,
};
use box_wire::{BoxId, Program};
use http::{Request, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::Value;
use tower::ServiceExt;

use crate::body::{Fields, FromFields};
use crate::failure::Failure;
use crate::gate::{Gate, Peer};
use crate::state::ServerState;

/// Reads a body as a handler would.
pub fn read<T: FromFields>(json: &str) -> std::result::Result<T, Failure> {
    T::from_fields(Fields::from_json(json.as_bytes())?)
}

/// The field that was refused.
pub fn field_of<T>(result: std::result::Result<T, Failure>) -> String {
    let failure = result.err().expect("must be refused");
    assert_eq!(failure.status(), http::StatusCode::BAD_REQUEST);
    let body = serde_json::to_value(failure.body(None)).unwrap();
    body["error"]["field"].as_str().expect("must name a field").to_owned()
}

/// A command that has ended well.
pub fn ended_exec() -> ExecInfo {
    let program = Program::Shell("true".to_owned());
    ExecInfo {
        status: ExecStatus::Completed,
        exit_code: Some(0),
        duration_ms: 1,
        started_at: Timestamp::UNIX_EPOCH,
        ..ExecInfo::started("e".parse().unwrap(), "s".parse().unwrap(), BackendName::Native, &program)
    }
}

/// Tokens for people, each with a name, a tenant and rights: their texts, and the rows for a store. A name such as
/// `bound-e2b` binds the token to that profile.
pub fn tokens(people: &[(&str, &str, &[Scope])]) -> (Vec<String>, Vec<TokenRow>) {
    let token = |(name, tenant, scopes): &(&str, &str, &[Scope])| {
        let scopes = scopes.iter().copied().collect();
        let (secret, row) = mint(name, tenant.parse().unwrap(), scopes, None, Timestamp::now()).unwrap();
        let profile = name.strip_prefix("bound-").map(str::to_owned);
        (secret.expose().to_owned(), TokenRow { profile, ..row })
    };
    people.iter().map(token).unzip()
}

/// Clients with tokens that call all routes. The index of a token in the list names the client.
#[derive(Debug)]
pub struct Visitors {
    door: Router,
    secrets: Vec<String>,
}

impl Visitors {
    pub fn new(door: Router, secrets: Vec<String>) -> Self {
        Self { door, secrets }
    }

    /// Sends a body of a kind.
    pub async fn send(&self, who: usize, method: &str, path: &str, kind: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        let local = "127.0.0.1:5410".parse().unwrap();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.secrets[who]))
            .header(header::CONTENT_TYPE, kind)
            .extension(Peer::Tcp { local, remote: "127.0.0.1:9".parse().unwrap() })
            .body(Body::from(body))
            .unwrap();
        let (parts, body) = self.door.clone().oneshot(request).await.unwrap().into_parts();
        (parts.status.as_u16(), body.collect().await.unwrap().to_bytes().to_vec())
    }

    /// Sends JSON, or nothing for null.
    pub async fn ask(&self, who: usize, method: &str, path: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let (status, answer) = self.send(who, method, path, "application/json", body).await;
        (status, serde_json::from_slice(&answer).unwrap_or_default())
    }
}

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    rows: Mutex<Vec<(&'static Table, Vec<String>, String)>>,
    reads: AtomicU32,
    broken: AtomicBool,
}

impl MemoryStore {
    pub fn with(tokens: &[TokenRow]) -> Self {
        let store = Self::default();
        store.set(tokens);
        store
    }

    pub fn set(&self, tokens: &[TokenRow]) {
        self.rows.lock().unwrap().retain(|(table, ..)| *table != TokenRow::TABLE);
        for row in tokens {
            self.apply(&Change::PutToken(Box::new(row.clone())));
        }
    }

    fn apply(&self, change: &Change) {
        let mut rows = self.rows.lock().unwrap();
        match change.effect().unwrap() {
            Effect::Put { table, keys, json, .. } => {
                match rows.iter_mut().find(|(other, known, _)| *other == table && *known == keys) {
                    Some((_, _, row)) => *row = json,
                    None => rows.push((table, keys, json)),
                }
            }
            Effect::Delete { table, keys } => rows.retain(|(other, known, _)| *other != table || *known != keys),
            Effect::DeleteTokens { ids, .. } => {
                rows.retain(|(table, keys, _)| *table != TokenRow::TABLE || !ids.contains(&keys[0]));
            }
        }
    }

    /// How often the tokens were read.
    pub fn reads(&self) -> u32 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn break_it(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn read(&self, tables: &[&'static Table]) -> Result<Vec<Vec<StoredRow>>> {
        if tables == [TokenRow::TABLE] {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        if self.broken.load(Ordering::Relaxed) {
            return Err(Error::io("reading tokens", std::io::Error::other("broken")));
        }
        let rows = self.rows.lock().unwrap();
        let of = |table: &Table| {
            let rows = rows.iter().filter(|(other, ..)| *other == table);
            rows.map(|(_, keys, json)| StoredRow { keys: keys.clone(), json: Ok(json.clone().into_bytes()) }).collect()
        };
        Ok(tables.iter().map(|table| of(table)).collect())
    }

    async fn write(&self, change: Change, _wait: Wait) -> Result<()> {
        self.apply(&change);
        Ok(())
    }

    async fn instance_id(&self) -> Result<String> {
        Ok("test".to_owned())
    }
}

/// A place where no box can live.
#[derive(Debug)]
pub struct Nowhere;

fn nowhere<T>() -> Result<T> {
    Err(Error::Unavailable { what: "a box".into(), reason: "this is a test".into(), fix: "use a real backend".into() })
}

#[async_trait]
impl Backend for Nowhere {
    fn name(&self) -> BackendName {
        BackendName::Native
    }

    async fn probe(&self) -> Capabilities {
        let finding = Finding {
            name: "everything".into(),
            state: FindingState::Missing,
            detail: "this is a test".into(),
            fix: Some("use a real backend".into()),
        };
        Capabilities { available: false, findings: vec![finding] }
    }

    async fn create(&self, _id: &BoxId, _spec: &BoxSpec) -> Result<Handle> {
        nowhere()
    }

    async fn adopt(&self, _handle: &Handle) -> Result<Liveness> {
        nowhere()
    }

    async fn dial(&self, _handle: &Handle) -> Result<AgentStream> {
        nowhere()
    }

    async fn pause(&self, _handle: &Handle) -> Result<()> {
        nowhere()
    }

    async fn resume(&self, _handle: &Handle) -> Result<()> {
        nowhere()
    }

    async fn journal(&self, _handle: &Handle) -> Result<OwnedFd> {
        nowhere()
    }

    async fn stats(&self, _handle: &Handle) -> Result<Stats> {
        nowhere()
    }

    async fn destroy(&self, _handle: &Handle) -> Result<()> {
        Ok(())
    }

    async fn list_orphans(&self) -> Result<Vec<Handle>> {
        Ok(Vec::new())
    }
}

/// A service without boxes.
pub async fn service(store: Arc<dyn Store>) -> Service {
    Service::open(Arc::new(Nowhere), store, None, ServiceConfig::default()).await.unwrap()
}

/// The shared state for doors on such a service.
pub async fn state(store: Arc<dyn Store>) -> ServerState {
    ServerState::new(service(Arc::clone(&store)).await, store, Gate::default())
}

/// A token with the scope exec: its secret, and what is remembered of it.
pub fn token(name: &str) -> (String, TokenRow) {
    let scopes = BTreeSet::from([Scope::Exec]);
    let (secret, row) = mint(name, TenantId::default(), scopes, None, Timestamp::now()).unwrap();
    (secret.expose().to_owned(), row)
}

/// A managed process that runs.
pub fn process() -> ProcessInfo {
    ProcessInfo {
        session_id: "s".parse().unwrap(),
        process_id: ProcessId::default(),
        status: ProcessStatus::Running,
        command: "cat".into(),
        args: Vec::new(),
        cwd: "/workspace".into(),
        env_keys: Vec::new(),
        attached: false,
        pid: Some(2),
        started_at: Timestamp::UNIX_EPOCH,
        exited_at: None,
        exit_code: None,
        oom_killed: false,
        restarts: 0,
        restart: RestartPolicy::Never,
        stderr_preview: String::new(),
        cursor: Cursor::default(),
    }
}
