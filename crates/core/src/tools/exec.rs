//! The tool that runs a command.

use box_wire::{GuestPath, Invalid, Program, RefusalCode, limits as wire_limits};
use serde_json::Value;

use super::parameters::Parameters;
use super::{ToolContext, result};
use crate::call::ExecCall;
use crate::skills::SkillError;
use crate::{Error, Result};

/// What a model asks to be run.
#[derive(Debug)]
pub(super) struct Command {
    line: String,
    timeout_sec: Option<u64>,
    workdir: Option<String>,
    skill_name: Option<String>,
    env: Vec<(String, String)>,
}

impl Command {
    pub(super) fn take(parameters: &mut Parameters) -> Result<Self, Invalid> {
        parameters.skip("description");
        let line = parameters.needed_text("command")?;
        if line.trim().is_empty() {
            return Err(Invalid::new("command", line, "a command line that is not empty"));
        }
        Ok(Self {
            line,
            timeout_sec: parameters.count("timeout_sec")?,
            workdir: parameters.text("workdir")?.filter(|path| !path.trim().is_empty()),
            skill_name: parameters.text("skill_name")?,
            env: parameters.texts_by_name("env")?,
        })
    }

    /// Runs it to its end.
    pub(super) async fn run(self, context: &ToolContext<'_>) -> Result<Value> {
        let skill_name = self.skill_name.clone();
        let mut call = self.into_call(&context.root()?)?;
        if let Err(error) = with_skill(&mut call, context, skill_name.as_deref()).await? {
            return Ok(result::failed(&context.session, error.code(), &error.to_string()));
        }
        match context.service.run(context.caller, &context.session, &context.request, call).await {
            Ok(ended) => Ok(result::of_exec(ended)),
            // Whoever wrote the parameters reads this and can set it right; all else is a matter of the program around.
            Err(Error::Refused(refusal)) if refusal.code == RefusalCode::BadWorkdir => {
                Ok(result::failed(&context.session, "bad_workdir", &refusal.message))
            }
            Err(error) => Err(error),
        }
    }

    fn into_call(self, root: &GuestPath) -> Result<ExecCall, Invalid> {
        let workdir = self.workdir.map(|path| absolute(root, path.trim()));
        let timeout_ms = |seconds: u64| seconds.saturating_mul(1000).min(wire_limits::TIMEOUT_MS_MAX);
        Ok(ExecCall {
            env: self.env,
            workdir: workdir.transpose()?,
            timeout_ms: self.timeout_sec.map(timeout_ms),
            ..ExecCall::new(Program::Shell(self.line))
        })
    }
}

/// Has a command run in the environment of the skill that it uses, or says why it cannot use it.
async fn with_skill(
    call: &mut ExecCall,
    context: &ToolContext<'_>,
    skill_name: Option<&str>,
) -> Result<Result<(), SkillError>> {
    let Program::Shell(line) = &call.program else { return Ok(Ok(())) };
    let (service, session) = (context.service, &context.session);
    match service.skill_line(context.caller, session, skill_name, call.workdir.as_ref(), line).await {
        Ok(line) => call.program = Program::Shell(line),
        Err(Error::Skill(error)) => return Ok(Err(error)),
        Err(error) => return Err(error),
    }
    Ok(Ok(()))
}

/// A directory of the box, below the workspace unless it starts with a slash. A command may go anywhere in its box.
fn absolute(root: &GuestPath, path: &str) -> Result<GuestPath, Invalid> {
    let path = if path.starts_with('/') { path.to_owned() } else { format!("{root}/{path}") };
    let plain: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    GuestPath::parse("workdir", &format!("/{}", plain.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn command(parameters: Value) -> Result<Command, Invalid> {
        Command::take(&mut Parameters::new(parameters)?)
    }

    fn call(parameters: Value) -> Result<ExecCall, Invalid> {
        command(parameters)?.into_call(&"/workspace".parse()?)
    }

    #[test]
    fn a_deadline_is_understood_however_it_is_written() {
        for (asked, ms) in [
            (json!(999), Some(999_000)),
            (json!("999"), Some(999_000)),
            (json!(999.0), Some(999_000)),
            (json!(u64::MAX), Some(wire_limits::TIMEOUT_MS_MAX)),
            (json!(null), None),
        ] {
            let call = call(json!({"command": "echo hi", "timeout_sec": asked})).unwrap();
            assert_eq!(call.timeout_ms, ms, "{asked}");
        }
    }

    #[test]
    fn a_directory_is_below_the_workspace_or_absolute() {
        for (asked, meant) in [
            (json!("src"), Some("/workspace/src")),
            (json!("./a//b/"), Some("/workspace/a/b")),
            (json!("."), Some("/workspace")),
            (json!("/tmp"), Some("/tmp")),
            (json!(""), None),
            (json!(null), None),
        ] {
            let call = call(json!({"command": "pwd", "workdir": asked})).unwrap();
            assert_eq!(call.workdir.as_ref().map(GuestPath::as_str), meant, "{asked}");
        }
        assert_eq!(call(json!({"command": "pwd", "workdir": "../x"})).unwrap_err().field, "workdir");
    }

    #[test]
    fn the_rest_arrives_as_it_was_said() {
        let call = call(json!({"command": " ls | wc ", "env": {"A": "1"}, "description": "counts"})).unwrap();
        assert_eq!(call.program, Program::Shell(" ls | wc ".to_owned()));
        assert_eq!(call.env, [("A".to_owned(), "1".to_owned())]);
        for (bad, field) in [
            (json!({}), "command"),
            (json!({"command": "  "}), "command"),
            (json!({"command": 7}), "command"),
            (json!({"command": "x", "env": "A=1"}), "env"),
            (json!({"command": "x", "workdir": 7}), "workdir"),
            (json!({"command": "x", "timeout_sec": 1.5}), "timeout_sec"),
        ] {
            assert_eq!(command(bad.clone()).unwrap_err().field, field, "{bad}");
        }
    }
}
