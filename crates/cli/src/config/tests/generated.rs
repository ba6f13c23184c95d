//! Files that are made from the keys. `cargo xtask generate` writes them; here they are compared.

use std::fmt::Write;

use super::*;
use crate::config::example::{self, usual};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/config.example.toml");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
/// The part of the page that is made from the keys.
const BEGIN: &str = "<!-- keys: made by `cargo xtask generate` -->\n";
const END: &str = "<!-- end of keys -->\n";

#[test]
fn generated_files_are_as_the_keys_are() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let page = format!("{before}{BEGIN}{}{END}{after}", rows());
    for (path, text) in [(EXAMPLE, example::file()), (PAGE, page)] {
        if std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always") {
            std::fs::write(path, text).unwrap();
        } else {
            let is_current = std::fs::read_to_string(path).unwrap() == text;
            assert!(is_current, "{path} is not what the keys say; run `cargo xtask generate` and read the diff");
        }
    }
}

/// The table of docs/config.md. Keys of tables with the same struct share a line.
fn rows() -> String {
    let mut rows = "\n| key | default | meaning | |\n| --- | --- | --- | --- |\n".to_owned();
    for (index, key) in KEYS.iter().enumerate() {
        if KEYS[..index].iter().any(|other| other.doc == key.doc) {
            continue;
        }
        let same = KEYS.iter().filter(|other| other.doc == key.doc).map(|key| format!("`{}`", key.name));
        let (names, usual) = (same.collect::<Vec<_>>().join(", "), usual(key).unwrap_or_default());
        let reload = if key.live { "live" } else { "restart" };
        // The page does not link to itself by name.
        let doc = key.doc.replace("(config.md#", "(#").replace("See [config.md]", "See [below]");
        writeln!(rows, "| {names} | {usual} | {doc} | {reload} |").unwrap();
    }
    rows + "\n"
}

/// Every line of the example that starts with `#` and no blank is a key with its default.
#[test]
fn the_example_file_lists_every_key_with_its_default() {
    let uncomment = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest.to_owned(),
        _ => line.to_owned(),
    };
    let text: String = example::file().lines().map(|line| uncomment(line) + "\n").collect();
    let set: BTreeMap<_, _> =
        file::parse("example", &text).unwrap().into_iter().map(|(key, value, _)| (&key.name, value)).collect();
    for key in KEYS.iter() {
        let shown = set.get(&key.name).unwrap_or_else(|| panic!("{} is not in the example", key.name));
        assert!(key.example.is_none() || key.default.is_none() || key.name == "state_dir", "{}", key.name);
        let default = key.example.as_ref().or(key.default.as_ref());
        assert_eq!(default, Some(shown), "{}", key.name);
    }
}

#[test]
fn the_example_file_as_it_is_sets_nothing() {
    assert_eq!(file::parse("example", &example::file()).unwrap().len(), 0);
}
