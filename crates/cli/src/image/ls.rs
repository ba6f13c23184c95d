//! `strongbox image ls`.

use clap::Args;
use serde_json::json;

use super::place::StoreOptions;
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox image ls
  strongbox image ls --json | jq -r '.[].name'")]
pub(crate) struct LsOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    store: StoreOptions,
}

/// Lists images.
pub(super) async fn main(options: &LsOptions) -> Result<u8, Fault> {
    let images = options.store.open().await?.list().await?;
    if options.format.json {
        return listing::write_json(&json!(images));
    }
    let mut table = Table::new(&["NAME", "DIGEST", "SIZE", "CREATED"]);
    for image in images {
        let digest = image.digest.trim_start_matches("sha256:").chars().take(12).collect();
        let created = image.created_at.map(|at| at.to_string()).unwrap_or_default();
        table.row([image.name, digest, size(image.size_bytes), created]);
    }
    listing::write_out(table.render().as_bytes())
}

/// Bytes for people.
pub(super) fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}
