//! `strongbox token`: who may come in. Works on the state directory itself, so it also works before a server ever ran.

mod create;
mod list;
mod revoke;

use std::path::Path;
use std::sync::Arc;

use box_core::Store;
use clap::Subcommand;

use crate::config::{Config, PlaceOptions};
use crate::fault::Fault;
use crate::state::{self, StateDir};

/// What can be done with tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenVerb {
    /// Make a token; writes its secret to standard output, this once
    Create(create::CreateOptions),
    /// List tokens; their secrets are not known any more
    List(list::ListOptions),
    /// Make a token worthless, for a running server too
    #[command(after_help = "\
Examples:
  strongbox token list
  strongbox token revoke 3f8a1c9d02be
  The last one, so that every user of this machine comes in over TCP again:
    strongbox token revoke --reopen 3f8a1c9d02be")]
    Revoke(revoke::RevokeOptions),
}

/// Carries one out.
pub(crate) fn main(verb: &TokenVerb) -> Result<u8, Fault> {
    match verb {
        TokenVerb::Create(options) => create::main(options),
        TokenVerb::List(options) => list::main(options),
        TokenVerb::Revoke(options) => revoke::main(options),
    }
}

/// Waits until a running server has applied a change, so that the next command sees it.
fn await_server(state_dir: &Path) {
    if state::is_leased(state_dir) {
        std::thread::sleep(door_http::TOKENS_AGE_MAX);
    }
}

/// The store of the state that these options name.
fn store(place: &PlaceOptions) -> Result<Arc<dyn Store>, Fault> {
    StateDir::open(&config(place)?.state_dir)?.store()
}

/// The configuration that these options name.
fn config(place: &PlaceOptions) -> Result<Config, Fault> {
    place.settings(&place.flags())?.config()
}
