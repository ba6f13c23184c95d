//! Rules for Markdown: lines of at most 100 columns, and links that lead somewhere.
//!
//! Neither rule looks into code blocks. Tables, comments, link definitions and lines without a place to break may be longer.

use super::Violation;
use super::files::{TextFile, has_extension};
use std::collections::BTreeSet;

/// The longest line of prose.
const COLUMNS_MAX: usize = 100;

/// The rules for all Markdown files. `exists` says whether a path, relative to the root, is there.
pub(crate) fn check(files: &[TextFile], exists: impl Fn(&str) -> bool) -> Vec<Violation> {
    let pages: Vec<&TextFile> = files.iter().filter(|file| has_extension(&file.path, &["md"])).collect();
    let anchors = |path: &str| pages.iter().find(|page| page.path == path).map(|page| anchors(&page.text));
    let mut violations = Vec::new();
    for page in &pages {
        for (index, line) in prose(&page.text) {
            if is_too_long(line) {
                let message = format!("longer than {COLUMNS_MAX} columns; wrap it");
                violations.push(Violation::at(&page.path, index, message));
            }
            for target in targets(line).into_iter().filter(|target| is_relative(target)) {
                if let Err(message) = follow(&page.path, target, &exists, anchors) {
                    violations.push(Violation::at(&page.path, index, message));
                }
            }
        }
    }
    violations
}

/// The lines outside of code blocks, with their indices.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut fence = None;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let content = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| content.starts_with(mark));
        match (fence, mark) {
            (None, None) => lines.push((index, line)),
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
    }
    lines
}

fn is_too_long(line: &str) -> bool {
    let content = line.trim_start();
    let is_exempt = content.starts_with('|') || content.starts_with("<!--") || is_definition(content);
    line.chars().count() > COLUMNS_MAX && !is_exempt && !is_unbreakable(content)
}

/// `[name]: target`.
fn is_definition(content: &str) -> bool {
    content.starts_with('[') && content.contains("]: ")
}

/// Whether a line has no space after its list marker, outside of one link.
fn is_unbreakable(content: &str) -> bool {
    let content = content.trim_start_matches(['-', '*', '>', ' ']);
    let is_link = content.starts_with('[') && content.matches("](").count() == 1 && content.ends_with([')', '.', ',']);
    is_link || !content.contains(' ')
}

/// What the links of a line lead to. Code spans hold no links.
fn targets(line: &str) -> Vec<&str> {
    let is_code = |at: usize| line[..at].matches('`').count() % 2 == 1;
    let inline = line.match_indices("](").filter(|(at, _)| !is_code(*at)).filter_map(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        rest.split([')', ' ']).next()
    });
    let defined = line.split_once("]: ").filter(|_| line.starts_with('[')).map(|(_, target)| target.trim());
    inline.chain(defined).collect()
}

fn is_relative(target: &str) -> bool {
    !target.contains("://") && !target.starts_with("mailto:") && !target.starts_with('<')
}

/// Holds that the target is there, and has the heading that the link names.
fn follow(
    page: &str,
    target: &str,
    exists: impl Fn(&str) -> bool,
    anchors: impl Fn(&str) -> Option<BTreeSet<String>>,
) -> Result<(), String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { Some(page.to_owned()) } else { resolve(page, path) };
    let path = path.filter(|path| exists(path)).ok_or_else(|| format!("the link {target} leads to no file"))?;
    let is_named = |anchors: BTreeSet<String>| anchors.contains(anchor);
    if anchor.is_empty() || anchors(&path).is_none_or(is_named) {
        return Ok(());
    }
    Err(format!("the link {target}: {path} has no such heading"))
}

/// The path that a link of a page means; none for one that leads out of the repository.
fn resolve(page: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/').filter(|part| !["", "."].contains(part)) {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// The headings of a page, spelled as in links.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#').trim())).collect()
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|it| it.is_alphanumeric() || " -_".contains(*it));
    kept.flat_map(char::to_lowercase).map(|it| if it == ' ' { '-' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(pages: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| TextFile { path: (*path).into(), text: (*text).into() };
        let files: Vec<TextFile> = pages.iter().map(file).collect();
        let exists = |path: &str| path == "src/main.rs" || files.iter().any(|file| file.path == path);
        check(&files, exists).into_iter().map(|it| format!("{} {}", it.place, it.message)).collect()
    }

    #[test]
    fn long_lines_of_prose_are_refused_and_only_those() {
        let long = "word ".repeat(21);
        let code = format!("```console\n$ {long}\n```\n~~~\n```\n{long}\n~~~\n");
        let link = format!("- [{long}](a.md)\n[name]: {}\n{}\n", "https://x/".repeat(20), "x".repeat(101));
        let exempt = format!("{code}| {long} |\n<!-- test: given `{long}` -->\n{link}");
        assert_eq!(places(&[("a.md", &exempt)]), [""; 0]);
        let fits = "ä".repeat(98);
        assert_eq!(places(&[("a.md", &format!("{fits} x\n"))]), [""; 0], "columns are not bytes");
        for bad in [long.clone(), format!("- {long}"), format!("## {long}"), format!("see [one](a.md) {long}")] {
            assert_eq!(places(&[("a.md", &bad)]), ["a.md:1 longer than 100 columns; wrap it"], "{bad}");
        }
    }

    #[test]
    fn a_relative_link_must_lead_to_a_file_and_to_a_heading() {
        let other = ("docs/b.md", "# What it's for\n```\n# not one\n```\n");
        for (link, says) in [
            ("docs/b.md", None),
            ("docs/b.md#what-its-for", None),
            ("src/main.rs#L3", None),
            ("https://example.org/x.md", None),
            ("#own", None),
            ("docs/c.md", Some("leads to no file")),
            ("../b.md", Some("leads to no file")),
            ("docs/b.md#not-one", Some("no such heading")),
            ("#other", Some("no such heading")),
        ] {
            for text in [format!("# Own\n[a]({link}) b"), format!("# Own\n[a]: {link}")] {
                let found = places(&[("a.md", &text), other]);
                assert_eq!(found.len(), usize::from(says.is_some()), "{text}: {found:?}");
                assert!(
                    says.is_none_or(|says| found[0].starts_with("a.md:2 ") && found[0].contains(says)),
                    "{found:?}"
                );
            }
        }
        assert_eq!(places(&[("docs/x/a.md", "[b](../b.md)"), other]), [""; 0]);
        assert_eq!(places(&[("a.md", "`[a](nowhere)`")]), [""; 0], "code spans hold no links");
    }
}
