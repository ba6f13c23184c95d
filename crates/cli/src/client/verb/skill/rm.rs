//! `strongbox skill rm`.

use clap::Args;

use super::skill_path;
use crate::client::ServerOptions;
use crate::client::removal::remove_each;
use crate::fault::Fault;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox skill rm pdf-tools
  strongbox skill ls --json | jq -r '.[].name' | xargs -r strongbox skill rm")]
pub(crate) struct RmOptions {
    /// The skills
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Removes skills, and writes the name of each that is gone.
pub(crate) fn main(options: &RmOptions) -> Result<u8, Fault> {
    remove_each(&options.server, &options.names, "removing", |name| skill_path(name, ""))
}
