//! Tools for agents: what there are, and running one.

use axum::Json;
use axum::extract::State;
use box_core::tools::{QueryContext, Tool, catalogue};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::app::App;
use crate::extract::{ToolNamed, Who};
use door_http::body::{Body, Fields, FromFields};
use door_http::failure::Failure;

/// All tools.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ToolsView {
    /// The tools, each with the JSON schema of its parameters.
    tools: Vec<Tool>,
}

/// The body that runs a tool.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub(crate) struct ToolBody {
    /// What the model wrote.
    #[serde(default)]
    #[schema(value_type = Object, example = json!({"command": "pwd"}))]
    parameters: Value,
    /// The query that the tool serves: `query_id`, `launcher_type`, `launcher_id`, `sender_id`, `conversation_id`, `variables`,
    /// `pipeline_config`. It decides which session is used. What else is in it is not looked at.
    #[serde(default)]
    #[schema(value_type = Object, example = json!({"query_id": 7, "launcher_type": "group", "launcher_id": "room-1"}))]
    query: Value,
}

/// What a tool answers. Each has more fields; the catalogue says which.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "only for the document: tools build their answers themselves")]
pub(crate) struct ToolResult {
    /// Whether it was done; of a command, whether it ended with exit code 0.
    ok: bool,
    /// The session in which it was done.
    session_id: String,
    /// Why it was not done, where the model can set that right.
    error: Option<ToolError>,
    /// What is missing in the answer, and how to get it.
    notice: Option<String>,
    /// Names of parameters that the tool does not have. They changed nothing.
    ignored_parameters: Option<Vec<String>>,
}

/// Why something was not done.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "only for the document: tools build their answers themselves")]
pub(crate) struct ToolError {
    /// Stable word.
    #[schema(example = "not_found")]
    code: String,
    /// What happened, in words.
    message: String,
}

/// The tool in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct ToolPath {
    /// Its name.
    tool: String,
}

impl FromFields for ToolBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

/// Lists the tools for agents
///
/// Descriptions and schemas are written for a model to read.
#[utoipa::path(get, path = "/v1/tools", tag = "tools",
    responses((status = 200, description = "The tools", body = ToolsView)))]
pub(crate) async fn list() -> Json<ToolsView> {
    Json(ToolsView { tools: catalogue() })
}

/// Runs a tool for an agent
///
/// In the session of the query, which is made if there is none. What the model can set right is an answer with `ok: false`, with status
/// 200; everything else that goes wrong is an error. `exec` needs the scope exec; the others need files, and exec too where the session does
/// not exist yet.
#[utoipa::path(post, path = "/v1/tools/{tool}", tag = "tools", request_body = ToolBody, params(ToolPath),
    responses((status = 200, description = "What came of it", body = ToolResult)))]
pub(crate) async fn run(
    State(app): State<App>,
    Who(caller): Who,
    ToolNamed(tool): ToolNamed,
    Body(body): Body<ToolBody>,
) -> Result<Json<Value>, Failure> {
    let query = QueryContext::from_json(&body.query)?;
    Ok(Json(app.service().tool(&caller, &tool, body.parameters, &query).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::{field_of, read};

    #[test]
    fn parameters_and_query_arrive_as_they_were_said() {
        let body = read::<ToolBody>(r#"{"parameters": {"command": "pwd"}, "query": {"query_id": 7}}"#).unwrap();
        assert_eq!((&body.parameters["command"], &body.query["query_id"]), (&"pwd".into(), &7.into()));
        let nothing = read::<ToolBody>("{}").unwrap();
        assert!(nothing.parameters.is_null() && nothing.query.is_null());
        assert_eq!(field_of(read::<ToolBody>(r#"{"parameter": {}}"#)), "parameter");
        assert_eq!(field_of(read::<ToolBody>(r#"{"query": {"a": 1, "a": 2}}"#)), "query");
    }
}
