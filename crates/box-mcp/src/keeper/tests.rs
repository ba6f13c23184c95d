//! Servers where there are no boxes: on the host, elsewhere, or not at all. Those in boxes are tested where there are some.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use box_core::backend::Standby;
use box_core::mcp::{McpAccess, McpErrorPhase, McpServerInfo, McpServers, McpStatus, McpSwitch, McpTested};
use box_core::service::Resource;
use box_core::store::{Change, Loaded, McpServerRow, SandboxRow, TemplateRow, VolumeRow, Wait};
use box_core::token::TokenRow;
use box_core::{BackendName, Scope, ServiceConfig};
use rmcp::RoleClient;
use rmcp::transport::Transport;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::gateway::View;
use crate::stdio::{Garbage, Stdio};
use crate::testing::{Client, House};

/// A server of what every Python brings along.
const SCRIPT: &str = include_str!("../testing/server.py");
/// Only a guard against hanging.
const EVENTUALLY: Duration = Duration::from_mins(1);

/// Remembers servers and nothing else.
#[derive(Debug, Default)]
struct Memory(Mutex<BTreeMap<McpServerKey, McpServerRow>>);

#[async_trait]
impl Store for Memory {
    async fn load(&self) -> Result<Loaded> {
        Ok(Loaded::default())
    }
    async fn write(&self, change: Change, _: Wait) -> Result<()> {
        match change {
            Change::PutMcpServer(row) => drop(self.0.lock().unwrap().insert(row.key.clone(), *row)),
            Change::DeleteMcpServer(key) => drop(self.0.lock().unwrap().remove(&key)),
            _ => {}
        }
        Ok(())
    }
    async fn instance_id(&self) -> Result<String> {
        Ok("test".to_owned())
    }
    async fn tokens(&self) -> Result<Vec<TokenRow>> {
        Ok(Vec::new())
    }
    async fn mcp_servers(&self) -> Result<Vec<McpServerRow>> {
        Ok(self.0.lock().unwrap().values().cloned().collect())
    }
    async fn sandboxes(&self) -> Result<Vec<SandboxRow>> {
        Ok(Vec::new())
    }
    async fn volumes(&self) -> Result<Vec<VolumeRow>> {
        Ok(Vec::new())
    }

    async fn templates(&self) -> Result<Vec<TemplateRow>> {
        Ok(Vec::new())
    }
}

async fn keeper(store: &Arc<Memory>, config: KeeperConfig) -> Keeper {
    let backend = Arc::new(Standby::disabled(BackendName::Native));
    let store: Arc<dyn Store> = Arc::clone(store) as _;
    let service = Service::open(backend, Arc::clone(&store), None, ServiceConfig::default()).await.unwrap();
    Keeper::open(service, store, config).await.unwrap()
}

fn on_host() -> KeeperConfig {
    KeeperConfig { host_fallback: true, ..KeeperConfig::default() }
}

fn definition(arguments: &[&str]) -> Value {
    let arguments: Vec<_> = ["-c", SCRIPT].iter().chain(arguments).collect();
    json!({"command": "python3", "args": arguments, "env": {"KEY": "sesame"}})
}

fn me() -> Caller {
    Caller::local()
}

fn name(text: &str) -> McpServerName {
    text.parse().unwrap()
}

/// Waits until a server stands in a way.
async fn until(keeper: &Keeper, server: &str, is_so: impl Fn(&McpServerInfo) -> bool) -> McpServerInfo {
    let looking = async {
        loop {
            let info = keeper.get(&me(), &name(server)).await.unwrap().unwrap();
            if is_so(&info) {
                return info;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(EVENTUALLY, looking).await.expect("it never came to be")
}

async fn connected(keeper: &Keeper, server: &str) -> McpServerInfo {
    until(keeper, server, |info| info.status == McpStatus::Connected).await
}

/// What a tool of a server returns, asked through the gateway.
async fn call(keeper: &Keeper, tool: &str, arguments: Value) -> String {
    let house = House::around(keeper.inner.registry.clone(), TaskTracker::new());
    let client = house.client(Client::plain("test"), View::All).await;
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let request = rmcp::model::CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
    let told = serde_json::to_value(client.peer().call_tool(request).await.unwrap()).unwrap();
    told["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn without_a_box_a_server_is_refused_with_what_to_do() {
    let keeper = keeper(&Arc::default(), KeeperConfig::default()).await;
    let begun = keeper.put(&me(), &name("one"), definition(&[])).await.unwrap();
    assert_eq!(begun.status, McpStatus::Connecting);
    let refused = until(&keeper, "one", |info| info.status == McpStatus::Error).await;
    assert_eq!(refused.runtime_info.error_phase, Some(McpErrorPhase::BoxUnavailable));
    assert!(refused.runtime_info.error_message.unwrap().contains("mcp.host_fallback"));
    assert_eq!((refused.runtime_info.retry_count, refused.tools), (0, 0), "trying again would not help");
    keeper.close().await;
}

#[tokio::test]
async fn the_operators_servers_run_on_the_host_if_that_is_wanted_and_end_with_us() {
    let keeper = keeper(&Arc::default(), on_host()).await;
    keeper.put(&me(), &name("one"), definition(&["--noise"])).await.unwrap();
    let info = connected(&keeper, "one").await;
    assert!(!info.runtime_info.box_enabled && info.runtime_info.box_session_id.is_none());
    assert_eq!(info.tools, 10);
    assert_eq!(call(&keeper, "one__env", json!({"name": "KEY"})).await, "sesame");
    let pid = call(&keeper, "one__pid", json!({})).await;
    let everything = format!("{info:?}{:?}", keeper.logs(&me(), &name("one"), 100).await.unwrap());
    assert!(!everything.contains("sesame"), "{everything}");
    assert!(everything.contains("the small server is up"), "{everything}");
    keeper.close().await;
    assert!(!std::path::Path::new("/proc").join(pid).exists());
}

#[tokio::test]
async fn the_service_does_not_keep_its_keeper() {
    let store = Arc::default();
    let keeper = keeper(&store, on_host()).await;
    let service = keeper.inner.parts.service.clone().with_mcp(keeper.handle());
    service.put_mcp_server(&me(), &name("one"), definition(&[])).await.unwrap();
    connected(&keeper, "one").await;
    keeper.close().await;
    drop(keeper);
    assert!(matches!(service.mcp_servers(&me()).await, Err(box_core::Error::Stopping)));
    service.stop(box_core::service::StopMode::KeepAll).await.unwrap();
    drop(service);
    assert_eq!(Arc::strong_count(&store), 1, "what is remembered would never be closed");
}

#[tokio::test]
async fn nobody_elses_servers_run_on_the_host() {
    let keeper = keeper(&Arc::default(), on_host()).await;
    let stranger = Caller { scopes: [Scope::Exec, Scope::Mcp].into(), ..me() };
    // Not even those of an administrator who is held to something.
    let bound = Caller { profile: Some("default".to_owned()), ..me() };
    let lists = McpAccess::new(None, vec!["other".parse().unwrap()]).unwrap();
    let listed = Caller { mcp: lists, ..me() };
    for (server, caller) in [("stranger", stranger), ("bound", bound), ("listed", listed)] {
        keeper.put(&caller, &name(server), definition(&[])).await.unwrap();
        let refused = until(&keeper, server, |info| info.status == McpStatus::Error).await;
        assert_eq!(refused.runtime_info.error_phase, Some(McpErrorPhase::BoxUnavailable), "{server}");
    }
    keeper.close().await;
}

#[tokio::test]
async fn a_server_that_ends_is_started_again() {
    let keeper = keeper(&Arc::default(), on_host()).await;
    keeper.put(&me(), &name("one"), definition(&[])).await.unwrap();
    connected(&keeper, "one").await;
    let before = call(&keeper, "one__pid", json!({})).await;
    let upstream = keeper.connected(&me()).remove(0);
    let killed = rustix::process::Pid::from_raw(before.parse().unwrap()).unwrap();
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    upstream.closed().await;
    let trying = until(&keeper, "one", |info| info.runtime_info.retry_count == 1).await;
    assert_eq!(trying.runtime_info.error_phase, Some(McpErrorPhase::Runtime));
    let again = connected(&keeper, "one").await;
    assert_eq!(again.runtime_info.error_phase, None);
    assert_ne!(call(&keeper, "one__pid", json!({})).await, before);
    keeper.close().await;
}

#[tokio::test]
async fn what_is_defined_outlives_us_and_what_is_removed_does_not() {
    let store = Arc::default();
    let first = keeper(&store, KeeperConfig::default()).await;
    first.put(&me(), &name("kept"), json!({"command": "a", "enabled": false})).await.unwrap();
    first.put(&me(), &name("gone"), json!({"command": "a", "enabled": false})).await.unwrap();
    first.remove(&me(), &name("gone")).await.unwrap();
    first.close().await;
    let config = [(name("configured"), json!({"command": "b", "enabled": false}))].into();
    let second = keeper(&store, KeeperConfig { servers: config, ..KeeperConfig::default() }).await;
    let names: Vec<_> = second.list(&me()).await.unwrap().into_iter().map(|info| info.name.to_string()).collect();
    assert_eq!(names, ["configured", "kept"]);
    let other = Caller { tenant: "other".parse().unwrap(), ..me() };
    assert!(second.list(&other).await.unwrap().is_empty());
    second.close().await;
}

#[tokio::test]
async fn a_server_is_switched_restarted_and_defined_anew() {
    let keeper = keeper(&Arc::default(), on_host()).await;
    keeper.put(&me(), &name("one"), definition(&[])).await.unwrap();
    connected(&keeper, "one").await;
    let first = call(&keeper, "one__pid", json!({})).await;
    assert_eq!(keeper.restart(&me(), &name("one")).await.unwrap().status, McpStatus::Connecting);
    connected(&keeper, "one").await;
    let second = call(&keeper, "one__pid", json!({})).await;
    assert_ne!(first, second);
    let disabled = keeper.set_enabled(&me(), &name("one"), McpSwitch::Disabled).await.unwrap();
    assert_eq!((disabled.status, disabled.enabled), (McpStatus::Disabled, false));
    assert!(keeper.connected(&me()).iter().all(Upstream::is_closed));
    assert!(keeper.restart(&me(), &name("one")).await.unwrap_err().to_string().contains("enable it"));
    keeper.set_enabled(&me(), &name("one"), McpSwitch::Enabled).await.unwrap();
    connected(&keeper, "one").await;
    let mut other = definition(&[]);
    other["env"]["KEY"] = json!("another");
    keeper.put(&me(), &name("one"), other).await.unwrap();
    connected(&keeper, "one").await;
    assert_eq!(call(&keeper, "one__env", json!({"name": "KEY"})).await, "another");
    keeper.close().await;
}

#[tokio::test]
async fn an_import_takes_what_it_can_and_tells_the_rest() {
    let config = [(name("fixed"), json!({"command": "b", "enabled": false}))].into();
    let keeper = keeper(&Arc::default(), KeeperConfig { servers: config, ..KeeperConfig::default() }).await;
    let document = json!({"mcpServers": {
        "my time": {"command": "uvx", "args": ["mcp-server-time"], "disabled": true},
        "fixed": {"command": "x", "disabled": true}, "wrong": {"command": 7}, "z-late": {"command": "y", "disabled": true},
    }});
    let told = keeper.import(&me(), document, 1).await.unwrap();
    let names: Vec<_> = told.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["my-time"]);
    assert_eq!((told.renamed[0].from.as_str(), told.renamed[0].to.as_str()), ("my time", "my-time"));
    let skipped: BTreeMap<_, _> = told.skipped.iter().map(|it| (it.name.as_str(), it.reason.as_str())).collect();
    assert!(skipped["fixed"].contains("configuration") && skipped["z-late"].contains("fewer servers"), "{skipped:?}");
    assert!(skipped.contains_key("wrong"));
    keeper.close().await;
}

#[tokio::test]
async fn a_test_of_what_does_not_work_is_a_report() {
    let keeper = keeper(&Arc::default(), on_host()).await;
    let boxed = keeper.test(&me(), McpTested::Definition(definition(&[]))).await.unwrap();
    assert!(!boxed.ok);
    assert_eq!(boxed.runtime_info.error_phase, Some(McpErrorPhase::BoxUnavailable), "a test is never on the host");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let remote = json!({"url": format!("http://{address}/mcp"), "headers": {"X-Key": "sesame"}});
    let remote = keeper.test(&me(), McpTested::Definition(remote)).await.unwrap();
    assert_eq!(remote.runtime_info.error_phase, Some(McpErrorPhase::McpInit));
    assert!(!format!("{remote:?}").contains("sesame"));
    assert!(keeper.list(&me()).await.unwrap().is_empty());
    keeper.close().await;
}

#[tokio::test]
async fn servers_of_one_tenant_do_not_take_all_memory_with_lines_that_never_end() {
    let backend = Arc::new(Standby::disabled(BackendName::Native));
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let service = Service::open(backend, store, None, ServiceConfig::default()).await.unwrap();
    service.set_shared(true);
    let held = async || {
        let told = service.status(&me()).await.unwrap().limits;
        told.into_iter().find(|limit| limit.resource == Resource::BufferedBytes).unwrap()
    };
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for _ in 0..24 {
        let (ours, theirs) = tokio::io::duplex(256 << 10);
        let (reader, writer) = tokio::io::split(ours);
        let buffered = service.buffered(&me().tenant);
        let mut stdio = Stdio::new(reader, writer, Garbage::default()).charged(Some(buffered));
        readers.push(tokio::spawn(async move { Transport::<RoleClient>::receive(&mut stdio).await.is_none() }));
        writers.push(theirs);
    }
    let piece = vec![b'x'; 1 << 20];
    for writer in &mut writers {
        for _ in 0..15 {
            writer.write_all(&piece).await.unwrap();
        }
    }
    let told = held().await;
    assert!(told.held > 0 && told.held <= told.limit && told.limit == told.whole / 2, "{told:?}");
    drop(writers);
    for reader in readers {
        assert!(reader.await.unwrap(), "an unfinished line is no message");
    }
    assert_eq!(held().await.held, 0);
}
