//! Records of images: which name means which image, and its layers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use box_core::{Error, ImageInfo, ImageName, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::fault;
use crate::limits::{NAMES_MAX, RECORD_BYTES_MAX};
use crate::manifest::Metadata;
use crate::store::{LockMode, Store};

/// The file of names.
const REFERENCES: &str = "references.json";

/// The record of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Digest of its manifest.
    pub manifest: Digest,
    /// Its layers as they are stored, from the lowest up.
    pub layers: Vec<Digest>,
    /// The tree that they make.
    pub tree: Digest,
    /// Bytes of its layers.
    pub size_bytes: u64,
    /// When it came here.
    pub created_at: Timestamp,
    /// The image's wishes about its use.
    pub metadata: Metadata,
}

/// The meaning of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Meaning {
    /// The image.
    manifest: Digest,
    /// The list that it was chosen from; what a pinned name says may be this.
    index: Option<Digest>,
}

/// Which name means which image.
#[derive(Debug, Default, Serialize, Deserialize)]
struct References {
    names: BTreeMap<String, Meaning>,
}

/// Remembers an image and what it is called.
pub(crate) fn remember(
    store: &Arc<Store>,
    record: &ImageRecord,
    index: Option<&Digest>,
    names: &[ImageName],
) -> Result<()> {
    let _lock = store.lock(LockMode::Alone)?;
    store.root.write_atomic(place(&record.manifest), &encode(record)?, 0o600)?;
    fault::point("image_manifest_written");
    let mut references = References::read(store)?;
    for name in names {
        let meaning = Meaning { manifest: record.manifest.clone(), index: index.cloned() };
        references.names.insert(name.to_string(), meaning);
    }
    if references.names.len() > NAMES_MAX {
        let fix = "remove some with `strongbox image rm NAME`".to_owned();
        return Err(Error::Capacity { what: "image".to_owned(), limit: NAMES_MAX, fix });
    }
    references.write(store)?;
    fault::point("image_reference_written");
    Ok(())
}

/// The image of a name, if the store has it. A name that pins a digest means any image of its repository with that
/// digest.
pub(crate) fn find(store: &Store, name: &ImageName) -> Result<Option<ImageRecord>> {
    let references = References::read(store)?;
    let found = references.names.get(&name.to_string()).or_else(|| references.pinned(name));
    let Some(meaning) = found else { return Ok(None) };
    let Some(record) = read(store, &meaning.manifest)? else { return Ok(None) };
    Ok(if store.has(tree_place(&record.tree))? { Some(record) } else { None })
}

/// Every name with its image.
pub(crate) fn list(store: &Store) -> Result<Vec<ImageInfo>> {
    let _lock = store.lock(LockMode::Shared)?;
    let mut images = Vec::new();
    for (name, meaning) in References::read(store)?.names {
        let Some(record) = read(store, &meaning.manifest)? else { continue };
        images.push(record.info(name));
    }
    Ok(images)
}

/// Forgets a name; false when there is none.
pub(crate) fn forget(store: &Store, name: &ImageName) -> Result<bool> {
    let _lock = store.lock(LockMode::Alone)?;
    let mut references = References::read(store)?;
    let was_there = references.names.remove(&name.to_string()).is_some();
    if was_there {
        references.write(store)?;
        fault::point("image_reference_removed");
    }
    Ok(was_there)
}

/// The images that have a name. The lock is the caller's.
pub(crate) fn named(store: &Store) -> Result<Vec<ImageRecord>> {
    let manifests: BTreeSet<Digest> =
        References::read(store)?.names.into_values().map(|meaning| meaning.manifest).collect();
    manifests.iter().filter_map(|manifest| read(store, manifest).transpose()).collect()
}

/// The path of a tree that was built of layers. It differs from those of tar files, in which whiteouts have no meaning.
pub(crate) fn tree_place(tree: &Digest) -> PathBuf {
    Path::new("trees").join(tree_key(tree))
}

/// The name of a tree of layers.
pub(crate) fn tree_key(tree: &Digest) -> String {
    format!("chain-{}", tree.digits())
}

fn place(manifest: &Digest) -> PathBuf {
    Path::new("manifests").join(manifest.digits())
}

/// A record that cannot be read is none: the image is fetched again.
fn read(store: &Store, manifest: &Digest) -> Result<Option<ImageRecord>> {
    if !store.has(place(manifest))? {
        return Ok(None);
    }
    let bytes = store.root.read_to_end(place(manifest), RECORD_BYTES_MAX)?;
    Ok(serde_json::from_slice(&bytes).ok())
}

impl References {
    fn read(store: &Store) -> Result<Self> {
        if !store.has(REFERENCES)? {
            return Ok(Self::default());
        }
        let bytes = store.root.read_to_end(REFERENCES, RECORD_BYTES_MAX)?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let path = store.root.real_path().unwrap_or_default().join(REFERENCES);
            Error::Unavailable {
                what: "the list of images".to_owned(),
                reason: format!("{} cannot be read: {error}", path.display()),
                fix: format!("remove {} and pull the images again", path.display()),
            }
        })
    }

    fn write(&self, store: &Store) -> Result<()> {
        store.root.write_atomic(REFERENCES, &encode(self)?, 0o600)
    }

    fn pinned(&self, name: &ImageName) -> Option<&Meaning> {
        let digest: Digest = name.digest()?.parse().ok()?;
        let is_there = |known: &&String| {
            let known: Option<ImageName> = known.parse().ok();
            known.is_some_and(|known| (known.registry(), known.repository()) == (name.registry(), name.repository()))
        };
        let has_digest = |meaning: &Meaning| meaning.manifest == digest || meaning.index.as_ref() == Some(&digest);
        self.names.iter().filter(|(known, _)| is_there(known)).map(|(_, meaning)| meaning).find(|one| has_digest(one))
    }
}

impl ImageRecord {
    /// The image as it is shown.
    pub(crate) fn info(&self, name: String) -> ImageInfo {
        let digest = self.manifest.to_string();
        ImageInfo { name, digest, size_bytes: self.size_bytes, created_at: Some(self.created_at) }
    }
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::io("writing down an image", error))
}
