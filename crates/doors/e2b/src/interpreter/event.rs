//! What a client is told while its cell runs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits;

/// One line of the answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event {
    /// The cell begins.
    NumberOfExecutions {
        /// How many cells the context has run, with this one.
        execution_count: u64,
    },
    /// Something was printed.
    Stdout(Printed),
    /// Something was printed on standard error.
    Stderr(Printed),
    /// A value is shown.
    Result(Box<DisplayValue>),
    /// The cell failed.
    Error(Failed),
    /// Nothing happened for a while.
    Keepalive,
    /// Nothing follows.
    EndOfExecution,
}

/// Text of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Printed {
    /// What was printed.
    pub(super) text: String,
    /// When it arrived here, in nanoseconds since 1970.
    pub(super) timestamp: i64,
}

/// A value in the forms in which it can be shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct DisplayValue {
    is_main_result: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    markdown: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    svg: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    png: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jpeg: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pdf: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    json: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    javascript: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chart: Option<Chart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra: Option<Map<String, Value>>,
}

/// A figure as numbers. Clients read these by name, and stumble over one without.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Chart {
    r#type: String,
    elements: Vec<Value>,
    #[serde(default)]
    title: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Why a cell failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Failed {
    /// The kind of error.
    pub(super) name: String,
    /// What it says.
    pub(super) value: String,
    /// Where it happened.
    pub(super) traceback: String,
}

/// What the program of a context may report. It comes out of a box: other kinds, other fields and other types of values are dropped.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Reported {
    Result(Box<DisplayValue>),
    Error(Failed),
}

impl Event {
    /// What a context reported, if that can be told.
    pub(super) fn reported(json: &[u8]) -> Option<Self> {
        if values(json) > limits::CELL_EVENT_VALUES_MAX {
            return None;
        }
        match serde_json::from_slice(json).ok()? {
            Reported::Result(shown) => Some(Self::Result(shown)),
            Reported::Error(failed) => Some(Self::Error(failed)),
        }
    }

    /// Something that we have to say about a cell.
    pub(super) fn note(text: &str) -> Self {
        Self::Stderr(Printed { text: text.to_owned(), timestamp: now() })
    }

    /// An error that we found ourselves.
    pub(super) fn failed(name: &str, value: impl Into<String>) -> Self {
        let value = value.into();
        Self::Error(Failed { name: name.to_owned(), traceback: format!("{name}: {value}"), value })
    }
}

/// At most how many values a text of JSON holds. Each takes many times its bytes of memory, so they are counted before it is read.
fn values(json: &[u8]) -> usize {
    let (mut count, mut is_text, mut is_escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b',' | b':' | b'[' | b'{' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

/// When something is told, in nanoseconds since 1970.
pub(super) fn now() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(json: &str) -> Option<String> {
        Event::reported(json.as_bytes()).map(|event| serde_json::to_string(&event).unwrap())
    }

    #[test]
    fn what_a_context_reports_is_passed_on_by_known_names() {
        let told = r#"{"type":"result","is_main_result":true,"text":"1","png":"aGk=","unknown":1}"#;
        assert_eq!(passed(told).unwrap(), r#"{"type":"result","is_main_result":true,"text":"1","png":"aGk="}"#);
        let chart = r#"{"type":"result","chart":{"type":"line","elements":[],"x_label":null}}"#;
        let expected = r#"{"type":"result","is_main_result":false,"chart":{"type":"line","elements":[],"title":null,"x_label":null}}"#;
        assert_eq!(passed(chart).unwrap(), expected);
        let error = r#"{"name":"E","value":"v","traceback":"t","type":"error"}"#;
        assert_eq!(passed(error).unwrap(), r#"{"type":"error","name":"E","value":"v","traceback":"t"}"#);
    }

    #[test]
    fn an_event_of_too_many_values_is_dropped_and_one_of_much_text_is_not() {
        let many = "1,".repeat(limits::CELL_EVENT_VALUES_MAX);
        assert_eq!(passed(&format!(r#"{{"type":"result","json":[{many}1]}}"#)), None);
        assert!(passed(&format!(r#"{{"type":"result","text":"\\\"{many}"}}"#)).is_some());
    }

    #[test]
    fn what_a_client_could_stumble_over_is_dropped() {
        for bad in [
            "",
            "1",
            "{}",
            r#"{"type":"end_of_execution"}"#,
            r#"{"type":"stdout","text":"x"}"#,
            r#"{"type":"error","name":1,"value":"","traceback":""}"#,
            r#"{"type":"error","name":"x"}"#,
            r#"{"type":"result","text":7}"#,
            r#"{"type":"result","chart":{}}"#,
            r#"{"type":"result","data":[]}"#,
            &format!(r#"{{"type":"result","json":{}1{}}}"#, "[".repeat(500), "]".repeat(500)),
        ] {
            assert_eq!(passed(bad), None, "{bad}");
        }
    }
}
