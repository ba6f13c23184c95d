//! `strongbox skill`: packages that tell an agent how to do something.

mod install;
mod ls;
mod rm;
mod show;

use clap::Subcommand;
use serde::Deserialize;

use crate::client::http::encoded;
use crate::fault::Fault;

/// What can be done with skills.
#[derive(Debug, Subcommand)]
pub(crate) enum SkillVerb {
    /// List skills
    Ls(ls::LsOptions),
    /// Show one skill: what it is for, what it says to do, and its files
    Show(show::ShowOptions),
    /// Install skills from a zip archive, an address or a directory
    Install(install::InstallOptions),
    /// Remove skills with their packages
    Rm(rm::RmOptions),
}

/// Carries one out.
pub(crate) fn main(verb: &SkillVerb) -> Result<u8, Fault> {
    match verb {
        SkillVerb::Ls(options) => ls::main(options),
        SkillVerb::Show(options) => show::main(options),
        SkillVerb::Install(options) => install::main(options),
        SkillVerb::Rm(options) => rm::main(options),
    }
}

/// What is read of a skill.
#[derive(Debug, Deserialize)]
struct Skill {
    name: String,
    description: String,
    python_project: bool,
    updated_at: jiff::Timestamp,
}

/// The path of a skill, or of something in it.
fn skill_path(name: &str, rest: &str) -> String {
    format!("/v1/skills/{}{rest}", encoded(name))
}
