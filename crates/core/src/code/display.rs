//! Values that code displays, and errors that it raises, as the program of a context reports them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::CodeEvent;
use crate::limits;

/// A value in the forms in which it can be shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct DisplayValue {
    /// Whether it is the value of the last expression.
    pub is_main_result: bool,
    /// As plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// As HTML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// As Markdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub markdown: Option<String>,
    /// As SVG.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub svg: Option<String>,
    /// As a PNG image, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub png: Option<String>,
    /// As a JPEG image, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jpeg: Option<String>,
    /// As a PDF document, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdf: Option<String>,
    /// As LaTeX.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latex: Option<String>,
    /// As JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub json: Option<Value>,
    /// As JavaScript.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub javascript: Option<String>,
    /// A table as lists by column.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Map<String, Value>>,
    /// A figure as numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub chart: Option<Chart>,
    /// Other forms by media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub extra: Option<Map<String, Value>>,
}

/// A figure as numbers. Clients of E2B read these fields by name and fail without one of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    r#type: String,
    elements: Vec<Value>,
    #[serde(default)]
    title: Option<String>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// Why code failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CodeError {
    /// The kind of error.
    #[schema(example = "ZeroDivisionError")]
    pub name: String,
    /// Its message.
    #[schema(example = "division by zero")]
    pub value: String,
    /// Where it happened, as the language prints it.
    pub traceback: String,
}

/// What the program of a context may report. It comes out of a box: other kinds, other fields and other types of values are dropped.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Reported {
    Result(Box<DisplayValue>),
    Error(CodeError),
}

impl CodeEvent {
    /// The event that a context reported, if it is one that callers can read.
    pub(crate) fn reported(json: &[u8]) -> Option<Self> {
        if values(json) > limits::CODE_EVENT_VALUES_MAX {
            return None;
        }
        match serde_json::from_slice(json).ok()? {
            Reported::Result(shown) => Some(Self::Display(shown)),
            Reported::Error(failed) => Some(Self::Failed(failed)),
        }
    }
}

impl DisplayValue {
    /// Its text, or another form that people can read.
    pub fn plain_text(&self) -> Option<&str> {
        self.text.as_deref().or(self.markdown.as_deref()).or(self.latex.as_deref()).or(self.html.as_deref())
    }

    /// Its media type and its data in base64, where it is an image.
    pub fn image(&self) -> Option<(&'static str, &str)> {
        let png = self.png.as_deref().map(|data| ("image/png", data));
        png.or_else(|| self.jpeg.as_deref().map(|data| ("image/jpeg", data)))
    }

    /// About how many bytes it takes, in all its forms.
    pub(crate) fn size_bytes(&self) -> usize {
        serde_json::to_string(self).map_or(usize::MAX, |json| json.len())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(json: &str) -> Option<String> {
        match CodeEvent::reported(json.as_bytes())? {
            CodeEvent::Display(value) => serde_json::to_string(&value).ok(),
            CodeEvent::Failed(error) => serde_json::to_string(&error).ok(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_a_context_reports_is_passed_on_by_known_names() {
        let told = r#"{"type":"result","is_main_result":true,"text":"1","png":"aGk=","unknown":1}"#;
        assert_eq!(passed(told).unwrap(), r#"{"is_main_result":true,"text":"1","png":"aGk="}"#);
        let chart = r#"{"type":"result","chart":{"type":"line","elements":[],"x_label":null}}"#;
        let expected = r#"{"is_main_result":false,"chart":{"type":"line","elements":[],"title":null,"x_label":null}}"#;
        assert_eq!(passed(chart).unwrap(), expected);
        let error = r#"{"name":"E","value":"v","traceback":"t","type":"error"}"#;
        assert_eq!(passed(error).unwrap(), r#"{"name":"E","value":"v","traceback":"t"}"#);
    }

    #[test]
    fn an_event_of_too_many_values_is_dropped_and_one_of_much_text_is_not() {
        let many = "1,".repeat(limits::CODE_EVENT_VALUES_MAX);
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
