//! `strongbox template`: templates that were built from steps.

mod ls;
mod rm;

use clap::Subcommand;

use crate::fault::Fault;

/// What can be done with templates.
#[derive(Debug, Subcommand)]
pub(crate) enum TemplateVerb {
    /// List the versions of all templates
    Ls(ls::LsOptions),
    /// Delete templates
    Rm(rm::RmOptions),
}

/// Carries one out.
pub(crate) fn main(verb: &TemplateVerb) -> Result<u8, Fault> {
    match verb {
        TemplateVerb::Ls(options) => ls::main(options),
        TemplateVerb::Rm(options) => rm::main(options),
    }
}
