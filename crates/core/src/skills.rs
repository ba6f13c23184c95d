//! Skills in a box: which packages a session mounts, which one a command may use, and the Python environment that it gets.
//!
//! A skill is a package of instructions and files that lies in a tree of the operator's. Everything in it is a stranger's: it is
//! mounted into boxes, where it can do what the box can do, and nothing of it is ever run or obeyed on this side.

mod mounts;
mod python;
mod reference;

use std::fmt::Debug;
use std::path::PathBuf;

use async_trait::async_trait;
use serde::Serialize;

use crate::caller::TenantId;
use crate::{Result, limits};

pub use mounts::{Files, mount_path, mounts};
pub(crate) use mounts::{directory, is_there};
pub use python::Environment;
pub(crate) use python::{BoxReport, command as prepare_command};
pub use reference::{SkillUse, used_skill};

/// A skill, as far as boxes are concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SkillInfo {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// What people see.
    pub display_name: String,
    /// What it is good for; may be empty.
    pub description: String,
    /// What it says to do.
    pub instructions: String,
    /// Where the package is, for whoever makes boxes. A package without a place cannot be mounted.
    pub package_root: String,
    /// File of the package that has the instructions.
    pub entry_file: String,
    /// Whether it looks like a Python project, which gets an environment of its own.
    pub python_project: bool,
}

/// Where the service learns of skills. Tenants never see each other's.
#[async_trait]
pub trait Skills: Send + Sync + Debug {
    /// All skills of a tenant, the one that changed last first.
    async fn list(&self, tenant: &TenantId) -> Result<Vec<SkillInfo>>;

    /// One skill of a tenant, if there is one of that name.
    async fn get(&self, tenant: &TenantId, name: &str) -> Result<Option<SkillInfo>>;

    /// The real path below which all packages of a tenant lie. Nothing outside of it is ever mounted as a skill.
    async fn root(&self, tenant: &TenantId) -> Result<PathBuf>;
}

/// What can be wrong with the use of a skill. The reader is often a language model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillError {
    /// There is no skill of that name.
    #[error("there is no skill {name:?}; {}", installed(.known))]
    NotFound {
        /// As the caller wrote it, shortened.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The skill is there and was not asked for.
    #[error(
        "the skill {name:?} was not activated in this session; call the tool activate with skill_name {name:?} first"
    )]
    NotActivated {
        /// Which one.
        name: String,
    },
    /// One command would use several skills.
    #[error("one command can use one skill, and this one refers to {}; run one command for each", .names.join(" and "))]
    Several {
        /// Those that it refers to.
        names: Vec<String>,
    },
    /// The package cannot be mounted.
    #[error(
        "the package of skill {name:?} is not there any more, or may not be mounted; the log of the server says why, and installing it again helps"
    )]
    Stale {
        /// Which one.
        name: String,
    },
    /// The Python environment could not be made.
    #[error("the Python environment of skill {name:?} could not be prepared: {reason}")]
    Environment {
        /// Whose.
        name: String,
        /// What happened and what to do, with the end of what was written.
        reason: String,
    },
}

impl SkillError {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "skill_not_found",
            Self::NotActivated { .. } => "skill_not_activated",
            Self::Several { .. } => "several_skills",
            Self::Stale { .. } => "skill_stale",
            Self::Environment { .. } => "skill_environment_failed",
        }
    }

    pub(crate) fn not_found(name: &str, skills: &[SkillInfo]) -> Self {
        let known = skills.iter().take(limits::SKILLS_NAMED_MAX).map(|skill| skill.name.clone()).collect();
        Self::NotFound { name: name.chars().take(limits::SKILL_NAME_CHARS_SHOWN).collect(), known }
    }
}

fn installed(names: &[String]) -> String {
    match names {
        [] => "no skill is installed".to_owned(),
        names => format!("installed are {}", names.join(", ")),
    }
}

/// What whoever activated a skill is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Activation {
    /// The skill.
    pub skill_name: String,
    /// What it is good for.
    pub description: String,
    /// What it says to do. A stranger's words.
    pub instructions: String,
    /// Where its package is in the box.
    pub path: String,
    /// Whether the box may change the package.
    pub writable: bool,
    /// Whether commands that use it get a Python environment of its own.
    pub python_project: bool,
    /// How to go on.
    pub usage: String,
}

impl Activation {
    pub(crate) fn new(skill: SkillInfo, path: &box_wire::GuestPath, writable: bool) -> Self {
        let mut usage = format!(
            "The files of the skill are at {path}; {} says what they are for. Run commands there, for instance `cd {path} && ls`. \
             A command can use one skill.",
            skill.entry_file
        );
        if skill.python_project {
            usage.push_str(
                " `python` and `pip` in such commands are those of the skill's own environment, with its requirements.",
            );
        }
        if !writable {
            usage.push_str(" The package is read-only; write to the workspace.");
        }
        Self {
            skill_name: skill.name,
            description: skill.description,
            instructions: skill.instructions,
            path: path.to_string(),
            writable,
            python_project: skill.python_project,
            usage,
        }
    }
}
