//! The tool that activates a skill.

use box_wire::Invalid;
use serde_json::{Value, json};

use super::parameters::Parameters;
use super::{ToolContext, result};
use crate::session::SessionId;
use crate::skills::Activation;
use crate::{Error, Result};

/// Which skill a model wants.
#[derive(Debug)]
pub(super) struct Activate {
    skill_name: String,
}

impl Activate {
    pub(super) fn take(parameters: &mut Parameters) -> Result<Self, Invalid> {
        Ok(Self { skill_name: parameters.needed_text("skill_name")? })
    }

    /// Activates it.
    pub(super) async fn run(self, context: &ToolContext<'_>) -> Result<Value> {
        let session = &context.session;
        match context.service.activate_skill(context.caller, session, &super::request(), &self.skill_name).await {
            Ok(activation) => told(session, &activation),
            // Whoever wrote the name reads this and can set it right.
            Err(Error::Skill(error)) => Ok(result::failed(session, error.code(), &error.to_string())),
            Err(error) => Err(error),
        }
    }
}

fn told(session: &SessionId, activation: &Activation) -> Result<Value> {
    let unwritable = |error| Error::io("telling of a skill", std::io::Error::other::<serde_json::Error>(error));
    let mut told = serde_json::to_value(activation).map_err(unwritable)?;
    if let (Value::Object(told), Value::Object(head)) = (&mut told, json!({"ok": true, "session_id": session})) {
        told.extend(head);
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skills::SkillInfo;

    #[test]
    fn a_model_reads_what_the_skill_says_and_where_it_is() {
        let skill = SkillInfo {
            name: "a".into(),
            instructions: "do it".into(),
            entry_file: "SKILL.md".into(),
            ..SkillInfo::default()
        };
        let activation = Activation::new(skill, &"/workspace/.skills/a".parse().unwrap(), false);
        let told = told(&"s".parse().unwrap(), &activation).unwrap();
        assert_eq!(
            (&told["ok"], &told["session_id"], &told["instructions"]),
            (&json!(true), &json!("s"), &json!("do it"))
        );
        assert!(told["usage"].as_str().unwrap().contains("read-only"), "{told}");
        let nothing = Activate::take(&mut Parameters::new(json!({})).unwrap()).unwrap_err();
        assert_eq!(nothing.field, "skill_name");
    }
}
