//! Our own tools as a server: any MCP client gets a computer in a box.

mod catalogue;
mod computer;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use box_core::mcp::OWN_TOOLS;
use box_core::{Caller, Error, SessionId};
use box_wire::Invalid;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use computer::SnapshotCall;
pub use computer::{Computer, ForkCall, OutputPart, OutputStream, ProcessInput, ProcessStart};

use crate::gateway::Upstreams;
use crate::stdio::{Garbage, Stdio};
use catalogue::Control;

/// How the tools are to be used, for models.
const INSTRUCTIONS: &str = "A computer of your own, in a sandbox: run commands with exec and code with run_code, work on files with read, write, edit, glob and grep, keep programs \
     running with process_start. Nothing that happens in it reaches the machine around it. Files stay until session_end.";

/// Serves one client.
pub(crate) struct Own {
    computer: Arc<dyn Computer>,
    caller: Caller,
    session: SessionId,
    /// Where calls are counted, if there is a gateway.
    upstreams: Option<Arc<dyn Upstreams>>,
}

/// Serves one client over two streams, such as our own standard ones, until it is gone.
pub async fn serve_streams<R, W>(
    computer: Arc<dyn Computer>,
    caller: Caller,
    session: SessionId,
    reader: R,
    writer: W,
) -> std::io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let transport = Stdio::new(reader, writer, Garbage::default());
    let served = rmcp::serve_server(Own::new(computer, caller, session), transport).await;
    let running = served.map_err(|error| std::io::Error::other(format!("the MCP handshake failed: {error}")))?;
    running.waiting().await.map(drop).map_err(std::io::Error::other)
}

impl Own {
    /// For a caller, whose work is done in a session unless it names another one.
    pub(crate) fn new(computer: Arc<dyn Computer>, caller: Caller, session: SessionId) -> Self {
        Self { computer, caller: caller.for_tools(), session, upstreams: None }
    }

    /// The same, and calls are counted with those of servers.
    pub(crate) fn counted(self, upstreams: Arc<dyn Upstreams>) -> Self {
        Self { upstreams: Some(upstreams), ..self }
    }

    fn count(&self, outcome: &'static str, took: Duration) {
        if let Some(tally) = self.upstreams.as_ref().and_then(|upstreams| upstreams.tally()) {
            tally.count(&self.caller.tenant, OWN_TOOLS, outcome, took);
        }
    }

    /// The tools that the caller may use.
    fn tools(&self) -> Vec<Tool> {
        let mut tools = catalogue::catalogue();
        tools.retain(|tool| self.caller.mcp.allows(OWN_TOOLS, &tool.name));
        tools
    }

    async fn work(&self, name: &str, mut arguments: Map<String, Value>) -> Result<Value, Error> {
        let session = match arguments.remove("session_id") {
            None | Some(Value::Null) => self.session.clone(),
            Some(Value::String(named)) => SessionId::try_from(named)?,
            Some(other) => return Err(Invalid::new("session_id", other.to_string(), "a text").into()),
        };
        match Control::find(name) {
            Some(control) => self.control(control, &session, arguments).await,
            None => self.computer.tool(&self.caller, &session, name, Value::Object(arguments)).await,
        }
    }

    async fn control(
        &self,
        control: Control,
        session: &SessionId,
        arguments: Map<String, Value>,
    ) -> Result<Value, Error> {
        let (computer, caller) = (&self.computer, &self.caller);
        match control {
            Control::SessionList => computer.sessions(caller).await,
            Control::SessionInfo => computer.session(caller, session).await,
            Control::SessionEnd => computer.end_session(caller, session).await,
            Control::Snapshot => {
                let SnapshotCall { name } = parse(arguments)?;
                computer.save_snapshot(caller, session, name).await
            }
            Control::Fork => computer.fork(caller, session, parse(arguments)?).await,
            Control::ProcessStart => computer.start_process(caller, session, parse(arguments)?).await,
            Control::ProcessList => computer.processes(caller, session).await,
            Control::ProcessOutput => computer.process_output(caller, session, parse(arguments)?).await,
            Control::ProcessInput => computer.write_process(caller, session, parse(arguments)?).await,
            Control::ProcessStop => {
                let process = arguments.get("process_id").and_then(Value::as_str).unwrap_or("default");
                computer.stop_process(caller, session, process).await
            }
        }
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own").field("session", &self.session).finish_non_exhaustive()
    }
}

impl ServerHandler for Own {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new("strongbox", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult { tools: self.tools(), ..Default::default() })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let is_there = Control::find(&request.name).is_some() || catalogue::is_tool(&request.name);
        if !is_there || !self.caller.mcp.allows(OWN_TOOLS, &request.name) {
            let known: Vec<_> = self.tools().into_iter().map(|tool| tool.name).collect();
            let message = format!("there is no such tool; there are {}", known.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        }
        let began = Instant::now();
        let worked = tokio::select! {
            worked = self.work(&request.name, request.arguments.unwrap_or_default()) => worked,
            () = context.ct.cancelled() => {
                self.count("cancelled", began.elapsed());
                return Err(ErrorData::internal_error("the call was cancelled", None));
            }
        };
        let result = told(worked);
        self.count(if result.is_error == Some(true) { "tool_error" } else { "ok" }, began.elapsed());
        Ok(result.into())
    }
}

/// What a model reads of an error. What failed inside the server names paths of the host, and goes to the log only.
fn message(error: &Error) -> String {
    if !matches!(error, Error::Setup { .. } | Error::Protocol(_) | Error::Io { .. }) {
        return error.to_string();
    }
    tracing::error!(error = %error, "tool call failed inside the server");
    "something failed inside the server; the log of the server has the reason".to_owned()
}

/// What a model is told. Whatever it can set right, and whatever it cannot, is a result: it never gets to see errors of the protocol.
fn told(worked: Result<Value, Error>) -> CallToolResult {
    let value = match worked {
        Ok(value) => value,
        Err(error) => json!({"ok": false, "error": {"code": error.code(), "message": message(&error)}}),
    };
    let failed = value.get("error").is_some_and(|error| !error.is_null());
    let (value, images) = apart(value);
    let content = std::iter::once(ContentBlock::text(value.to_string())).chain(images).collect();
    let mut result = if failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(value).filter(Value::is_object);
    result
}

/// An answer without its images, and the images as content that a model sees.
fn apart(mut value: Value) -> (Value, Vec<ContentBlock>) {
    let images = value.as_object_mut().and_then(|value| value.remove("images"));
    let images = images.as_ref().and_then(Value::as_array).into_iter().flatten();
    let image = |image: &Value| Some(ContentBlock::image(image["data"].as_str()?, image["media_type"].as_str()?));
    let content = images.filter_map(image).collect();
    (value, content)
}

/// Arguments as a type; what does not fit is said in the words of whoever reads JSON.
fn parse<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Error> {
    let parsed = serde_json::from_value(Value::Object(arguments));
    parsed.map_err(|error| Invalid::new("arguments", error.to_string(), "those that the tool's schema names").into())
}

#[cfg(test)]
mod tests;
