use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use serde_json::json;

use super::*;
use crate::TenantId;
use crate::audit::{AuditLog, AuditOptions};
use crate::backend::{BackendName, LazyBackend};
use crate::mcp::{McpAccess, McpKind, McpLogSource, McpRuntimeInfo, McpStatus};
use crate::service::ServiceConfig;
use crate::service::tests::Memory;

/// Servers that never run. What they are given is remembered, and refused if it says so.
#[derive(Debug, Default)]
struct TestServers(Mutex<BTreeMap<(TenantId, McpServerName), McpServerInfo>>);

impl TestServers {
    fn keep(&self, caller: &Caller, name: &McpServerName, source: McpSource) -> McpServerInfo {
        let info = info(name, source);
        self.0.lock().unwrap().insert((caller.tenant.clone(), name.clone()), info.clone());
        info
    }
}

fn info(name: &McpServerName, source: McpSource) -> McpServerInfo {
    McpServerInfo {
        name: name.clone(),
        kind: McpKind::Stdio,
        enabled: true,
        source,
        status: McpStatus::Connecting,
        tools: 0,
        runtime_info: McpRuntimeInfo::default(),
        definition: json!({}),
        updated_at: None,
    }
}

#[async_trait]
impl McpServers for TestServers {
    async fn list(&self, caller: &Caller) -> Result<Vec<McpServerInfo>> {
        let held = self.0.lock().unwrap();
        Ok(held.iter().filter(|((tenant, _), _)| *tenant == caller.tenant).map(|(_, info)| info.clone()).collect())
    }

    async fn get(&self, caller: &Caller, name: &McpServerName) -> Result<Option<McpServerInfo>> {
        Ok(self.0.lock().unwrap().get(&(caller.tenant.clone(), name.clone())).cloned())
    }

    async fn put(&self, caller: &Caller, name: &McpServerName, definition: Value) -> Result<McpServerInfo> {
        if definition.get("command").is_none() {
            return Err(box_wire::Invalid::new("command", definition["env"].to_string(), "a command").into());
        }
        // Others would come in between here, if they could.
        tokio::task::yield_now().await;
        Ok(self.keep(caller, name, McpSource::Stored))
    }

    async fn remove(&self, caller: &Caller, name: &McpServerName) -> Result<()> {
        self.0.lock().unwrap().remove(&(caller.tenant.clone(), name.clone()));
        Ok(())
    }

    async fn set_enabled(&self, caller: &Caller, name: &McpServerName, switch: McpSwitch) -> Result<McpServerInfo> {
        let info = self.keep(caller, name, McpSource::Stored);
        Ok(McpServerInfo { enabled: switch == McpSwitch::Enabled, ..info })
    }

    async fn import(&self, caller: &Caller, document: Value, room: usize) -> Result<McpImported> {
        let names = document.as_object().into_iter().flatten().map(|(name, _)| name.parse().unwrap()).take(room);
        let servers = names.map(|name| self.keep(caller, &name, McpSource::Stored)).collect();
        Ok(McpImported { servers, ..McpImported::default() })
    }

    async fn test(&self, _caller: &Caller, tested: McpTested) -> Result<McpTestReport> {
        Err(Error::Conflict { what: format!("{tested:?}"), fix: String::new() })
    }

    async fn restart(&self, _caller: &Caller, name: &McpServerName) -> Result<McpServerInfo> {
        Ok(info(name, McpSource::Stored))
    }

    async fn approve(
        &self,
        caller: &Caller,
        name: &McpServerName,
        tools: Option<BTreeMap<String, String>>,
    ) -> Result<McpServerInfo> {
        let _ = tools;
        Ok(self.get(caller, name).await?.unwrap())
    }

    async fn logs(&self, _caller: &Caller, _name: &McpServerName, lines: usize) -> Result<Vec<McpLogLine>> {
        Ok(vec![McpLogLine { source: McpLogSource::Supervisor, text: lines.to_string() }])
    }
}

fn name(text: &str) -> McpServerName {
    text.parse().unwrap()
}

fn definition() -> Value {
    json!({ "command": "uvx", "env": { "KEY": "sesame" } })
}

fn with_scopes(scopes: &[Scope]) -> Caller {
    Caller { scopes: scopes.iter().copied().collect(), ..Caller::local() }
}

async fn bare_service(audit: Option<Arc<AuditLog>>) -> Service {
    let backend = Arc::new(LazyBackend::disabled(BackendName::Native));
    Service::open(backend, Arc::new(Memory::default()), audit, ServiceConfig::default()).await.unwrap()
}

async fn service() -> (Service, Arc<TestServers>) {
    let test_servers = Arc::new(TestServers::default());
    (bare_service(None).await.with_mcp(Arc::clone(&test_servers) as Arc<dyn McpServers>), test_servers)
}

/// The codes with which everything is refused; blank where it is not.
async fn refusals(service: &Service, caller: &Caller) -> Vec<&'static str> {
    let it = name("a");
    let code = |error: Error| error.code();
    vec![
        service.mcp_servers(caller).await.map_or_else(code, |_| ""),
        service.mcp_server(caller, &it).await.map_or_else(code, |_| ""),
        service.mcp_server_logs(caller, &it, None).await.map_or_else(code, |_| ""),
        service.put_mcp_server(caller, &it, definition()).await.map_or_else(code, |_| ""),
        service.switch_mcp_server(caller, &it, McpSwitch::Disabled).await.map_or_else(code, |_| ""),
        service.restart_mcp_server(caller, &it).await.map_or_else(code, |_| ""),
        service.import_mcp_servers(caller, json!({ "a": {} })).await.map_or_else(code, |_| ""),
        service.test_mcp_server(caller, McpTested::Definition(definition())).await.map_or_else(code, |_| ""),
        service.remove_mcp_server(caller, &it).await.map_or_else(code, |()| ""),
    ]
}

#[tokio::test]
async fn who_reads_needs_exec_and_who_changes_needs_mcp() {
    let (service, test_servers) = service().await;
    test_servers.keep(&Caller::local(), &name("a"), McpSource::Stored);
    let no = "forbidden";
    assert_eq!(refusals(&service, &with_scopes(&[Scope::Exec])).await, ["", "", "", no, no, no, no, no, no]);
    let admin = with_scopes(&[Scope::Files, Scope::Skills, Scope::Admin]);
    assert_eq!(refusals(&service, &admin).await, [no; 9]);
    let changing = refusals(&service, &with_scopes(&[Scope::Mcp])).await;
    assert_eq!(changing, [no, no, no, "", "", "", "", "conflict", ""], "the test is refused by the shelf itself");
}

#[tokio::test]
async fn a_service_without_servers_says_how_to_get_them() {
    let service = bare_service(None).await;
    assert_eq!(refusals(&service, &Caller::local()).await, ["mcp_unavailable"; 9]);
    let error = service.mcp_servers(&Caller::local()).await.unwrap_err().to_string();
    assert!(error.contains("enabled = true in [mcp]"), "{error}");
}

#[tokio::test]
async fn a_tenant_knows_nothing_of_the_servers_of_another() {
    let (service, _) = service().await;
    let other = Caller { tenant: "other".parse().unwrap(), ..Caller::local() };
    let (_, created) = service.put_mcp_server(&Caller::local(), &name("mine"), definition()).await.unwrap();
    assert_eq!(created, Created::New);
    service.put_mcp_server(&other, &name("theirs"), definition()).await.unwrap();
    let error = service.mcp_server(&other, &name("mine")).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no MCP server mine; defined are theirs");
    let gone = service.remove_mcp_server(&other, &name("mine")).await.unwrap_err();
    assert_eq!(gone.code(), "mcp_server_not_found");
    let again = service.put_mcp_server(&Caller::local(), &name("mine"), definition()).await.unwrap();
    assert_eq!(again.1, Created::Existing);
}

/// A caller whose token has lists.
fn listed(allow: &[&str], deny: &[&str]) -> Caller {
    let patterns = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
    Caller { mcp: McpAccess::new(Some(patterns(allow)), patterns(deny)).unwrap(), ..Caller::local() }
}

#[tokio::test]
async fn of_what_its_lists_keep_from_a_token_it_learns_nothing() {
    let (service, test_servers) = service().await;
    for server in ["a", "b"] {
        test_servers.keep(&Caller::local(), &name(server), McpSource::Stored);
    }
    let (gone, denied) = ("mcp_server_not_found", "mcp_server_denied");
    for caller in [listed(&["b"], &[]), listed(&["*"], &["a"]), listed(&["A", "aa"], &[])] {
        let refused = refusals(&service, &caller).await;
        // An import names what it takes, and a definition that is only tried has no name.
        assert_eq!(refused, ["", gone, gone, denied, gone, gone, "", "conflict", gone]);
        let told = service.mcp_server(&caller, &name("a")).await.unwrap_err().to_string();
        assert!(!told.contains("defined are a"), "{told}");
        let seen = service.mcp_servers(&caller).await.unwrap();
        assert!(seen.iter().all(|server| server.name.as_str() == "b"), "{seen:?}");
        let tested = service.test_mcp_server(&caller, McpTested::Named(name("a"))).await.unwrap_err();
        assert_eq!(tested.code(), gone);
    }
    assert_eq!(test_servers.0.lock().unwrap().len(), 2, "what was refused was done");
}

#[tokio::test]
async fn who_may_use_a_part_of_a_server_sees_it_and_changes_nothing() {
    let (service, test_servers) = service().await;
    test_servers.keep(&Caller::local(), &name("a"), McpSource::Stored);
    let denied = "mcp_server_denied";
    for caller in [listed(&["a__read"], &[]), listed(&["*"], &["a__write"])] {
        let refused = refusals(&service, &caller).await;
        assert_eq!(refused, ["", "", denied, denied, denied, denied, "", "conflict", denied]);
    }
    let whole = refusals(&service, &listed(&["a"], &["b"])).await;
    assert_eq!(whole, ["", "", "", "", "", "", "", "conflict", ""]);
}

#[tokio::test]
async fn what_the_configuration_defines_is_not_changed_by_callers() {
    let (service, test_servers) = service().await;
    let caller = Caller::local();
    test_servers.keep(&caller, &name("fixed"), McpSource::Config);
    let it = name("fixed");
    let refused = [
        service.put_mcp_server(&caller, &it, definition()).await.map(drop).unwrap_err(),
        service.remove_mcp_server(&caller, &it).await.unwrap_err(),
        service.switch_mcp_server(&caller, &it, McpSwitch::Disabled).await.map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.code(), "mcp_server_fixed");
        assert!(error.to_string().contains("[mcp.servers.fixed]"), "{error}");
    }
    service.restart_mcp_server(&caller, &it).await.unwrap();
}

#[tokio::test]
async fn of_many_who_want_the_last_place_one_gets_it() {
    let (service, test_servers) = service().await;
    let caller = Caller::local();
    for number in 1..limits::MCP_SERVERS_MAX {
        test_servers.keep(&caller, &name(&format!("s{number}")), McpSource::Stored);
    }
    let put = async |text: &str| service.put_mcp_server(&caller, &name(text), definition()).await.map(drop);
    let (first, second, third) = tokio::join!(put("a"), put("b"), put("c"));
    let codes: Vec<_> = [first, second, third].into_iter().filter_map(Result::err).map(|error| error.code()).collect();
    assert_eq!(codes, ["capacity_exceeded"; 2]);
    assert_eq!(service.mcp_servers(&caller).await.unwrap().len(), limits::MCP_SERVERS_MAX);
    put("s1").await.unwrap();
    let imported = service.import_mcp_servers(&caller, json!({ "x": {}, "y": {} })).await.unwrap();
    assert!(imported.servers.is_empty(), "{imported:?}");
}

#[tokio::test]
async fn a_log_is_as_long_as_asked_and_never_endless() {
    let (service, test_servers) = service().await;
    test_servers.keep(&Caller::local(), &name("a"), McpSource::Stored);
    for (asked, given) in [(None, "200"), (Some(3), "3"), (Some(usize::MAX), "5000")] {
        let lines = service.mcp_server_logs(&Caller::local(), &name("a"), asked).await.unwrap();
        assert_eq!(lines[0].text, given);
    }
}

#[tokio::test]
async fn changes_are_written_down_without_what_was_sent() {
    let directory = tempfile::tempdir().unwrap();
    let audit = Arc::new(
        AuditLog::open(&directory.path().join("audit"), &directory.path().join("audit.key"), AuditOptions::default())
            .unwrap(),
    );
    let service = bare_service(Some(Arc::clone(&audit))).await.with_mcp(Arc::new(TestServers::default()));
    let caller = Caller::local();
    service.put_mcp_server(&caller, &name("time"), definition()).await.unwrap();
    let bad = json!({ "env": { "KEY": "sesame" } });
    let error = service.put_mcp_server(&caller, &name("time"), bad).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("sesame"), "the test would show nothing: {error}");
    service.remove_mcp_server(&caller, &name("time")).await.unwrap();
    audit.flush().await.unwrap();
    let written = written(directory.path());
    let of = |verdict: &str, operation: &str| {
        written.lines().filter(|line| line.contains(verdict) && line.contains(operation)).count()
    };
    assert_eq!((of("completed", "mcp_put"), of("refused", "mcp_put"), of("completed", "mcp_remove")), (1, 1, 1));
    assert!(written.contains("\"time\"") && !written.contains("sesame"), "{written}");
}

/// All that is in the files of a directory.
fn written(directory: &std::path::Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        text += &if path.is_dir() { written(&path) } else { std::fs::read_to_string(&path).unwrap_or_default() };
    }
    text
}
