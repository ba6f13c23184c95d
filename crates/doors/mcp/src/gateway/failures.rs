//! Errors as clients of a server see them. The reader is often a model, so each says what happened and what to do.

use box_core::mcp::McpServerName;
use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ErrorCode, JsonObject, MetaObject};
use serde_json::json;

use super::absent::Absence;
use super::forward::CALL_TIMEOUT;
use crate::text::clean;
use crate::upstream::{CALLS_MAX, Failure};

/// In which phase of a server's life a call fails. The same word as in its runtime info.
const PHASE: &str = "tool_call";
/// Where a result names the phase.
const PHASE_KEY: &str = "strongbox/error_phase";
/// Longest message of a server's own error, in characters.
const MESSAGE_CHARS_MAX: usize = 16_384;

/// The end of a call of a tool. What a model can understand is a result; it never gets to see an error of the protocol.
pub(super) fn of_tool(server: &McpServerName, failure: Failure) -> Result<CallToolResponse, ErrorData> {
    match failure {
        Failure::Refused(error) => Err(passed_on(error)),
        Failure::Cancelled => Err(ErrorData::internal_error("the call was cancelled", None)),
        other => Ok(failed_result(reason(server, &other))),
    }
}

/// The result of a call of an unknown tool. If its server is still starting, the text says so, and a model can try
/// again.
pub(super) fn no_tool(name: &str, absence: Option<&Absence>) -> Result<CallToolResponse, ErrorData> {
    match absence {
        Some(absence) => Ok(failed_result(format!("error in phase {PHASE}: {absence}"))),
        None => Err(unknown("tool", name)),
    }
}

/// A call of a tool that is held until approved.
pub(super) fn held_tool(server: &McpServerName, name: &str) -> CallToolResponse {
    failed_result(format!(
        "error in phase {PHASE}: the tool {name} of the server {server} is new or has changed, and is held until the operator approves it \
         with `strongbox mcp approve {server} {name}`"
    ))
}

fn failed_result(text: String) -> CallToolResponse {
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    let meta = JsonObject::from_iter([(PHASE_KEY.to_owned(), json!(PHASE))]);
    result.meta = Some(MetaObject(meta));
    CallToolResponse::Complete(result)
}

/// The end of any other request.
pub(super) fn of_request(server: &McpServerName, failure: Failure) -> ErrorData {
    match failure {
        Failure::Refused(error) => passed_on(error),
        other => {
            let data = json!({"error_phase": PHASE, "server": server.as_str()});
            ErrorData::internal_error(reason(server, &other), Some(data))
        }
    }
}

/// The tool, prompt or resource does not exist or is hidden from this caller. Both look the same.
pub(super) fn unknown(what: &str, name: &str) -> ErrorData {
    let name = clean(name, 200);
    let message = format!("no {what} is called {name}; list them again, its server may have gone or changed");
    ErrorData::new(ErrorCode::INVALID_PARAMS, message, None)
}

fn reason(server: &McpServerName, failure: &Failure) -> String {
    let what = match failure {
        Failure::Closed => {
            "ended in the middle of the call, or cannot be reached; it is started again, so try again in a few seconds"
                .to_owned()
        }
        Failure::Busy => format!("has {CALLS_MAX} calls on their way already; wait for some of them to end"),
        Failure::TimedOut => {
            format!("did not answer within {} minutes, and the call was cancelled", CALL_TIMEOUT.as_secs() / 60)
        }
        Failure::Unexpected => "sent a response of the wrong type for this call".to_owned(),
        Failure::Cancelled => "received a cancellation, because the client no longer waits for the answer".to_owned(),
        Failure::Refused(error) => clean(&error.message, MESSAGE_CHARS_MAX),
    };
    format!("error in phase {PHASE}: the server {server} {what}")
}

/// A server's own error, with a text that is cleaned like all others.
fn passed_on(mut error: ErrorData) -> ErrorData {
    error.message = clean(&error.message, MESSAGE_CHARS_MAX).into();
    error
}
