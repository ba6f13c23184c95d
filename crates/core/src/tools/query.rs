//! What a tool is told of the query that it serves: who asks, where, and how the pipeline wants its sessions cut.

use std::collections::BTreeMap;

use box_wire::Invalid;
use serde_json::{Map, Value};

/// The query that a tool serves. It comes from the program around the model, never from the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryContext {
    /// Number or name of the query.
    pub query_id: Option<String>,
    /// What the conversation is: `person`, `group`.
    pub launcher_type: Option<String>,
    /// Which person or group.
    pub launcher_id: Option<String>,
    /// Who wrote.
    pub sender_id: Option<String>,
    /// In which conversation.
    pub conversation_id: Option<String>,
    /// More of the kind, by name. They win over the fields above.
    pub variables: BTreeMap<String, String>,
    /// The template of the pipeline, when it has one of its own.
    pub template: Option<String>,
}

/// Where the configuration of a pipeline has its template.
const TEMPLATE_PATH: [&str; 3] = ["ai", "local-agent", "box-session-id-template"];

impl QueryContext {
    /// Reads a query as programs send it. What is not known is not looked at: whoever has a whole query may send all of it.
    pub fn from_json(query: &Value) -> Result<Self, Invalid> {
        let fields = match query {
            Value::Null => return Ok(Self::default()),
            Value::Object(fields) => fields,
            other => return Err(wrong("query", other, "an object, such as {\"query_id\": 7}")),
        };
        Ok(Self {
            query_id: name(fields, "query_id", "query.query_id")?,
            launcher_type: name(fields, "launcher_type", "query.launcher_type")?,
            launcher_id: name(fields, "launcher_id", "query.launcher_id")?,
            sender_id: name(fields, "sender_id", "query.sender_id")?,
            conversation_id: name(fields, "conversation_id", "query.conversation_id")?,
            variables: variables(fields.get("variables"))?,
            template: template(fields.get("pipeline_config"))?,
        })
    }
}

/// A text or a number. Nothing and an empty text say the same.
fn name(fields: &Map<String, Value>, name: &str, field: &'static str) -> Result<Option<String>, Invalid> {
    let value = fields.get(name).unwrap_or(&Value::Null);
    match scalar(value) {
        Some(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        None if value.is_null() => Ok(None),
        None => Err(wrong(field, value, "a text or a number")),
    }
}

/// Those that can stand in a name. Lists and objects cannot, and programs keep such things there too.
fn variables(value: Option<&Value>) -> Result<BTreeMap<String, String>, Invalid> {
    let given = match value {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(given)) => given,
        Some(other) => return Err(wrong("query.variables", other, "an object of names and values")),
    };
    let usable =
        |(name, value): (&String, &Value)| Some((name.clone(), scalar(value).filter(|text| !text.is_empty())?));
    Ok(given.iter().filter_map(usable).collect())
}

fn template(config: Option<&Value>) -> Result<Option<String>, Invalid> {
    let mut value = config.unwrap_or(&Value::Null);
    for name in TEMPLATE_PATH {
        value = value.get(name).unwrap_or(&Value::Null);
    }
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        other => Err(wrong("query.pipeline_config", other, "a text as box-session-id-template")),
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A value that is something else than it should be. It is not repeated: it may hold secrets.
pub(super) fn wrong(field: &'static str, value: &Value, allowed: &str) -> Invalid {
    Invalid::new(field, format_args!("{}", kind_of(value)), allowed)
}

/// What a value is, for an error that must not repeat it.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_query_is_read_as_programs_send_it() {
        let query = QueryContext::from_json(&json!({
            "query_id": 7, "launcher_type": "group", "launcher_id": "room-1", "sender_id": 12, "conversation_id": null,
            "message_chain": [{"type": "Plain"}],
            "variables": {"sender_name": "Bob", "age": 7, "tags": ["a"], "empty": "", "nothing": null},
            "pipeline_config": {"ai": {"local-agent": {"box-session-id-template": "{sender_id}", "model": {}}}},
        }))
        .unwrap();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!((query.query_id, query.launcher_type), (text("7"), text("group")));
        assert_eq!((query.launcher_id, query.sender_id), (text("room-1"), text("12")));
        assert_eq!((query.conversation_id, query.template), (None, text("{sender_id}")));
        let variables = [("age", "7"), ("sender_name", "Bob")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(query.variables, variables.into());
    }

    #[test]
    fn nothing_is_a_query_too() {
        for nothing in [json!(null), json!({}), json!({"variables": null, "pipeline_config": null, "query_id": ""})] {
            assert_eq!(QueryContext::from_json(&nothing).unwrap(), QueryContext::default(), "{nothing}");
        }
    }

    #[test]
    fn what_cannot_be_a_query_is_refused_by_the_name_of_its_field() {
        for (query, field) in [
            (json!([]), "query"),
            (json!("7"), "query"),
            (json!({"query_id": {}}), "query.query_id"),
            (json!({"launcher_id": ["a"]}), "query.launcher_id"),
            (json!({"variables": []}), "query.variables"),
            (
                json!({"pipeline_config": {"ai": {"local-agent": {"box-session-id-template": 7}}}}),
                "query.pipeline_config",
            ),
        ] {
            assert_eq!(QueryContext::from_json(&query).unwrap_err().field, field, "{query}");
        }
    }
}
