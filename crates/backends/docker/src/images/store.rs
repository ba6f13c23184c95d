//! The images of an engine as what every backend has.

use std::path::Path;

use async_trait::async_trait;
use box_core::{Error, ImageInfo, ImageName, ImageStore, Progress, PullStep, Result};

use super::{EngineImage, EngineImages, examine, missing};
use crate::client::status;

#[async_trait]
impl ImageStore for EngineImages {
    async fn list(&self) -> Result<Vec<ImageInfo>> {
        let mut images: Vec<ImageInfo> = self.ls().await?.iter().flat_map(infos).collect();
        images.sort_by(|a, b| (&a.name, &a.digest).cmp(&(&b.name, &b.digest)));
        Ok(images)
    }

    async fn pull(&self, name: &ImageName, progress: Progress) -> Result<ImageInfo> {
        let told = |step: super::PullProgress| {
            let (part, done_bytes, total_bytes) = (step.layer, step.bytes.unwrap_or(0), step.bytes_total);
            if total_bytes.is_some() {
                progress(&PullStep { part, done_bytes, total_bytes });
            }
        };
        Self::pull(self, &name.to_string(), told).await?;
        self.info(name).await
    }

    async fn import(&self, path: &Path, name: Option<&ImageName>, progress: Progress) -> Result<Vec<ImageInfo>> {
        let bad = |reason: &str| Error::BadImage { image: path.display().to_string(), reason: reason.to_owned() };
        let file = path.to_owned();
        let (_, holds_images) = box_host::blocking(move || examine(&file)).await?;
        match name {
            Some(_) if holds_images => Err(bad("engines call images as their archive does; leave --name out")),
            None if !holds_images => Err(bad("it does not say what it is called; give it a name with --name")),
            Some(name) => {
                Self::import(self, path, &name.to_string(), progress).await?;
                Ok(vec![self.info(name).await?])
            }
            None => {
                let before = ImageStore::list(self).await?;
                // The name is for root file systems only.
                Self::import(self, path, "strongbox", progress).await?;
                let after = ImageStore::list(self).await?;
                Ok(after.into_iter().filter(|image| !before.contains(image)).collect())
            }
        }
    }

    async fn remove(&self, name: &ImageName) -> Result<()> {
        self.rm(&name.to_string()).await
    }
}

impl EngineImages {
    async fn info(&self, name: &ImageName) -> Result<ImageInfo> {
        let name = name.to_string();
        let found = self.client.inspect_image(&name).await.map_err(|error| match status(&error) {
            Some(404) => missing(&name),
            _ => self.client.explain("image", &error),
        })?;
        let size_bytes = found.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
        Ok(ImageInfo { name, digest: found.id.unwrap_or_default(), size_bytes, created_at: None })
    }
}

/// An image once for each of its names, in canonical form.
fn infos(image: &EngineImage) -> Vec<ImageInfo> {
    let full = |name: &String| name.parse().map_or_else(|_| name.clone(), |name: ImageName| name.to_string());
    let info = |name: String| ImageInfo { name, digest: image.id.clone(), size_bytes: image.bytes, created_at: None };
    let mut names: Vec<String> = image.names.iter().map(full).collect();
    names.dedup();
    if names.is_empty() {
        names.push(String::new());
    }
    names.into_iter().map(info).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_listed_once_for_each_name() {
        let image = |names: &[&str]| {
            let names = names.iter().map(ToString::to_string).collect();
            let told = infos(&EngineImage { names, id: "sha256:1".to_owned(), bytes: 5 });
            told.into_iter().map(|info| info.name).collect::<Vec<_>>()
        };
        assert_eq!(image(&["a:1", "ghcr.io/b:2"]), ["docker.io/library/a:1", "ghcr.io/b:2"]);
        assert_eq!(image(&[]), [""], "one that lost its name is there all the same");
    }
}
