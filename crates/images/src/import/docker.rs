//! The format of `docker save`: a list of images with the paths of their configurations and layers.

use box_core::ImageName;
use serde::Deserialize;

use super::files::Files;
use super::{Offer, Part, read_config};
use crate::failure::Failure;
use crate::limits::{ARCHIVE_IMAGES_MAX, LAYERS_MAX, MANIFEST_BYTES_MAX};

/// The list.
const LIST: &str = "manifest.json";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Whether the files are such an archive.
pub(super) fn is_one(files: &Files) -> Result<bool, Failure> {
    Ok(files.find(LIST)?.is_some())
}

pub(super) fn offers(files: &Files) -> Result<Vec<Offer>, Failure> {
    let list = files.read(LIST, MANIFEST_BYTES_MAX)?.unwrap_or_default();
    let saved: Vec<Saved> =
        serde_json::from_slice(&list).map_err(|error| format!("its {LIST} cannot be read: {error}"))?;
    if saved.len() > ARCHIVE_IMAGES_MAX || saved.iter().any(|image| image.layers.len() > LAYERS_MAX) {
        return Err(
            format!("it has more than {ARCHIVE_IMAGES_MAX} images, or more than {LAYERS_MAX} layers in one").into()
        );
    }
    saved.into_iter().map(|image| offer(files, image)).collect()
}

fn offer(files: &Files, image: Saved) -> Result<Offer, Failure> {
    let mut layers = Vec::new();
    for path in image.layers {
        let contents = files.find(&path)?.ok_or_else(|| format!("it has no {}", path.escape_debug()))?;
        layers.push(Part { contents, digest: None });
    }
    let mut names = Vec::new();
    for text in image.repo_tags.unwrap_or_default() {
        names.push(text.parse::<ImageName>().map_err(|invalid| invalid.to_string())?);
    }
    let config = read_config(files, &image.config)?;
    Ok(Offer { names, manifest: None, index: None, config, layers, is_plain: false })
}
