//! MCP servers as callers write and read them.

use std::collections::BTreeMap;

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use box_core::mcp::McpLogLine;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits;
use door_http::body::{self, Fields, FromFields};
use door_http::failure::Failure;

/// A JSON object that is passed on as it is: what its fields mean is not this door's matter. No name occurs twice in it, at any depth.
#[derive(Debug)]
pub(crate) struct Document(pub(super) Value);

impl<S: Send + Sync> FromRequest<S> for Document {
    type Rejection = Response;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Response> {
        let read = async {
            let kind = body::check_is_json(request.headers());
            let bytes = body::read_all(request, limits::MCP_BODY_BYTES_MAX).await?;
            if bytes.is_empty() {
                let message = "the body is missing: send the definition as JSON, such as {\"command\": \"uvx\"}";
                return Err(Failure::invalid("body", message));
            }
            kind?;
            body::object(&bytes)
        };
        read.await.map(|object| Self(Value::Object(object))).map_err(IntoResponse::into_response)
    }
}

/// How much of a log is wanted.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogsQuery {
    /// At most this many lines, the newest of them; 200 unless given, and never more than 5000.
    #[serde(default, deserialize_with = "body::whole")]
    lines: Option<u64>,
}

impl FromFields for LogsQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl FromFields for McpApproval {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl LogsQuery {
    pub(super) fn lines(&self) -> Option<usize> {
        self.lines.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX))
    }
}

/// Which tools are approved.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"tools": {"get_current_time": "0123456789abcdef0123456789abcdef"}}))]
pub(crate) struct McpApproval {
    /// Held tools by name, with the `fingerprint` that was looked at; all that are held when this is left out.
    #[serde(default)]
    pub(super) tools: Option<BTreeMap<String, String>>,
}

/// The log of an MCP server.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct McpLogsView {
    /// Its last lines, the oldest first.
    pub(super) lines: Vec<McpLogLine>,
}

/// That an MCP server is gone.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct DeletedMcpServerView {
    /// Its name.
    pub(super) deleted: String,
}

/// An MCP server: a `command` to run in a box, or the `url` of a remote one. Fields that are not known are ignored.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the body; whoever runs servers reads it")]
#[schema(example = json!({"command": "uvx", "args": ["mcp-server-time"]}))]
pub(crate) struct McpDefinition {
    /// The program; that of `box.image` where there is none.
    command: Option<String>,
    /// Its arguments.
    args: Option<Vec<String>>,
    /// Its environment: texts by name. No value of it is ever told.
    #[schema(value_type = Option<Object>)]
    env: (),
    /// Where it works.
    cwd: Option<String>,
    /// How a program is spoken with first: `2025-11-25` with a handshake, as nearly all want, or `2026-07-28` without.
    protocol: Option<String>,
    /// Where a remote server is: `http` or `https`.
    url: Option<String>,
    /// What is sent to a remote server with each request: texts by name. No value of it is ever told.
    #[schema(value_type = Option<Object>)]
    headers: (),
    /// How a remote server speaks: `http` or `sse`.
    transport: Option<String>,
    /// Whether it is to run; it is, unless this says otherwise.
    enabled: Option<bool>,
    /// Whether tools that are new or change after it was first connected are held until they are approved; `mcp.pin_tools` unless given.
    pin_tools: Option<bool>,
    /// The box for a program.
    r#box: Option<McpBox>,
}

/// The box in which an MCP server runs.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the body; whoever runs servers reads it")]
pub(crate) struct McpBox {
    /// Root file system.
    image: Option<String>,
    /// What it can reach: `on`, unless `off` is said.
    network: Option<String>,
    /// Directory of the host that it sees as /workspace; found by the command where nobody says.
    host_path: Option<String>,
    /// What it may do with it: `ro`, unless `rw` is said.
    host_path_mode: Option<String>,
    /// More environment. No value of it is ever told.
    #[schema(value_type = Option<Object>)]
    env: (),
    /// How long it may take until it answers; 120 unless given.
    startup_timeout_sec: Option<u64>,
    /// Processors.
    cpus: Option<f64>,
    /// Memory; 1536 for what runs on Node.js, unless given.
    memory_mb: Option<u64>,
    /// Most processes at once.
    pids_limit: Option<u64>,
    /// Whether everything but the work places is read-only; it is not, unless this says so.
    read_only_rootfs: Option<bool>,
}

/// The configuration of a desktop client.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "describes the body; whoever runs servers reads it")]
pub(crate) struct McpDocument {
    /// Servers by name.
    #[schema(rename = "mcpServers", value_type = Object, example = json!({"time": {"command": "uvx", "args": ["mcp-server-time"]}}))]
    servers: (),
}
