//! Single values, taken as generously as the clients of the old API expect: a number may come as a text that holds one, and
//! a whole number as `30.0`. Nothing means that it was not given.

use std::collections::BTreeMap;

use box_wire::limits::QUOTED_VALUE_CHARS_MAX;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// The largest number that every reader of JSON understands exactly.
const WHOLE_MAX: u64 = (1 << 53) - 1;

/// A whole number that is not negative.
pub fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    take(deserializer, "a whole number, not negative", as_whole)
}

/// As [`whole`], of 32 bits.
pub fn number_u32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    take(deserializer, "a whole number below 4294967296", |value| as_whole(value)?.try_into().ok())
}

/// As [`whole`], of 16 bits.
pub fn number_u16<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    take(deserializer, "a whole number below 65536", |value| as_whole(value)?.try_into().ok())
}

/// A number.
pub fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    take(deserializer, "a finite number", as_number)
}

/// A number above zero.
pub fn fraction<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    take(deserializer, "a finite number above 0", |value| as_number(value).filter(|number| *number > 0.0))
}

/// Yes or no.
pub fn yes_or_no<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    take(deserializer, "true or false", |value| match value {
        Value::Bool(value) => Some(*value),
        Value::String(text) if ["true", "1"].contains(&text.as_str()) => Some(true),
        Value::String(text) if ["false", "0"].contains(&text.as_str()) => Some(false),
        Value::Number(number) => {
            [(0, false), (1, true)].into_iter().find(|(n, _)| number.as_u64() == Some(*n)).map(|it| it.1)
        }
        _ => None,
    })
}

/// A text as it is.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    take(deserializer, "a text", |value| value.as_str().map(str::to_owned))
}

/// A text without blanks around it; an empty one is none.
pub fn optional_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let trimmed = text(deserializer)?.map(|text| text.trim().to_owned());
    Ok(trimmed.filter(|text| !text.is_empty()))
}

/// A text, or `null`, which differs from an absent field. An empty text means the same as `null`.
pub fn maybe_null_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    optional_text(deserializer).map(Some)
}

/// Texts in order.
pub fn text_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let one = |value: &Value| value.as_str().map(str::to_owned);
    take(deserializer, "a list of texts", |value| value.as_array()?.iter().map(one).collect())
}

/// Texts by name.
pub fn text_map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let one = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
    take(deserializer, "an object whose values are texts", |value| value.as_object()?.iter().map(one).collect())
}

fn take<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    allowed: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    if value.is_null() {
        return Ok(None);
    }
    let refuse = || D::Error::custom(format!("{} ({allowed})", quoted(&value)));
    read(&value).ok_or_else(refuse).map(Some)
}

/// A value as it is repeated in an error. Lists and objects are not: they can hold secrets.
fn quoted(value: &Value) -> String {
    let text = match value {
        Value::Array(_) => return "a list".to_owned(),
        Value::Object(_) => return "an object".to_owned(),
        scalar => scalar.to_string(),
    };
    match text.char_indices().nth(QUOTED_VALUE_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

fn as_whole(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| integral(number.as_f64()?)),
        Value::String(text) => text.trim().parse().ok().or_else(|| integral(text.trim().parse().ok()?)),
        _ => None,
    }
}

fn as_number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite())
}

/// `30.0` is 30; `30.5`, `-1.0` and numbers beyond a float's precision are not integers.
fn integral(number: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "the bound is the largest number that has no loss")]
    let exact = number.fract() == 0.0 && (0.0..=WHOLE_MAX as f64).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, not negative and in range"
    )]
    exact.then_some(number as u64)
}
