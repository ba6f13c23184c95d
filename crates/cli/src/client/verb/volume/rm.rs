//! `strongbox volume rm`.

use clap::Args;

use super::volume_path;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;

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
    ask(&options.server, async |client| {
        for name in &options.names {
            patiently("removing", client.delete(&volume_path(name))).await?;
            listing::write_out(format!("{}\n", crate::table::visible(name)).as_bytes())?;
        }
        Ok(0)
    })
}
