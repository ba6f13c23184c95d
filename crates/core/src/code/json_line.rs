//! Lines of JSON in ASCII. Clients take a stream apart where the network did; a character that is one byte is never in two parts.

use serde::Serialize;

/// A value as one line, with its end.
pub fn ascii_line(value: &impl Serialize) -> Vec<u8> {
    // Nothing that is written here can fail: names are texts, and numbers are finite.
    let json = serde_json::to_string(value).unwrap_or_default();
    let mut line = Vec::with_capacity(json.len() + 1);
    let mut units = [0; 2];
    for character in json.chars() {
        if character.is_ascii() && character != '\u{7f}' {
            line.push(u8::try_from(character).unwrap_or_default());
        } else {
            for unit in character.encode_utf16(&mut units) {
                line.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_line_is_ascii_and_means_the_same(text in any::<String>()) {
            let line = ascii_line(&text);
            prop_assert!(line.is_ascii());
            prop_assert_eq!(line.split(|byte| *byte == b'\n').count(), 2);
            prop_assert_eq!(serde_json::from_slice::<String>(&line).unwrap(), text);
        }
    }
}
