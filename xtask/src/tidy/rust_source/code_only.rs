//! Rust text with everything blanked out that is not code: comments, strings and characters.

/// Replaces comments and the insides of literals by spaces. Line breaks stay, so line numbers stay true.
///
/// This is a small part of Rust's grammar, enough to know what is code: nested block comments, strings with escapes,
/// raw strings with any number of `#`, and characters as opposed to lifetimes.
pub(super) fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after_name = code.ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        if let Some(length) = not_code_bytes(rest, after_name) {
            code.extend(rest[..length].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// The length of the comment or literal at the start of `rest`, or `None` when code is there.
fn not_code_bytes(rest: &str, after_name: bool) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment_bytes(rest));
    }
    if rest.starts_with('"') {
        return Some(string_bytes(rest));
    }
    if rest.starts_with('\'') {
        return character_bytes(rest);
    }
    // `r"` begins a raw string only where no name goes on: in `br"` the `b` is a prefix, in `for"` nothing is.
    if !after_name {
        let prefix_bytes = ["br", "cr", "r"].iter().find(|prefix| rest.starts_with(**prefix)).map(|it| it.len())?;
        return raw_string_bytes(&rest[prefix_bytes..]).map(|length| prefix_bytes + length);
    }
    None
}

fn block_comment_bytes(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

fn string_bytes(rest: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    rest.len()
}

/// `'a'` and `'\n'` are characters; `'a` in `&'a str` is a lifetime and thus code.
fn character_bytes(rest: &str) -> Option<usize> {
    let mut letters = rest.char_indices().skip(1);
    let (_, first) = letters.next()?;
    if first == '\\' {
        let (_, _escaped) = letters.next()?;
        return letters.find(|(_, letter)| *letter == '\'').map(|(at, _)| at + 1);
    }
    let (at, second) = letters.next()?;
    (second == '\'').then_some(at + 1)
}

fn raw_string_bytes(rest: &str) -> Option<usize> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let inside = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(inside.find(&end).map_or(rest.len(), |at| hashes + 1 + at + end.len()))
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[test]
    fn what_is_not_code_is_blanked_and_the_rest_kept() {
        let table = [
            ("a // b\nc", "a \nc"),
            ("a /* b /* c */ d */ e", "a e"),
            (r#"a("b \" c", d)"#, "a( , d)"),
            (r##"a(r#"b " c"#, br"d", for)"##, "a( , , for)"),
            (r"a('b', '\'', '\u{41}') 'c: &'d e", "a( , , ) 'c: &'d e"),
            (r#"r#match = "x";"#, "r#match = ;"),
            ("\"ä\\\\\" a", " a"),
            ("b\"x\" a", "b a"),
        ];
        for (text, expected) in table {
            let squeezed = code_only(text).split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
            let wanted = expected.split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
            assert_eq!(squeezed, wanted, "{text}");
        }
    }

    #[test]
    fn line_numbers_stay_true() {
        let text = "a\n/* b\nc */ d \"e\nf\"\ng";
        assert_eq!(code_only(text).lines().count(), text.lines().count());
        assert_eq!(code_only(text).lines().last(), Some("g"));
    }

    #[test]
    fn unfinished_literals_end_with_the_text() {
        for text in ["\"a", "/* a", "r#\"a\"", "'", "'\\"] {
            assert!(code_only(text).chars().count() <= text.chars().count(), "{text}");
        }
    }
}
