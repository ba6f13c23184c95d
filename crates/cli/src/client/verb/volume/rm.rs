//! `strongbox volume rm`.

use clap::Args;

use super::volume_path;
use crate::client::ServerOptions;
use crate::client::removal::remove_each;
use crate::fault::Fault;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox volume rm data

A volume that a session mounts stays: remove the session first.")]
pub(crate) struct RmOptions {
    /// The volumes
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Removes volumes, and writes the name of each that is gone.
pub(crate) fn main(options: &RmOptions) -> Result<u8, Fault> {
    remove_each(&options.server, &options.names, "removing", volume_path)
}
