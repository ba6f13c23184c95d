//! `strongbox volume show`.

use clap::Args;

use super::{Volume, volume_path};
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::pairs;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox volume show data
  strongbox volume show data --json | jq -r '.sessions[]'")]
pub(crate) struct ShowOptions {
    /// The volume
    name: String,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Shows one volume.
pub(crate) fn main(options: &ShowOptions) -> Result<u8, Fault> {
    let path = volume_path(&options.name);
    let answer = ask(&options.server, async |client| patiently("asking", client.get(&path)).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    let Volume { name, quota_mb, created_at, sessions } = answer.read()?;
    let lines = pairs(&[
        ("volume", name),
        ("quota MiB", quota_mb.to_string()),
        ("created", created_at.to_string()),
        ("sessions", sessions.join(" ")),
    ]);
    listing::write_out(lines.as_bytes())
}
