//! What tests of images share.

pub(crate) mod http;
pub(crate) mod picture;
pub(crate) mod registry;
pub(crate) mod tar;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use box_core::{Image, ImageName, Progress};
use box_images::{Images, ImagesConfig};

/// A store of images in a place of its own.
pub(crate) struct TestStore {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) images: Images,
}

impl TestStore {
    pub(crate) fn new() -> Self {
        Self::with(ImagesConfig::default())
    }

    pub(crate) fn with(config: ImagesConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("images")).unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        let images = Images::open(&directory.path().join("images"), config).unwrap();
        Self { directory, images }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("images")
    }

    /// The tree of an image that is here.
    pub(crate) fn tree(&self, image: &str) -> PathBuf {
        self.images.resolve(&Image::Named(image.into()), "holder").unwrap().unwrap().path
    }

    /// What a directory of the store holds.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root().join(directory)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Checks that nothing of an image is left or got out; of what was downloaded, whole layers may stay.
    pub(crate) fn is_untouched(&self) {
        for directory in ["trees", "manifests", "work", "holds"] {
            assert_eq!(self.names(directory), [""; 0], "{directory}");
        }
        assert!(!self.root().join("references.json").exists());
        assert_eq!(fs::read_dir(self.directory.path().join("outside")).unwrap().count(), 0);
    }
}

pub(crate) fn name(text: &str) -> ImageName {
    text.parse().unwrap()
}

pub(crate) fn silent() -> Progress {
    Arc::new(|_| {})
}

/// Everything in a tree: paths, and for files their contents.
pub(crate) fn contents(root: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let (mut found, mut places) = (Vec::new(), vec![root.to_owned()]);
    while let Some(place) = places.pop() {
        for entry in fs::read_dir(place).unwrap() {
            let path = entry.unwrap().path();
            let shown = path.strip_prefix(root).unwrap().display().to_string();
            let metadata = fs::symlink_metadata(&path).unwrap();
            found.push((shown, metadata.is_file().then(|| fs::read(&path).unwrap())));
            if metadata.is_dir() {
                places.push(path);
            }
        }
    }
    found.sort();
    found
}
