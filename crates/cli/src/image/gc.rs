//! `strongbox image gc`.

use clap::Args;
use serde_json::json;

use super::ls::size;
use super::place::StoreOptions;
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox image gc")]
pub(crate) struct GcOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    store: StoreOptions,
}

/// Removes what nobody needs.
pub(super) async fn main(options: &GcOptions) -> Result<u8, Fault> {
    let freed_bytes = options.store.open().await?.gc().await?;
    if options.format.json {
        return listing::write_json(&json!({ "freed_bytes": freed_bytes }));
    }
    listing::write_out(format!("{} freed\n", size(freed_bytes)).as_bytes())
}
