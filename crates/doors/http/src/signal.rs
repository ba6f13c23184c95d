//! Signals by number or name.

use serde_json::Value;

use crate::body::{Fields, FromFields, nearest};
use crate::failure::Failure;

/// The largest number that a signal has.
const SIGNAL_MAX: u64 = 64;

/// The signals that have names, as Linux numbers them on x86-64.
const NAMES: [(&str, i32); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

/// The body that sends a signal.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
pub struct SignalBody {
    /// Number or name, such as 15, `TERM` or `SIGTERM`.
    #[serde(default)]
    #[schema(value_type = String, example = "TERM")]
    signal: Value,
}

impl FromFields for SignalBody {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

impl SignalBody {
    /// The number of the signal.
    pub fn number(&self) -> Result<i32, Failure> {
        number(&self.signal)
    }
}

/// The number of a signal that was written as a number or a name.
pub fn number(value: &Value) -> Result<i32, Failure> {
    let found = match value {
        Value::Number(number) => number.as_u64().and_then(in_range),
        Value::String(text) => by_text(text),
        _ => None,
    };
    found.ok_or_else(|| refuse(value))
}

fn in_range(number: u64) -> Option<i32> {
    (1..=SIGNAL_MAX).contains(&number).then_some(number)?.try_into().ok()
}

fn by_text(text: &str) -> Option<i32> {
    let name = plain(text);
    let named = NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    named.or_else(|| in_range(name.parse().ok()?))
}

fn plain(text: &str) -> String {
    let upper = text.trim().to_ascii_uppercase();
    upper.strip_prefix("SIG").unwrap_or(&upper).to_owned()
}

fn refuse(value: &Value) -> Failure {
    let message = format!("invalid signal: a number from 1 to {SIGNAL_MAX}, or a name such as TERM is needed");
    let failure = Failure::invalid("signal", message);
    let known = NAMES.map(|(name, _)| name);
    match value.as_str().and_then(|text| nearest(&plain(text), &known)) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn signals_have_numbers_and_names() {
        for (value, expected) in
            [(json!(15), 15), (json!("TERM"), 15), (json!("sigkill"), 9), (json!("2"), 2), (json!(64), 64)]
        {
            assert_eq!(number(&value).unwrap(), expected, "{value}");
        }
        for bad in [json!(0), json!(65), json!(-9), json!(1.5), json!("TREM"), json!(""), json!(null), json!([9])] {
            assert!(number(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_names_are_in_order_and_complete() {
        for (index, (_, number)) in NAMES.iter().enumerate() {
            assert_eq!(usize::try_from(*number).unwrap(), index + 1);
        }
    }

    #[test]
    fn a_slip_is_answered_with_the_right_name() {
        let body = serde_json::to_value(number(&json!("SIGTEM")).unwrap_err().body(None)).unwrap();
        assert_eq!(body["error"]["hint"], "did you mean TERM?");
    }
}
