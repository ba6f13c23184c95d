//! What is asked of a build, and what its steps mean.

use std::collections::BTreeMap;

use box_core::limits::SNAPSHOT_TAGS_MAX;
use box_core::snapshots::{DEFAULT_TAG, Reference, check_tag};
use serde::Deserialize;
use serde_json::Value;

use crate::failure::E2bFailure;
use crate::limits;

/// A template that is to be built.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct TemplateAsked {
    name: Option<String>,
    alias: Option<String>,
    tags: Option<Vec<String>>,
    pub(super) cpu_count: Option<u32>,
    #[serde(rename = "memoryMB")]
    pub(super) memory_mb: Option<u64>,
}

impl TemplateAsked {
    /// What it is to be called, and its tags. A tag may stand behind the name.
    pub(super) fn called(&self) -> Result<(Option<String>, Vec<String>), E2bFailure> {
        let name = self.name.as_deref().or(self.alias.as_deref()).filter(|name| !name.is_empty());
        let Reference { template, tag } = Reference::read(name.unwrap_or_default());
        let mut tags: Vec<String> = Vec::new();
        for tag in tag.into_iter().chain(self.tags.iter().flatten().cloned()) {
            check_tag(&tag)?;
            if !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        if tags.len() > SNAPSHOT_TAGS_MAX {
            return Err(E2bFailure::invalid(format!("tags: at most {SNAPSHOT_TAGS_MAX} of them")));
        }
        if tags.is_empty() {
            tags.push(DEFAULT_TAG.to_owned());
        }
        Ok((name.map(|_| template), tags))
    }
}

/// How a template is built.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct BuildAsked {
    pub(super) from_image: Option<String>,
    pub(super) from_template: Option<String>,
    from_image_registry: Option<Value>,
    #[serde(default)]
    steps: Vec<StepAsked>,
    pub(super) start_cmd: Option<String>,
    pub(super) ready_cmd: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StepAsked {
    #[serde(rename = "type")]
    kind: String,
    args: Option<Vec<String>>,
    files_hash: Option<String>,
}

/// One step of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// A line for the shell, and who runs it.
    Run { line: String, user: Option<String> },
    /// Files that were uploaded.
    Copy { what: String, to: String, owner: String, mode: String, hash: String },
    /// Variables from here on.
    Env(BTreeMap<String, String>),
    /// Variables of the following steps, which sandboxes do not have.
    Arg(BTreeMap<String, String>),
    /// The directory from here on.
    Workdir(String),
    /// Who runs what comes from here on.
    User(String),
}

impl BuildAsked {
    /// What is to be done, if all of it can be.
    pub(super) fn steps(&self) -> Result<Vec<Step>, E2bFailure> {
        if self.from_image_registry.as_ref().is_some_and(|registry| !registry.is_null()) {
            return Err(E2bFailure::not_served("fromImageRegistry: an image of a registry that wants a password"));
        }
        if self.steps.len() > limits::E2B_STEPS_MAX {
            return Err(E2bFailure::invalid(format!("steps: at most {} of them", limits::E2B_STEPS_MAX)));
        }
        self.steps.iter().enumerate().map(|(index, step)| step.read(index)).collect()
    }
}

impl StepAsked {
    fn read(&self, index: usize) -> Result<Step, E2bFailure> {
        let args = self.args.as_deref().unwrap_or_default();
        let wrong = |what: &str| E2bFailure::invalid(format!("steps[{index}]: {} {what}", self.kind));
        let text = |place: usize| args.get(place).filter(|text| !text.is_empty()).cloned();
        let needed = |place: usize, what: &str| text(place).ok_or_else(|| wrong(what));
        Ok(match self.kind.as_str() {
            "RUN" => Step::Run { line: needed(0, "needs a command")?, user: text(1) },
            "COPY" | "ADD" => Step::Copy {
                what: needed(0, "needs what to copy")?,
                to: needed(1, "needs where to copy it")?,
                owner: text(2).unwrap_or_default(),
                mode: text(3).unwrap_or_default(),
                hash: self.files_hash.clone().ok_or_else(|| wrong("needs filesHash"))?,
            },
            "ENV" | "ARG" if !args.is_empty() && args.len().is_multiple_of(2) => {
                let pairs = args.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
                if self.kind == "ENV" { Step::Env(pairs) } else { Step::Arg(pairs) }
            }
            "ENV" | "ARG" => return Err(wrong("needs names and values")),
            "WORKDIR" => Step::Workdir(needed(0, "needs a directory")?),
            "USER" => Step::User(needed(0, "needs a name")?),
            _ => return Err(wrong("is not a step; use RUN, COPY, ENV, ARG, WORKDIR or USER")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn steps(steps: &Value) -> Result<Vec<Step>, u16> {
        let asked: BuildAsked = serde_json::from_value(json!({ "fromTemplate": "base", "steps": steps })).unwrap();
        asked.steps().map_err(|failure| failure.status().as_u16())
    }

    #[test]
    fn steps_mean_what_clients_say() {
        let read = steps(&json!([
            { "type": "RUN", "args": ["make", "root"], "force": false },
            { "type": "RUN", "args": ["make"] },
            { "type": "COPY", "args": ["a", "/b", "", "0644"], "filesHash": "h" },
            { "type": "ENV", "args": ["A", "1", "B", ""] },
            { "type": "ARG", "args": ["A", "1"] },
        ]));
        let owned = |text: &str| text.to_owned();
        let expected = [
            Step::Run { line: owned("make"), user: Some(owned("root")) },
            Step::Run { line: owned("make"), user: None },
            Step::Copy { what: owned("a"), to: owned("/b"), owner: owned(""), mode: owned("0644"), hash: owned("h") },
            Step::Env([(owned("A"), owned("1")), (owned("B"), owned(""))].into()),
            Step::Arg([(owned("A"), owned("1"))].into()),
        ];
        assert_eq!(read.unwrap(), expected);
        for bad in [
            json!({ "type": "RUN" }),
            json!({ "type": "COPY", "args": ["a", "/b"] }),
            json!({ "type": "ENV", "args": ["A"] }),
            json!({ "type": "EXPOSE", "args": ["80"] }),
        ] {
            assert_eq!(steps(&json!([bad])), Err(400), "{bad}");
        }
        let asked: BuildAsked = serde_json::from_value(json!({ "fromImageRegistry": { "type": "aws" } })).unwrap();
        assert_eq!(asked.steps().unwrap_err().status().as_u16(), 501);
    }

    #[test]
    fn a_tag_stands_behind_the_name_or_beside_it() {
        let called = |asked: Value| serde_json::from_value::<TemplateAsked>(asked).unwrap().called().unwrap();
        assert_eq!(called(json!({ "name": "mine" })), (Some("mine".into()), vec!["default".into()]));
        let both = json!({ "name": "mine:v1", "tags": ["v2", "v1"] });
        assert_eq!(called(both), (Some("mine".into()), vec!["v1".into(), "v2".into()]));
        assert_eq!(called(json!({ "alias": "mine" })).0, Some("mine".into()));
    }
}
