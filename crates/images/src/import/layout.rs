//! OCI image layouts: blobs by their digests, and an index of which are images.

use box_core::ImageName;

use super::files::Files;
use super::{Offer, Part};
use crate::digest::Digest;
use crate::failure::Failure;
use crate::limits::{CONFIG_BYTES_MAX, INDEX_DEPTH_MAX, MANIFEST_BYTES_MAX};
use crate::manifest::{Descriptor, Document, IndexEntry, Manifest, choose};

/// The file that says that something is a layout.
const MARK: &str = "oci-layout";
/// The list of images.
const INDEX: &str = "index.json";
/// Annotations with the name of an image, the full name first.
const NAME_NOTES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];

/// Whether the files are a layout.
pub(super) fn is_one(files: &Files) -> Result<bool, Failure> {
    Ok(files.find(MARK)?.is_some() && files.find(INDEX)?.is_some())
}

pub(super) fn offers(files: &Files) -> Result<Vec<Offer>, Failure> {
    let index = files.read(INDEX, MANIFEST_BYTES_MAX)?.unwrap_or_default();
    let Document::Index(entries) = Document::parse(&index)? else {
        return Err(format!("its {INDEX} is not a list of images").into());
    };
    entries.iter().filter(|entry| !entry.is_foreign()).map(|entry| offer(files, entry)).collect()
}

fn offer(files: &Files, entry: &IndexEntry) -> Result<Offer, Failure> {
    let mut digest = entry.descriptor.digest.clone();
    let mut index = None;
    for _ in 0..INDEX_DEPTH_MAX {
        let bytes = read_blob(files, &digest, MANIFEST_BYTES_MAX)?;
        match Document::parse(&bytes)? {
            Document::Manifest(Manifest { config, layers }) => {
                let config = read_blob(files, &config.digest, CONFIG_BYTES_MAX)?;
                let layers = layers.iter().map(|layer| part(files, layer)).collect::<Result<_, _>>()?;
                let names = name(entry).into_iter().collect();
                return Ok(Offer { names, manifest: Some(digest), index, config, layers, is_plain: false });
            }
            Document::Index(entries) => {
                let chosen = choose(&entries)?.descriptor.digest.clone();
                index.get_or_insert(digest);
                digest = chosen;
            }
        }
    }
    Err("its lists of images lead to more lists".into())
}

/// The name of an image. A note that is only a tag is none.
fn name(entry: &IndexEntry) -> Option<ImageName> {
    let noted = NAME_NOTES.iter().filter_map(|note| entry.annotations.get(*note));
    noted.filter(|text| text.contains(['/', ':'])).find_map(|text| text.parse().ok())
}

fn part(files: &Files, layer: &Descriptor) -> Result<Part, Failure> {
    let contents = files.find(&path(&layer.digest))?.ok_or_else(|| format!("it lacks the layer {}", layer.digest))?;
    if contents.size_bytes() != layer.size {
        return Err(format!("the layer {} is not as large as its manifest says", layer.digest).into());
    }
    Ok(Part { contents, digest: Some(layer.digest.clone()) })
}

fn read_blob(files: &Files, digest: &Digest, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    let bytes = files.read(&path(digest), bytes_max)?.ok_or_else(|| format!("it lacks {digest}"))?;
    let found = Digest::of(&bytes);
    if found != *digest {
        return Err(format!("{digest} in it is damaged: it is {found}").into());
    }
    Ok(bytes)
}

fn path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.digits())
}
