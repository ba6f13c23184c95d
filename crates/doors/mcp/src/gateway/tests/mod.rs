//! The gateway between rmcp's own clients and servers, in memory.
#![expect(deprecated, reason = "clients and servers of versions before 2026-07-28 are tested too")]

mod asking;
mod dying;
mod listing;
mod load;
mod passing;
mod watching;

use rmcp::RoleClient;
use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{Peer, ServiceError};
use tokio::sync::mpsc;

use crate::testing::Heard;

/// Calls a tool.
async fn call(client: &Peer<RoleClient>, tool: &str) -> Result<CallToolResult, ServiceError> {
    client.call_tool(CallToolRequestParams::new(tool.to_owned())).await
}

/// Calls a tool, and takes its text.
async fn text_of(client: &Peer<RoleClient>, tool: &str) -> String {
    text(&call(client, tool).await.unwrap())
}

/// The first text of a result.
fn text(result: &CallToolResult) -> String {
    result.content[0].as_text().unwrap().text.clone()
}

/// Waits until something is heard, whatever else is heard before.
async fn until(heard: &mut mpsc::UnboundedReceiver<Heard>, wanted: &Heard) {
    while heard.recv().await.expect("the client is gone") != *wanted {}
}
