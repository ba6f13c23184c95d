//! Glob patterns for paths, with `*`, `?`, `[…]`, `{…}` and `**`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use box_wire::limits::QUOTED_VALUE_CHARS_MAX;
use box_wire::{FileError, FileErrorCode};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Characters that make a pattern of a name.
const SPECIAL: &[char] = &['*', '?', '[', ']', '{', '}', '\\'];

/// Levels of nested alternatives: each takes stack space while the pattern is compiled.
const CHOICES_MAX: usize = 16;

/// A pattern for paths below a directory.
#[derive(Debug)]
pub(super) struct Shape {
    paths: GlobSet,
    /// Hidden names that the pattern names.
    hidden: GlobSet,
    names_git: bool,
    /// Names of the first levels, where the pattern has no choice.
    fixed: Vec<String>,
    /// Levels below the first one on which there can be something; any number when not given.
    levels: Option<usize>,
}

impl Shape {
    /// A pattern for whole paths.
    pub(super) fn of_path(pattern: &str) -> Result<Self, FileError> {
        let pattern = pattern.trim_start_matches("./");
        if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
            let hint = "a pattern is matched against paths below the given one; name the directory by `path`";
            return Err(refuse(FileErrorCode::InvalidPattern, pattern, hint));
        }
        if is_too_deep(pattern) {
            let hint = format!("it has more than {CHOICES_MAX} choices within each other");
            return Err(refuse(FileErrorCode::PatternTooComplex, pattern, &hint));
        }
        let names = dotted(pattern);
        let literal = |part: &&str| !part.contains(SPECIAL);
        let above = pattern.rsplit_once('/').map_or("", |(above, _)| above);
        let fixed = above.split('/').take_while(literal).filter(|part| !part.is_empty()).map(ToOwned::to_owned);
        Ok(Self {
            paths: compile(pattern, [pattern])?,
            hidden: compile(pattern, names.iter().map(String::as_str))?,
            names_git: names.iter().any(|name| name == ".git"),
            fixed: fixed.collect(),
            levels: (!pattern.contains("**")).then(|| pattern.matches('/').count()),
        })
    }

    /// A pattern for names anywhere below, or for whole paths when it has a `/`.
    pub(super) fn of_name_or_path(pattern: &str) -> Result<Self, FileError> {
        if pattern.contains('/') { Self::of_path(pattern) } else { Self::of_path(&format!("**/{pattern}")) }
    }

    /// Whether a path looks like that.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        self.paths.is_match(Path::new(OsStr::from_bytes(path)))
    }

    /// Whether the pattern names a hidden thing, so that it is not hidden from it.
    pub(super) fn names_hidden(&self, name: &[u8]) -> bool {
        let is_git = name == b".git";
        (!is_git || self.names_git) && self.hidden.is_match(Path::new(OsStr::from_bytes(name)))
    }

    /// Whether there can be something in a directory of that name on that level.
    pub(super) fn may_hold(&self, name: &[u8], level: u32) -> bool {
        let level = usize::try_from(level).unwrap_or(usize::MAX);
        self.levels.is_none_or(|levels| level < levels)
            && self.fixed.get(level).is_none_or(|fixed| fixed.as_bytes() == name)
    }
}

/// Whether a pattern has choices within choices to a depth that only harm needs.
pub(super) fn is_too_deep(pattern: &str) -> bool {
    let mut depth = 0_usize;
    pattern.bytes().any(|byte| {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > CHOICES_MAX
    })
}

fn compile<'a>(whole: &str, patterns: impl IntoIterator<Item = &'a str>) -> Result<GlobSet, FileError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let mut glob = GlobBuilder::new(pattern);
        let built = glob.literal_separator(true).backslash_escape(true).empty_alternates(true).build();
        set.add(built.map_err(|error| refuse(FileErrorCode::InvalidPattern, whole, &error.kind().to_string()))?);
    }
    let hint = "it takes too much memory; use a shorter one";
    set.build().map_err(|_| refuse(FileErrorCode::PatternTooComplex, whole, hint))
}

fn refuse(code: FileErrorCode, pattern: &str, reason: &str) -> FileError {
    let quoted: String = pattern.chars().take(QUOTED_VALUE_CHARS_MAX).collect();
    FileError::new(code, format!("the pattern {quoted:?} cannot be used: {reason}"))
}

/// The parts of a pattern that begin with a dot, as patterns of their own: only they show what is hidden.
fn dotted(pattern: &str) -> Vec<String> {
    let begins = |at: usize| at == 0 || matches!(pattern.as_bytes()[at - 1], b'/' | b'{' | b',');
    let dots = pattern.match_indices('.').map(|(at, _)| at).filter(|&at| begins(at));
    dots.map(|at| name_at(&pattern[at..])).filter(|name| name != "." && name != "..").collect()
}

/// The pattern of one name, up to what ends it.
fn name_at(rest: &str) -> String {
    let mut depth = 0;
    for (at, character) in rest.char_indices() {
        match character {
            '/' | ',' | '}' if depth == 0 => return rest[..at].to_owned(),
            // A choice that spans levels: everything that begins like this.
            '/' => return format!("{}*", &rest[..rest.find(SPECIAL).unwrap_or(at)]),
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    rest.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_paths_as_people_expect() {
        for (pattern, path, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "d/a.rs", false),
            ("**/*.rs", "a.rs", true),
            ("**/*.rs", "d/e/a.rs", true),
            ("./src/**", "src/d/a", true),
            ("src/**/t_?.{py,rs}", "src/x/t_1.py", true),
            ("src/[ab]", "src/c", false),
            ("**", "d/e", true),
            ("**/*", "d/e\u{ff}", true),
        ] {
            assert_eq!(Shape::of_path(pattern).unwrap().matches(path.as_bytes()), expected, "{pattern} {path}");
        }
        assert!(Shape::of_name_or_path("*.rs").unwrap().matches(b"d/a.rs"));
        assert!(!Shape::of_name_or_path("d/*.rs").unwrap().matches(b"e/d/a.rs"));
    }

    #[test]
    fn only_what_a_pattern_names_is_not_hidden() {
        for (pattern, name, expected) in [
            ("**/*", ".env", false),
            ("*.x", ".x", false),
            (".env*", ".env.local", true),
            (".github/**/*.yml", ".github", true),
            (".github/**/*.yml", ".hidden.yml", false),
            ("**/{.a,b}/*", ".a", true),
            (".git{hub,lab}/*", ".gitlab", true),
            (".x{a/b,c}", ".xa", true),
            (".*/**", ".git", false),
            (".git/config", ".git", true),
        ] {
            assert_eq!(Shape::of_path(pattern).unwrap().names_hidden(name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_walk_goes_only_where_something_can_be() {
        let shape = Shape::of_path("src/x/*.rs").unwrap();
        assert!(shape.may_hold(b"src", 0) && !shape.may_hold(b"lib", 0));
        assert!(shape.may_hold(b"x", 1) && !shape.may_hold(b"y", 1) && !shape.may_hold(b"z", 2));
        assert!(Shape::of_path("**/*.rs").unwrap().may_hold(b"any", 70));
        assert!(!Shape::of_path("*.rs").unwrap().may_hold(b"any", 0));
    }

    #[test]
    fn bad_patterns_are_refused_in_bounded_time() {
        for pattern in ["[", "{a", "a\\", "/etc/*", "../*", "a/../b"] {
            assert_eq!(Shape::of_path(pattern).unwrap_err().code, FileErrorCode::InvalidPattern, "{pattern}");
        }
        let nested = format!("{}a{}", "{".repeat(4000), "}".repeat(4000));
        let choices = format!("{{{}a}}", "a,".repeat(4000));
        for pattern in [nested, choices, "**/".repeat(200) + "*", "[!a]".repeat(2000), "*a".repeat(4000)] {
            if let Err(refused) = Shape::of_path(&pattern) {
                let known = [FileErrorCode::InvalidPattern, FileErrorCode::PatternTooComplex];
                assert!(known.contains(&refused.code) && refused.message.len() < 1000, "{refused}");
            }
        }
    }
}
