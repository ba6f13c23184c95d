//! `strongbox volume create`.

use clap::Args;
use serde_json::json;

use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::table::visible;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Two sessions that share files:
    strongbox volume create data
    strongbox exec writer --volume data:/mnt/data -- sh -c 'echo words > /mnt/data/note'
    strongbox exec reader --volume data:/mnt/data:ro -- cat /mnt/data/note")]
pub(crate) struct CreateOptions {
    /// Their names: up to 64 letters, digits, - and _
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Creates volumes, and writes the name of each.
pub(crate) fn main(options: &CreateOptions) -> Result<u8, Fault> {
    ask(&options.server, async |client| {
        for name in &options.names {
            patiently("creating", client.post("/v1/volumes", &json!({ "name": name }))).await?;
            listing::write_out(format!("{}\n", visible(name)).as_bytes())?;
        }
        Ok(0)
    })
}
