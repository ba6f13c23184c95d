//! Rows to remember, for every test that needs some.

use box_core::call::{ExecInfo, ExecStatus, Launch, ProcessCall, Receipt, Replace, RestartPolicy};
use box_core::mcp::McpAccess;
use box_core::session::SessionState;
use box_core::store::{
    ExecRow, McpApprovalsRow, McpServerKey, McpServerRow, ProcessRow, SandboxRow, SandboxVolume, SessionKey,
    SessionRow, TemplateDefaults, VolumeRow,
};
use box_core::token::TokenRow;
use box_core::{BackendName, Dimension, Guarantees, Handle, Level, Scope, SessionRequest};
use jiff::Timestamp;

pub(crate) fn at() -> Timestamp {
    "2026-01-02T03:04:05.678901234Z".parse().unwrap()
}

pub(crate) fn key(tenant: &str, session: &str) -> SessionKey {
    SessionKey { tenant: tenant.parse().unwrap(), id: session.parse().unwrap() }
}

pub(crate) fn session(key: &SessionKey, state: SessionState) -> SessionRow {
    let env = vec![("NAME".to_owned(), "a \"quoted\"\nvalue, é".to_owned())];
    let request = SessionRequest { env, cpus: Some(0.1), ..SessionRequest::default() };
    let mut guarantees = Guarantees::default();
    guarantees.set(Dimension::Memory, Level::Hard, "cgroup");
    let box_id: box_wire::BoxId = "b-1".parse().unwrap();
    SessionRow {
        key: key.clone(),
        state,
        config: request.resolve(&box_core::session::SessionDefaults::default(), None).unwrap(),
        backend: None,
        handle: Some(Handle::new(box_id.clone(), BackendName::Native, guarantees, "{}".into())),
        box_id,
        created_at: at(),
        last_used_at: at(),
        lost_reason: None,
    }
}

pub(crate) fn exec(key: &SessionKey, id: &str, exit_code: i32) -> ExecRow {
    let info = ExecInfo {
        exec_id: id.parse().unwrap(),
        command: "true".to_owned(),
        session_id: key.id.clone(),
        backend_name: BackendName::Native,
        pid: Some(7),
        status: ExecStatus::Completed,
        exit_code: Some(exit_code),
        signal: None,
        oom_killed: false,
        quota_exceeded: false,
        timeout_ms: Some(30_000),
        timeout_limit: None,
        timeout_cut: None,
        duration_ms: u64::MAX,
        started_at: at(),
        ended_at: Some(at()),
        stdout_bytes: 1,
        stderr_bytes: 2,
        receipt: Some(Receipt { cpu_ms: 3, ..Receipt::default() }),
    };
    let idempotency = Some(("key".to_owned(), "shape".to_owned()));
    let key = key.clone();
    ExecRow {
        key,
        info,
        output_limit_chars: 4000,
        output_head_bytes: None,
        destroys_on_timeout: true,
        process: None,
        idempotency,
        note: Some("noted".into()),
        ends_unattended: false,
    }
}

pub(crate) fn process(key: &SessionKey, id: &str, restarts: u32) -> ProcessRow {
    let call = ProcessCall {
        launch: Launch::default(),
        journal_bytes_max: None,
        process_id: id.parse().unwrap(),
        command: "server".into(),
        args: vec!["--port".into(), "1".into()],
        env: vec![("TOKEN".into(), "t".into())],
        cwd: None,
        restart: RestartPolicy::OnFailure,
        replace: Replace::Refuse,
    };
    ProcessRow { key: key.clone(), call, runs: vec![(0, "e-1".parse().unwrap())], restarts, stopping: false }
}

pub(crate) fn token(id: &str, name: &str) -> TokenRow {
    TokenRow {
        id: id.into(),
        name: name.into(),
        hash: "00".repeat(32),
        tenant: "acme".parse().unwrap(),
        scopes: [Scope::Exec, Scope::Files].into(),
        created_at: at(),
        expires_at: Some(at()),
        profile: Some("strict".into()),
        session: Some("chat-*".parse().unwrap()),
        mcp: McpAccess::new(Some(vec!["time".parse().unwrap()]), vec!["time__set*".parse().unwrap()]).unwrap(),
    }
}

pub(crate) fn mcp_key(tenant: &str, name: &str) -> McpServerKey {
    McpServerKey { tenant: tenant.parse().unwrap(), name: name.parse().unwrap() }
}

pub(crate) fn mcp_server(key: &McpServerKey, number: u32) -> McpServerRow {
    let definition =
        serde_json::json!({ "command": "uvx", "args": ["é\n", number], "env": { "KEY": "a \"quoted\" one" } });
    McpServerRow { key: key.clone(), definition, enabled: number.is_multiple_of(2), updated_at: at() }
}

pub(crate) fn mcp_approvals(key: &McpServerKey, number: u32) -> McpApprovalsRow {
    let tools = [("é".to_owned(), number.to_string()), ("b".to_owned(), String::new())].into();
    McpApprovalsRow { key: key.clone(), tools, approved_at: at() }
}

pub(crate) fn sandbox(key: &SessionKey, number: u64) -> SandboxRow {
    SandboxRow {
        key: key.clone(),
        template: "base".into(),
        metadata: [("who".to_owned(), "é\n\"".to_owned())].into(),
        env: [("KEY".to_owned(), "a \"quoted\" one".to_owned())].into(),
        started_at: at(),
        ends_at: at(),
        timeout_sec: number,
        auto_pause: number.is_multiple_of(2),
        auto_resume: true,
        access_token: "a".repeat(64),
        traffic_token: Some("t".into()),
        allow_internet_access: Some(false),
        network: Some(serde_json::json!({ "denyOut": ["192.0.2.0/24"] })),
        volume_mounts: vec![SandboxVolume { name: "data".into(), path: "/mnt/data".into() }],
        defaults: TemplateDefaults { start_command: Some("serve".into()), ..TemplateDefaults::default() },
        idempotency: Some(("key".into(), "digest".into())),
    }
}

pub(crate) fn volume(key: &SessionKey, name: &str) -> VolumeRow {
    let (tenant, id) = (key.tenant.clone(), key.id.as_str().to_owned());
    VolumeRow { tenant, id, name: name.to_owned(), token: "t".repeat(64), created_at: at() }
}
