//! MCP servers through the routes, run by nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use box_core::mcp::{
    McpError, McpErrorPhase, McpKind, McpLogLine, McpLogSource, McpRuntimeInfo, McpServerName, McpServers, McpSource,
    McpStatus,
};
use box_core::{Caller, Result, Scope, Store, TenantId};
use serde_json::{Value, json};

use super::*;
use crate::SkillsConfig;
use crate::testing::{config, door};
use door_http::testing::{MemoryStore, Visitors, service, tokens};
use door_http::{Gate, ServerState};

/// What no answer may hold.
const SECRET: &str = "open-sesame";

/// Servers of all tenants, with everything that they were given. They never run.
#[derive(Debug, Default)]
struct TestServers(Mutex<BTreeMap<(TenantId, McpServerName), Value>>);

fn info(name: &McpServerName, definition: &Value) -> McpServerInfo {
    let keys: Vec<_> = definition["env"].as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    McpServerInfo {
        name: name.clone(),
        kind: McpKind::Stdio,
        enabled: definition["enabled"] != json!(false),
        source: if definition["fixed"] == json!(true) { McpSource::Config } else { McpSource::Stored },
        status: McpStatus::Connecting,
        tools: 0,
        runtime_info: McpRuntimeInfo::default(),
        definition: json!({ "command": definition["command"], "env_keys": keys }),
        updated_at: None,
    }
}

impl TestServers {
    fn keep(&self, caller: &Caller, name: &McpServerName, definition: Value) -> McpServerInfo {
        let told = info(name, &definition);
        self.0.lock().unwrap().insert((caller.tenant.clone(), name.clone()), definition);
        told
    }
}

#[async_trait]
impl McpServers for TestServers {
    async fn list(&self, caller: &Caller) -> Result<Vec<McpServerInfo>> {
        let held = self.0.lock().unwrap();
        let own = held.iter().filter(|((tenant, _), _)| *tenant == caller.tenant);
        Ok(own.map(|((_, name), definition)| info(name, definition)).collect())
    }

    async fn get(&self, caller: &Caller, name: &McpServerName) -> Result<Option<McpServerInfo>> {
        let held = self.0.lock().unwrap();
        Ok(held.get(&(caller.tenant.clone(), name.clone())).map(|definition| info(name, definition)))
    }

    async fn put(&self, caller: &Caller, name: &McpServerName, definition: Value) -> Result<McpServerInfo> {
        if !definition["command"].is_string() {
            return Err(box_wire::Invalid::new("command", "", "a command to run").into());
        }
        Ok(self.keep(caller, name, definition))
    }

    async fn remove(&self, caller: &Caller, name: &McpServerName) -> Result<()> {
        self.0.lock().unwrap().remove(&(caller.tenant.clone(), name.clone()));
        Ok(())
    }

    async fn set_enabled(&self, caller: &Caller, name: &McpServerName, switch: McpSwitch) -> Result<McpServerInfo> {
        let mut definition = self.0.lock().unwrap()[&(caller.tenant.clone(), name.clone())].clone();
        definition["enabled"] = json!(switch == McpSwitch::Enabled);
        Ok(self.keep(caller, name, definition))
    }

    async fn import(&self, caller: &Caller, document: Value, room: usize) -> Result<McpImported> {
        let entries = document["mcpServers"].as_object().into_iter().flatten().take(room);
        let servers = entries.map(|(name, entry)| self.keep(caller, &name.parse().unwrap(), entry.clone())).collect();
        Ok(McpImported { servers, ..McpImported::default() })
    }

    async fn test(&self, _caller: &Caller, tested: McpTested) -> Result<McpTestReport> {
        Ok(McpTestReport {
            ok: matches!(tested, McpTested::Named(_)),
            kind: McpKind::Stdio,
            server_name: None,
            server_version: None,
            protocol_version: None,
            tools: Vec::new(),
            prompts: 0,
            resources: 0,
            duration_ms: 1,
            runtime_info: McpRuntimeInfo { error_phase: Some(McpErrorPhase::DepInstall), ..McpRuntimeInfo::default() },
        })
    }

    async fn restart(&self, caller: &Caller, name: &McpServerName) -> Result<McpServerInfo> {
        match self.get(caller, name).await? {
            Some(server) if server.enabled => Ok(server),
            _ => Err(McpError::Failed {
                name: name.clone(),
                phase: McpErrorPhase::BoxUnavailable,
                reason: "there is no backend".to_owned(),
            }
            .into()),
        }
    }

    async fn approve(
        &self,
        caller: &Caller,
        name: &McpServerName,
        tools: Option<BTreeMap<String, String>>,
    ) -> Result<McpServerInfo> {
        let mut server = self.get(caller, name).await?.unwrap();
        server.tools = tools.map_or(99, |tools| tools.len());
        Ok(server)
    }

    async fn logs(&self, _caller: &Caller, _name: &McpServerName, lines: usize) -> Result<Vec<McpLogLine>> {
        Ok(vec![McpLogLine { source: McpLogSource::Stderr, text: format!("{lines} lines") }])
    }
}

struct World(Visitors);

/// Who asks, by their place in the list of tokens.
const ALICE: usize = 0;
const BOB: usize = 1;
const READER: usize = 2;
const ADMIN: usize = 3;

impl World {
    async fn new() -> Self {
        Self::with(Some(Arc::new(TestServers::default()))).await
    }

    async fn with(servers: Option<Arc<dyn McpServers>>) -> Self {
        let (secrets, rows) = tokens(&[
            ("alice", "a", &[Scope::Exec, Scope::Mcp]),
            ("bob", "b", &[Scope::Exec, Scope::Mcp]),
            ("reader", "a", &[Scope::Exec]),
            ("admin", "a", &[Scope::Files, Scope::Skills, Scope::Admin]),
        ]);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with(&rows));
        let mut service = service(Arc::clone(&store)).await;
        if let Some(servers) = servers {
            service = service.with_mcp(servers);
        }
        let state = ServerState::new(service, store, Gate::default());
        let door = door(&state, config(SkillsConfig::default()));
        Self(Visitors::new(door, secrets))
    }

    async fn send(&self, who: usize, method: &str, path: &str, body: String) -> (u16, String) {
        let (status, answer) = self.0.send(who, method, path, "application/json", body.into_bytes()).await;
        (status, String::from_utf8(answer).unwrap())
    }

    async fn ask(&self, who: usize, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.0.ask(who, method, path, body).await
    }
}

fn code(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["error"]["code"].as_str().unwrap_or_default())
}

fn definition() -> Value {
    json!({ "command": "uvx", "args": ["mcp-server-time"], "env": { "API_KEY": SECRET } })
}

#[tokio::test]
async fn an_mcp_server_is_defined_switched_and_removed() {
    let world = World::new().await;
    let at = "/v1/mcp/servers/time";
    let (status, made) = world.ask(ALICE, "PUT", at, definition()).await;
    assert_eq!((status, &made["name"], &made["status"]), (201, &json!("time"), &json!("connecting")));
    assert_eq!(world.ask(ALICE, "PUT", at, definition()).await.0, 200, "it was there");
    let (_, listed) = world.ask(ALICE, "GET", "/v1/mcp/servers", Value::Null).await;
    assert_eq!(listed, json!([made]));
    assert_eq!(world.ask(ALICE, "GET", at, Value::Null).await, (200, made));
    for (verb, enabled) in [("disable", false), ("enable", true)] {
        let (status, switched) = world.ask(ALICE, "POST", &format!("{at}/{verb}"), Value::Null).await;
        assert_eq!((status, &switched["enabled"]), (200, &json!(enabled)), "{verb}");
    }
    assert_eq!(world.ask(ALICE, "POST", &format!("{at}/restart"), Value::Null).await.0, 200);
    let approve = format!("{at}/approve");
    for (body, tools) in [(json!({}), 99), (json!({ "tools": { "a": "f" } }), 1)] {
        let (status, approved) = world.ask(ALICE, "POST", &approve, body).await;
        assert_eq!((status, &approved["tools"]), (200, &json!(tools)));
    }
    assert_eq!(world.ask(ALICE, "POST", &approve, json!({ "tools": ["a"] })).await.0, 400);
    let (_, logs) = world.ask(ALICE, "GET", &format!("{at}/logs?lines=7"), Value::Null).await;
    assert_eq!(logs, json!({ "lines": [{ "source": "stderr", "text": "7 lines" }] }));
    assert_eq!(world.ask(ALICE, "DELETE", at, Value::Null).await, (200, json!({ "deleted": "time" })));
    assert_eq!(code(&world.ask(ALICE, "GET", at, Value::Null).await), (404, "mcp_server_not_found"));
    assert_eq!(code(&world.ask(ALICE, "DELETE", at, Value::Null).await), (404, "mcp_server_not_found"));
}

#[tokio::test]
async fn an_mcp_server_is_tried_and_imported() {
    let world = World::new().await;
    let (status, report) = world.ask(ALICE, "POST", "/v1/mcp/test", definition()).await;
    assert_eq!((status, &report["ok"]), (200, &json!(false)), "what does not work is an answer");
    assert_eq!(report["runtime_info"]["error_phase"], "dep_install");
    let document = json!({ "mcpServers": { "a": definition(), "b": definition() }, "theme": "dark" });
    let (status, imported) = world.ask(ALICE, "POST", "/v1/mcp/import", document).await;
    assert_eq!((status, imported["servers"].as_array().unwrap().len()), (200, 2));
    assert_eq!(world.ask(ALICE, "POST", "/v1/mcp/servers/a/test", Value::Null).await.1["ok"], true);
    let missing = world.ask(ALICE, "POST", "/v1/mcp/servers/c/test", Value::Null).await;
    assert_eq!(code(&missing), (404, "mcp_server_not_found"));
}

#[tokio::test]
async fn no_answer_about_an_mcp_server_holds_a_secret() {
    let world = World::new().await;
    let whole = definition().to_string();
    let import = json!({ "mcpServers": { "b": definition() } }).to_string();
    let at = "/v1/mcp/servers/a";
    let asked = [
        ("PUT", at.to_owned(), whole.clone()),
        ("PUT", at.to_owned(), whole.clone()),
        ("PUT", "/v1/mcp/servers/a__b".to_owned(), whole.clone()),
        ("PUT", at.to_owned(), json!({ "env": { "API_KEY": SECRET } }).to_string()),
        ("PUT", at.to_owned(), whole[..whole.len() - 1].to_owned()),
        ("PUT", at.to_owned(), format!("[{whole}]")),
        ("PUT", at.to_owned(), format!("{{\"env\": {{\"A\": \"{SECRET}\", \"A\": \"{SECRET}\"}}}}")),
        ("POST", "/v1/mcp/test".to_owned(), whole),
        ("POST", "/v1/mcp/import".to_owned(), import),
        ("GET", "/v1/mcp/servers".to_owned(), String::new()),
        ("GET", at.to_owned(), String::new()),
        ("GET", format!("{at}/logs"), String::new()),
        ("POST", format!("{at}/disable"), String::new()),
        ("POST", format!("{at}/restart"), String::new()),
        ("POST", format!("{at}/enable"), String::new()),
        ("POST", format!("{at}/test"), String::new()),
        ("DELETE", at.to_owned(), String::new()),
    ];
    let mut served = 0;
    for (method, path, body) in asked {
        let (status, text) = world.send(ALICE, method, &path, body).await;
        assert!(!text.contains(SECRET), "{method} {path}: {text}");
        served += usize::from(text.contains("API_KEY") && status < 300);
    }
    assert!(served >= 5, "names are told: {served}");
}

#[tokio::test]
async fn reading_mcp_servers_needs_exec_and_changing_them_needs_mcp() {
    let world = World::new().await;
    world.ask(ALICE, "PUT", "/v1/mcp/servers/a", definition()).await;
    let reads = ["/v1/mcp/servers", "/v1/mcp/servers/a", "/v1/mcp/servers/a/logs"];
    for path in reads {
        assert_eq!(world.ask(READER, "GET", path, Value::Null).await.0, 200, "{path}");
        assert_eq!(code(&world.ask(ADMIN, "GET", path, Value::Null).await), (403, "forbidden"), "{path}");
    }
    let changes = [
        ("PUT", "/v1/mcp/servers/a"),
        ("DELETE", "/v1/mcp/servers/a"),
        ("POST", "/v1/mcp/servers/a/restart"),
        ("POST", "/v1/mcp/servers/a/enable"),
        ("POST", "/v1/mcp/servers/a/disable"),
        ("POST", "/v1/mcp/servers/a/test"),
        ("POST", "/v1/mcp/test"),
        ("POST", "/v1/mcp/import"),
    ];
    for (method, path) in changes {
        for who in [READER, ADMIN] {
            let answer = world.ask(who, method, path, definition()).await;
            assert_eq!(code(&answer), (403, "forbidden"), "{method} {path}");
            assert!(answer.1["error"]["message"].as_str().unwrap().contains("mcp"), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn a_tenant_does_not_see_the_mcp_servers_of_another() {
    let world = World::new().await;
    world.ask(ALICE, "PUT", "/v1/mcp/servers/mine", definition()).await;
    assert_eq!(world.ask(BOB, "GET", "/v1/mcp/servers", Value::Null).await.1, json!([]));
    for (method, path) in [("GET", ""), ("DELETE", ""), ("POST", "/restart"), ("POST", "/disable"), ("GET", "/logs")] {
        let answer = world.ask(BOB, method, &format!("/v1/mcp/servers/mine{path}"), Value::Null).await;
        assert_eq!(code(&answer), (404, "mcp_server_not_found"), "{method} {path}");
        assert!(!answer.1["error"]["message"].as_str().unwrap().contains("defined are"), "{answer:?}");
    }
    assert_eq!(world.ask(ALICE, "GET", "/v1/mcp/servers", Value::Null).await.1.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_cannot_be_an_mcp_server_is_refused_by_field() {
    let world = World::new().await;
    let field = |answer: &(u16, Value)| (answer.0, answer.1["error"]["field"].as_str().unwrap_or_default().to_owned());
    for name in ["box", "a__b", "a.b", "a_", "%C3%A9", &"x".repeat(65)] {
        let answer = world.ask(ALICE, "PUT", &format!("/v1/mcp/servers/{name}"), definition()).await;
        assert_eq!(field(&answer), (400, "name".to_owned()), "{name}");
    }
    let at = "/v1/mcp/servers/a";
    assert_eq!(field(&world.ask(ALICE, "PUT", at, json!({})).await), (400, "command".to_owned()));
    assert_eq!(field(&world.ask(ALICE, "PUT", at, json!([1])).await), (400, "body".to_owned()));
    assert_eq!(field(&world.ask(ALICE, "PUT", at, Value::Null).await), (400, "body".to_owned()));
    assert_eq!(field(&world.ask(ALICE, "GET", &format!("{at}/logs?lines=many"), Value::Null).await).1, "lines");
    assert_eq!(field(&world.ask(ALICE, "GET", &format!("{at}/logs?line=1"), Value::Null).await).1, "line");
    let large = json!({ "command": "x".repeat(crate::limits::MCP_BODY_BYTES_MAX) });
    for (method, path) in [("PUT", at), ("POST", "/v1/mcp/test"), ("POST", "/v1/mcp/import")] {
        assert_eq!(code(&world.ask(ALICE, method, path, large.clone()).await), (413, "too_large"), "{path}");
    }
}

#[tokio::test]
async fn a_tenant_has_so_many_mcp_servers_and_no_more() {
    let world = World::new().await;
    let max = box_core::limits::MCP_SERVERS_MAX;
    let many: serde_json::Map<_, _> = (0..=max).map(|number| (format!("s{number}"), definition())).collect();
    let (_, imported) = world.ask(ALICE, "POST", "/v1/mcp/import", json!({ "mcpServers": many })).await;
    assert_eq!(imported["servers"].as_array().unwrap().len(), max);
    let full = world.ask(ALICE, "PUT", "/v1/mcp/servers/more", definition()).await;
    assert_eq!(code(&full), (429, "capacity_exceeded"));
    assert!(full.1["error"]["hint"].as_str().unwrap().contains("remove one"), "{full:?}");
    assert_eq!(world.ask(BOB, "PUT", "/v1/mcp/servers/more", definition()).await.0, 201, "others have room");
}

#[tokio::test]
async fn an_mcp_server_that_cannot_be_changed_or_used_is_told_with_the_fix() {
    let world = World::new().await;
    let fixed = json!({ "command": "uvx", "fixed": true });
    world.ask(ALICE, "PUT", "/v1/mcp/servers/fixed", fixed).await;
    for (method, path) in [("PUT", ""), ("DELETE", ""), ("POST", "/disable")] {
        let answer = world.ask(ALICE, method, &format!("/v1/mcp/servers/fixed{path}"), definition()).await;
        assert_eq!(code(&answer), (409, "mcp_server_fixed"), "{method} {path}");
        assert!(answer.1["error"]["message"].as_str().unwrap().contains("[mcp.servers.fixed]"), "{answer:?}");
    }
    world.ask(ALICE, "PUT", "/v1/mcp/servers/off", json!({ "command": "uvx", "enabled": false })).await;
    let failed = world.ask(ALICE, "POST", "/v1/mcp/servers/off/restart", Value::Null).await;
    assert_eq!(code(&failed), (502, "mcp_server_failed"));
    assert_eq!(failed.1["error"]["detail_code"], "box_unavailable");
    let bare = World::with(None).await;
    let answer = bare.ask(ALICE, "GET", "/v1/mcp/servers", Value::Null).await;
    assert_eq!(code(&answer), (503, "mcp_unavailable"));
    assert!(answer.1["error"]["message"].as_str().unwrap().contains("[mcp]"), "{answer:?}");
}
