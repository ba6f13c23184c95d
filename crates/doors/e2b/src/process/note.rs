//! What is noted of a process: what its starter said.

use box_core::limits::NOTE_BYTES_MAX;
use box_e2b_wire::process::{ProcessConfig, StartRequest};
use serde::{Deserialize, Serialize};

/// Characters that are kept of each argument and value of a process that has too many of them.
const CUT_CHARS: usize = 64;

/// What its starter said of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// What it is.
    pub(super) config: ProcessConfig,
    /// The caller's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tag: Option<String>,
    /// Whether it has a terminal.
    #[serde(default)]
    pub(super) pty: bool,
    /// Whether something can be sent to it.
    #[serde(default)]
    pub(super) stdin: bool,
}

impl Note {
    /// What is worth noting of a request.
    pub(super) fn of(request: &StartRequest) -> Self {
        Self {
            config: request.process.clone(),
            tag: request.tag.clone(),
            pty: request.pty.is_some(),
            stdin: request.stdin.unwrap_or(true),
        }
    }

    /// As it is kept. Of a process with very long arguments only their beginnings are.
    pub(super) fn written(&self) -> Option<String> {
        let whole = serde_json::to_string(self).ok()?;
        if whole.len() <= NOTE_BYTES_MAX {
            return Some(whole);
        }
        let cut = |text: &String| text.chars().take(CUT_CHARS).collect::<String>();
        let mut shorter = self.clone();
        shorter.config.args = self.config.args.iter().map(cut).collect();
        shorter.config.envs.values_mut().for_each(|value| *value = cut(value));
        serde_json::to_string(&shorter).ok().filter(|text| text.len() <= NOTE_BYTES_MAX)
    }

    /// Reads what was kept.
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_is_remembered() {
        let process = ProcessConfig { cmd: "cat".to_owned(), args: vec!["-".to_owned()], ..ProcessConfig::default() };
        let request = StartRequest { process, tag: Some("t".to_owned()), ..StartRequest::default() };
        let note = Note::of(&request);
        assert!(note.stdin, "who does not say may send something");
        assert_eq!(Note::read(&note.written().unwrap()), Some(note));
        assert_eq!(Note::read("{"), None);
    }

    #[test]
    fn very_long_arguments_are_remembered_by_their_beginnings() {
        let process =
            ProcessConfig { cmd: "x".to_owned(), args: vec!["y".repeat(130_000); 4], ..ProcessConfig::default() };
        let note = Note::of(&StartRequest { process, ..StartRequest::default() });
        let kept = Note::read(&note.written().unwrap()).unwrap();
        assert_eq!((kept.config.args.len(), kept.config.args[3].len()), (4, CUT_CHARS));
    }
}
