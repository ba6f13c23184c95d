//! MCP servers of a tenant: listed, shown, defined, switched, tried, removed. What a definition means is known where servers are run.

use axum::Json;
use axum::extract::State;
use box_core::mcp::{McpImported, McpServerInfo, McpSwitch, McpTestReport, McpTested};
use box_core::service::Created;
use http::StatusCode;

use super::mcp_body::{
    DeletedMcpServerView, Document, LogsQuery, McpApproval, McpDefinition, McpDocument, McpLogsView,
};
use crate::app::App;
use crate::extract::{McpServerPath, OfMcpServer, Who};
use door_http::body::{Body, Params};
use door_http::failure::Failure;

/// Lists MCP servers by name, with how they stand
///
/// Of environments and headers definitions show the names only, here and everywhere else.
#[utoipa::path(get, path = "/v1/mcp/servers", tag = "mcp",
    responses((status = 200, description = "The servers", body = Vec<McpServerInfo>)))]
pub(crate) async fn list(State(app): State<App>, Who(caller): Who) -> Result<Json<Vec<McpServerInfo>>, Failure> {
    Ok(Json(app.service().mcp_servers(&caller).await?))
}

/// Shows an MCP server
#[utoipa::path(get, path = "/v1/mcp/servers/{name}", tag = "mcp", params(McpServerPath),
    responses((status = 200, description = "The server", body = McpServerInfo)))]
pub(crate) async fn get(
    State(app): State<App>,
    Who(caller): Who,
    OfMcpServer(name): OfMcpServer,
) -> Result<Json<McpServerInfo>, Failure> {
    Ok(Json(app.service().mcp_server(&caller, &name).await?))
}

/// Tells the last lines that an MCP server said, or that were said about it
#[utoipa::path(get, path = "/v1/mcp/servers/{name}/logs", tag = "mcp", params(McpServerPath, LogsQuery),
    responses((status = 200, description = "The lines, the oldest first", body = McpLogsView)))]
pub(crate) async fn logs(
    State(app): State<App>,
    Who(caller): Who,
    OfMcpServer(name): OfMcpServer,
    Params(query): Params<LogsQuery>,
) -> Result<Json<McpLogsView>, Failure> {
    let lines = app.service().mcp_server_logs(&caller, &name, query.lines()).await?;
    Ok(Json(McpLogsView { lines }))
}

/// Defines an MCP server, or defines one anew
///
/// It is started at once, and nobody waits for it: ask how it stands. Needs the scope mcp, as does everything that changes servers.
#[utoipa::path(put, path = "/v1/mcp/servers/{name}", tag = "mcp", params(McpServerPath), request_body = McpDefinition,
    responses(
        (status = 200, description = "It was there and is another now", body = McpServerInfo),
        (status = 201, description = "It is new", body = McpServerInfo)))]
pub(crate) async fn put(
    State(app): State<App>,
    Who(caller): Who,
    OfMcpServer(name): OfMcpServer,
    Document(definition): Document,
) -> Result<(StatusCode, Json<McpServerInfo>), Failure> {
    let (server, created) = app.service().put_mcp_server(&caller, &name, definition).await?;
    let status = match created {
        Created::New => StatusCode::CREATED,
        Created::Existing => StatusCode::OK,
    };
    Ok((status, Json(server)))
}

/// Ends an MCP server and forgets it
#[utoipa::path(delete, path = "/v1/mcp/servers/{name}", tag = "mcp", params(McpServerPath),
    responses((status = 200, description = "It is gone", body = DeletedMcpServerView)))]
pub(crate) async fn delete(
    State(app): State<App>,
    Who(caller): Who,
    OfMcpServer(name): OfMcpServer,
) -> Result<Json<DeletedMcpServerView>, Failure> {
    app.service().remove_mcp_server(&caller, &name).await?;
    Ok(Json(DeletedMcpServerView { deleted: name.to_string() }))
}

/// Ends an MCP server and starts it anew
#[utoipa::path(post, path = "/v1/mcp/servers/{name}/restart", tag = "mcp", params(McpServerPath),
    responses((status = 200, description = "The server", body = McpServerInfo)))]
pub(crate) async fn restart(
    State(app): State<App>,
    Who(caller): Who,
    OfMcpServer(name): OfMcpServer,
) -> Result<Json<McpServerInfo>, Failure> {
    Ok(Json(app.service().restart_mcp_server(&caller, &name).await?))
}

/// Lets clients see tools of an MCP server that are held
///
/// A server with `pin_tools` shows tools that were approved. Those that are new or have changed are `held_tools` in its `runtime_info`.
#[utoipa::path(post, path = "/v1/mcp/servers/{name}/approve", tag = "mcp", params(McpServerPath), request_body = McpApproval,
    responses((status = 200, description = "The server", body = McpServerInfo)))]
pub(crate) async fn approve(
    State(app): State<App>,
    Who(caller): Who,
    OfMcpServer(name): OfMcpServer,
    Body(approval): Body<McpApproval>,
) -> Result<Json<McpServerInfo>, Failure> {
    Ok(Json(app.service().approve_mcp_tools(&caller, &name, approval.tools).await?))
}

/// Lets an MCP server run
#[utoipa::path(post, path = "/v1/mcp/servers/{name}/enable", tag = "mcp", params(McpServerPath),
    responses((status = 200, description = "The server", body = McpServerInfo)))]
pub(crate) async fn enable(
    State(app): State<App>,
    Who(caller): Who,
    OfMcpServer(name): OfMcpServer,
) -> Result<Json<McpServerInfo>, Failure> {
    Ok(Json(app.service().switch_mcp_server(&caller, &name, McpSwitch::Enabled).await?))
}

/// Ends an MCP server and keeps its definition
#[utoipa::path(post, path = "/v1/mcp/servers/{name}/disable", tag = "mcp", params(McpServerPath),
    responses((status = 200, description = "The server", body = McpServerInfo)))]
pub(crate) async fn disable(
    State(app): State<App>,
    Who(caller): Who,
    OfMcpServer(name): OfMcpServer,
) -> Result<Json<McpServerInfo>, Failure> {
    Ok(Json(app.service().switch_mcp_server(&caller, &name, McpSwitch::Disabled).await?))
}

/// Tries an MCP server that is defined, apart from the one that runs
///
/// One that does not work is an answer with `ok: false`; its `runtime_info` says where it failed.
#[utoipa::path(post, path = "/v1/mcp/servers/{name}/test", tag = "mcp", params(McpServerPath),
    responses((status = 200, description = "What came of it", body = McpTestReport)))]
pub(crate) async fn test_named(
    State(app): State<App>,
    Who(caller): Who,
    OfMcpServer(name): OfMcpServer,
) -> Result<Json<McpTestReport>, Failure> {
    Ok(Json(app.service().test_mcp_server(&caller, McpTested::Named(name)).await?))
}

/// Tries a definition that is not kept
///
/// In a session of its own, which is gone afterwards. One that does not work is an answer with `ok: false`; its `runtime_info` says where
/// it failed.
#[utoipa::path(post, path = "/v1/mcp/test", tag = "mcp", request_body = McpDefinition,
    responses((status = 200, description = "What came of it", body = McpTestReport)))]
pub(crate) async fn test(
    State(app): State<App>,
    Who(caller): Who,
    Document(definition): Document,
) -> Result<Json<McpTestReport>, Failure> {
    Ok(Json(app.service().test_mcp_server(&caller, McpTested::Definition(definition)).await?))
}

/// Defines all MCP servers of a desktop client's configuration
///
/// Entries that cannot be taken are told, and keep none of the others from being taken.
#[utoipa::path(post, path = "/v1/mcp/import", tag = "mcp", request_body = McpDocument,
    responses((status = 200, description = "What was taken, and what was not", body = McpImported)))]
pub(crate) async fn import(
    State(app): State<App>,
    Who(caller): Who,
    Document(document): Document,
) -> Result<Json<McpImported>, Failure> {
    Ok(Json(app.service().import_mcp_servers(&caller, document).await?))
}

#[cfg(test)]
mod tests;
