//! Images in the making: layers, a configuration and a manifest, as a builder of images would write them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use box_images::Digest;
use serde_json::{Value, json};
use tar::EntryType;

use super::tar::{Tar, header};

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// How layers are compressed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// An image: everything in it by its digest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Picture {
    pub(crate) blobs: BTreeMap<Digest, Vec<u8>>,
    pub(crate) config: Vec<u8>,
    pub(crate) layers: Vec<Digest>,
    pub(crate) manifest: Vec<u8>,
}

impl Picture {
    pub(crate) fn new(layers: &[Vec<u8>], packing: Packing) -> Self {
        Self::with_config(layers, packing, &json!({}))
    }

    /// An image of which the configuration says something more, or something else.
    pub(crate) fn with_config(layers: &[Vec<u8>], packing: Packing, more: &Value) -> Self {
        let contents: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
        let mut config = json!({
            "architecture": "amd64", "os": "linux", "rootfs": { "type": "layers", "diff_ids": contents },
            "config": { "Env": ["PATH=/bin"], "User": "1000:1000", "Entrypoint": ["/bin/sh"], "WorkingDir": "/app" },
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut picture = Self { config: config.to_string().into_bytes(), ..Self::default() };
        picture.layers = layers.iter().map(|layer| picture.add(pack(layer, packing))).collect();
        picture.add(picture.config.clone());
        let kind = match packing {
            Packing::Plain => "application/vnd.oci.image.layer.v1.tar",
            Packing::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Packing::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        };
        let layers: Vec<Value> = picture.layers.iter().map(|layer| picture.descriptor(kind, layer)).collect();
        let config = picture.descriptor("application/vnd.oci.image.config.v1+json", &Digest::of(&picture.config));
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
        picture.manifest = manifest.to_string().into_bytes();
        picture
    }

    fn add(&mut self, bytes: Vec<u8>) -> Digest {
        let digest = Digest::of(&bytes);
        self.blobs.insert(digest.clone(), bytes);
        digest
    }

    fn descriptor(&self, kind: &str, digest: &Digest) -> Value {
        json!({ "mediaType": kind, "digest": digest, "size": self.blobs[digest].len() })
    }

    /// What the image is called by what is in it.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// The image as an entry of a list.
    pub(crate) fn entry(&self, architecture: &str) -> Value {
        let platform = json!({ "os": "linux", "architecture": architecture });
        json!({ "mediaType": MANIFEST, "digest": self.digest(), "size": self.manifest.len(), "platform": platform })
    }

    /// Writes an OCI layout.
    pub(crate) fn write_layout(&self, place: &Path, name: Option<&str>) {
        let blobs = place.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        for (digest, bytes) in &self.blobs {
            fs::write(blobs.join(digest.digits()), bytes).unwrap();
        }
        fs::write(blobs.join(self.digest().digits()), &self.manifest).unwrap();
        let mut entry = self.entry("amd64");
        if let Some(name) = name {
            entry["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        }
        fs::write(place.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        fs::write(place.join("index.json"), json!({ "schemaVersion": 2, "manifests": [entry] }).to_string()).unwrap();
    }

    /// What `docker save` would write; the second of two equal layers is a link to the first, as it used to be.
    pub(crate) fn docker_archive(&self, name: &str) -> Vec<u8> {
        let mut tar = Tar::empty().file("config.json", &self.config);
        let mut paths: Vec<String> = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            let path = format!("{number}/layer.tar");
            tar = match self.layers.iter().position(|other| other == layer).filter(|first| *first < number) {
                Some(first) => tar.symlink(&path, &format!("../{first}/layer.tar")),
                None => tar.file(&path, &self.blobs[layer]),
            };
            paths.push(path);
        }
        let list = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": paths }]).to_string();
        tar.file("manifest.json", list.as_bytes()).bytes()
    }
}

pub(crate) fn pack(bytes: &[u8], packing: Packing) -> Vec<u8> {
    match packing {
        Packing::Plain => bytes.to_vec(),
        Packing::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Packing::Zstd => ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest),
    }
}

/// A tar file of everything below a directory.
pub(crate) fn tar_of(place: &Path) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_dir_all(".", place).unwrap();
    builder.into_inner().unwrap()
}

/// A file of zeros that is much larger than what it is packed in.
pub(crate) fn bomb(bytes: u64) -> Vec<u8> {
    let mut tar = header(EntryType::Regular, "bin/zeros", "", 0o644, bytes).as_bytes().to_vec();
    tar.resize(512 + usize::try_from(bytes.next_multiple_of(512)).unwrap() + 1024, 0);
    tar
}
