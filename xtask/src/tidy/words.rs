//! Words that mark a sentence to rewrite, and how often each file may still have them.
//!
//! `words.txt` records the count of each file. A count may only go down: a file with more is refused, and so is a record
//! that is higher than the truth. Files that are not listed may have none.

use super::Violation;
use super::files::{TextFile, has_extension};
use std::collections::BTreeMap;

/// Where the counts are.
pub(crate) const RECORD: &str = "xtask/src/tidy/words.txt";

/// How to bring the record down to the truth.
const COMMAND: &str = "cargo xtask tidy --record-words";

/// The words, in lower case. They are put together here, because this file is checked too.
const WORDS: &[&str] = &[
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("who", "ever"),
    concat!("of be", "fore"),
    concat!("is to", "ld"),
    concat!("are to", "ld"),
    concat!("is n", "o"),
    concat!("of ou", "rs"),
    concat!("but f", "or"),
    concat!("an", "ew"),
    concat!("what is n", "ot"),
    concat!("it is gi", "ven"),
    concat!("in the place o", "f"),
    concat!("as it w", "as"),
];

/// Files with sentences in them.
const EXTENSIONS: &[&str] = &["rs", "md", "toml", "py", "js", "ts", "svelte", "sh", "service"];

/// What starts a line of a comment or a quotation.
const MARKERS: &[char] = &['/', '!', '#', '*', '>', ' ', '\t'];

/// The rule.
pub(crate) fn check(files: &[TextFile], record: &str) -> Vec<Violation> {
    let recorded = match parse(record) {
        Ok(recorded) => recorded,
        Err(violation) => return vec![violation],
    };
    let found = count_all(files);
    let mut violations = Vec::new();
    for (path, words) in &found {
        let (count, limit) = (words.len(), recorded.get(*path).copied().unwrap_or(0));
        if count > limit {
            let message = format!(
                "{count} marker words, {limit} are recorded; rewrite a sentence with one of: {}",
                distinct(words).join(", ")
            );
            violations.push(Violation::new(*path, message));
        }
    }
    for (path, limit) in recorded {
        let count = found.get(path).map_or(0, Vec::len);
        if count < limit {
            let message = format!("{limit} marker words of {path} are recorded, it has {count}; run `{COMMAND}`");
            violations.push(Violation::new(RECORD, message));
        }
    }
    violations
}

/// The record with counts brought down to the truth. Without a record, everything is recorded as found.
pub(crate) fn lowered(files: &[TextFile], record: Option<&str>) -> Result<String, Violation> {
    let recorded = record.map(parse).transpose()?;
    let mut lines = String::new();
    for (path, words) in count_all(files) {
        let limit = recorded.as_ref().map_or(usize::MAX, |recorded| recorded.get(path).copied().unwrap_or(0));
        let count = words.len().min(limit);
        if count > 0 {
            lines.extend([&count.to_string(), " ", path, "\n"]);
        }
    }
    Ok(lines)
}

/// The lines `COUNT PATH`.
fn parse(record: &str) -> Result<BTreeMap<&str, usize>, Violation> {
    let lines = record.lines().enumerate().map(|(index, line)| {
        let entry = line.split_once(' ').and_then(|(count, path)| Some((path, count.parse().ok()?)));
        entry.ok_or_else(|| Violation::at(RECORD, index, "not a count and a path; write `COUNT PATH`"))
    });
    lines.collect()
}

/// The marker words of each file that has some.
fn count_all(files: &[TextFile]) -> BTreeMap<&str, Vec<&'static str>> {
    let files = files.iter().filter(|file| has_extension(&file.path, EXTENSIONS));
    files.map(|file| (file.path.as_str(), words_of(&file.text))).filter(|(_, words)| !words.is_empty()).collect()
}

/// The marker words of a text, also those that a line break separates.
fn words_of(text: &str) -> Vec<&'static str> {
    let lines = text.lines().map(|line| line.trim_start_matches(MARKERS).trim_end());
    let joined = lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ").to_lowercase();
    let mut found = Vec::new();
    for &word in WORDS {
        let whole = joined.match_indices(word).filter(|(at, _)| {
            let (before, after) = (&joined[..*at], &joined[at + word.len()..]);
            !before.ends_with(is_word_part) && !after.starts_with(is_word_part)
        });
        found.extend(whole.map(|_| word));
    }
    found
}

/// Names in code (`nobody_reads`) are one word.
fn is_word_part(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn distinct(words: &[&'static str]) -> Vec<&'static str> {
    let mut words = words.to_vec();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.into(), text: text.into() }
    }

    /// A sentence with two of the words.
    fn two() -> String {
        format!("// {} {}\n", WORDS[0], WORDS[1])
    }

    fn messages(files: &[TextFile], record: &str) -> Vec<String> {
        check(files, record).into_iter().map(|it| format!("{} {}", it.place, it.message)).collect()
    }

    #[test]
    fn a_count_may_only_go_down() {
        let files = [file("a.rs", &two()), file("b.md", "plain words")];
        assert_eq!(messages(&files, "2 a.rs\n"), [""; 0]);
        let more = messages(&files, "1 a.rs\n");
        assert!(more.len() == 1 && more[0].starts_with("a.rs 2 marker words, 1 are recorded"), "{more:?}");
        let fewer = messages(&files, "3 a.rs\n1 gone.rs\n");
        assert!(fewer.len() == 2 && fewer.iter().all(|it| it.starts_with(RECORD) && it.contains(COMMAND)), "{fewer:?}");
    }

    #[test]
    fn a_new_file_may_have_none() {
        let new = messages(&[file("new.py", &two())], "");
        assert!(new.len() == 1 && new[0].contains("0 are recorded") && new[0].contains(WORDS[1]), "{new:?}");
        assert_eq!(messages(&[file("table.snap", &two())], ""), [""; 0], "output of a program");
    }

    #[test]
    fn every_word_is_found_also_across_lines_and_only_whole() {
        for word in WORDS {
            let split = word.replacen(' ', "\n    /// ", 1);
            for text in [(*word).to_owned(), format!("({}.", word.to_uppercase()), format!("    /// {split},\n")] {
                assert!(words_of(&text).contains(word), "{text}");
            }
            for text in [format!("x{word}"), format!("{word}x"), format!("{word}_reads")] {
                assert!(!words_of(&text).contains(word), "{text}");
            }
        }
    }

    #[test]
    fn a_record_is_lowered_and_never_raised() {
        let files = [file("a.rs", &two()), file("b.rs", &two()), file("new.rs", &two())];
        assert_eq!(lowered(&files, Some("1 a.rs\n9 b.rs\n3 gone.rs\n")), Ok("1 a.rs\n2 b.rs\n".into()));
        assert_eq!(lowered(&files, None), Ok("2 a.rs\n2 b.rs\n2 new.rs\n".into()));
        assert_eq!(lowered(&files, Some("many a.rs")).map_err(|it| it.place), Err(format!("{RECORD}:1")));
    }
}
