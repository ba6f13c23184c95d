//! The tools that work on files: the agent does the work in the box, and nothing outside of the workspace is touched.

use box_wire::file_op::{self, Answer, FileOp, WriteHow};
use box_wire::{GuestPath, Invalid};
use serde_json::Value;

use super::catalogue::ToolName;
use super::parameters::Parameters;
use super::{ToolContext, result};
use crate::service::FileCall;
use crate::service::files::unexpected;
use crate::{Error, Result, limits};

/// What a model asks of files.
#[derive(Debug)]
pub(super) struct FileTool {
    /// As it was written; the workspace when it was not.
    path: String,
    what: What,
}

#[derive(Debug)]
enum What {
    Read { first: u64, lines_max: u32 },
    Write { content: String },
    Edit { old: String, new: String, all: bool },
    Glob { pattern: String },
    Grep { pattern: String, include: Option<String>, ignore_case: bool },
}

impl FileTool {
    /// Takes the parameters of a tool; nothing when it is none that works on files.
    pub(super) fn take(tool: ToolName, parameters: &mut Parameters) -> Result<Option<Self>, Invalid> {
        let what = match tool {
            ToolName::Exec | ToolName::RunCode | ToolName::Activate => return Ok(None),
            ToolName::Read => What::Read {
                first: parameters.count("offset")?.unwrap_or(1),
                lines_max: lines_max(parameters.count("limit")?),
            },
            ToolName::Write => What::Write { content: content(parameters.needed_text("content")?)? },
            ToolName::Edit => edit(parameters)?,
            ToolName::Glob => What::Glob { pattern: parameters.needed_text("pattern")? },
            ToolName::Grep => What::Grep {
                pattern: parameters.needed_text("pattern")?,
                include: parameters.text("include")?.filter(|include| !include.is_empty()),
                ignore_case: parameters.truth("ignore_case")?,
            },
        };
        let path = match tool {
            ToolName::Glob | ToolName::Grep => {
                parameters.text("path")?.filter(|path| !path.is_empty()).unwrap_or_else(|| ".".to_owned())
            }
            _ => parameters.needed_text("path")?,
        };
        Ok(Some(Self { path, what }))
    }

    /// Has it done.
    pub(super) async fn run(self, context: &ToolContext<'_>) -> Result<Value> {
        match self.perform(context).await {
            Err(Error::File(error)) => Ok(result::of_file_error(&context.session, &error)),
            other => other,
        }
    }

    async fn perform(self, context: &ToolContext<'_>) -> Result<Value> {
        let root = context.root()?;
        let path = file_op::path_below(&root, &self.path)?;
        let input = match &self.what {
            What::Write { content } => Some(content.as_bytes()),
            _ => None,
        };
        let call = FileCall { root, ..FileCall::new(self.op(path.clone())) };
        let asked = context.service.file_op(context.caller, &context.session, &context.request, call, input);
        let (answer, _) = asked.await?;
        self.told(context, path.as_str(), answer)
    }

    fn op(&self, path: GuestPath) -> FileOp {
        match &self.what {
            What::Read { first, lines_max } => {
                FileOp::Lines { path, first: *first, lines_max: *lines_max, bytes_max: limits::TOOL_TEXT_BYTES_MAX }
            }
            What::Write { .. } => FileOp::Write {
                path,
                how: WriteHow::Replace,
                mode: None,
                bytes_max: limits::TOOL_WRITE_BYTES_MAX as u64,
            },
            What::Edit { old, new, all } => FileOp::Edit { path, old: old.clone(), new: new.clone(), all: *all },
            What::Glob { pattern } => {
                FileOp::Glob { path, pattern: pattern.clone(), matches_max: limits::TOOL_GLOB_MAX }
            }
            What::Grep { pattern, include, ignore_case } => FileOp::Grep {
                path,
                pattern: pattern.clone(),
                include: include.clone(),
                ignore_case: *ignore_case,
                matches_max: limits::TOOL_GREP_MAX,
            },
        }
    }

    /// The answer as a model reads it. A box says what it likes; more than was asked for does not get through.
    fn told(&self, context: &ToolContext<'_>, path: &str, answer: Answer) -> Result<Value> {
        let session = &context.session;
        match (&self.what, answer) {
            (What::Read { .. }, Answer::Lines(lines)) if lines.text.len() <= limits::TOOL_TEXT_BYTES_MAX as usize => {
                Ok(result::of_lines(session, path, &lines))
            }
            (What::Write { content }, Answer::Entry(_)) => Ok(result::of_write(session, path, content.len())),
            (What::Edit { .. }, Answer::Edited { replacements }) => Ok(result::of_edit(session, path, replacements)),
            (What::Glob { .. }, Answer::Found { mut paths, truncated }) => {
                let more = truncated || paths.len() > limits::TOOL_GLOB_MAX as usize;
                paths.truncate(limits::TOOL_GLOB_MAX as usize);
                Ok(result::of_glob(session, &paths, more))
            }
            (What::Grep { .. }, Answer::Matched { mut matches, truncated, skipped }) => {
                let more = truncated || matches.len() > limits::TOOL_GREP_MAX as usize;
                matches.truncate(limits::TOOL_GREP_MAX as usize);
                Ok(result::of_grep(session, &matches, more, skipped))
            }
            (_, other) => Err(unexpected(&other)),
        }
    }
}

fn edit(parameters: &mut Parameters) -> Result<What, Invalid> {
    let (old, new) = (parameters.needed_text("old_string")?, parameters.needed_text("new_string")?);
    if old == new {
        let allowed = "another text than old_string: there is nothing to change";
        return Err(Invalid::new("new_string", new, allowed));
    }
    Ok(What::Edit { old, new, all: parameters.truth("replace_all")? })
}

/// Whoever asks for more gets as much as there is, and is told that it is not all.
fn lines_max(asked: Option<u64>) -> u32 {
    let max = limits::TOOL_LINES_MAX;
    asked.map_or(max, |asked| u32::try_from(asked).map_or(max, |asked| asked.min(max)))
}

fn content(text: String) -> Result<String, Invalid> {
    if text.len() <= limits::TOOL_WRITE_BYTES_MAX {
        return Ok(text);
    }
    let allowed = format!("at most {} bytes; write a part, and add the rest with exec", limits::TOOL_WRITE_BYTES_MAX);
    Err(Invalid::new("content", text.len(), allowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn take(tool: &str, parameters: Value) -> Result<FileTool, Invalid> {
        let tool = ToolName::find(tool).unwrap();
        Ok(FileTool::take(tool, &mut Parameters::new(parameters)?)?.unwrap())
    }

    fn op(tool: &str, parameters: Value) -> FileOp {
        take(tool, parameters).unwrap().op("/workspace/f".parse().unwrap())
    }

    #[test]
    fn what_is_not_said_is_what_the_catalogue_promises() {
        let path = || "/workspace/f".parse::<GuestPath>().unwrap();
        let lines = |first, lines_max| FileOp::Lines { path: path(), first, lines_max, bytes_max: 256 << 10 };
        assert_eq!(op("read", json!({"path": "f"})), lines(1, 2000));
        assert_eq!(op("read", json!({"path": "f", "offset": "5", "limit": 10.0})), lines(5, 10));
        assert_eq!(op("read", json!({"path": "f", "limit": 1_000_000})), lines(1, 2000));
        assert_eq!(op("read", json!({"path": "f", "limit": u64::MAX})), lines(1, 2000));
        let glob = FileOp::Glob { path: path(), pattern: "*".to_owned(), matches_max: 100 };
        assert_eq!(op("glob", json!({"pattern": "*"})), glob);
        let grep =
            FileOp::Grep { path: path(), pattern: "a".to_owned(), include: None, ignore_case: true, matches_max: 200 };
        assert_eq!(op("grep", json!({"pattern": "a", "include": "", "ignore_case": "true"})), grep);
        let edit = FileOp::Edit { path: path(), old: "a".to_owned(), new: String::new(), all: false };
        assert_eq!(op("edit", json!({"path": "f", "old_string": "a", "new_string": ""})), edit);
        assert_eq!(take("grep", json!({"pattern": "a"})).unwrap().path, ".");
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let large = "x".repeat(limits::TOOL_WRITE_BYTES_MAX + 1);
        for (tool, parameters, field) in [
            ("read", json!({}), "path"),
            ("read", json!({"path": ["f"]}), "path"),
            ("read", json!({"path": "f", "offset": 0}), "offset"),
            ("write", json!({"path": "f"}), "content"),
            ("write", json!({"path": "f", "content": {"a": 1}}), "content"),
            ("write", json!({"path": "f", "content": large}), "content"),
            ("edit", json!({"path": "f", "old_string": "a"}), "new_string"),
            ("edit", json!({"path": "f", "old_string": "a", "new_string": "a"}), "new_string"),
            ("edit", json!({"path": "f", "old_string": "a", "new_string": "b", "replace_all": 3}), "replace_all"),
            ("glob", json!({"path": "f"}), "pattern"),
            ("grep", json!({"pattern": "a", "include": 7}), "include"),
        ] {
            assert_eq!(take(tool, parameters).unwrap_err().field, field, "{tool}");
        }
    }
}
