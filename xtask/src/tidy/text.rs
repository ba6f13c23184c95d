//! Rules for every text file: no words of one machine, no loose ends, no blanks at the end of a line.

use super::Violation;
use super::files::{TextFile, has_extension};

/// Paths of one machine, which mean nothing to a stranger. They are put together here, because this file is checked too.
const MACHINE_WORDS: &[&str] = &[concat!("/wo", "rk/"), concat!(".lib", "rary")];

/// Marks of unfinished work. With the number of an issue behind them they are a plan; without one they are forgotten.
const UNFINISHED_MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// The rules.
pub(crate) fn check(file: &TextFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let mut refuse = |message: String| violations.push(Violation::at(&file.path, index, message));
        if has_blank_end(line) && !is_recorded(&file.path) {
            refuse("blanks at the end of the line; remove them".into());
        }
        for word in MACHINE_WORDS.iter().filter(|word| stands_alone(line, word)) {
            refuse(format!("`{word}` belongs to one machine; write it so that it is true everywhere"));
        }
        for mark in UNFINISHED_MARKS.iter().filter(|mark| !is_prose(&file.path) && is_loose_end(line, mark)) {
            refuse(format!("{mark} without an issue number; finish it, or write {mark}(#12)"));
        }
    }
    violations
}

fn has_blank_end(line: &str) -> bool {
    line.ends_with([' ', '\t', '\r'])
}

/// Recorded output of a program, or a license text: both must stay byte for byte.
fn is_recorded(path: &str) -> bool {
    has_extension(path, &["snap"]) || path == "LICENSE"
}

/// Prose may talk about the marks ("no … without a number"); code may not have them.
fn is_prose(path: &str) -> bool {
    has_extension(path, &["md"])
}

/// Whether the word occurs as a path of its own: `/base/x/` within a longer path does not count as `/x/`.
fn stands_alone(line: &str, word: &str) -> bool {
    let joins = |before: char| before.is_alphanumeric() || "_-.})]>~".contains(before);
    line.match_indices(word).any(|(at, _)| !line[..at].chars().next_back().is_some_and(joins))
}

fn is_loose_end(line: &str, mark: &str) -> bool {
    let is_word_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let rest = &line[at + mark.len()..];
        let is_word = !before.is_some_and(is_word_part) && !rest.chars().next().is_some_and(is_word_part);
        is_word && !names_an_issue(rest)
    })
}

fn names_an_issue(rest: &str) -> bool {
    rest.trim_start_matches(['(', ' ', ':'])
        .strip_prefix('#')
        .is_some_and(|it| it.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&TextFile { path: path.into(), text: text.into() }).into_iter().map(|it| it.place).collect()
    }

    #[test]
    fn blanks_at_the_end_are_refused_except_in_recorded_output() {
        assert_eq!(messages("a.md", "good\nbad \nbad\t\n"), ["a.md:2", "a.md:3"]);
        assert!(messages("help.snap", "one line \n").is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_refused_and_longer_paths_are_not() {
        for word in MACHINE_WORDS {
            assert_eq!(messages("a.md", &format!("see {word}main")), ["a.md:1"], "{word}");
            assert!(messages("a.md", &format!("see base{word}main")).is_empty(), "{word}");
        }
        assert!(messages("a.rs", "/workspace/file").is_empty());
    }

    #[test]
    fn unfinished_marks_need_an_issue_number() {
        for mark in UNFINISHED_MARKS {
            assert_eq!(messages("a.rs", &format!("// {mark}: later")), ["a.rs:1"]);
            assert_eq!(messages("a.toml", &format!("# {mark}(#) later")), ["a.toml:1"]);
            assert!(messages("a.rs", &format!("// {mark}(#12): later")).is_empty());
            assert!(messages("a.rs", &format!("// {mark} #12")).is_empty());
            assert!(messages("a.rs", &format!("{mark}S_MAX and MY{mark}")).is_empty());
            assert!(messages("STYLE.md", &format!("no {mark} without a number")).is_empty());
        }
    }
}
