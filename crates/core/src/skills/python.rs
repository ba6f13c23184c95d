//! The Python environment of a skill: made once for what its manifests say, inside the box, in a place that can be written to.

use box_wire::{GuestPath, Invalid, Program};
use serde::Deserialize;
use serde_json::json;

use super::{SkillError, SkillUse};
use crate::{Network, limits, shell};

/// What makes an environment, or finds that it is there. Standard Python and nothing else.
const SCRIPT: &str = include_str!("prepare.py");

/// An environment that is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// Its directory in the box.
    pub path: GuestPath,
}

impl Environment {
    /// A line for the shell with the environment before everything else on the path. It says so itself instead of by variables of the
    /// command, because a login shell would forget those.
    pub fn line(&self, command: &str) -> Result<String, Invalid> {
        let home = shell::quote(self.path.as_str())?;
        Ok(format!("export VIRTUAL_ENV={home}; export PATH=\"$VIRTUAL_ENV/bin:$PATH\"; unset PYTHONHOME\n{command}"))
    }
}

/// What makes the environment of a skill that is used in a workspace.
pub(crate) fn command(used: &SkillUse, workspace: &GuestPath, network: Network) -> Program {
    let asked = json!({
        "skill": used.path,
        "name": used.name,
        // The workspace may be read-only. Then it lives as long as the box.
        "places": [
            format!("{}/.strongbox/venvs", workspace.as_str().trim_end_matches('/')),
            "/root/.cache/strongbox/venvs",
            "/tmp/strongbox-venvs",
        ],
        "network": network == Network::On,
        "seconds": limits::SKILL_ENVIRONMENT_SEC_MAX,
    });
    let argv = ["python3", "-I", "-c", SCRIPT, &asked.to_string()];
    Program::Argv(argv.map(str::to_owned).into())
}

/// What the box says of its work. A stranger's words.
#[derive(Debug, Deserialize)]
pub(crate) struct BoxReport {
    path: Option<String>,
    #[serde(default)]
    error: String,
    #[serde(default)]
    output: String,
}

impl BoxReport {
    /// Reads the last line that was written.
    pub(crate) fn read(stdout: &[u8]) -> Option<Self> {
        let line = stdout.trim_ascii_end().rsplit(|byte| *byte == b'\n').next()?;
        serde_json::from_slice(line).ok()
    }

    /// The environment, or why there is none.
    pub(crate) fn environment(self, name: &str, network: Network) -> Result<Environment, SkillError> {
        let refused = |reason| SkillError::Environment { name: name.to_owned(), reason };
        match self.path.as_deref().map(|path| GuestPath::parse("path", path)) {
            Some(Ok(path)) => return Ok(Environment { path }),
            Some(Err(_)) => return Err(refused("the box named no usable directory".to_owned())),
            None => {}
        }
        let mut reason: String = self.error.chars().take(limits::ERROR_CHARS_MAX).collect();
        if network == Network::Off {
            reason.push_str(
                "; this session has no network, so nothing can be downloaded: use a profile with network such as network_basic, \
                 or put the needed wheels into a directory wheels of the skill",
            );
        }
        let skipped = self.output.chars().count().saturating_sub(limits::SKILL_OUTPUT_CHARS_MAX);
        let tail: String = self.output.chars().skip(skipped).collect();
        if !tail.is_empty() {
            reason.push_str("\nThe end of what was written:\n");
            reason.push_str(&tail);
        }
        Err(refused(reason))
    }
}

#[cfg(test)]
mod tests;
