//! The example file: every key, what it means, and its default, all of it commented out.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::key::{KEYS, Key};
use super::value::{Value, quoted};

const HEADER: &str = "\
# The configuration of `strongbox serve`. Every key is here with its default; remove the `#` before one to
# change it. Read from /etc/strongbox/config.toml (root) or $XDG_CONFIG_HOME/strongbox/config.toml, or from
# where --config or STRONGBOX_CONFIG say. Check it with `strongbox config check FILE`.
# Made by `strongbox config example`.
";

/// Longest line of a comment.
const COLUMNS: usize = 105;

/// The text of the file.
pub(super) fn file() -> String {
    let mut text = HEADER.to_owned();
    let mut described = BTreeSet::new();
    let (tables, lone): (Vec<&Key>, Vec<&Key>) =
        KEYS.iter().partition(|key| key.kind.is_table() || key.name.contains('.'));
    for key in lone {
        text.push('\n');
        comment(&mut text, &explanation(key));
        entry(&mut text, &key.name, key);
    }
    let mut open = "";
    for key in tables {
        let (table, name) = key.name.split_once('.').unwrap_or(("", &key.name));
        if table.is_empty() {
            text.push('\n');
        } else if table != open {
            text.push('\n');
            comment(&mut text, &key.table_doc);
            let _ = writeln!(text, "#[{table}]");
        }
        open = table;
        if described.insert(&key.doc) {
            comment(&mut text, &explanation(key));
        }
        entry(&mut text, name, key);
    }
    text
}

/// A key with its default; a table with what is in it.
fn entry(text: &mut String, name: &str, key: &Key) {
    if !key.kind.is_table() {
        let value = key.example.as_ref().or(key.default.as_ref());
        let _ = writeln!(text, "#{name} = {}", value.map_or_else(String::new, Value::to_string));
        return;
    }
    for line in key.example_table.lines() {
        let _ = writeln!(text, "#   {line}");
    }
    let _ = writeln!(text, "#[{}]", key.name);
    if let Some(Value::Named(entries)) = &key.default {
        for (name, meaning) in entries {
            let _ = writeln!(text, "#{} = {}", quoted(name), quoted(meaning));
        }
    }
}

/// What a key means, and what holds unless it is set.
fn explanation(key: &Key) -> String {
    match key.usual {
        Some(usual) => format!("{} By default {usual}.", key.doc),
        None if key.default.is_none() => format!("{} No default.", key.doc),
        None => key.doc.clone(),
    }
}

/// Writes Markdown as a comment. A link becomes the name of its file.
fn comment(text: &mut String, markdown: &str) {
    let mut line = String::from("#");
    for word in without_links(markdown).split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS {
            let _ = writeln!(text, "{line}");
            line = String::from("#");
        }
        let _ = write!(line, " {word}");
    }
    let _ = writeln!(text, "{line}");
}

fn without_links(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once("](") {
        let (before, _) = before.rsplit_once('[').unwrap_or((before, ""));
        let (target, after) = link.split_once(')').unwrap_or((link, ""));
        text.extend([before, "docs/", target]);
        rest = after;
    }
    text + rest
}

/// What holds unless a key is set, in Markdown.
pub(super) fn usual(key: &Key) -> Option<String> {
    let value = || match key.default.as_ref()? {
        Value::Text(text) if text.is_empty() => None,
        Value::Text(text) => Some(format!("`{text}`")),
        Value::Tables(_) | Value::Definitions(_) => Some("none".to_owned()),
        value => Some(format!("`{value}`")),
    };
    key.usual.map(str::to_owned).or_else(value)
}

/// The first sentence of a text, without its dot.
pub(super) fn first_sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.')
}
