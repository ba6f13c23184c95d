//! `older-server STATE INSTANCE`: a server without doors. It opens a state directory that has no store yet as `strongbox serve`
//! does, leaves a session with work in it, prints one line of JSON, and serves until it is killed.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use box_core::call::{ExecCall, Launch, ProcessCall, Replace, RestartPolicy};
use box_core::caller::Caller;
use box_core::{Service, ServiceConfig, SessionId, SessionRequest, Store};
use box_host::InstanceKind;
use box_images::ImagesConfig;
use box_native::{Native, NativeConfig};
use box_store::SqliteStore;
use box_wire::Program;
use box_wire::version::Hello;
use rusqlite::Connection;
use serde_json::json;

/// The session that it leaves.
const SESSION: &str = "older";

/// A command that ends before the report.
const FINISHED: &str = "echo kept > /workspace/f; echo finished; echo wrong >&2; exit 3";

/// A command that is running at the report, and ends about five seconds later.
const RUNNING: &str = "for i in $(seq 100); do echo line $i; echo error $i >&2; sleep 0.05; done; exit 4";

/// A managed process that does not end.
const PROCESS: (&str, &str) = ("ticker", "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.1; done");

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [state, instance] = arguments.as_slice() else { bail!("usage: older-server STATE INSTANCE") };
    let service = open(Path::new(state), instance).await?;
    let report = leave_work(&service).await?;
    writeln!(std::io::stdout(), "{report}")?;
    std::future::pending().await
}

async fn open(state: &Path, instance: &str) -> Result<Service> {
    let path = state.join("strongbox.db");
    drop(SqliteStore::open(&path)?);
    // Directories of the state are named by the instance, so a store takes the one that they have.
    Connection::open(&path)?.execute("INSERT OR REPLACE INTO meta VALUES ('instance_id', ?1)", [instance])?;
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path)?);
    let config = NativeConfig {
        instance: InstanceKind::Persistent(store.instance_id().await?),
        images: ImagesConfig { named_registries: Some(Vec::new()), ..ImagesConfig::default() },
        ..NativeConfig::ephemeral(state.to_owned())
    };
    let backend = Arc::new(Native::open(config).await?);
    let settings = ServiceConfig { state_dir: Some(state.to_owned()), ..ServiceConfig::default() };
    Ok(Service::open(backend, store, None, settings).await?)
}

async fn leave_work(service: &Service) -> Result<serde_json::Value> {
    let (caller, session): (_, SessionId) = (Caller::local(), SESSION.parse()?);
    let request = SessionRequest { ttl_sec: Some(600), ..SessionRequest::default() };
    let shell = |line: &str| ExecCall::new(Program::Shell(line.to_owned()));
    let finished = service.run(&caller, &session, &request, shell(FINISHED)).await?;
    let process = ProcessCall {
        process_id: PROCESS.0.parse()?,
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), PROCESS.1.to_owned()],
        env: Vec::new(),
        cwd: None,
        launch: Launch::default(),
        journal_bytes_max: None,
        restart: RestartPolicy::Never,
        replace: Replace::Refuse,
    };
    let process = service.start_process(&caller, &session, &request, process).await?;
    let running = service.exec(&caller, &session, &request, shell(RUNNING)).await?;
    Ok(json!({
        "agent": Hello::ours(),
        "session": SESSION,
        "finished": finished.info.exec_id,
        "running": running.exec_id,
        "process": process.process_id,
        "process_pid": process.pid,
    }))
}
