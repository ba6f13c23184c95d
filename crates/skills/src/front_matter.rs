//! `SKILL.md`: a YAML front matter between two `---` lines, and the instructions below it.
//!
//! Its author may be hostile, so the parser works within a budget. A change of some keys keeps all others verbatim.

use std::fmt::Write;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Error, Result, shown};
use crate::limits::{
    FRONT_MATTER_ALIASES_MAX, FRONT_MATTER_BYTES_MAX, FRONT_MATTER_DEPTH_MAX, FRONT_MATTER_NODES_MAX,
    FRONT_MATTER_REPLAYED_MAX,
};

/// The line that opens and closes a front matter.
const FENCE: &str = "---";
/// Words that YAML, of whichever version, reads as something else than text.
const YAML_WORDS: &[&str] = &["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// What a front matter says to us.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Header {
    /// The skill's name; that of its directory otherwise.
    pub(crate) name: Option<String>,
    /// What people see.
    pub(crate) display_name: Option<String>,
    /// What it is good for.
    pub(crate) description: Option<String>,
}

impl Header {
    /// The keys that this crate knows, in the order in which they are written, with their values.
    fn entries(&self) -> [(&'static str, Option<&str>); 3] {
        [
            ("name", stated(self.name.as_ref())),
            ("display_name", stated(self.display_name.as_ref())),
            ("description", stated(self.description.as_ref())),
        ]
    }

    fn is_ours(key: &str) -> bool {
        Self::default().entries().iter().any(|(ours, _)| *ours == key)
    }
}

fn stated(value: Option<&String>) -> Option<&str> {
    value.map(|value| value.trim()).filter(|value| !value.is_empty())
}

/// The text of a `SKILL.md`, taken apart.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    /// What stands between the fences; empty without them.
    front_matter: &'a str,
    /// What follows, without empty lines before it.
    pub(crate) instructions: &'a str,
}

impl<'a> Document<'a> {
    /// Finds the fences. A front matter that is never closed is none.
    pub(crate) fn split(text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self::fenced(text).unwrap_or(Self { front_matter: "", instructions: text })
    }

    fn fenced(text: &'a str) -> Option<Self> {
        let mut lines = text.split_inclusive('\n');
        let start = lines.next().filter(|line| line.trim_end() == FENCE)?.len();
        let mut end = start;
        for line in lines {
            if line.trim() == FENCE {
                let instructions = text[end + line.len()..].trim_start_matches(['\r', '\n']);
                return Some(Self { front_matter: &text[start..end], instructions });
            }
            end += line.len();
        }
        None
    }

    /// Reads the front matter. `path` is for the error.
    pub(crate) fn header(&self, path: &str) -> Result<Header> {
        let failed = |reason: String| Error::FrontMatter { path: shown(path), reason };
        if self.front_matter.len() > FRONT_MATTER_BYTES_MAX {
            return Err(failed(format!("it has more than {FRONT_MATTER_BYTES_MAX} bytes")));
        }
        if self.front_matter.trim().is_empty() {
            return Ok(Header::default());
        }
        match serde_saphyr::from_str_with_options(self.front_matter, options()) {
            Ok(header) => Ok(header),
            // Text between two horizontal rules is not front matter, and not an error either.
            Err(_) if matches!(self.values(), Some(value) if !value.is_object()) => Ok(Header::default()),
            Err(error) => Err(failed(shown(&error.without_snippet().to_string()))),
        }
    }

    /// The same text with another header and other instructions. Unknown keys stay.
    pub(crate) fn rewritten(&self, header: &Header, instructions: &str) -> Result<String> {
        let others = self.other_values();
        let kept = join(header, &self.other_lines(), instructions);
        let kept_document = Document::split(&kept);
        if kept_document.says(header) && kept_document.other_values() == others {
            return Ok(kept);
        }
        // Some keys are not in the form `key: value` at the start of a line; write them in that form.
        let mut lines = String::new();
        for (key, value) in others.unwrap_or_default() {
            let _ = writeln!(lines, "{}: {value}", quoted(&key));
        }
        let said_again = join(header, &lines, instructions);
        let again = Document::split(&said_again);
        again.header("SKILL.md")?;
        if again.says(header) {
            return Ok(said_again);
        }
        let reason = "the new front matter cannot be written so that it reads back; use plainer text".to_owned();
        Err(Error::FrontMatter { path: "SKILL.md".into(), reason })
    }

    fn says(&self, header: &Header) -> bool {
        self.header("").is_ok_and(|read| read.entries() == header.entries())
    }

    fn values(&self) -> Option<Value> {
        serde_saphyr::from_str_with_options(self.front_matter, options()).ok()
    }

    fn other_values(&self) -> Option<Map<String, Value>> {
        match self.values()? {
            Value::Object(mut values) => {
                values.retain(|key, _| !Header::is_ours(key));
                Some(values)
            }
            _ => None,
        }
        .filter(|values| !values.is_empty())
    }

    /// The lines of unknown keys: a key starts in the first column, and its value is indented below it.
    fn other_lines(&self) -> String {
        let mut lines = String::new();
        let mut is_ours = false;
        for line in self.front_matter.split_inclusive('\n') {
            let continues = line.starts_with([' ', '\t', '-', '#', '\r', '\n', '}', ']']);
            if !continues {
                let key = line.split(':').next().unwrap_or_default();
                is_ours = Header::is_ours(key.trim().trim_matches(['"', '\'']));
            }
            if !is_ours {
                lines.push_str(line);
            }
        }
        lines
    }
}

/// A new text for a header and instructions.
pub(crate) fn compose(header: &Header, instructions: &str) -> Result<String> {
    Document { front_matter: "", instructions: "" }.rewritten(header, instructions)
}

fn join(header: &Header, other_lines: &str, instructions: &str) -> String {
    let mut text = format!("{FENCE}\n");
    for (key, value) in header.entries() {
        if let Some(value) = value {
            let written = if is_plain(value) { value.to_owned() } else { quoted(value) };
            let _ = writeln!(text, "{key}: {written}");
        }
    }
    text.push_str(other_lines);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    format!("{text}{FENCE}\n\n{}", instructions.trim_start_matches(['\r', '\n']))
}

/// Whether a YAML parser reads the unquoted value as text, beyond doubt.
fn is_plain(value: &str) -> bool {
    let is_simple = |character: char| character.is_alphanumeric() || " ,.()/_-'".contains(character);
    value.starts_with(char::is_alphabetic)
        && value.chars().all(is_simple)
        && !YAML_WORDS.contains(&value.to_lowercase().as_str())
}

/// A value between quotes, as JSON and YAML both have it.
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            '\n' => text.push_str("\\n"),
            // What YAML does not count as printable, and what some count as the end of a line.
            '\0'..=' ' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
                if character != ' ' =>
            {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            _ => text.push(character),
        }
    }
    text.push('"');
    text
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(FRONT_MATTER_BYTES_MAX),
            max_depth: FRONT_MATTER_DEPTH_MAX,
            flow_nesting_limit: FRONT_MATTER_DEPTH_MAX,
            max_nodes: FRONT_MATTER_NODES_MAX,
            max_events: 4 * FRONT_MATTER_NODES_MAX,
            max_aliases: FRONT_MATTER_ALIASES_MAX,
            max_anchors: FRONT_MATTER_ALIASES_MAX,
            max_merge_keys: FRONT_MATTER_ALIASES_MAX,
            max_documents: 1,
            max_total_scalar_bytes: FRONT_MATTER_BYTES_MAX,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: FRONT_MATTER_REPLAYED_MAX,
            max_replay_stack_depth: 4,
            max_alias_expansions_per_anchor: FRONT_MATTER_ALIASES_MAX,
        },
        with_snippet: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(text: &str) -> Result<Header> {
        Document::split(text).header("SKILL.md")
    }

    fn named(name: &str) -> Header {
        Header { name: Some(name.into()), ..Header::default() }
    }

    #[test]
    fn header_and_instructions_are_told_apart() {
        let table = [
            ("---\nname: a\n---\n\n\nhello\n", Some("a"), "hello\n"),
            ("---\r\nname: a\r\n---\r\n\r\nhello\r\n", Some("a"), "hello\r\n"),
            ("\u{feff}---\nname: a\n---\nhello", Some("a"), "hello"),
            ("--- \nname: a\n --- \nhello", Some("a"), "hello"),
            ("---\n---\nhello", None, "hello"),
            ("---\nname: a\nnever closed", None, "---\nname: a\nnever closed"),
            ("no front matter\n---\nname: a\n---\n", None, "no front matter\n---\nname: a\n---\n"),
            ("----\nname: a\n---\n", None, "----\nname: a\n---\n"),
            ("---\nJust text.\n---\nhello", None, "hello"),
            ("---\n- a list\n---\nhello", None, "hello"),
            ("", None, ""),
        ];
        for (text, name, instructions) in table {
            assert_eq!(header(text).unwrap().name.as_deref(), name, "{text:?}");
            assert_eq!(Document::split(text).instructions, instructions, "{text:?}");
        }
    }

    #[test]
    fn scalars_of_any_kind_are_text() {
        let read = header("---\nname: 12\ndisplay_name: 1.10\ndescription: true\n---\n").unwrap();
        let entries: Vec<_> = read.entries().into_iter().filter_map(|(_, value)| value).collect();
        assert_eq!(entries, ["12", "1.10", "true"]);
        assert_eq!(header("---\nname: ~\ndescription:\n---\n").unwrap().entries(), Header::default().entries());
    }

    #[test]
    fn hostile_front_matter_is_refused_within_a_budget() {
        let aliases = |level| format!("a{level}: &a{level} [{}]\n", format!("*a{},", level - 1).repeat(9));
        let laughs = (1..12).map(aliases).collect::<Vec<_>>().concat();
        let table = [
            format!("a0: &a0 [x,x,x,x,x,x,x,x,x]\n{laughs}"),
            "a: &a [*a]\n".to_owned(),
            format!("a: {}\n", "[".repeat(5000)),
            format!("description: {}\n", "x".repeat(FRONT_MATTER_BYTES_MAX)),
            "k: v\n".repeat(20_000),
            "name: [1, 2]\n".to_owned(),
            "name: \"open\n".to_owned(),
            "name: a\nname: b\n".to_owned(),
        ];
        for front_matter in table {
            let error = header(&format!("---\n{front_matter}---\n")).unwrap_err();
            assert_eq!(error.code(), "bad_skill", "{}", shown(&front_matter));
        }
        // A tag constructs nothing here.
        let _ = header("---\nname: !!python/object/apply:os.system [\"true\"]\n---\n");
    }

    #[test]
    fn other_keys_stay_as_they_were_written() {
        let text = "---\nversion: 1.10 # keep\nname: old\nallowed-tools:\n- read\n- write\ndescription: |\n  two\n  \
                    lines\nmeta: {a: 1}\n---\nhello";
        let changed = Header { description: Some("new".into()), ..named("old") };
        let rewritten = Document::split(text).rewritten(&changed, "bye").unwrap();
        let expected = "---\nname: old\ndescription: new\nversion: 1.10 # keep\nallowed-tools:\n- read\n- write\n\
                        meta: {a: 1}\n---\n\nbye";
        assert_eq!(rewritten, expected);
    }

    #[test]
    fn other_keys_in_an_unusual_form_keep_their_values() {
        let text = "---\n{name: old, version: 2, tags: [a, b]}\n---\nhello";
        let rewritten = Document::split(text).rewritten(&named("old"), "bye").unwrap();
        let document = Document::split(&rewritten);
        assert_eq!(document.header("").unwrap(), named("old"));
        assert_eq!(document.other_values(), Document::split(text).other_values());
    }

    proptest! {
        #[test]
        fn what_is_composed_reads_back(name in "[a-z_-]{1,20}", text in any::<String>(), body in any::<String>()) {
            let stated = text.trim();
            let header = Header { description: Some(text.clone()), display_name: Some(name.clone()), ..named(&name) };
            let composed = compose(&header, &body).unwrap();
            let document = Document::split(&composed);
            let read = document.header("").unwrap();
            prop_assert_eq!(read.description.unwrap_or_default(), stated);
            prop_assert_eq!(read.name, Some(name));
            prop_assert_eq!(document.instructions, body.trim_start_matches(['\r', '\n']));
        }

        #[test]
        fn no_text_makes_it_panic(text in "(---\n)?([ -~\n]|[&*!|>:#{}\\[\\]\t]){0,200}(\n---\n)?.*") {
            let document = Document::split(&text);
            let _ = document.header("");
            let _ = document.rewritten(&named("a"), "b");
        }
    }
}
