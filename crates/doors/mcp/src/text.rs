//! Text that servers wrote and models will read. It is a stranger's: what cannot be seen is taken out, and its length has a bound.
//!
//! This makes a text harmless to terminals and logs, and keeps instructions from hiding in characters that no person sees. It does not make
//! it true, or safe to obey.

use serde_json::{Map, Value};

/// Longest description of a tool, prompt, resource or argument, in characters.
pub(crate) const DESCRIPTION_CHARS_MAX: usize = 16_384;
/// Longest title, or name of a resource, in characters.
pub(crate) const TITLE_CHARS_MAX: usize = 256;
/// Deepest nesting of a schema in which texts are looked for. What lies deeper is left out.
const SCHEMA_DEPTH_MAX: usize = 64;

/// A text without characters that cannot be seen, cut after a number of characters.
pub(crate) fn clean(text: &str, chars_max: usize) -> String {
    let mut visible = text.chars().filter(|c| can_be_seen(*c));
    let mut kept: String = visible.by_ref().take(chars_max).collect();
    if visible.next().is_some() {
        kept.push('…');
    }
    kept
}

/// As [`clean`], where there may be no text.
pub(crate) fn clean_option(text: Option<String>, chars_max: usize) -> Option<String> {
    text.map(|text| clean(&text, chars_max))
}

/// A schema with its titles and descriptions cleaned. Values stay as they are: they are sent back, and must be the same then.
pub(crate) fn clean_schema(schema: &Map<String, Value>) -> Map<String, Value> {
    clean_object(schema, SCHEMA_DEPTH_MAX)
}

fn clean_object(object: &Map<String, Value>, depth: usize) -> Map<String, Value> {
    let clean_field = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) if matches!(name.as_str(), "description" | "$comment") => {
                Value::String(clean(text, DESCRIPTION_CHARS_MAX))
            }
            Value::String(text) if name == "title" => Value::String(clean(text, TITLE_CHARS_MAX)),
            other => clean_value(other, depth),
        };
        (name.clone(), value)
    };
    object.iter().map(clean_field).collect()
}

fn clean_value(value: &Value, depth: usize) -> Value {
    match value {
        Value::Object(_) | Value::Array(_) if depth == 0 => Value::Null,
        Value::Object(object) => Value::Object(clean_object(object, depth - 1)),
        Value::Array(items) => Value::Array(items.iter().map(|item| clean_value(item, depth - 1)).collect()),
        other => other.clone(),
    }
}

/// Whether a reader would notice that the character is there. Line ends and tabs count; so do joiners, without which some scripts and
/// symbols cannot be written.
fn can_be_seen(c: char) -> bool {
    match c {
        '\n' | '\t' | '\u{200c}' | '\u{200d}' => true,
        // Blanks of no width, marks of direction, invisible operators, the byte order mark, language tags, private use.
        '\u{00ad}'
        | '\u{061c}'
        | '\u{180e}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e000}'..='\u{f8ff}'
        | '\u{e0000}'..='\u{e0fff}'
        | '\u{f0000}'..='\u{10ffff}' => false,
        other => !other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_seen_is_taken_out() {
        let table = [
            ("plain\ntext\twith ümläuts, 漢字 and 👩‍💻", "plain\ntext\twith ümläuts, 漢字 and 👩‍💻"),
            ("\u{1b}[31mred\u{7}\r\n", "[31mred\n"),
            ("a\u{202e}b\u{2066}c\u{200b}d\u{feff}", "abcd"),
            ("hidden\u{e0049}\u{e0067}\u{e006e}", "hidden"),
            ("c1\u{9b}2J", "c12J"),
        ];
        for (given, kept) in table {
            assert_eq!(clean(given, 100), kept);
        }
    }

    #[test]
    fn a_long_text_is_cut_and_shows_it() {
        assert_eq!(clean("abcdef", 3), "abc…");
        assert_eq!(clean("abc\u{200b}\u{200b}", 3), "abc");
    }

    #[test]
    fn a_schema_keeps_its_values_and_loses_hidden_text() {
        let hidden = "x\u{200b}y";
        let schema = json!({"description": hidden, "properties": {"description": {"title": hidden, "enum": [hidden]}}});
        let cleaned = Value::Object(clean_schema(schema.as_object().unwrap()));
        assert_eq!(
            cleaned,
            json!({"description": "xy", "properties": {"description": {"title": "xy", "enum": [hidden]}}})
        );
    }

    #[test]
    fn a_schema_that_is_too_deep_is_cut_off() {
        let mut deep = json!({"description": "end"});
        for _ in 0..100 {
            deep = json!({ "items": deep });
        }
        let cleaned = Value::Object(clean_schema(deep.as_object().unwrap())).to_string();
        assert!(cleaned.contains("null") && !cleaned.contains("end"), "{cleaned}");
    }
}
