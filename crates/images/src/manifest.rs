//! Documents of registries and archives: lists of manifests, manifests and configurations.
//!
//! All of it is JSON of a stranger's, read into types that hold no more than is used.

use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::failure::Failure;
use crate::limits::{INDEX_ENTRIES_MAX, LAYERS_MAX, METADATA_BYTES_MAX, STORED_BYTES_MAX};

/// Accepted media types of a manifest.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";
/// Supported media types of layers; the first bytes of a layer determine the actual compression.
const LAYER_KINDS: [&str; 6] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
];
/// The operating system of this machine.
const OS: &str = "linux";
const ARCHITECTURE: &str = "amd64";

/// A part of an image, by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// The document behind a digest or a tag.
#[derive(Debug)]
pub(crate) enum Document {
    /// One image.
    Manifest(Manifest),
    /// Images for several platforms.
    Index(Vec<IndexEntry>),
}

/// One image.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// One image in a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IndexEntry {
    #[serde(flatten)]
    pub(crate) descriptor: Descriptor,
    platform: Option<Platform>,
    #[serde(default)]
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    variant: Option<String>,
}

/// Both kinds of document as they are written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    schema_version: Option<u64>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<IndexEntry>>,
}

impl Document {
    /// Reads a document.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        let written: Written =
            serde_json::from_slice(bytes).map_err(|error| format!("its manifest cannot be read: {error}"))?;
        if written.schema_version.unwrap_or(2) != 2 {
            return Err("manifest schema version 1 has been withdrawn; build and push the image again".into());
        }
        match (written.config, written.layers, written.manifests) {
            (None, None, Some(entries)) if entries.len() <= INDEX_ENTRIES_MAX => Ok(Self::Index(entries)),
            (Some(config), Some(layers), None) => {
                check_layers(&layers)?;
                Ok(Self::Manifest(Manifest { config, layers }))
            }
            // A document that can be read in two ways is refused, because other tools may read it the other way.
            _ => Err("its manifest is neither that of an image nor a list of them, or it is too long".into()),
        }
    }
}

fn check_layers(layers: &[Descriptor]) -> Result<(), Failure> {
    if layers.len() > LAYERS_MAX {
        return Err(format!("it has more than {LAYERS_MAX} layers").into());
    }
    let unknown = layers.iter().find(|layer| !LAYER_KINDS.contains(&layer.media_type.as_str()));
    if let Some(layer) = unknown {
        let kind: String = layer.media_type.chars().take(120).flat_map(char::escape_debug).collect();
        return Err(format!("a layer is of the kind {kind:?}, which cannot be unpacked here").into());
    }
    let stored = layers.iter().try_fold(0_u64, |sum, layer| sum.checked_add(layer.size));
    if stored.is_none_or(|stored| stored > STORED_BYTES_MAX) {
        return Err(format!("its layers are larger than {STORED_BYTES_MAX} bytes together").into());
    }
    Ok(())
}

/// The image of a list that this machine can run.
pub(crate) fn choose(entries: &[IndexEntry]) -> Result<&IndexEntry, Failure> {
    let fits = |entry: &&IndexEntry| entry.fits();
    let plain = |entry: &&IndexEntry| {
        let variant = entry.platform.as_ref().and_then(|platform| platform.variant.as_deref());
        entry.fits() && matches!(variant, None | Some("" | "v1"))
    };
    entries.iter().find(plain).or_else(|| entries.iter().find(fits)).ok_or_else(|| {
        let known = entries.iter().filter_map(|entry| entry.platform.as_ref());
        let known: Vec<_> =
            known.take(8).map(|platform| format!("{}/{}", platform.os, platform.architecture)).collect();
        format!("it is not made for {OS}/{ARCHITECTURE}, only for: {}", known.join(", "))
            .escape_debug()
            .to_string()
            .into()
    })
}

impl IndexEntry {
    /// Whether this machine can run it, as far as that is said.
    pub(crate) fn fits(&self) -> bool {
        self.platform.as_ref().is_some_and(|platform| platform.os == OS && platform.architecture == ARCHITECTURE)
    }

    /// Whether it is said to be for another machine.
    pub(crate) fn is_foreign(&self) -> bool {
        self.platform.is_some() && !self.fits()
    }
}

/// The configuration of an image.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Digests of the layers when they are not compressed, from the lowest up.
    pub(crate) layers: Vec<Digest>,
    /// The image's wishes about its use.
    pub(crate) metadata: Metadata,
}

/// The image's wishes about its use. Kept to be shown; none of them is obeyed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Metadata {
    /// Variables, `NAME=VALUE`.
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<String>,
    /// The user of its commands.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// The program.
    #[serde(deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    /// Its arguments.
    #[serde(deserialize_with = "or_default")]
    pub cmd: Vec<String>,
    /// The working directory.
    #[serde(deserialize_with = "or_default")]
    pub working_dir: String,
}

#[derive(Deserialize)]
struct WrittenConfig {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default, deserialize_with = "or_default")]
    config: Metadata,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default, deserialize_with = "or_default")]
    diff_ids: Vec<Digest>,
}

fn or_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Config {
    /// Parses the configuration of an image with this many layers.
    pub(crate) fn parse(bytes: &[u8], layers: usize) -> Result<Self, Failure> {
        let written: WrittenConfig =
            serde_json::from_slice(bytes).map_err(|error| format!("its configuration cannot be read: {error}"))?;
        let is = |found: &str, ours: &str| found.is_empty() || found == ours;
        if !is(&written.os, OS) || !is(&written.architecture, ARCHITECTURE) {
            let found = format!("{}/{}", written.os, written.architecture);
            return Err(format!("it is made for {}, not for {OS}/{ARCHITECTURE}", found.escape_debug()).into());
        }
        if written.rootfs.diff_ids.len() != layers {
            return Err("its configuration and its manifest have different layers".into());
        }
        if written.config.bytes() > METADATA_BYTES_MAX {
            return Err(format!("its configuration has more than {METADATA_BYTES_MAX} bytes of texts").into());
        }
        Ok(Self { layers: written.rootfs.diff_ids, metadata: written.config })
    }

    /// The name of the tree that the layers make: what the specification of images calls a chain.
    pub(crate) fn chain(&self) -> Digest {
        let mut layers = self.layers.iter();
        let first = layers.next().cloned().unwrap_or_else(|| Digest::of(b""));
        layers.fold(first, |below, layer| Digest::of(format!("{below} {layer}").as_bytes()))
    }
}

impl Metadata {
    fn bytes(&self) -> usize {
        let lists = [&self.env, &self.entrypoint, &self.cmd].into_iter().flatten();
        lists.chain([&self.user, &self.working_dir]).map(String::len).sum()
    }
}

#[cfg(test)]
mod tests;
