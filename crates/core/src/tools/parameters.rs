//! What a model wrote: named values, taken as generously as models write them.
//!
//! A number may come as a text that holds one, or as `30.0`; `true` may come as a text; nothing is as good as silence. What cannot be
//! what it should be is refused by its name. A parameter that no tool has changes nothing, but its name is told in the result.

use box_wire::Invalid;
use serde_json::{Map, Value};

use super::query::{kind_of, wrong};
use crate::limits;

/// The largest number that every reader of JSON understands exactly.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

/// Parameters that are not yet anything.
#[derive(Debug)]
pub(super) struct Parameters {
    left: Map<String, Value>,
}

impl Parameters {
    /// An object, or nothing.
    pub(super) fn new(parameters: Value) -> Result<Self, Invalid> {
        match parameters {
            Value::Object(left) => Ok(Self { left }),
            Value::Null => Ok(Self { left: Map::new() }),
            other => Err(wrong("parameters", &other, "an object, such as {\"command\": \"pwd\"}")),
        }
    }

    /// A text as it is.
    pub(super) fn text(&mut self, field: &'static str) -> Result<Option<String>, Invalid> {
        match self.take(field) {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text)),
            other => Err(wrong(field, &other, "a text")),
        }
    }

    /// A text without which the tool has nothing to do.
    pub(super) fn needed_text(&mut self, field: &'static str) -> Result<String, Invalid> {
        self.text(field)?.ok_or_else(|| wrong(field, &Value::Null, "a text; this parameter is needed"))
    }

    /// A whole number from 1 on.
    pub(super) fn count(&mut self, field: &'static str) -> Result<Option<u64>, Invalid> {
        let value = self.take(field);
        if value.is_null() {
            return Ok(None);
        }
        let refuse = || Invalid::new(field, format_args!("{}", shown(&value)), "a whole number from 1 on");
        whole(&value).filter(|number| *number > 0).map(Some).ok_or_else(refuse)
    }

    /// Yes or no; no when nothing is said.
    pub(super) fn truth(&mut self, field: &'static str) -> Result<bool, Invalid> {
        match self.take(field) {
            Value::Null => Ok(false),
            Value::Bool(truth) => Ok(truth),
            Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
            Value::String(text) if text.eq_ignore_ascii_case("false") => Ok(false),
            other => Err(Invalid::new(field, format_args!("{}", shown(&other)), "true or false")),
        }
    }

    /// Texts by name.
    pub(super) fn texts_by_name(&mut self, field: &'static str) -> Result<Vec<(String, String)>, Invalid> {
        let allowed = "an object whose values are texts";
        match self.take(field) {
            Value::Null => Ok(Vec::new()),
            Value::Object(map) => map
                .into_iter()
                .map(|(name, value)| match value {
                    Value::String(text) => Ok((name, text)),
                    other => Err(wrong(field, &other, allowed)),
                })
                .collect(),
            other => Err(wrong(field, &other, allowed)),
        }
    }

    /// Takes a parameter that is for people to read.
    pub(super) fn skip(&mut self, field: &'static str) {
        self.left.remove(field);
    }

    /// The names of what nobody took.
    pub(super) fn rest(self) -> Vec<String> {
        let shortened = |name: &String| name.chars().take(limits::TOOL_NAME_CHARS_MAX).collect();
        self.left.keys().take(limits::TOOL_IGNORED_MAX).map(shortened).collect()
    }

    fn take(&mut self, field: &'static str) -> Value {
        self.left.remove(field).unwrap_or(Value::Null)
    }
}

/// A value as an error repeats it: numbers and texts themselves, everything else by what it is.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Number(number) => number.to_string(),
        other => kind_of(other).to_owned(),
    }
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| integral(number.as_f64()?)),
        Value::String(text) => text.trim().parse().ok().or_else(|| integral(text.trim().parse().ok()?)),
        _ => None,
    }
}

/// `30.0` is 30; `30.5`, `-1.0` and what a float cannot tell exactly are no whole numbers.
fn integral(number: f64) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, not negative and in range"
    )]
    (number.fract() == 0.0 && (0.0..=WHOLE_MAX).contains(&number)).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parameters(value: Value) -> Parameters {
        Parameters::new(value).unwrap()
    }

    #[test]
    fn numbers_come_as_models_write_them() {
        for (value, meant) in [
            (json!(999), Some(999)),
            (json!("999"), Some(999)),
            (json!(999.0), Some(999)),
            (json!(" 7.0 "), Some(7)),
            (json!(null), None),
        ] {
            assert_eq!(parameters(json!({"timeout_sec": value})).count("timeout_sec").unwrap(), meant, "{value}");
        }
        for bad in [json!(0), json!(-1), json!(1.5), json!("soon"), json!([]), json!(true), json!(1e300), json!("")] {
            let error = parameters(json!({"timeout_sec": bad})).count("timeout_sec").unwrap_err();
            assert_eq!(error.field, "timeout_sec", "{bad}");
        }
    }

    #[test]
    fn truth_comes_as_a_text_too() {
        for (value, meant) in
            [(json!(true), true), (json!("True"), true), (json!("false"), false), (json!(null), false)]
        {
            assert_eq!(parameters(json!({"replace_all": value})).truth("replace_all").unwrap(), meant, "{value}");
        }
        assert_eq!(parameters(json!({"replace_all": 1})).truth("replace_all").unwrap_err().field, "replace_all");
    }

    #[test]
    fn a_wrong_type_is_named_and_not_repeated() {
        let error = parameters(json!({"env": {"TOKEN": ["secret"]}})).texts_by_name("env").unwrap_err();
        assert!(error.field == "env" && !error.to_string().contains("secret"), "{error}");
        assert_eq!(parameters(json!({"command": ["ls"]})).text("command").unwrap_err().field, "command");
        assert_eq!(parameters(json!({})).needed_text("command").unwrap_err().field, "command");
        assert_eq!(Parameters::new(json!("ls")).unwrap_err().field, "parameters");
    }

    #[test]
    fn what_no_tool_has_is_told_and_bounded() {
        let mut some = parameters(json!({"command": "ls", "cwd": "/tmp", "session_id": "x"}));
        some.skip("command");
        assert_eq!(some.rest(), ["cwd", "session_id"]);
        let many: Map<String, Value> = (0..100).map(|n| (format!("{n:->100}"), json!(n))).collect();
        let told = parameters(many.into()).rest();
        assert_eq!((told.len(), told[0].chars().count()), (limits::TOOL_IGNORED_MAX, limits::TOOL_NAME_CHARS_MAX));
    }
}
