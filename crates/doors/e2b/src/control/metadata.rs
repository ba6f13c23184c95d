//! What makers write on their sandboxes, and how they ask for it.

use std::collections::BTreeMap;

use crate::failure::E2bFailure;
use crate::limits;

/// Refuses what is too much to write on a sandbox.
pub(super) fn check(metadata: &BTreeMap<String, String>) -> Result<(), E2bFailure> {
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if metadata.len() <= limits::E2B_METADATA_ENTRIES_MAX && bytes <= limits::E2B_METADATA_BYTES_MAX {
        return Ok(());
    }
    let (entries, bytes) = (limits::E2B_METADATA_ENTRIES_MAX, limits::E2B_METADATA_BYTES_MAX);
    Err(E2bFailure::invalid(format!("metadata may have at most {entries} entries and {bytes} bytes")))
}

/// What a query asks of metadata. Clients escape names and values, make a query of them, and escape that as a whole.
pub(super) fn filter(query: &str) -> Result<BTreeMap<String, String>, E2bFailure> {
    let bad = || E2bFailure::invalid("metadata cannot be read; it is like name=value&other=value, escaped twice");
    let whole = unescaped(query).ok_or_else(bad)?;
    let pairs = whole.split('&').filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((unescaped(name)?, unescaped(value)?))
    };
    pairs.map(|pair| read(pair).ok_or_else(bad)).collect()
}

/// Text without percent signs; nothing where one means nothing.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, tail) = rest.split_first_chunk::<2>()?;
        let digits =
            str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_escaped_as_a_whole_and_in_its_parts() {
        // As it is after the one decoding that every query has: names and values were escaped, and then the whole.
        let table: [(&str, &[(&str, &str)]); 5] = [
            ("a%3Db%2520c", &[("a", "b c")]),
            ("a=b", &[("a", "b")]),
            ("a%3D1%26b%3D%252526", &[("a", "1"), ("b", "%26")]),
            ("%25C3%25A9%3D%253D", &[("é", "=")]),
            ("", &[]),
        ];
        for (query, expected) in table {
            let expected = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            assert_eq!(filter(query).unwrap(), expected, "{query}");
        }
        for bad in ["a", "a=%", "%", "%zz=1", "a=%ff"] {
            assert_eq!(filter(bad).unwrap_err().status().as_u16(), 400, "{bad}");
        }
    }

    #[test]
    fn what_is_written_on_a_sandbox_is_bounded() {
        let entry = |number: usize| (number.to_string(), String::new());
        assert!(check(&(0..limits::E2B_METADATA_ENTRIES_MAX).map(entry).collect()).is_ok());
        assert!(check(&(0..=limits::E2B_METADATA_ENTRIES_MAX).map(entry).collect()).is_err());
        assert!(check(&[("a".to_owned(), "x".repeat(limits::E2B_METADATA_BYTES_MAX))].into()).is_err());
    }
}
