//! What a server says when it refuses, as an error for people.

use ::http::HeaderMap;
use serde::Deserialize;

use super::http::Answer;
use crate::exit::{EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND};
use crate::fault::Fault;
use crate::table::visible;

/// Longest answer that is not ours and is still repeated.
const QUOTED_CHARS_MAX: usize = 300;

/// The one shape of errors.
#[derive(Debug, Deserialize)]
pub(crate) struct Failure {
    error: Body,
}

#[derive(Debug, Deserialize)]
struct Body {
    code: String,
    message: String,
    #[serde(default)]
    detail_code: Option<String>,
    #[serde(default)]
    hint: Option<String>,
}

impl Failure {
    /// The error for people.
    pub(crate) fn into_fault(self) -> Fault {
        let Body { code, message, detail_code, hint } = self.error;
        let hint = hint.or_else(|| own_hint(&code).map(str::to_owned));
        let mut fault = Fault::new(visible(&message));
        fault.hint = hint.map(|hint| visible(&hint));
        match detail_code.as_deref() {
            Some("program_not_found") => fault.exit_code = EXIT_NOT_FOUND,
            Some("program_not_executable") => fault.exit_code = EXIT_NOT_EXECUTABLE,
            _ => {}
        }
        fault.code(code)
    }
}

fn own_hint(code: &str) -> Option<&'static str> {
    match code {
        "unauthorized" => {
            Some("set STRONGBOX_TOKEN to a token of this server; `strongbox token create` makes one there")
        }
        "session_not_found" => Some("`strongbox session ls` lists the sessions"),
        "mcp_server_not_found" => Some("`strongbox mcp ls` lists the servers"),
        "exec_not_found" | "managed_process_not_found" => Some("`strongbox ps SESSION --all` lists what there is"),
        _ => None,
    }
}

/// The error format of the E2B door.
#[derive(Debug, Deserialize)]
struct E2bFailure {
    #[serde(rename = "code")]
    _status: u16,
    message: String,
}

/// The error behind an answer that is not a success.
pub(crate) fn fault_of(answer: &Answer) -> Fault {
    let mut fault = match serde_json::from_slice::<Failure>(&answer.body) {
        Ok(failure) => failure.into_fault(),
        Err(_) => match serde_json::from_slice::<E2bFailure>(&answer.body) {
            Ok(failure) => Fault::new(visible(&failure.message)),
            Err(_) => foreign(answer),
        },
    };
    fault.request_id = request_id(&answer.headers);
    fault
}

/// By which the server's log knows a request.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    headers.get("strongbox-request-id").and_then(|id| id.to_str().ok()).map(visible)
}

/// An answer that is not in our shape comes from something in between, or from another program.
fn foreign(answer: &Answer) -> Fault {
    let text = String::from_utf8_lossy(&answer.body);
    let first: String = text.lines().next().unwrap_or_default().chars().take(QUOTED_CHARS_MAX).collect();
    let detail = if first.is_empty() { String::new() } else { format!(": {}", visible(&first)) };
    Fault::new(format!("the server answered {}{detail}", answer.status))
        .code("unexpected_answer")
        .hint("this does not look like strongbox; check --url and STRONGBOX_URL")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let mut headers = http::HeaderMap::new();
        headers.insert("strongbox-request-id", http::HeaderValue::from_static("r-1"));
        let status = http::StatusCode::from_u16(status).unwrap();
        Answer { status, headers, body: body.to_owned().into() }
    }

    #[test]
    fn message_hint_and_request_are_kept() {
        let body = r#"{"error": {"code": "capacity_exceeded", "message": "session capacity reached (5)", "hint": "delete one"}}"#;
        let fault = fault_of(&answer(429, body));
        assert_eq!(
            (fault.code.as_ref(), fault.message.as_str()),
            ("capacity_exceeded", "session capacity reached (5)")
        );
        assert_eq!((fault.hint.as_deref(), fault.request_id.as_deref()), (Some("delete one"), Some("r-1")));
        assert_eq!(fault.exit_code, 125);
    }

    #[test]
    fn an_error_of_the_door_for_e2b_is_told_in_its_words() {
        let fault = fault_of(&answer(503, r#"{"code": 503, "message": "there is no place for saved sandboxes"}"#));
        assert_eq!((fault.message.as_str(), fault.hint), ("there is no place for saved sandboxes", None));
    }

    #[test]
    fn a_program_that_is_not_there_has_its_own_exit_code() {
        let body = |detail| format!(r#"{{"error": {{"code": "refused", "detail_code": "{detail}", "message": "m"}}}}"#);
        for (detail, exit_code) in [("program_not_found", 127), ("program_not_executable", 126), ("bad_workdir", 125)] {
            assert_eq!(fault_of(&answer(422, &body(detail))).exit_code, exit_code, "{detail}");
        }
    }

    #[test]
    fn what_is_missing_is_hinted_at() {
        let body = r#"{"error": {"code": "unauthorized", "message": "no"}}"#;
        assert!(fault_of(&answer(401, body)).hint.unwrap().contains("STRONGBOX_TOKEN"));
    }

    #[test]
    fn an_answer_of_something_else_is_told_as_such() {
        let fault = fault_of(&answer(502, "<html>\u{1b}[31mBad Gateway\n</html>"));
        assert_eq!(fault.message, "the server answered 502 Bad Gateway: <html>\\u{1b}[31mBad Gateway");
        assert!(fault.hint.unwrap().contains("--url"));
    }
}
