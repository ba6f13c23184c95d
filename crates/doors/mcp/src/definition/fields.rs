//! Reading the fields of a JSON object, so that whoever wrote a wrong one is told which, and what to write.

use std::collections::BTreeMap;

use box_wire::Invalid;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Secret;

/// An object, of which fields are asked by name. A field that is `null` is not there; one that nobody asks for does not matter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'v>(&'v Map<String, Value>);

impl<'v> Fields<'v> {
    /// The fields of a value that must be an object.
    pub(crate) fn of(field: &'static str, value: &'v Value) -> Result<Self, Invalid> {
        value.as_object().map(Self).ok_or_else(|| wrong(field, value, "an object, in braces"))
    }

    /// Names of all fields.
    pub(crate) fn names(self) -> impl Iterator<Item = &'v str> {
        self.0.keys().map(String::as_str)
    }

    /// Whatever a field holds.
    pub(crate) fn get(self, field: &str) -> Option<&'v Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    /// A text.
    pub(crate) fn text(self, field: &'static str) -> Result<Option<&'v str>, Invalid> {
        let read = |value: &'v Value| value.as_str().ok_or_else(|| wrong(field, value, "a text, in quotes"));
        self.get(field).map(read).transpose()
    }

    /// `true` or `false`.
    pub(crate) fn flag(self, field: &'static str) -> Result<Option<bool>, Invalid> {
        let read = |value: &Value| value.as_bool().ok_or_else(|| wrong(field, value, "true or false, without quotes"));
        self.get(field).map(read).transpose()
    }

    /// A whole number within bounds. `2.0` is one.
    pub(crate) fn whole(self, field: &'static str, min: u64, max: u64) -> Result<Option<u64>, Invalid> {
        let allowed = format!("a whole number from {min} to {max}, without quotes");
        let Some(number) = self.number(field, &allowed)? else { return Ok(None) };
        let is_whole = number.fract() == 0.0 && number >= 0.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and not negative")]
        let number = is_whole.then_some(number as u64).filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| wrong(field, &self.0[field], &allowed))
    }

    /// A number within bounds.
    pub(crate) fn decimal(self, field: &'static str, min: f64, max: f64) -> Result<Option<f64>, Invalid> {
        let allowed = format!("a number from {min} to {max}, without quotes");
        let Some(number) = self.number(field, &allowed)? else { return Ok(None) };
        let number = Some(number).filter(|number| (min..=max).contains(number));
        number.map(Some).ok_or_else(|| wrong(field, &self.0[field], &allowed))
    }

    fn number(self, field: &'static str, allowed: &str) -> Result<Option<f64>, Invalid> {
        let read = |value: &Value| value.as_f64().ok_or_else(|| wrong(field, value, allowed));
        self.get(field).map(read).transpose()
    }

    /// One of a few words.
    pub(crate) fn word<T: DeserializeOwned>(self, field: &'static str, allowed: &str) -> Result<Option<T>, Invalid> {
        let read = |value: &Value| T::deserialize(value).map_err(|_| wrong(field, value, allowed));
        self.get(field).map(read).transpose()
    }

    /// A list of texts.
    pub(crate) fn texts(self, field: &'static str) -> Result<Vec<String>, Invalid> {
        let Some(value) = self.get(field) else { return Ok(Vec::new()) };
        let list = value.as_array().ok_or_else(|| wrong(field, value, "a list of texts, in brackets"))?;
        let read = |value: &Value| {
            value
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| wrong(field, value, "texts only; put quotes around the others"))
        };
        list.iter().map(read).collect()
    }

    /// Texts by name that nobody shall see. An error repeats the name and never the value.
    pub(crate) fn secrets(self, field: &'static str) -> Result<BTreeMap<String, Secret>, Invalid> {
        let Some(value) = self.get(field) else { return Ok(BTreeMap::new()) };
        let Some(object) = value.as_object() else {
            return Err(Invalid::new(field, kind(value), "an object of texts, such as {\"NAME\": \"value\"}"));
        };
        let read = |(name, value): (&String, &Value)| match value {
            Value::String(text) => Ok((name.clone(), Secret::new(text))),
            other => {
                let allowed = format!("a text for each name, in quotes; this one has {}", kind(other));
                Err(Invalid::new(field, name, allowed))
            }
        };
        object.iter().map(read).collect()
    }
}

/// Refuses a value. Lists and objects are not repeated: they may be long, and what is in them may be secret.
pub(crate) fn wrong(field: &'static str, value: &Value, allowed: &str) -> Invalid {
    match value {
        Value::Array(_) | Value::Object(_) => Invalid::new(field, kind(value), allowed),
        Value::String(text) => Invalid::new(field, text, allowed),
        // Without quotes, as it was written.
        other => Invalid::new(field, format_args!("{other}"), allowed),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
