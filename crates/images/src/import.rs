//! Images from files: OCI layouts, docker archives, and plain tar files of a root file system.

mod docker;
mod files;
mod layout;

use std::path::Path;
use std::sync::Arc;

use box_core::{ImageInfo, ImageName, Progress, Result};
use jiff::Timestamp;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::files::{Contents, Files};
use crate::build::Building;
use crate::digest::{Digest, DigestingReader};
use crate::failure::Failure;
use crate::layer::Layer;
use crate::limits::{ARCHIVE_IMAGES_MAX, CONFIG_BYTES_MAX};
use crate::manifest::{Config, Metadata};
use crate::measured::{Measure, Measured};
use crate::store::Store;
use crate::{ImageRecord, ImagesConfig, blob, record};

/// An image that a file offers.
struct Offer {
    /// Its names in the file.
    names: Vec<ImageName>,
    /// Digest of its manifest; where there is none, one is made up from its parts.
    manifest: Option<Digest>,
    /// The list that it was chosen from.
    index: Option<Digest>,
    config: Vec<u8>,
    layers: Vec<Part>,
    /// Whether it is taken for a root file system by its shape alone.
    is_plain: bool,
}

/// A layer in a file.
struct Part {
    contents: Contents,
    /// Its expected digest, if the file states one.
    digest: Option<Digest>,
}

/// Imports every image of a file or directory. `name` is the name for a single one.
pub(crate) fn import(
    store: &Arc<Store>,
    config: &ImagesConfig,
    path: &Path,
    name: Option<&ImageName>,
    cancel: &CancellationToken,
    progress: &Progress,
) -> Result<Vec<ImageInfo>> {
    take_all(store, config, path, name, cancel, progress).map_err(|failure| failure.of(path.display()))
}

fn take_all(
    store: &Arc<Store>,
    config: &ImagesConfig,
    path: &Path,
    name: Option<&ImageName>,
    cancel: &CancellationToken,
    progress: &Progress,
) -> Result<Vec<ImageInfo>, Failure> {
    let _busy = store.busy_now()?;
    let files = Files::open(store, path, config, cancel, progress)?;
    let offers = if layout::is_one(&files)? {
        layout::offers(&files)?
    } else if docker::is_one(&files)? {
        docker::offers(&files)?
    } else {
        vec![plain(&files, config, cancel, progress)?]
    };
    match (offers.len(), name) {
        (0, _) => return Err("it has no image for this machine".into()),
        (2.., Some(_)) => return Err("it has several images, so it cannot be given one name".into()),
        (count, _) if count > ARCHIVE_IMAGES_MAX => {
            return Err(format!("it has more than {ARCHIVE_IMAGES_MAX} images").into());
        }
        _ => {}
    }
    let mut taken = Vec::new();
    for mut offer in offers {
        if let Some(name) = name {
            offer.names = vec![name.clone()];
        }
        taken.extend(take(store, config, offer, cancel, progress)?);
    }
    Ok(taken)
}

fn take(
    store: &Arc<Store>,
    images: &ImagesConfig,
    offer: Offer,
    cancel: &CancellationToken,
    progress: &Progress,
) -> Result<Vec<ImageInfo>, Failure> {
    if offer.names.is_empty() {
        return Err("it does not say what it is called; give it a name with --name".into());
    }
    let config = Config::parse(&offer.config, offer.layers.len())?;
    let total_bytes = offer.layers.iter().map(|part| part.contents.size_bytes()).sum();
    let (mut layers, mut done_bytes) = (Vec::new(), 0);
    for part in offer.layers {
        let size = part.contents.size_bytes();
        let contents = Measured::new(part.contents, Measure { progress, part: "copying", done_bytes, total_bytes });
        layers.push((blob::copy(store, contents, size, part.digest.as_ref())?, size));
        done_bytes += size;
    }
    Measure { progress, part: "copying", done_bytes, total_bytes }.tell(0);
    let building = Building {
        layers: &layers,
        config: &config,
        is_plain: offer.is_plain,
        limits: &images.limits,
        cancel,
        progress,
    };
    let tree = building.build(store)?;
    let manifest = offer.manifest.unwrap_or_else(|| made_up(&offer.config, &layers));
    let record = ImageRecord {
        manifest,
        size_bytes: layers.iter().map(|(_, size)| size).sum(),
        layers: layers.into_iter().map(|(layer, _)| layer).collect(),
        tree,
        created_at: Timestamp::now(),
        metadata: config.metadata,
    };
    record::remember(store, &record, offer.index.as_ref(), &offer.names)?;
    Ok(offer.names.iter().map(|name| record.info(name.to_string())).collect())
}

/// The digest of the manifest that an image without one would have.
fn made_up(config: &[u8], layers: &[(Digest, u64)]) -> Digest {
    let layers: Vec<_> = layers.iter().map(|(digest, size)| json!({ "digest": digest, "size": size })).collect();
    let manifest = json!({ "schemaVersion": 2, "config": { "digest": Digest::of(config) }, "layers": layers });
    Digest::of(manifest.to_string().as_bytes())
}

/// A tar file that is nothing but a root file system: an image of one layer.
fn plain(
    files: &Files,
    images: &ImagesConfig,
    cancel: &CancellationToken,
    progress: &Progress,
) -> Result<Offer, Failure> {
    let Some(contents) = files.whole()? else {
        return Err(
            "it is neither an OCI layout nor a tar file; use --image DIR for a directory with a root in it".into()
        );
    };
    let total_bytes = contents.size_bytes();
    let contents = Measured::new(contents, Measure { progress, part: "reading", done_bytes: 0, total_bytes });
    let layer = Layer::open(contents, images.limits.decoded_bytes_max(), cancel.clone());
    let digest = layer.and_then(|layer| DigestingReader::new(layer).finish());
    let digest = digest.map_err(|error| format!("it cannot be read: {error}"))?;
    let config = json!({ "config": Metadata::default(), "rootfs": { "diff_ids": [digest] } }).to_string();
    let contents = files.whole()?.ok_or("it is gone")?;
    let layers = vec![Part { contents, digest: None }];
    Ok(Offer { names: Vec::new(), manifest: None, index: None, config: config.into_bytes(), layers, is_plain: true })
}

/// The configuration of an image, read whole.
fn read_config(files: &Files, path: &str) -> Result<Vec<u8>, Failure> {
    files.read(path, CONFIG_BYTES_MAX)?.ok_or_else(|| format!("it has no {}", path.escape_debug()).into())
}
