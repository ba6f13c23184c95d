//! Protobuf's text format, in which nsjail reads its configuration. Whatever a value holds, it stays one value.

use std::fmt::Write;

/// A message that is being written. Names of fields are ours; only values can be a stranger's.
#[derive(Debug, Default)]
pub(crate) struct Text {
    written: String,
    depth: usize,
}

impl Text {
    /// A value of an enumeration.
    pub(crate) fn word(&mut self, name: &'static str, value: &'static str) {
        self.line(name, value);
    }

    /// Yes or no.
    pub(crate) fn flag(&mut self, name: &'static str, value: bool) {
        self.line(name, if value { "true" } else { "false" });
    }

    /// A number.
    pub(crate) fn number(&mut self, name: &'static str, value: u64) {
        self.line(name, &value.to_string());
    }

    /// Text or bytes, which are written in the same way.
    pub(crate) fn bytes(&mut self, name: &'static str, value: impl AsRef<[u8]>) {
        let quoted = quote(value.as_ref());
        self.line(name, &quoted);
    }

    /// A message within this one.
    pub(crate) fn message(&mut self, name: &'static str, fill: impl FnOnce(&mut Self)) {
        self.indent();
        let _ = writeln!(self.written, "{name} {{");
        self.depth += 1;
        fill(self);
        self.depth -= 1;
        self.indent();
        self.written.push_str("}\n");
    }

    /// All that was written.
    pub(crate) fn finish(self) -> String {
        self.written
    }

    fn line(&mut self, name: &str, value: &str) {
        self.indent();
        let _ = writeln!(self.written, "{name}: {value}");
    }

    fn indent(&mut self) {
        self.written.extend(std::iter::repeat_n("  ", self.depth));
    }
}

/// A quoted string. Everything but harmless ASCII becomes three octal digits, so that no digit that follows can be taken for one more
/// of them, and nothing in it can end the string or the line.
fn quote(bytes: &[u8]) -> String {
    let mut quoted = String::with_capacity(bytes.len() + 2);
    quoted.push('"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(byte));
            }
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => {
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a quoted string as protobuf does: up to the first quote that is not escaped. Answers what is left behind it too.
    fn unquote(text: &str) -> Option<(Vec<u8>, &str)> {
        let bytes = text.as_bytes();
        let mut read = Vec::new();
        let mut at = 1;
        if bytes.first() != Some(&b'"') {
            return None;
        }
        loop {
            match *bytes.get(at)? {
                b'"' => return Some((read, &text[at + 1..])),
                b'\n' | 0 => return None,
                b'\\' => match *bytes.get(at + 1)? {
                    digit @ b'0'..=b'7' => {
                        let digits = bytes[at + 1..].iter().take(3).take_while(|digit| (b'0'..=b'7').contains(digit));
                        let count = digits.count();
                        assert!(digit <= b'3' || count < 3, "more than a byte");
                        read.push(u8::from_str_radix(&text[at + 1..at + 1 + count], 8).ok()?);
                        at += 1 + count;
                    }
                    literal @ (b'"' | b'\\') => {
                        read.push(literal);
                        at += 2;
                    }
                    _ => return None,
                },
                plain => {
                    read.push(plain);
                    at += 1;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_value_comes_back_as_it_was_and_nothing_of_it_is_left_over(value in proptest::collection::vec(any::<u8>(), 0..64)) {
            let quoted = quote(&value);
            prop_assert!(quoted.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert_eq!(unquote(&quoted), Some((value, "")));
        }

        #[test]
        fn no_value_adds_a_field(value in "[\"\\\\\n{}: a#'0-9]{0,32}") {
            let mut text = Text::default();
            text.message("mount", |mount| mount.bytes("dst", &value));
            let written = text.finish();
            prop_assert_eq!(written.lines().count(), 3);
            let (read, rest) = unquote(written.lines().nth(1).unwrap().trim_start().strip_prefix("dst: ").unwrap()).unwrap();
            prop_assert_eq!((read, rest), (value.into_bytes(), ""));
        }
    }

    #[test]
    fn messages_are_written_within_messages() {
        let mut text = Text::default();
        text.word("mode", "ONCE");
        text.number("time_limit", 0);
        text.message("mount", |mount| {
            mount.bytes("dst", "/a\"b\u{e9}1");
            mount.flag("rw", true);
        });
        let expected = "mode: ONCE\ntime_limit: 0\nmount {\n  dst: \"/a\\\"b\\303\\2511\"\n  rw: true\n}\n";
        assert_eq!(text.finish(), expected);
    }
}
