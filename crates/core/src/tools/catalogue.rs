//! The tools as a model gets to know them. Whatever it can run into is said here, because it has nothing else to read.

use serde::Serialize;
use serde_json::{Value, json};

use crate::code::CodeLanguage;
use crate::limits;

/// A tool, as a model gets to know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it does, when to use it, and what to expect.
    pub description: String,
    /// JSON schema of its parameters.
    #[schema(value_type = Object)]
    pub parameters: Value,
}

/// Which tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolName {
    Exec,
    RunCode,
    Read,
    Write,
    Edit,
    Glob,
    Grep,
    Activate,
}

impl ToolName {
    const ALL: [Self; 8] =
        [Self::Exec, Self::RunCode, Self::Read, Self::Write, Self::Edit, Self::Glob, Self::Grep, Self::Activate];

    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.as_str() == name)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::RunCode => "run_code",
            Self::Read => "read",
            Self::Write => "write",
            Self::Edit => "edit",
            Self::Glob => "glob",
            Self::Grep => "grep",
            Self::Activate => "activate",
        }
    }
}

/// All names, for whoever asked for another one.
pub(super) fn names() -> String {
    ToolName::ALL.map(ToolName::as_str).join(", ")
}

/// All tools.
pub fn catalogue() -> Vec<Tool> {
    let describe = |tool: ToolName| match tool {
        ToolName::Exec => exec(),
        ToolName::RunCode => run_code(),
        ToolName::Read => read(),
        ToolName::Write => write(),
        ToolName::Edit => edit(),
        ToolName::Glob => glob(),
        ToolName::Grep => grep(),
        ToolName::Activate => activate(),
    };
    ToolName::ALL.map(describe).into()
}

fn exec() -> Tool {
    let description = format!(
        "Runs a command line with /bin/sh in your sandbox and returns when it has ended. Files that it leaves in the workspace \
         ({workspace}) are there for the next call; its working directory and its environment are not. ok is true when it \
         ended with exit code 0. stdout and stderr are shortened when they are long: the beginning and the end stay, a notice stands \
         where something is missing, and stdout_truncated or stderr_truncated is true; write long output to a file and use read or \
         grep on it. A command that takes longer than timeout_sec is killed with everything it started: status is timed_out then \
         and exit_code is null. There is no terminal and no input. Whether there is a network depends on the sandbox.",
        workspace = limits::WORKSPACE
    );
    let parameters = schema(
        &["command"],
        &json!({
            "command": text("The command line, such as: python3 -m pytest -q | tail -20"),
            "timeout_sec": {
                "type": "integer", "minimum": 1,
                "description": "Seconds until it is killed; 30 if not given. More than the sandbox allows, usually 120, means as much as it allows."
            },
            "workdir": text("Where to run it: an absolute path in the sandbox, or one below the workspace. The workspace if not given."),
            "env": {
                "type": "object", "additionalProperties": {"type": "string"},
                "description": "Environment variables for this command, by name."
            },
            "skill_name": text("The activated skill that the command uses, if it does not show from the command itself, such as by .skills/NAME in it."),
            "description": text("What the command is for, in a few words. For people who read along; it changes nothing."),
        }),
    );
    tool(ToolName::Exec, description, parameters)
}

fn run_code() -> Tool {
    let languages = CodeLanguage::ALL.map(CodeLanguage::name);
    let description = format!(
        "Runs code in your sandbox, as a cell of a notebook: variables, functions and imports stay for the next call in the same language. \
         Returns text (the value of the last expression), stdout and stderr. When the code raises an error, ok is false and \
         error has its name, its message and the traceback; the names that it had defined stay. Images that it displays, such as plots \
         of matplotlib, are returned as images where you can see them. Code that takes longer than timeout_sec is interrupted. Long \
         text is shortened in the middle. Its working directory is the workspace ({workspace}). Languages: {languages}; the \
         sandbox must have the interpreter, and an error says so if it does not. Use exec for commands, and process_start for servers \
         where you have it.",
        workspace = limits::WORKSPACE,
        languages = languages.join(", "),
    );
    let parameters = schema(
        &["code"],
        &json!({
            "code": text("The code, such as: import math; math.factorial(20)"),
            "language": {"type": "string", "enum": languages, "description": "Its language; python if not given."},
            "timeout_sec": {
                "type": "integer", "minimum": 1,
                "description": "Seconds until it is interrupted; 30 if not given. More than the sandbox allows, usually 120, means as much as it allows."
            },
            "restart": {"type": "boolean", "description": "Whether to forget all variables of the language first; false if not given."},
            "env": {
                "type": "object", "additionalProperties": {"type": "string"},
                "description": "Environment variables for this code only, by name."
            },
        }),
    );
    tool(ToolName::RunCode, description, parameters)
}

fn read() -> Tool {
    let description = format!(
        "Reads lines of a text file in the workspace. Returns content, which is the text itself without line numbers, first_line and \
         lines (which lines these are), and total_lines (how many the file has; null when it was too long to count). At most {lines} \
         lines and {kib} KiB are returned at once: then truncated is true, and notice says how to go on. A file that is not text \
         is refused with code binary; look at it with exec.",
        lines = limits::TOOL_LINES_MAX,
        kib = limits::TOOL_TEXT_BYTES_MAX >> 10
    );
    let parameters = schema(
        &["path"],
        &json!({
            "path": path("The file"),
            "offset": {"type": "integer", "minimum": 1, "description": "Number of the first line to read, from 1; 1 if not given."},
            "limit": {
                "type": "integer", "minimum": 1, "maximum": limits::TOOL_LINES_MAX,
                "description": format!("How many lines to read; {} if not given.", limits::TOOL_LINES_MAX)
            },
        }),
    );
    tool(ToolName::Read, description, parameters)
}

fn write() -> Tool {
    let description = format!(
        "Writes a text file in the workspace: makes it, with the directories above it, or replaces all of what is there at once. To \
         change part of a file use edit. At most {} MiB.",
        limits::TOOL_WRITE_BYTES_MAX >> 20
    );
    let parameters =
        schema(&["path", "content"], &json!({"path": path("The file"), "content": text("All of its new text.")}));
    tool(ToolName::Write, description, parameters)
}

fn edit() -> Tool {
    let description = format!(
        "Replaces a piece of text in a file of the workspace. old_string must be in the file exactly as you write it, with all blanks \
         and line ends, and only once: give enough lines around it to make it unique, or set replace_all. When it is not there \
         (code no_match) or there more than once (code ambiguous), nothing is changed. Returns how many places were changed, as \
         replacements. Files of up to {} MiB.",
        box_wire::limits::EDIT_FILE_BYTES_MAX >> 20
    );
    let parameters = schema(
        &["path", "old_string", "new_string"],
        &json!({
            "path": path("The file"),
            "old_string": text("The text that is there now; not empty."),
            "new_string": text("The text that is to be there instead; empty to remove it."),
            "replace_all": {"type": "boolean", "description": "Whether all places are changed; false if not given."},
        }),
    );
    tool(ToolName::Edit, description, parameters)
}

fn glob() -> Tool {
    let description = format!(
        "Finds files in the workspace by their names. Returns paths, the most recently changed first, at most {}: when there are more, \
         truncated is true; then use a narrower pattern or path. Hidden files are found only where the pattern names them, as in \
         .github/**.",
        limits::TOOL_GLOB_MAX
    );
    let parameters = schema(
        &["pattern"],
        &json!({
            "pattern": text("What the path of a file looks like, seen from path: *.py for those directly in it, **/*.py at any depth, src/**/test_*.{js,ts}."),
            "path": path("The directory to look in; the workspace if not given"),
        }),
    );
    tool(ToolName::Glob, description, parameters)
}

fn grep() -> Tool {
    let description = format!(
        "Searches files in the workspace for lines that match a regular expression. Returns matches with path, line (its number, from \
         1) and text, sorted by path, at most {matches}: when there are more, truncated is true; then narrow the search. Long lines are \
         cut after {chars} characters. As in ripgrep, binary and hidden files are left out, and so is what .gitignore or .ignore names; \
         name such a file as path to search it anyway. skipped_files counts those that could not be searched to their end. The syntax is that of Rust's regex crate: no \
         look-around and no back-references; escape ( [ {{ . * + ? to mean themselves.",
        matches = limits::TOOL_GREP_MAX,
        chars = box_wire::limits::MATCH_CHARS_MAX
    );
    let parameters = schema(
        &["pattern"],
        &json!({
            "pattern": text("The regular expression, such as fn \\w+_test or error|warning."),
            "path": path("The file or directory to search; the workspace if not given"),
            "include": text("Only files that look like this: a name at any depth, such as *.rs, or a path seen from path, such as src/**/*.rs."),
            "ignore_case": {"type": "boolean", "description": "Whether capitals do not matter; false if not given."},
        }),
    );
    tool(ToolName::Grep, description, parameters)
}

fn activate() -> Tool {
    let description = format!(
        "Activates a skill: a package of instructions and files for one kind of work. Returns its instructions, path (where its files are in \
         the sandbox, below {workspace}/.skills) and usage (how to go on). Read the instructions, then follow them with exec and the tools for files. \
         Commands may use a skill only after it was activated in this session, and each command only one. A skill that the sandbox does not \
         show yet is added by making the sandbox anew: then files are lost that are not on a mounted directory. An unknown name is \
         answered with those that are installed.",
        workspace = limits::WORKSPACE
    );
    let parameters = schema(&["skill_name"], &json!({"skill_name": text("Name of the skill, such as pdf-tools.")}));
    tool(ToolName::Activate, description, parameters)
}

fn tool(name: ToolName, description: String, parameters: Value) -> Tool {
    Tool { name: name.as_str(), description, parameters }
}

fn schema(required: &[&str], properties: &Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn path(what: &str) -> Value {
    let rules = "relative to the workspace, or absolute and in it. Without .. in it; links that lead out of the workspace are refused.";
    json!({"type": "string", "description": format!("{what}: {rules}")})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_as_it_was_recorded() {
        insta::assert_json_snapshot!(catalogue());
    }

    #[test]
    fn every_tool_says_what_it_takes() {
        let tools = catalogue();
        assert_eq!(tools.iter().map(|tool| tool.name).collect::<Vec<_>>().join(", "), names());
        for tool in tools {
            assert_eq!(ToolName::find(tool.name).map(ToolName::as_str), Some(tool.name));
            let properties = tool.parameters["properties"].as_object().unwrap();
            for required in tool.parameters["required"].as_array().unwrap() {
                assert!(properties.contains_key(required.as_str().unwrap()), "{} {required}", tool.name);
            }
            let described = |property: &Value| property["description"].as_str().is_some_and(|text| text.len() > 10);
            assert!(properties.values().all(described), "{}", tool.name);
        }
    }
}
