//! `strongbox image import`.

use std::path::PathBuf;

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
  docker save python:3.12-slim > python.tar && strongbox image import python.tar
  strongbox image import ./layout --name example.org/tool:1
  strongbox image import rootfs.tar --name tiny")]
pub(crate) struct ImportOptions {
    /// The file or directory
    path: PathBuf,
    /// What to call the image, where the file does not say or says another
    #[arg(long)]
    name: Option<ImageName>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    store: StoreOptions,
}

/// Takes images from a file.
pub(super) async fn main(options: &ImportOptions) -> Result<u8, Fault> {
    let store = options.store.open().await?;
    let show = Show::start(&format!("importing {}", options.path.display()));
    let imported = store.import(&options.path, options.name.as_ref(), show.progress()).await;
    drop(show);
    let images = imported?;
    if options.format.json {
        return listing::write_json(&json!(images));
    }
    for image in images {
        listing::write_out(format!("{} {} {}\n", image.name, image.digest, size(image.size_bytes)).as_bytes())?;
    }
    Ok(0)
}
