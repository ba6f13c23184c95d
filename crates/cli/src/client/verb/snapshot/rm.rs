//! `strongbox snapshot rm`.

use clap::Args;

use super::snapshot_path;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;

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
    ask(&options.server, async |client| {
        for name in &options.names {
            patiently("deleting", client.delete(&snapshot_path(name))).await?;
            listing::write_out(format!("{}\n", crate::table::visible(name)).as_bytes())?;
        }
        Ok(0)
    })
}
