//! `strongbox image rm`.

use box_core::ImageName;
use clap::Args;

use super::place::StoreOptions;
use crate::fault::Fault;
use crate::listing;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox image rm python:3.12-slim")]
pub(crate) struct RmOptions {
    /// The images
    #[arg(required = true, value_name = "NAME")]
    names: Vec<ImageName>,
    #[command(flatten)]
    store: StoreOptions,
}

/// Forgets images.
pub(super) async fn main(options: &RmOptions) -> Result<u8, Fault> {
    let store = options.store.open().await?;
    for name in &options.names {
        store.remove(name).await?;
        listing::write_out(format!("{name}\n").as_bytes())?;
    }
    Ok(0)
}
