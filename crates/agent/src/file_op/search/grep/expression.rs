//! Regular expressions of Rust's syntax, within bounds.

use box_wire::limits::QUOTED_VALUE_CHARS_MAX;
use box_wire::{FileError, FileErrorCode};
use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};

/// Most memory of a compiled expression.
const COMPILED_BYTES_MAX: usize = 10 << 20;

/// Memory limit of a thread's lazy DFA cache, which starts over when it is full.
const LEARNED_BYTES_MAX: usize = 10 << 20;

/// Levels of groups.
const LEVELS_MAX: u32 = 100;

/// What a compiler says of an expression that is too large, in whatever words: the sizes and levels that it exceeds.
const EXCEEDS: &str = "exceed";

/// Compiles an expression that matches within lines.
pub(super) fn compile(pattern: &str, ignore_case: bool) -> Result<RegexMatcher, FileError> {
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).unicode(true).case_insensitive(ignore_case).line_terminator(Some(b'\n'));
    builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(LEARNED_BYTES_MAX).nest_limit(LEVELS_MAX);
    builder.build(pattern).map_err(|error| refusal(pattern, error.kind()))
}

fn refusal(pattern: &str, kind: &ErrorKind) -> FileError {
    let quoted: String = pattern.chars().take(QUOTED_VALUE_CHARS_MAX).collect();
    let refuse = |code, reason: &str| FileError::new(code, format!("the pattern {quoted:?} cannot be used: {reason}"));
    match kind {
        ErrorKind::Regex(message) => {
            // The message quotes the expression; what is wrong with it comes last.
            let reason = message.rsplit("error: ").next().unwrap_or(message).trim();
            if reason.contains(EXCEEDS) {
                refuse(FileErrorCode::PatternTooComplex, "it takes too much memory; use a simpler one")
            } else {
                let hint =
                    "it must be a regular expression of Rust's syntax, with \\ before characters such as ( and [";
                refuse(FileErrorCode::InvalidPattern, &format!("{reason}; {hint}"))
            }
        }
        ErrorKind::NotAllowed(_) => {
            refuse(FileErrorCode::InvalidPattern, "it holds a line end, but lines are searched one by one")
        }
        _ => refuse(FileErrorCode::InvalidPattern, "it can match nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(pattern: &str) -> FileError {
        compile(pattern, false).unwrap_err()
    }

    #[test]
    fn bad_expressions_are_refused_by_kind_in_bounded_time() {
        for pattern in ["(", "exceed(", "a{2,1}", r"\y", "[", "a\nb", r"a\nb", "(?=a)", &"(".repeat(5000)] {
            let refused = refused(pattern);
            assert_eq!(refused.code, FileErrorCode::InvalidPattern, "{refused}");
            assert!(refused.message.len() < 1000, "{refused}");
        }
        let nested = format!("{}a{}", "(".repeat(4000), ")".repeat(4000));
        for pattern in ["a{0,65535}{0,65535}", r"(\pL{1000}){1000}", &nested] {
            let refused = refused(pattern);
            assert_eq!(refused.code, FileErrorCode::PatternTooComplex, "{refused}");
        }
        for pattern in ["(a+)+$", "(a|a)*b", r"\bfn\s+\w+", "(?i)x", "a|b", "^$"] {
            assert!(compile(pattern, true).is_ok(), "{pattern}");
        }
    }
}
