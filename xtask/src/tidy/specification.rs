//! SPECIFICATION.md makes promises; each must name the test or benchmark that holds it, and that must exist.
//!
//! Promises are the rows of its tables. The last column holds names in backticks, in one of two forms:
//! `` `suite.rs::case_name` `` is a test function or a named case in that file (or one of `suite.py`), `` `bench:name` `` a benchmark.

use super::Violation;
use super::files::{TextFile, has_extension};

/// The rule.
pub(crate) fn check(name: &str, document: &str, files: &[TextFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, cell) in last_cells(document) {
        let references: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if references.is_empty() {
            violations.push(Violation::at(name, index, "a promise without a test; name one in the last column"));
        }
        for reference in references {
            if let Err(message) = resolve(reference, files) {
                violations.push(Violation::at(name, index, message));
            }
        }
    }
    violations
}

/// The last cell of every table row, with the row's line index. Headings and the lines under them are no promises.
fn last_cells(document: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = document.lines().map(str::trim).collect();
    let is_rule =
        |line: &str| line.starts_with('|') && line.contains('-') && line.chars().all(|it| "|-: ".contains(it));
    let is_promise = |index: usize, line: &str| {
        let is_heading = lines.get(index + 1).is_some_and(|next| is_rule(next));
        line.starts_with('|') && !is_rule(line) && !is_heading
    };
    let rows = lines.iter().enumerate().filter(|(index, line)| is_promise(*index, line));
    rows.map(|(index, line)| (index, line.trim_end_matches('|').rsplit('|').next().unwrap_or_default())).collect()
}

fn resolve(reference: &str, files: &[TextFile]) -> Result<(), String> {
    if let Some(bench) = reference.strip_prefix("bench:") {
        let exists = files.iter().any(|file| file.path.starts_with("benches/") && file.is_rust() && names(file, bench));
        return exists.then_some(()).ok_or_else(|| format!("no benchmark in benches/ is named {bench}"));
    }
    let Some((path, test)) = reference.split_once("::").filter(|(path, _)| has_extension(path, &["rs", "py"])) else {
        return Err(format!("`{reference}` names no test; write `file.rs::test_name` or `bench:name`"));
    };
    let mut candidates =
        files.iter().filter(|file| file.path == path || file.path.ends_with(&format!("/{path}"))).peekable();
    if candidates.peek().is_none() {
        return Err(format!("`{reference}`: no file {path} in the repository"));
    }
    let test = test.rsplit("::").next().unwrap_or(test);
    candidates.any(|file| names(file, test)).then_some(()).ok_or_else(|| format!("`{reference}`: {path} has no {test}"))
}

/// Suites with a runner of their own name their cases by strings; ordinary tests are functions.
fn names(file: &TextFile, name: &str) -> bool {
    let is_name_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let is_defined = |word: &str| {
        let function = format!("{word} {name}");
        file.text.match_indices(&function).any(|(at, found)| !file.text[at + found.len()..].starts_with(is_name_part))
    };
    let has_function = is_defined(if file.is_rust() { "fn" } else { "def" });
    has_function || file.text.contains(&format!("\"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<TextFile> {
        let file = |path: &str, text: &str| TextFile { path: path.into(), text: text.into() };
        vec![
            file("tests/tests/faults.rs", "fn nothing_is_left() {}\ncase(\"kill-at-create\", run)"),
            file("benches/src/main.rs", "(\"create\", create)"),
            file("crates/a/src/create.rs", "fn in_a_module() {}"),
            file("tests/clients/cases/load.py", "async def many_at_once(box):"),
        ]
    }

    fn messages(document: &str) -> Vec<String> {
        check("S.md", document, &files()).into_iter().map(|it| format!("{} {}", it.place, it.message)).collect()
    }

    #[test]
    fn promises_with_real_tests_pass() {
        let document = "\
            | promise | number | held by |\n\
            | --- | :-: | --- |\n\
            | nothing stays | 0 | `faults.rs::nothing_is_left`, `tests/tests/faults.rs::kill-at-create` |\n\
            | fast | 1 | `bench:create` |\n\
            | small | 2 | `create.rs::tests::in_a_module` |\n\
            Text with `other` backticks promises nothing.\n";
        assert_eq!(messages(document), [""; 0]);
    }

    #[test]
    fn promises_that_nothing_holds_are_refused() {
        let table = [
            ("", "a promise without a test"),
            ("`faults.rs::nothing_is`", "has no nothing_is"),
            ("`missing.rs::nothing_is_left`", "no file missing.rs"),
            ("`bench:destroy`", "no benchmark"),
            ("`something else`", "names no test"),
        ];
        for (cell, expected) in table {
            let found = messages(&format!("| promise | held by |\n|---|---|\n| fast | {cell} |\n"));
            assert_eq!(found.len(), 1, "{cell}: {found:?}");
            assert!(found[0].starts_with("S.md:3 ") && found[0].contains(expected), "{found:?}");
        }
    }
}
