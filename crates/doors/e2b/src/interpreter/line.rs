//! The lines of an answer to `/execute`.

use box_core::call::StreamName;
use box_core::code::{CodeError, CodeEvent, CodeOutput, DisplayValue, ascii_line};
use bytes::Bytes;
use serde::Serialize;

/// One line.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    NumberOfExecutions { execution_count: u64 },
    Stdout(Printed<'a>),
    Stderr(Printed<'a>),
    Result(&'a DisplayValue),
    Error(&'a CodeError),
    Keepalive,
    EndOfExecution,
}

#[derive(Debug, Clone, Serialize)]
struct Printed<'a> {
    text: &'a str,
    /// Nanoseconds since 1970.
    timestamp: i64,
}

/// The line of an event. Clients split a stream where the network did, so each character has one byte.
pub(super) fn of(event: &CodeEvent) -> Bytes {
    let line = match event {
        CodeEvent::Started { execution_count } => Line::NumberOfExecutions { execution_count: *execution_count },
        CodeEvent::Output(output) => match output.stream {
            StreamName::Stdout => Line::Stdout(printed(output)),
            StreamName::Stderr => Line::Stderr(printed(output)),
        },
        CodeEvent::Display(value) => Line::Result(value),
        CodeEvent::Failed(error) => Line::Error(error),
        CodeEvent::Ended(_) => Line::EndOfExecution,
    };
    ascii_line(&line).into()
}

/// The line of a cell that has nothing else to say.
pub(super) fn keepalive() -> Bytes {
    ascii_line(&Line::Keepalive).into()
}

fn printed(output: &CodeOutput) -> Printed<'_> {
    let timestamp = i64::try_from(output.at.as_nanosecond()).unwrap_or_default();
    Printed { text: &output.text, timestamp }
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::code::CodeStatus;
    use jiff::Timestamp;

    #[test]
    fn events_are_the_lines_that_clients_know() {
        let value = DisplayValue { is_main_result: true, text: Some("ü".to_owned()), ..DisplayValue::default() };
        let error = CodeError { name: "E".to_owned(), value: "v".to_owned(), traceback: "t".to_owned() };
        let at = Timestamp::from_second(1).unwrap();
        let output = |stream| CodeEvent::Output(CodeOutput { stream, text: "x\n".to_owned(), at });
        for (event, line) in [
            (CodeEvent::Started { execution_count: 2 }, r#"{"type":"number_of_executions","execution_count":2}"#),
            (output(StreamName::Stdout), r#"{"type":"stdout","text":"x\n","timestamp":1000000000}"#),
            (output(StreamName::Stderr), r#"{"type":"stderr","text":"x\n","timestamp":1000000000}"#),
            (CodeEvent::Display(Box::new(value)), r#"{"type":"result","is_main_result":true,"text":"\u00fc"}"#),
            (CodeEvent::Failed(error), r#"{"type":"error","name":"E","value":"v","traceback":"t"}"#),
            (CodeEvent::Ended(CodeStatus::Completed), r#"{"type":"end_of_execution"}"#),
        ] {
            assert_eq!(of(&event), format!("{line}\n"), "{event:?}");
        }
        assert_eq!(keepalive(), "{\"type\":\"keepalive\"}\n");
    }
}
