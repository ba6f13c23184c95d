//! Rules for Rust sources: size, names, and words that must not occur in code.

mod code_only;

use super::Violation;
use super::files::TextFile;
use code_only::code_only;

/// The longest source file. Most are under half of this; a longer one is two things in one file.
const LINES_MAX: usize = 800;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["utils", "helpers", "common", "misc", "types"];

/// What must not occur in code, and what to do instead.
const FORBIDDEN_CODE: &[(&str, &str)] = &[
    ("#[ignore", "a test that does not run proves nothing; skip it at run time with its reason, or remove it"),
    ("#[allow(", "use #[expect(lint, reason = \"…\")], which complains once it becomes unnecessary"),
    ("#![allow(", "use #![expect(lint, reason = \"…\")], which complains once it becomes unnecessary"),
    ("todo!(", "write it, or leave it out"),
    ("unimplemented!(", "write it, or leave it out"),
    ("dbg!(", "remove it"),
];

/// The rules.
pub(crate) fn check(file: &TextFile) -> Vec<Violation> {
    if !file.is_rust() {
        return Vec::new();
    }
    let code = code_only(&file.text);
    let mut violations = check_whole(file);
    violations.extend(
        file.text.lines().enumerate().filter(|(_, line)| line.contains('\t')).map(|(index, _)| {
            Violation::at(&file.path, index, "a tab; indent with spaces, and write \\t in a literal")
        }),
    );
    for (index, line) in code.lines().enumerate() {
        for (word, instead) in FORBIDDEN_CODE.iter().filter(|(word, _)| occurs(line, word)) {
            violations.push(Violation::at(&file.path, index, format!("`{word}` is not used here: {instead}")));
        }
    }
    violations.extend(check_unsafe(file, &code));
    violations
}

fn check_whole(file: &TextFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    let line_count = file.text.lines().count();
    if line_count > LINES_MAX {
        let message = format!("{line_count} lines; split it, {LINES_MAX} are the limit and 400 the habit");
        violations.push(Violation::new(&file.path, message));
    }
    let mut parts = file.path.trim_end_matches(".rs").split('/');
    if let Some(name) = parts.find(|part| EMPTY_NAMES.contains(part)) {
        violations.push(Violation::new(&file.path, format!("`{name}` names nothing; name it after what is inside")));
    }
    violations
}

/// Unsafe code lives only in modules that say at their top why they need it.
fn check_unsafe(file: &TextFile, code: &str) -> Vec<Violation> {
    if explains_unsafe(code) {
        return Vec::new();
    }
    let message = "`unsafe` in a module without #![expect(unsafe_code, reason = \"…\")]";
    let lines = code.lines().enumerate().filter(|(_, line)| occurs(line, "unsafe"));
    lines.map(|(index, _)| Violation::at(&file.path, index, message)).collect()
}

fn explains_unsafe(code: &str) -> bool {
    code.match_indices("expect(").any(|(at, _)| {
        let attribute = code[at..].split(")]").next().unwrap_or_default();
        occurs(attribute, "unsafe_code") && occurs(attribute, "reason")
    })
}

/// Whether `word` occurs, not as a part of a longer name.
fn occurs(code: &str, word: &str) -> bool {
    let is_name_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(word).any(|(at, _)| {
        let joined_before = word.starts_with(is_name_part) && code[..at].ends_with(is_name_part);
        let joined_after = word.ends_with(is_name_part) && code[at + word.len()..].starts_with(is_name_part);
        // `#[ignore` must also match `#[ignore = "…"]`, but not `#[ignored_by_us]`.
        !joined_before && !joined_after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(path: &str, text: &str) -> Vec<String> {
        check(&TextFile { path: path.into(), text: text.into() }).into_iter().map(|it| it.place).collect()
    }

    #[test]
    fn forbidden_words_are_found_in_code() {
        for (word, _) in FORBIDDEN_CODE {
            assert_eq!(places("a.rs", &format!("fn a() {{}}\n{word}")), ["a.rs:2"], "{word}");
        }
        assert_eq!(places("a.rs", "#[ignore = \"slow\"]"), ["a.rs:1"]);
    }

    #[test]
    fn forbidden_words_in_comments_strings_and_longer_names_are_fine() {
        let text = "// no dbg!( here\nlet a = \"todo!(\"; /* #[ignore] */ let b = r#\"#[allow(\"#; my_dbg!(a);";
        assert!(places("a.rs", text).is_empty());
        assert!(places("a.md", "dbg!(").is_empty(), "only Rust is checked");
    }

    #[test]
    fn tabs_are_refused_everywhere() {
        assert_eq!(places("a.rs", "fn a() {\n\tb();\n}"), ["a.rs:2"]);
    }

    #[test]
    fn long_files_and_empty_names_are_refused() {
        assert!(places("a.rs", &"a\n".repeat(LINES_MAX)).is_empty());
        assert_eq!(places("a.rs", &"a\n".repeat(LINES_MAX + 1)), ["a.rs"]);
        assert_eq!(places("src/utils.rs", ""), ["src/utils.rs"]);
        assert_eq!(places("tests/common/mod.rs", ""), ["tests/common/mod.rs"]);
        assert!(places("src/commonplace.rs", "").is_empty());
    }

    #[test]
    fn unsafe_needs_a_reason_in_its_module() {
        assert_eq!(places("a.rs", "fn a() {\n    unsafe { b() }\n}"), ["a.rs:2"]);
        assert_eq!(places("a.rs", "#![expect(unsafe_code)]\nunsafe fn a() {}"), ["a.rs:2"]);
        assert!(places("a.rs", "#![expect(unsafe_code, reason = \"system calls\")]\nunsafe fn a() {}").is_empty());
        let split = "#![expect(\n    unsafe_code,\n    reason = \"system calls (many)]\"\n)]\nunsafe fn a() {}";
        assert!(places("a.rs", split).is_empty());
        assert!(places("a.rs", "// unsafe is a word\n#![deny(unsafe_code)]").is_empty());
    }
}
