//! `strongbox skill rm`.

use clap::Args;

use super::skill_path;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;

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
    ask(&options.server, async |client| {
        for name in &options.names {
            let path = skill_path(name, "");
            patiently("removing", client.delete(&path)).await?;
            listing::write_out(format!("{}\n", crate::table::visible(name)).as_bytes())?;
        }
        Ok(0)
    })
}
