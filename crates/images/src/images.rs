//! The store of images: what can be asked of it.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use box_core::public_address::Reach;
use box_core::{
    BackendName, Error, Image, ImageInfo, ImageName, ImageProgram, ImageStore, Progress, PullPolicy, Result,
};
use tokio_util::sync::CancellationToken;

use crate::store::{LockMode, Store};
use crate::{ImageRecord, ImagesConfig, Metadata, RootTree, gc, holds, import, pull, record, tar_file};

/// Root file systems by name, in a directory of their own. Any number of processes can use one at once.
#[derive(Debug, Clone)]
pub struct Images {
    store: Arc<Store>,
    config: Arc<ImagesConfig>,
    /// The backend whose boxes use the resolved trees.
    backend: BackendName,
}

impl Images {
    /// Opens the images in a directory, and removes what others left who died while they made one.
    pub fn open(root: &Path, config: ImagesConfig) -> Result<Self> {
        Ok(Self { store: Store::open(root)?, config: Arc::new(config), backend: BackendName::Native })
    }

    /// The same images for boxes of another backend, which has names of its own for them.
    #[must_use]
    pub fn for_backend(self, backend: BackendName) -> Self {
        Self { backend, ..self }
    }

    /// Sees to it that an image is here, by the policy. Only names can be elsewhere.
    pub async fn ensure(&self, image: &Image) -> Result<()> {
        let Image::Named(name) = image else { return Ok(()) };
        let name: ImageName = name.parse()?;
        let is_here = self.find(&name)?.is_some();
        match self.config.pull {
            PullPolicy::Never if !is_here => Err(missing(&name, "image_pull = \"never\" forbids to fetch it")),
            PullPolicy::Missing if !is_here => self.fetch(&name).await,
            // What a digest names cannot have changed.
            PullPolicy::Always if !is_here || name.digest().is_none() => self.fetch(&name).await,
            PullPolicy::Always | PullPolicy::Missing | PullPolicy::Never => Ok(()),
        }
    }

    async fn fetch(&self, name: &ImageName) -> Result<()> {
        tracing::info!(image.name = %name, "an image is being pulled");
        let wanted =
            if self.config.pull == PullPolicy::Always { pull::Freshness::Newest } else { pull::Freshness::Any };
        let silent: Progress = Arc::new(|_| {});
        let is_named = |registries: &Vec<String>| registries.iter().any(|registry| registry == name.registry());
        let reach = if self.config.named_registries.as_ref().is_none_or(is_named) { Reach::Any } else { Reach::Public };
        pull::pull(&self.store, &self.config, name, reach, wanted, &silent).await?;
        tracing::info!(image.name = %name, "an image was pulled");
        Ok(())
    }

    /// The tree of an image, unpacking a tar file if need be; nothing for the host's own system. From here on it stays, until
    /// `holder` releases it. Waits for the disk.
    pub fn resolve(&self, image: &Image, holder: &str) -> Result<Option<RootTree>> {
        match image {
            Image::Host => Ok(None),
            Image::Directory(path) => RootTree::of_directory(path).map(Some),
            Image::Tar(path) => {
                let told = path.display().to_string();
                // Garbage collection may remove the tree between unpacking and holding; then it is unpacked once more.
                self.hold(holder, &told, || tar_file::tree_of(&self.store, path, &self.config.limits)).map(Some)
            }
            Image::Named(text) => {
                let name: ImageName = text.parse()?;
                let find = || match self.find(&name)? {
                    Some(found) => Ok(record::tree_key(&found.tree)),
                    None => Err(missing(&name, "it is not here")),
                };
                self.hold(holder, text, find).map(Some)
            }
        }
    }

    fn hold(&self, holder: &str, image: &str, find: impl Fn() -> Result<String>) -> Result<RootTree> {
        for _ in 0..3 {
            let key = find()?;
            let _lock = self.store.lock(LockMode::Shared)?;
            let place = Path::new("trees").join(&key);
            if self.store.has(&place)? {
                holds::hold(&self.store, &self.holder(holder), &key)?;
                let path = self.store.root.below(&place)?.real_path()?;
                return RootTree::open(&path).map_err(|failure| failure.of(image));
            }
        }
        Err(Error::BadImage { image: image.to_owned(), reason: "it is removed as fast as it is unpacked".to_owned() })
    }

    /// Removes the hold of a box on its tree. Removing it twice is not an error.
    pub fn release(&self, holder: &str) -> Result<()> {
        holds::release(&self.store, &self.holder(holder))
    }

    /// Releases every holder of this backend that is not alive.
    pub fn release_the_dead(&self, is_alive: impl Fn(&str) -> bool) -> Result<()> {
        holds::release_the_dead(&self.store, |holder| match holder.split_once('~') {
            Some((backend, name)) => backend != self.backend.as_str() || is_alive(name),
            None => false,
        })
    }

    fn holder(&self, name: &str) -> String {
        format!("{}~{name}", self.backend)
    }

    /// The default program of an image. Only named images have one.
    pub fn program(&self, image: &Image) -> Result<Option<ImageProgram>> {
        let Image::Named(name) = image else { return Ok(None) };
        Ok(self.find(&name.parse()?)?.map(|found| {
            let Metadata { env, entrypoint, cmd, working_dir, .. } = found.metadata;
            ImageProgram { entrypoint, cmd, env, working_dir }
        }))
    }

    /// The record of an image, if the store has it.
    pub fn find(&self, name: &ImageName) -> Result<Option<ImageRecord>> {
        record::find(&self.store, name)
    }
}

#[async_trait]
impl ImageStore for Images {
    async fn list(&self) -> Result<Vec<ImageInfo>> {
        let store = Arc::clone(&self.store);
        blocking(move || record::list(&store)).await
    }

    async fn pull(&self, name: &ImageName, progress: Progress) -> Result<ImageInfo> {
        // Only the operator's own command comes here; boxes ask by `ensure`.
        pull::pull(&self.store, &self.config, name, Reach::Any, pull::Freshness::Newest, &progress).await
    }

    async fn import(&self, path: &Path, name: Option<&ImageName>, progress: Progress) -> Result<Vec<ImageInfo>> {
        let (store, config) = (Arc::clone(&self.store), Arc::clone(&self.config));
        let (path, name) = (path.to_owned(), name.cloned());
        let cancel = CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        blocking(move || import::import(&store, &config, &path, name.as_ref(), &cancel, &progress)).await
    }

    async fn remove(&self, name: &ImageName) -> Result<()> {
        let (store, name) = (Arc::clone(&self.store), name.clone());
        blocking(move || {
            if !record::forget(&store, &name)? {
                let reason = "it is not in the store; list images with: strongbox image ls".to_owned();
                return Err(Error::BadImage { image: name.to_string(), reason });
            }
            // While another image is made, unused data cannot be determined; then a later collection removes it.
            gc::try_collect(&store).map(drop)
        })
        .await
    }

    async fn gc(&self) -> Result<u64> {
        let store = Arc::clone(&self.store);
        blocking(move || gc::collect(&store)).await
    }
}

fn missing(name: &ImageName, reason: &str) -> Error {
    let reason = format!("{reason}; fetch it with: strongbox image pull {name}");
    Error::BadImage { image: name.to_string(), reason }
}

/// Runs blocking work on a thread where it does not delay other tasks.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match box_core::tasks::blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::io("running in the background", std::io::Error::other(error))),
    }
}
