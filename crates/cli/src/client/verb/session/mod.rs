//! `strongbox session`: what a user holds.

mod create;
pub(super) mod ls;
mod many;
mod show;

use clap::Subcommand;

use crate::fault::Fault;

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionVerb {
    /// List sessions
    Ls(ls::LsOptions),
    /// Make a session, or check that the one of that name is as asked; writes its id
    Create(Box<create::CreateOptions>),
    /// Show one session: what it is, and what it enforces
    Show(show::ShowOptions),
    /// Remove sessions with everything in them
    #[command(after_help = "\
Examples:
  strongbox session rm demo
  strongbox session rm --all
  strongbox session ls --prefix test- --json | jq -r '.[].session_id' | xargs -r strongbox session rm")]
    Rm(many::ManyOptions),
    /// Stop sessions where they are; they keep their memory and use no processor
    #[command(after_help = "\
Examples:
  strongbox session pause demo && strongbox session resume demo")]
    Pause(many::ManyOptions),
    /// Let paused sessions go on
    Resume(many::ManyOptions),
}

/// Carries one out.
pub(crate) fn main(verb: &SessionVerb) -> Result<u8, Fault> {
    match verb {
        SessionVerb::Ls(options) => ls::main(options),
        SessionVerb::Create(options) => create::main(options),
        SessionVerb::Show(options) => show::main(options),
        SessionVerb::Rm(options) => many::main(options, many::Act::Remove),
        SessionVerb::Pause(options) => many::main(options, many::Act::Pause),
        SessionVerb::Resume(options) => many::main(options, many::Act::Resume),
    }
}
