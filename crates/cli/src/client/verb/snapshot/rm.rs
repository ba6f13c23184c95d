//! `strongbox snapshot rm`.

use clap::Args;

use super::snapshot_path;
use crate::client::ServerOptions;
use crate::client::removal::remove_each;
use crate::fault::Fault;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
A snapshot with several tags loses the named one only. Sessions that were made from it keep their files.

Examples:
  strongbox snapshot rm deps:v1
  strongbox snapshot ls --json | jq -r '.[].snapshot_id' | xargs -r strongbox snapshot rm")]
pub(crate) struct RmOptions {
    /// The snapshots; the tag `default` is meant where none is named
    #[arg(required = true, value_name = "NAME[:TAG]")]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Deletes snapshots, and writes the name of each that is gone.
pub(crate) fn main(options: &RmOptions) -> Result<u8, Fault> {
    remove_each(&options.server, &options.names, "deleting", snapshot_path)
}
