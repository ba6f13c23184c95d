//! `strongbox template rm`.

use clap::Args;

use crate::client::http::encoded;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;

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
    ask(&options.server, async |client| {
        for name in &options.names {
            patiently("deleting", client.delete(&format!("/v1/templates/{}", encoded(name)))).await?;
            listing::write_out(format!("{}\n", crate::table::visible(name)).as_bytes())?;
        }
        Ok(0)
    })
}
