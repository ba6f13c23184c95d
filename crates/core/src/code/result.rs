//! The result of a call: its events as one value of bounded size.

use serde::Serialize;

use super::{CodeContext, CodeError, CodeEvent, CodeLanguage, CodeStatus, DisplayValue};
use crate::call::StreamName;
use crate::limits;
use crate::output::{Clipper, clip};
use crate::session::SessionId;

/// A call that is over.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct CodeResult {
    /// The session in which it ran.
    #[schema(value_type = String)]
    pub session_id: SessionId,
    /// The context in which it ran.
    #[schema(example = "default-python")]
    pub context_id: String,
    /// The language of the context.
    pub language: CodeLanguage,
    /// How it ended.
    pub status: CodeStatus,
    /// Cells that the context has run, with this one; nothing when it did not start.
    pub execution_count: Option<u64>,
    /// What was printed; beginning and end when it is too long.
    pub stdout: String,
    /// The same for standard error.
    pub stderr: String,
    /// Whether the middle of standard output was left out.
    pub stdout_truncated: bool,
    /// Whether the middle of standard error was left out.
    pub stderr_truncated: bool,
    /// The value of the last expression, and everything that the code displayed.
    pub results: Vec<DisplayValue>,
    /// Displayed values that are left out, because there were too many or they were too large.
    pub results_dropped: usize,
    /// Why it failed.
    pub error: Option<CodeError>,
    /// From its start to its end, the wait for earlier cells included.
    pub duration_ms: u64,
    /// The deadline that held for it.
    pub timeout_ms: Option<u64>,
    /// The limit that keeps the deadline from being longer, where it is reached: requesting more changes nothing.
    pub timeout_limit: Option<String>,
}

impl CodeResult {
    /// The text of the last expression's value.
    pub fn text(&self) -> Option<&str> {
        self.results.iter().find(|value| value.is_main_result)?.text.as_deref()
    }
}

/// Collects the events of a call, and keeps no more of them than a result may carry.
#[derive(Debug)]
pub struct CodeCollector {
    limit_chars: usize,
    stdout: Clipper,
    stderr: Clipper,
    results: Vec<DisplayValue>,
    results_bytes: usize,
    results_dropped: usize,
    execution_count: Option<u64>,
    error: Option<CodeError>,
    status: CodeStatus,
}

impl CodeCollector {
    /// Nothing yet. Texts of the result have at most `limit_chars` characters each.
    pub fn new(limit_chars: usize) -> Self {
        Self {
            limit_chars,
            stdout: Clipper::new(limit_chars),
            stderr: Clipper::new(limit_chars),
            results: Vec::new(),
            results_bytes: 0,
            results_dropped: 0,
            execution_count: None,
            error: None,
            status: CodeStatus::Failed,
        }
    }

    /// Adds the next event.
    pub fn add(&mut self, event: CodeEvent) {
        match event {
            CodeEvent::Started { execution_count } => self.execution_count = Some(execution_count),
            CodeEvent::Output(output) => match output.stream {
                StreamName::Stdout => self.stdout.push(output.text.as_bytes()),
                StreamName::Stderr => self.stderr.push(output.text.as_bytes()),
            },
            CodeEvent::Display(value) => self.add_value(*value),
            // The first error is the reason; one that comes later says what became of the context.
            CodeEvent::Failed(error) => {
                self.error.get_or_insert_with(|| clipped(&error, self.limit_chars));
            }
            CodeEvent::Ended(status) => self.status = status,
        }
    }

    fn add_value(&mut self, value: DisplayValue) {
        let text = value.text.map(|text| clip(text.as_bytes(), self.limit_chars).text);
        let value = DisplayValue { text, ..value };
        let bytes = value.size_bytes();
        if self.results.len() >= limits::CODE_RESULTS_MAX || bytes > limits::CODE_RESULTS_BYTES_MAX - self.results_bytes
        {
            self.results_dropped += 1;
            return;
        }
        self.results_bytes += bytes;
        self.results.push(value);
    }

    /// The result, without what only the service knows of the call.
    pub(crate) fn finish(self, session_id: SessionId, context: CodeContext) -> CodeResult {
        let (stdout, stderr) = (self.stdout.finish(), self.stderr.finish());
        CodeResult {
            session_id,
            context_id: context.context_id,
            language: context.language,
            status: self.status,
            execution_count: self.execution_count,
            stdout: stdout.text,
            stderr: stderr.text,
            stdout_truncated: stdout.truncated,
            stderr_truncated: stderr.truncated,
            results: self.results,
            results_dropped: self.results_dropped,
            error: self.error,
            duration_ms: 0,
            timeout_ms: None,
            timeout_limit: None,
        }
    }
}

fn clipped(error: &CodeError, limit_chars: usize) -> CodeError {
    let clipped = |text: &str| clip(text.as_bytes(), limit_chars).text;
    CodeError { name: clipped(&error.name), value: clipped(&error.value), traceback: clipped(&error.traceback) }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::code::CodeOutput;

    fn result(limit_chars: usize, events: Vec<CodeEvent>) -> CodeResult {
        let mut collector = CodeCollector::new(limit_chars);
        for event in events {
            collector.add(event);
        }
        let context = CodeContext {
            context_id: "default-python".to_owned(),
            language: CodeLanguage::Python,
            cwd: "/workspace".to_owned(),
            running: true,
            started_at: Timestamp::UNIX_EPOCH,
        };
        collector.finish("s".parse().unwrap(), context)
    }

    fn printed(stream: StreamName, text: &str) -> CodeEvent {
        CodeEvent::Output(CodeOutput { stream, text: text.to_owned(), at: Timestamp::UNIX_EPOCH })
    }

    fn value(text: &str, is_main_result: bool) -> CodeEvent {
        CodeEvent::Display(Box::new(DisplayValue {
            text: Some(text.to_owned()),
            is_main_result,
            ..DisplayValue::default()
        }))
    }

    #[test]
    fn events_become_one_result() {
        let result = result(
            100,
            vec![
                CodeEvent::Started { execution_count: 3 },
                printed(StreamName::Stdout, "a"),
                printed(StreamName::Stderr, "e"),
                printed(StreamName::Stdout, "b"),
                value("shown", false),
                value("42", true),
                CodeEvent::Ended(CodeStatus::Completed),
            ],
        );
        assert_eq!((result.stdout.as_str(), result.stderr.as_str(), result.text()), ("ab", "e", Some("42")));
        assert_eq!((result.status, result.execution_count, result.results.len()), (CodeStatus::Completed, Some(3), 2));
    }

    #[test]
    fn a_result_is_bounded_whatever_the_code_prints_and_displays() {
        let large = "x".repeat(1 << 20);
        let mut events = vec![printed(StreamName::Stdout, &large), value(&large, true)];
        let png = Some("x".repeat(7 << 20));
        events.extend(
            (0..3).map(|_| CodeEvent::Display(Box::new(DisplayValue { png: png.clone(), ..DisplayValue::default() }))),
        );
        events.push(CodeEvent::failed("E", large));
        let result = result(1000, events);
        assert!(result.stdout_truncated && result.stdout.len() <= 1000);
        assert_eq!((result.results.len(), result.results_dropped), (3, 1));
        assert!(result.text().is_some_and(|text| text.len() <= 1000));
        assert!(result.error.is_some_and(|error| error.traceback.len() <= 1000));
    }

    #[test]
    fn the_first_error_is_the_reason() {
        let events = vec![CodeEvent::failed("KeyError", "k"), CodeEvent::failed("ContextDied", "then")];
        assert_eq!(result(100, events).error.unwrap().name, "KeyError");
    }
}
