//! `strongbox image pull`.

use box_core::ImageName;
use clap::Args;
use serde_json::json;

use super::ls::size;
use super::place::StoreOptions;
use super::progress::Show;
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox image pull python:3.12-slim
  strongbox image pull ghcr.io/org/tool@sha256:0123…   # exactly this one
  strongbox run --image python:3.12-slim -- python3 -V")]
pub(crate) struct PullOptions {
    /// The images
    #[arg(required = true, value_name = "NAME")]
    names: Vec<ImageName>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    store: StoreOptions,
}

/// Fetches images, one after the other.
pub(super) async fn main(options: &PullOptions) -> Result<u8, Fault> {
    let store = options.store.open().await?;
    for name in &options.names {
        let show = Show::start(&format!("pulling {name}"));
        let pulled = store.pull(name, show.progress()).await;
        drop(show);
        let image = pulled?;
        if options.format.json {
            listing::write_json(&json!(image))?;
        } else {
            let line = format!("{} {} {}\n", image.name, image.digest, size(image.size_bytes));
            listing::write_out(line.as_bytes())?;
        }
    }
    Ok(0)
}
