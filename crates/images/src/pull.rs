//! An image from its registry.

use std::sync::Arc;

use box_core::public_address::Reach;
use box_core::{ImageInfo, ImageName, Progress, Result};
use futures_util::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::build::Building;
use crate::digest::Digest;
use crate::failure::Failure;
use crate::images::blocking;
use crate::limits::{CONFIG_BYTES_MAX, FETCHES_MAX, INDEX_DEPTH_MAX};
use crate::manifest::{Config, Descriptor, Document, Manifest, choose};
use crate::registry::{Credentials, Registry};
use crate::store::{Store, Turn};
use crate::{ImageRecord, ImagesConfig, record};

/// Which image satisfies a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// The registry's current image.
    Newest,
    /// What the store has when the lock is free, if another task has pulled it meanwhile.
    Any,
}

/// Pulls an image from a registry that may have these addresses. A canceled pull leaves only complete layers behind.
pub(crate) async fn pull(
    store: &Arc<Store>,
    config: &Arc<ImagesConfig>,
    name: &ImageName,
    reach: Reach,
    wanted: Freshness,
    progress: &Progress,
) -> Result<ImageInfo> {
    let pulling = pull_in_turn(store, config, name, reach, wanted, progress);
    let pulled = tokio::time::timeout(config.timeout, pulling).await;
    let pulled = pulled.unwrap_or_else(|_| {
        let reason = format!("it did not arrive within {} seconds", config.timeout.as_secs());
        Err(Failure::Unavailable(reason, "try again, or raise image_pull_timeout_sec"))
    });
    pulled.map_err(|failure| failure.of(name))
}

async fn pull_in_turn(
    store: &Arc<Store>,
    config: &Arc<ImagesConfig>,
    name: &ImageName,
    reach: Reach,
    wanted: Freshness,
    progress: &Progress,
) -> Result<ImageInfo, Failure> {
    let _turn = store.turn(Turn::Name, &name.to_string()).await?;
    if let Some(found) = record::find(store, name)?.filter(|_| wanted == Freshness::Any) {
        return Ok(found.info(name.to_string()));
    }
    let credentials = Credentials::for_registry(config.auth_file.as_deref(), name.registry())?;
    let registry = Registry::new(name, reach, credentials)?;
    let _busy = store.busy().await?;
    let found = find(&registry, name).await?;
    let mut fetches = Vec::new();
    for layer in &found.manifest.layers {
        fetches.push(registry.keep_blob(store, layer, progress));
    }
    futures_util::stream::iter(fetches).buffered(FETCHES_MAX).try_collect::<()>().await?;
    let record = build(store, config, found.manifest, found.config, found.digest, progress).await?;
    let (store, name) = (Arc::clone(store), name.clone());
    Ok(blocking(move || {
        record::remember(&store, &record, found.index.as_ref(), std::slice::from_ref(&name))?;
        Ok(record.info(name.to_string()))
    })
    .await?)
}

/// An image as a registry describes it.
struct RemoteImage {
    digest: Digest,
    index: Option<Digest>,
    manifest: Manifest,
    config: Config,
}

/// Finds the image for this machine, through lists of images if need be. Every step but the first is by digest.
async fn find(registry: &Registry, name: &ImageName) -> Result<RemoteImage, Failure> {
    let pinned: Option<Digest> = name.digest().map(str::parse).transpose()?;
    let asked = pinned.as_ref().map(ToString::to_string);
    let asked = asked.as_deref().or(name.tag()).unwrap_or("latest");
    let mut document = registry.manifest(asked, pinned.as_ref()).await?;
    let mut digest = Digest::of(&document);
    let mut index = None;
    for _ in 0..INDEX_DEPTH_MAX {
        match Document::parse(&document)? {
            Document::Manifest(manifest) => {
                let config = fetch_config(registry, &manifest).await?;
                return Ok(RemoteImage { digest, index, manifest, config });
            }
            Document::Index(entries) => {
                let chosen = choose(&entries)?.descriptor.digest.clone();
                index.get_or_insert(digest);
                document = registry.manifest(&chosen.to_string(), Some(&chosen)).await?;
                digest = chosen;
            }
        }
    }
    Err("its lists of images lead to more lists".into())
}

async fn fetch_config(registry: &Registry, manifest: &Manifest) -> Result<Config, Failure> {
    let Descriptor { digest, size, .. } = &manifest.config;
    if *size > CONFIG_BYTES_MAX {
        return Err(format!("its configuration is larger than {CONFIG_BYTES_MAX} bytes").into());
    }
    let bytes = registry.small_blob(digest, *size).await?;
    Config::parse(&bytes, manifest.layers.len())
}

async fn build(
    store: &Arc<Store>,
    images: &Arc<ImagesConfig>,
    manifest: Manifest,
    config: Config,
    digest: Digest,
    progress: &Progress,
) -> Result<ImageRecord, Failure> {
    let cancel = CancellationToken::new();
    // Unpacking runs on a thread, which does not stop when this future is dropped.
    let _guard = cancel.clone().drop_guard();
    let (store, images, progress) = (Arc::clone(store), Arc::clone(images), Arc::clone(progress));
    let built = blocking(move || {
        let layers: Vec<_> = manifest.layers.iter().map(|layer| (layer.digest.clone(), layer.size)).collect();
        let building = Building {
            layers: &layers,
            config: &config,
            is_plain: false,
            limits: &images.limits,
            cancel: &cancel,
            progress: &progress,
        };
        Ok(building.build(&store).map(|tree| ImageRecord {
            manifest: digest,
            size_bytes: layers.iter().map(|(_, size)| size).sum(),
            layers: layers.into_iter().map(|(layer, _)| layer).collect(),
            tree,
            created_at: Timestamp::now(),
            metadata: config.metadata,
        }))
    });
    built.await?
}
