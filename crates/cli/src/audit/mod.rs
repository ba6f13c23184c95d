//! `strongbox audit`: what the server wrote down of who did what.

mod log;
mod tail;
mod verify;

use std::path::PathBuf;

use clap::Subcommand;

use crate::config::{Config, PlaceOptions};
use crate::fault::Fault;

/// What can be done with the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Check that nothing in the log was changed, removed or put in; exits with 1 when something was
    Verify(verify::VerifyOptions),
    /// Show the last entries, one line of JSON each
    Tail(tail::TailOptions),
}

/// Carries one out.
pub(crate) fn main(verb: &AuditVerb) -> Result<u8, Fault> {
    match verb {
        AuditVerb::Verify(options) => verify::main(options),
        AuditVerb::Tail(options) => tail::main(options),
    }
}

fn config(place: &PlaceOptions) -> Result<Config, Fault> {
    place.settings(&place.flags())?.config()
}

/// The log of the state that these options name. Nothing is made, and it may be a copy that belongs to somebody else.
fn directory(place: &PlaceOptions) -> Result<PathBuf, Fault> {
    let directory = config(place)?.state_dir.join("audit");
    if directory.is_dir() {
        return Ok(directory);
    }
    Err(Fault::new(format!("there is no audit log in {}", directory.display()))
        .hint("a server makes it; name the server's state with --state-dir"))
}
