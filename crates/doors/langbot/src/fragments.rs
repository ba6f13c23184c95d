//! Long messages as groups of lines: a line that says that parts follow, the parts, and a line that says that they are complete.

use serde::{Deserialize, Serialize};

use crate::limits;

/// A line that belongs to a group. Other messages have no `type`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(tag = "type")]
enum Part<'a> {
    /// Parts follow.
    #[serde(rename = "chunk_start")]
    Start {
        /// Bytes of the message. Old readers do not look at it; neither do we, who count ourselves.
        #[serde(default, skip_deserializing)]
        total_size: usize,
    },
    /// A part.
    #[serde(rename = "chunk_data")]
    Data {
        /// Some of the message.
        #[serde(borrow)]
        data: std::borrow::Cow<'a, str>,
        /// Bytes of the message before it; as above.
        #[serde(default, skip_deserializing)]
        offset: usize,
    },
    /// That was all.
    #[serde(rename = "chunk_end")]
    End,
}

/// A message is longer than any may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Violation;

/// Puts messages together from lines.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    group: Option<Group>,
}

/// The received parts of a message.
#[derive(Debug, Default)]
struct Group {
    text: String,
    lines: usize,
}

impl Assembler {
    /// Takes the next line and returns the message that it completes. Lines that are not fragments are skipped.
    pub(crate) fn push(&mut self, line: &[u8]) -> Result<Option<String>, Violation> {
        let Some(line) = std::str::from_utf8(line).ok().map(str::trim) else { return Ok(None) };
        if !(line.starts_with('{') && line.ends_with('}')) {
            return Ok(None);
        }
        match serde_json::from_str(line) {
            Ok(Part::Start { .. }) => self.group = Some(Group::default()),
            Ok(Part::Data { data, .. }) => self.extend(&data)?,
            Ok(Part::End) => return Ok(self.group.take().map(|group| group.text)),
            Err(_) => return Ok(Some(line.to_owned())),
        }
        Ok(None)
    }

    fn extend(&mut self, data: &str) -> Result<(), Violation> {
        // A part of nothing is nothing.
        let Some(group) = &mut self.group else { return Ok(()) };
        group.lines += 1;
        if group.lines > limits::STDIO_LINES_MAX || group.text.len() + data.len() > limits::RPC_MESSAGE_BYTES_MAX {
            return Err(Violation);
        }
        group.text.push_str(data);
        Ok(())
    }
}

/// A message as lines, each with its end.
pub(crate) fn lines_of(text: &str) -> Vec<String> {
    if text.len() <= limits::STDIO_PART_BYTES_MAX {
        return vec![format!("{text}\n")];
    }
    let mut lines = vec![written(&Part::Start { total_size: text.len() })];
    let mut offset = 0;
    while offset < text.len() {
        let end = text.floor_char_boundary(offset + limits::STDIO_PART_BYTES_MAX);
        lines.push(written(&Part::Data { data: text[offset..end].into(), offset }));
        offset = end;
    }
    lines.push(written(&Part::End));
    lines
}

fn written(part: &Part<'_>) -> String {
    // Nothing in it can fail to be written.
    serde_json::to_string(part).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assembled(lines: &[&str]) -> Vec<String> {
        let mut assembler = Assembler::default();
        lines.iter().filter_map(|line| assembler.push(line.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn short_messages_are_lines_and_long_ones_are_groups() {
        assert_eq!(lines_of("{}"), ["{}\n"]);
        let long = "é".repeat(limits::STDIO_PART_BYTES_MAX);
        let lines = lines_of(&long);
        assert_eq!(lines[0], "{\"type\":\"chunk_start\",\"total_size\":32768}\n");
        assert!(lines[2].ends_with(",\"offset\":16384}\n"), "{:.60}", lines[2]);
        assert_eq!(lines.last().unwrap(), "{\"type\":\"chunk_end\"}\n");
    }

    #[test]
    fn the_numbers_in_a_group_need_not_be_right() {
        let lines = [
            r#"{"type": "chunk_start", "total_size": -5}"#,
            r#"{"type": "chunk_data", "data": "{\"a\"", "offset": "x"}"#,
            "",
            "a line of a library that writes to standard output",
            r#"{"type": "chunk_data", "data": ": 1}"}"#,
            r#"{"type": "chunk_end"}"#,
        ];
        assert_eq!(assembled(&lines), [r#"{"a": 1}"#]);
    }

    #[test]
    fn what_belongs_to_no_group_is_skipped() {
        let stray = [r#"{"type": "chunk_data", "data": "x"}"#, r#"{"type": "chunk_end"}"#, "{\"x\": 1", "x}", "{}"];
        assert_eq!(assembled(&stray), ["{}"]);
        let again = [
            r#"{"type": "chunk_start"}"#,
            r#"{"type": "chunk_data", "data": "lost"}"#,
            r#"{"type": "chunk_start"}"#,
            r#"{"type": "chunk_data", "data": "kept"}"#,
            r#"{"type": "chunk_end"}"#,
        ];
        assert_eq!(assembled(&again), ["kept"]);
    }

    #[test]
    fn a_group_without_end_is_a_violation() {
        let part = |data: &str| format!(r#"{{"type": "chunk_data", "data": "{data}"}}"#);
        for (data, fits) in [("", limits::STDIO_LINES_MAX), (&*"x".repeat(1 << 20), 16)] {
            let mut assembler = Assembler::default();
            assembler.push(br#"{"type": "chunk_start"}"#).unwrap();
            for _ in 0..fits {
                assert_eq!(assembler.push(part(data).as_bytes()), Ok(None));
            }
            assert_eq!(assembler.push(part(data).as_bytes()), Err(Violation));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_message_survives_its_lines(word in "[\\PC\"\\\\\u{1F600}]{1,12}", count in 1_usize..6000) {
            let message = serde_json::json!({ "word": word.repeat(count) }).to_string();
            let lines = lines_of(&message);
            prop_assert!(lines.iter().all(|line| line.len() < 65536));
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            prop_assert_eq!(assembled(&lines), [message]);
        }

        #[test]
        fn no_line_is_too_strange(lines in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20)) {
            let mut assembler = Assembler::default();
            for line in lines {
                let _ = assembler.push(&line);
            }
        }
    }
}
