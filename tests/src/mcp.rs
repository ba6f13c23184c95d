//! rmcp's own client, over streamable HTTP, and a small server for it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, ProgressNotificationParam, ServerResult};
use rmcp::service::{NotificationContext, PeerRequestOptions, RequestHandle, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::sync::{Mutex, mpsc};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use crate::TestServer;

/// A server of what every Python brings along. Its tools are explained there.
pub const SCRIPT: &str = include_str!("../../crates/doors/mcp/src/testing/server.py");

/// How long a call may take to begin, or to end when there is nothing left to wait for. Only a guard against hanging.
const PROMPTLY: Duration = Duration::from_secs(30);

/// A client of one address of a server.
#[derive(Debug)]
pub struct Mcp {
    running: RunningService<RoleClient, ProgressHandler>,
    progress: Mutex<mpsc::UnboundedReceiver<f64>>,
}

/// Hears how far calls are.
#[derive(Debug)]
struct ProgressHandler {
    progress: mpsc::UnboundedSender<f64>,
}

impl ClientHandler for ProgressHandler {
    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let _ = self.progress.send(progress.progress);
    }
}

/// A call that is under way.
#[derive(Debug)]
pub struct PendingCall(RequestHandle<RoleClient>);

impl Mcp {
    /// Connects, without a token.
    pub async fn connect(server: &TestServer, path: &str) -> Result<Self> {
        // Nothing here is encrypted, but the client wants to know how it would be.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let tls = builder.with_safe_default_protocol_versions()?;
        let tls = tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let http = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().build()?;
        let address = format!("{}{path}", server.url()?);
        let config = StreamableHttpClientTransportConfig::with_uri(address.as_str()).max_sse_event_size(64 << 20);
        let transport = StreamableHttpClientTransport::with_client(http, config);
        let (heard, progress) = mpsc::unbounded_channel();
        let running = rmcp::serve_client(ProgressHandler { progress: heard }, transport).await;
        Ok(Self { running: running.context("connecting to the gateway")?, progress: Mutex::new(progress) })
    }

    /// The names of all tools.
    pub async fn tools(&self) -> Result<Vec<String>> {
        Ok(self.running.peer().list_all_tools().await?.into_iter().map(|tool| tool.name.to_string()).collect())
    }

    /// What a tool returns, as text.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<String> {
        text(tool, &self.result(tool, arguments).await?)
    }

    /// What a tool returns.
    pub async fn result(&self, tool: &str, arguments: Value) -> Result<Value> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        Ok(serde_json::to_value(self.running.peer().call_tool(request).await?)?)
    }

    /// Calls a tool that takes a text and reports its start, and returns after that report.
    pub async fn hold(&self, tool: &str, text: &str) -> Result<PendingCall> {
        let arguments = [("text".to_owned(), text.into())].into_iter().collect();
        let request = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(request));
        let options = PeerRequestOptions::no_options();
        let held = self.running.peer().send_cancellable_request(request, options).await?;
        let mut progress = self.progress.lock().await;
        match tokio::time::timeout(PROMPTLY, progress.recv()).await {
            Ok(Some(_)) => Ok(PendingCall(held)),
            Ok(None) => bail!("the client ended before {tool} began"),
            Err(_) => bail!("{tool} did not begin"),
        }
    }
}

impl PendingCall {
    /// What the call returns.
    pub async fn result(self) -> Result<Value> {
        match tokio::time::timeout(PROMPTLY, self.0.await_response()).await {
            Ok(Ok(ServerResult::CallToolResult(result))) => Ok(serde_json::to_value(result)?),
            Ok(Ok(other)) => bail!("a call returned {other:?}"),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => bail!("a call hangs"),
        }
    }

    /// What the call returns, as text.
    pub async fn text(self) -> Result<String> {
        text("the held call", &self.result().await?)
    }

    /// Holds that the call fails as one does whose server is gone: with a result that says so, and in which phase.
    pub async fn fails(self) -> Result<()> {
        let told = self.result().await?;
        let text = told["content"][0]["text"].as_str().unwrap_or_default();
        ensure!(told["isError"] == true && text.contains("ended in the middle of the call"), "{told}");
        ensure!(told["_meta"]["strongbox/error_phase"] == "tool_call", "{told}");
        Ok(())
    }

    /// Tells the server that the client no longer waits.
    pub async fn cancel(self, reason: &str) -> Result<()> {
        Ok(self.0.cancel(Some(reason.to_owned())).await?)
    }
}

fn text(tool: &str, told: &Value) -> Result<String> {
    ensure!(told["isError"] != true, "{tool} failed: {told}");
    Ok(told["content"][0]["text"].as_str().context("a result without a text")?.to_owned())
}
