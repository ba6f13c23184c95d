//! Objects of clients, parsed as leniently as the reference parses them: numbers may be strings, integers may be
//! `30.0`, and all errors are reported at once.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use super::fault::{Class, Fault};

/// Errors of one object that are listed; more are only counted.
const TOLD_MAX: usize = 20;
/// Most characters of a refused value that are repeated.
const SHOWN_CHARS_MAX: usize = 100;

/// An object that is being read.
#[derive(Debug)]
pub(super) struct Model<'a> {
    name: &'static str,
    fields: &'a Map<String, Value>,
    /// In front of the names of fields: where the object is in the one that was sent.
    prefix: String,
    wrong: Wrong,
}

/// Everything that is wrong with what was sent.
#[derive(Debug, Default)]
pub(super) struct Wrong {
    count: usize,
    told: String,
}

/// An error of one value: a word for programs and an explanation.
#[derive(Debug)]
pub(super) struct Problem(&'static str, String);

impl Problem {
    /// The value is of the right type and breaks a rule.
    pub(super) fn rule(explanation: impl std::fmt::Display) -> Self {
        Self("value_error", format!("Value error, {explanation}"))
    }

    fn kind(kind: &'static str, expected: &str) -> Self {
        Self(kind, format!("Input should be {expected}"))
    }
}

/// The result of parsing a value.
pub(super) type Read<T> = Result<T, Problem>;

impl<'a> Model<'a> {
    /// Begins to read what clients call a `name`.
    pub(super) fn new(name: &'static str, fields: &'a Map<String, Value>) -> Self {
        Self { name, fields, prefix: String::new(), wrong: Wrong::default() }
    }

    /// Begins to read an object in this one. What is wrong with it is [taken over](Self::absorb).
    pub(super) fn inner<'b>(&self, place: &str, fields: &'b Map<String, Value>) -> Model<'b> {
        let prefix = format!("{}{place}.", self.prefix);
        Model { name: self.name, fields, prefix, wrong: Wrong::default() }
    }

    /// The value of a field; none also for `null`.
    pub(super) fn sent(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// A field, or what it is when it was not sent. `null` is a value like others, and mostly a wrong one.
    pub(super) fn take<T>(&mut self, field: &str, default: T, read: impl FnOnce(&'a Value) -> Read<T>) -> T {
        match self.fields.get(field).map(|value| (value, read(value))) {
            None => default,
            Some((_, Ok(taken))) => taken,
            Some((value, Err(problem))) => {
                self.refuse(field, &problem, value);
                default
            }
        }
    }

    /// As [`take`](Self::take), where `null` is the same as nothing.
    pub(super) fn take_or_null<T>(&mut self, field: &str, default: T, read: impl FnOnce(&'a Value) -> Read<T>) -> T {
        if self.sent(field).is_some() { self.take(field, default, read) } else { default }
    }

    /// A field that must have been sent.
    pub(super) fn require<T: Default>(&mut self, field: &str, read: impl FnOnce(&'a Value) -> Read<T>) -> T {
        if !self.fields.contains_key(field) {
            let problem = Problem("missing", "Field required".to_owned());
            self.refuse(field, &problem, &Value::Object(Map::new()));
        }
        self.take(field, T::default(), read)
    }

    /// Says that a value is wrong.
    pub(super) fn refuse(&mut self, field: &str, problem: &Problem, value: &Value) {
        self.wrong.count += 1;
        if self.wrong.count > TOLD_MAX {
            return;
        }
        let Problem(kind, explanation) = problem;
        let place: String = format!("{}{field}", self.prefix).chars().take(SHOWN_CHARS_MAX).collect();
        let (shown, of_type) = (shown(value), type_of(value));
        // Writing to a text cannot fail.
        let _ = write!(
            self.wrong.told,
            "\n{place}\n  {explanation} [type={kind}, input_value={shown}, input_type={of_type}]"
        );
    }

    /// Refuses every field that is not one of these.
    pub(super) fn refuse_others(&mut self, known: &[&str]) {
        let problem = Problem("extra_forbidden", "Extra inputs are not permitted".to_owned());
        let fields = self.fields;
        for (name, value) in fields.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
            self.refuse(name, &problem, value);
        }
    }

    /// Takes over what is wrong with an object in this one.
    pub(super) fn absorb(&mut self, wrong: &Wrong) {
        self.wrong.count += wrong.count;
        self.wrong.told.push_str(&wrong.told);
    }

    /// The errors so far.
    pub(super) fn into_wrong(self) -> Wrong {
        self.wrong
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_good(&self) -> bool {
        self.wrong.count == 0
    }

    /// Refuses unless everything was good.
    pub(super) fn finish(self) -> Result<(), Fault> {
        let Wrong { count, told } = self.wrong;
        if count == 0 {
            return Ok(());
        }
        let plural = if count == 1 { "" } else { "s" };
        Err(Fault::new(Class::Validation, format!("{count} validation error{plural} for {}{told}", self.name)))
    }
}

/// A text as it is.
pub(super) fn text(value: &Value) -> Read<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| Problem::kind("string_type", "a valid string"))
}

/// A text without blanks around it.
pub(super) fn trimmed(value: &Value) -> Read<String> {
    text(value).map(|text| text.trim().to_owned())
}

/// A whole number, as far as a machine can count.
pub(super) fn whole(value: &Value) -> Read<i64> {
    match value {
        Value::Bool(yes) => Ok(i64::from(*yes)),
        Value::Number(number) => whole_number(number),
        Value::String(text) => {
            let digits = text.trim().replace('_', "");
            let plain = match digits.split_once('.') {
                Some((whole, rest)) if rest.bytes().all(|byte| byte == b'0') => whole,
                _ => digits.as_str(),
            };
            plain
                .parse()
                .map_err(|_| Problem::kind("int_parsing", "a valid integer, unable to parse string as an integer"))
        }
        _ => Err(Problem::kind("int_type", "a valid integer")),
    }
}

fn whole_number(number: &Number) -> Read<i64> {
    if let Some(whole) = number.as_i64() {
        return Ok(whole);
    }
    // Beyond what an integer holds it is as good as endless, and the rules of the field decide on that.
    if number.is_u64() {
        return Ok(i64::MAX);
    }
    let float = number.as_f64().unwrap_or(f64::NAN);
    if float.fract() != 0.0 {
        return Err(Problem::kind("int_from_float", "a valid integer, got a number with a fractional part"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and saturates where it is too large")]
    Ok(float as i64)
}

/// A number.
pub(super) fn number(value: &Value) -> Read<f64> {
    let read = match value {
        Value::Bool(yes) => Some(f64::from(u8::from(*yes))),
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => return Err(Problem::kind("float_type", "a valid number")),
    };
    read.filter(|number| number.is_finite())
        .ok_or_else(|| Problem::kind("float_parsing", "a valid number, unable to parse string as a number"))
}

/// Yes or no.
pub(super) fn yes_or_no(value: &Value) -> Read<bool> {
    let refuse = || Problem::kind("bool_parsing", "a valid boolean, unable to interpret input");
    match value {
        Value::Bool(yes) => Ok(*yes),
        Value::Number(number) => match number.as_f64() {
            Some(0.0) => Ok(false),
            Some(1.0) => Ok(true),
            _ => Err(refuse()),
        },
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "t" | "yes" | "y" | "on" => Ok(true),
            "0" | "false" | "f" | "no" | "n" | "off" => Ok(false),
            _ => Err(refuse()),
        },
        _ => Err(Problem::kind("bool_type", "a valid boolean")),
    }
}

/// One of some words.
pub(super) fn word<T: Copy>(value: &Value, words: &[(&str, T)]) -> Read<T> {
    let found = value.as_str().and_then(|text| words.iter().find(|(word, _)| *word == text));
    let refuse = || {
        let names: Vec<_> = words.iter().map(|(word, _)| format!("'{word}'")).collect();
        Problem::kind("enum", &names.join(" or "))
    };
    found.map(|(_, meant)| *meant).ok_or_else(refuse)
}

/// An object.
pub(super) fn object(value: &Value) -> Read<&Map<String, Value>> {
    value.as_object().ok_or_else(|| Problem::kind("dict_type", "a valid dictionary"))
}

/// A list.
pub(super) fn list(value: &Value) -> Read<&[Value]> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| Problem::kind("list_type", "a valid list"))
}

/// A value in Python's notation. The content of lists and objects is left out, because it can be secret.
pub(super) fn shown(value: &Value) -> String {
    let whole = match value {
        Value::Null => return "None".to_owned(),
        Value::Bool(true) => return "True".to_owned(),
        Value::Bool(false) => return "False".to_owned(),
        Value::Array(items) => return if items.is_empty() { "[]" } else { "[...]" }.to_owned(),
        Value::Object(fields) => return if fields.is_empty() { "{}" } else { "{...}" }.to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
            let start: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            let escaped: String = start.chars().flat_map(|character| escaped(character, quote)).collect();
            format!("{quote}{escaped}{quote}")
        }
    };
    match whole.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &whole[..cut]),
        None => whole,
    }
}

fn escaped(character: char, quote: char) -> Vec<char> {
    match character {
        '\\' => vec!['\\', '\\'],
        it if it == quote => vec!['\\', it],
        it if it.is_control() => it.escape_default().collect(),
        it => vec![it],
    }
}

/// Python's name for the type of a value.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "NoneType",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "str",
        Value::Array(_) => "list",
        Value::Object(_) => "dict",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_come_in_many_forms() {
        for (sent, read) in
            [(json!(30), 30), (json!(30.0), 30), (json!("30"), 30), (json!(" 30.0 "), 30), (json!(true), 1)]
        {
            assert_eq!(whole(&sent).unwrap(), read, "{sent}");
        }
        for bad in [json!(1.5), json!("1.5"), json!("x"), json!(""), json!(null), json!([1]), json!("0x10")] {
            assert!(whole(&bad).is_err(), "{bad}");
        }
        assert_eq!(whole(&json!(u64::MAX)).unwrap(), i64::MAX);
        assert_eq!(whole(&json!(1e30)).unwrap(), i64::MAX);
        assert_eq!((number(&json!(1)).unwrap(), number(&json!("0.5")).unwrap()), (1.0, 0.5));
        for bad in [json!("nan"), json!("inf"), json!("x"), json!(null), json!({})] {
            assert!(number(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn yes_and_no_have_many_words() {
        for (sent, read) in [(json!(1), true), (json!("Yes"), true), (json!("off"), false), (json!(0.0), false)] {
            assert_eq!(yes_or_no(&sent).unwrap(), read, "{sent}");
        }
        for bad in [json!(2), json!("maybe"), json!(null), json!([])] {
            assert!(yes_or_no(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_are_shown_as_python_writes_them_and_secrets_not_at_all() {
        for (value, written) in [
            (json!(null), "None"),
            (json!(true), "True"),
            (json!(1.0), "1.0"),
            (json!("a'b"), "\"a'b\""),
            (json!("a\nb"), "'a\\nb'"),
            (json!({ "PASSWORD": "x" }), "{...}"),
            (json!(["x"]), "[...]"),
        ] {
            assert_eq!(shown(&value), written);
        }
        assert!(shown(&json!("x".repeat(1000))).chars().count() <= SHOWN_CHARS_MAX + 1);
    }
}
