//! `strongbox template rm`.

use clap::Args;

use crate::client::ServerOptions;
use crate::client::http::encoded;
use crate::client::removal::remove_each;
use crate::fault::Fault;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Sandboxes and sessions that were made from a template keep their files.

Examples:
  strongbox template rm mine
  strongbox template rm mine:v1")]
pub(crate) struct RmOptions {
    /// The templates: with all versions, or one tag only where one is named
    #[arg(required = true, value_name = "NAME[:TAG]")]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Deletes templates, and writes the name of each that is gone.
pub(crate) fn main(options: &RmOptions) -> Result<u8, Fault> {
    remove_each(&options.server, &options.names, "deleting", |name| format!("/v1/templates/{}", encoded(name)))
}
