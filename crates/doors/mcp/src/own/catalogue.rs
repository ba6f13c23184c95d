//! Our own tools as a client gets to know them: those of every agent, and control of sessions and processes.

use std::sync::Arc;

use box_core::tools;
use rmcp::model::{Tool, ToolAnnotations, object};
use serde_json::{Value, json};

/// Tools that only look.
const READ_ONLY: [&str; 7] = ["read", "glob", "grep", "session_list", "session_info", "process_list", "process_output"];

/// A tool that controls sessions or processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    SessionList,
    SessionInfo,
    SessionEnd,
    Snapshot,
    Fork,
    ProcessStart,
    ProcessList,
    ProcessOutput,
    ProcessInput,
    ProcessStop,
}

impl Control {
    const ALL: [Self; 10] = [
        Self::SessionList,
        Self::SessionInfo,
        Self::SessionEnd,
        Self::Snapshot,
        Self::Fork,
        Self::ProcessStart,
        Self::ProcessList,
        Self::ProcessOutput,
        Self::ProcessInput,
        Self::ProcessStop,
    ];

    pub(super) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.as_str() == name)
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::SessionList => "session_list",
            Self::SessionInfo => "session_info",
            Self::SessionEnd => "session_end",
            Self::Snapshot => "snapshot",
            Self::Fork => "fork",
            Self::ProcessStart => "process_start",
            Self::ProcessList => "process_list",
            Self::ProcessOutput => "process_output",
            Self::ProcessInput => "process_input",
            Self::ProcessStop => "process_stop",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::SessionList => "Lists your sandboxes, by the session_id that all tools take.",
            Self::SessionInfo => {
                "Tells how a sandbox stands: its state, its limits, and how firmly each of them is held. It fails when there is none yet; \
                 the first exec or write makes it."
            }
            Self::SessionEnd => {
                "Ends a sandbox and everything in it. Files that are not on a mounted directory are lost. The next exec makes a new one."
            }
            Self::Snapshot => {
                "Saves the files of a sandbox as a snapshot, for sandboxes that begin with them: make one with fork. Running programs \
                 are not saved. The sandbox goes on."
            }
            Self::Fork => {
                "Makes another sandbox that begins with the files of this one, or with those of a snapshot. Nothing runs in it yet. Use it \
                 to try something without touching the original: pass its session_id to other tools."
            }
            Self::ProcessStart => {
                "Starts a program in the sandbox that goes on after this call, such as a web server or a watcher. Returns at once. Look at \
                 what it says with process_output, write to it with process_input, end it with process_stop. For commands that \
                 end by themselves use exec."
            }
            Self::ProcessList => {
                "Lists the processes that were started with process_start: whether they run, and how they ended."
            }
            Self::ProcessOutput => {
                "Returns what a process has said, from a byte on, and where to read on. Of long output only part is returned at once."
            }
            Self::ProcessInput => {
                "Writes text to the standard input of a process. Give it the line end that the program waits for."
            }
            Self::ProcessStop => "Ends a process: asks it to, and kills it with everything it started if it does not.",
        }
    }

    fn parameters(self) -> Value {
        let process = json!({"type": "string", "description": "Which process; default if not given."});
        let (required, properties) = match self {
            Self::SessionList | Self::SessionInfo | Self::SessionEnd | Self::ProcessList => (json!([]), json!({})),
            Self::Snapshot => (
                json!([]),
                json!({
                    "name": {
                        "type": "string",
                        "description": "What to call it: NAME or NAME:TAG, in lowercase letters, digits, dashes and underscores. An id is made \
                                        up if not given."
                    },
                }),
            ),
            Self::Fork => (
                json!(["new_session_id"]),
                json!({
                    "new_session_id": {"type": "string", "description": "The name of the new sandbox."},
                    "snapshot": {
                        "type": "string",
                        "description": "Name or id of the snapshot to begin with; the files of the sandbox as they are now if not given."
                    },
                }),
            ),
            Self::ProcessStop => (json!([]), json!({"process_id": process})),
            Self::ProcessStart => (
                json!(["command"]),
                json!({
                    "process_id": {"type": "string", "description": "What to call it; default if not given."},
                    "command": {"type": "string", "description": "A command line for /bin/sh, such as: python3 -m http.server 8000"},
                    "workdir": {"type": "string", "description": "Where to run it; the workspace if not given."},
                    "env": {
                        "type": "object", "additionalProperties": {"type": "string"},
                        "description": "Environment variables for it, by name."
                    },
                }),
            ),
            Self::ProcessOutput => (
                json!([]),
                json!({
                    "process_id": process,
                    "stream": {"type": "string", "enum": ["stdout", "stderr"], "description": "Which stream; stdout if not given."},
                    "from": {
                        "type": "integer",
                        "description": "The byte to begin with, 0 if not given; -4096 means the last 4096 bytes."
                    },
                }),
            ),
            Self::ProcessInput => (
                json!(["text"]),
                json!({
                    "process_id": process,
                    "text": {"type": "string", "description": "What to write."},
                    "end": {"type": "boolean", "description": "Whether its input ends with this; false if not given."},
                }),
            ),
        };
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }
}

/// Whether a tool is one of those that every agent has.
pub(super) fn is_tool(name: &str) -> bool {
    tools::catalogue().iter().any(|tool| tool.name == name)
}

/// All tools. Each takes a session, besides what it takes for its work.
pub(super) fn catalogue() -> Vec<Tool> {
    let work = tools::catalogue().into_iter().map(|tool| shown(tool.name, tool.description, tool.parameters));
    let control =
        Control::ALL.into_iter().map(|tool| shown(tool.as_str(), tool.description().to_owned(), tool.parameters()));
    work.chain(control).collect()
}

fn shown(name: &'static str, description: String, mut parameters: Value) -> Tool {
    if name != "session_list" {
        let about = "Which sandbox to use, by a name of your choice. Leave it out to stay in the one that you have.";
        parameters["properties"]["session_id"] = json!({"type": "string", "description": about});
    }
    let read_only = READ_ONLY.contains(&name);
    let mut annotations = ToolAnnotations::new().read_only(read_only);
    if !read_only {
        annotations = annotations.destructive(true);
    }
    let mut tool = Tool::new(name, description, Arc::new(object(parameters)));
    tool.annotations = Some(annotations);
    tool
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_takes_what_it_says_and_a_session() {
        let tools = catalogue();
        assert_eq!(tools.len(), 18);
        for tool in tools {
            let properties = tool.input_schema["properties"].as_object().unwrap();
            assert_eq!(properties.contains_key("session_id"), tool.name != "session_list", "{}", tool.name);
            for required in tool.input_schema["required"].as_array().unwrap() {
                assert!(properties.contains_key(required.as_str().unwrap()), "{} {required}", tool.name);
            }
            assert!(is_tool(&tool.name) != Control::find(&tool.name).is_some(), "{}", tool.name);
            assert!(tool.description.unwrap().len() > 20);
        }
    }
}
