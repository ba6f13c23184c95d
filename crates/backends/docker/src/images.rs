//! Images of an engine: which there are, and how one gets there.

mod store;

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use bollard::errors::Error as EngineError;
use bollard::query_parameters::{CreateImageOptions, ImportImageOptions, RemoveImageOptions};
use box_core::{Error, ImageProgram, Progress, PullPolicy, PullStep, Result};
use box_wire::GuestPath;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};

use crate::client::{Client, status};
use crate::config::EngineSettings;
use crate::container;
use crate::models::ImageSummary;
use crate::reference;
use box_core::image::Reference;

/// Bytes of a file that are sent at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// Names of an archive that are looked at to find out what kind it is.
const ARCHIVE_NAMES_MAX: usize = 200_000;

/// Names at the top of an archive that holds whole images; one without them is a root file system.
const IMAGE_NAMES: [&str; 3] = ["manifest.json", "oci-layout", "index.json"];

/// Images of an engine.
#[derive(Debug, Clone)]
pub struct EngineImages {
    client: Client,
    pull: PullPolicy,
    pull_timeout: Duration,
}

/// An image that an engine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineImage {
    /// Names by which it can be asked for; none for one whose name was given to another.
    pub names: Vec<String>,
    /// The engine's id of it.
    pub id: String,
    /// How much it takes on the engine's disk.
    pub bytes: u64,
}

/// How far the fetching of an image is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullProgress {
    /// The part that this is about; empty for the whole.
    pub layer: String,
    /// The current step, in the engine's words.
    pub status: String,
    /// Bytes of it that are there.
    pub bytes: Option<u64>,
    /// Bytes of it in all.
    pub bytes_total: Option<u64>,
}

/// The properties of an image that a container needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ImageFacts {
    /// Places that it wants as volumes.
    pub(crate) volumes: Vec<GuestPath>,
    /// Whether it wants a program of its own to be run now and then.
    pub(crate) has_healthcheck: bool,
}

impl EngineImages {
    pub(crate) fn new(client: Client, settings: &EngineSettings) -> Self {
        Self { client, pull: settings.pull, pull_timeout: Duration::from_secs(settings.pull_timeout_sec) }
    }

    /// All images of the engine, by name.
    pub async fn ls(&self) -> Result<Vec<EngineImage>> {
        let listed = self.client.get::<Vec<ImageSummary>>("/images/json").await;
        let listed = listed.map_err(|error| self.client.explain("image", &error))?;
        let named = |name: &String| !name.contains("<none>");
        let mut images: Vec<EngineImage> = listed
            .into_iter()
            .map(|image| EngineImage {
                names: image.repo_tags.into_iter().flatten().filter(named).collect(),
                id: image.id,
                bytes: u64::try_from(image.size).unwrap_or(0),
            })
            .collect();
        images.sort_by(|a, b| (&a.names, &a.id).cmp(&(&b.names, &b.id)));
        Ok(images)
    }

    /// Fetches an image from its registry, within the time that the configuration grants.
    pub async fn pull(&self, name: &str, progress: impl FnMut(PullProgress) + Send) -> Result<()> {
        self.fetch(&reference::parse(name)?, progress).await
    }

    /// Takes an image from a tar file of this machine: an archive of images, or a root file system, which gets this name.
    pub async fn import(&self, path: &Path, name: &str, progress: Progress) -> Result<()> {
        let reference = reference::parse(name)?;
        let shown = path.display().to_string();
        let bad = |reason: String| Error::BadImage { image: shown.clone(), reason };
        let path = path.to_owned();
        let (file, holds_images) = box_host::blocking(move || examine(&path)).await?;
        let total_bytes = file.metadata().map_err(|error| Error::io(format!("looking at {shown}"), error))?.len();
        let body = bollard::body_try_stream(told(chunks(file), total_bytes, progress));
        let outcome = if holds_images {
            let options = ImportImageOptions { quiet: true, ..ImportImageOptions::default() };
            self.client.docker.import_image(options, body, None).map_ok(drop).try_for_each(async |()| Ok(())).await
        } else {
            let options = CreateImageOptions {
                from_src: Some("-".to_owned()),
                // Podman reads no tag but one that stands in the name.
                repo: Some(format!("{}:{}", reference.repository, reference.tag.as_deref().unwrap_or("latest"))),
                ..CreateImageOptions::default()
            };
            let import = self.client.docker.create_image(Some(options), Some(body), None);
            import.map_ok(drop).try_for_each(async |()| Ok(())).await
        };
        outcome.map_err(|error| match self.client.explain("image", &error) {
            Error::Setup { reason, .. } => bad(reason),
            other => other,
        })
    }

    /// Removes an image. One that a container uses stays, and that is an error.
    pub async fn rm(&self, name: &str) -> Result<()> {
        let reference = reference::parse(name)?.to_string();
        match self.client.docker.remove_image(&reference, None::<RemoveImageOptions>, None).await {
            Ok(_) => Ok(()),
            Err(error) if status(&error) == Some(404) => {
                let list = format!("strongbox image ls --backend {}", self.client.kind);
                let reason = format!("the engine does not have it; list images with: {list}");
                Err(Error::BadImage { image: reference, reason })
            }
            Err(error) if status(&error) == Some(409) => Err(Error::Conflict {
                what: format!("image {reference} is in use: {error}"),
                fix: "delete the sessions that use it first".to_owned(),
            }),
            Err(error) => Err(self.client.explain("image", &error)),
        }
    }

    /// Makes sure that the engine has an image, as the policy says, and looks at it.
    pub(crate) async fn ensure(&self, reference: &Reference) -> Result<ImageFacts> {
        if self.pull == PullPolicy::Always {
            self.fetch(reference, |_| {}).await?;
        }
        let name = reference.to_string();
        let found = match self.client.inspect_image(&name).await {
            Err(error) if status(&error) == Some(404) && self.pull == PullPolicy::Missing => {
                self.fetch(reference, |_| {}).await?;
                self.client.inspect_image(&name).await
            }
            other => other,
        };
        let image = found.map_err(|error| match status(&error) {
            Some(404) => missing(&name),
            _ => self.client.explain("image", &error),
        })?;
        let config = image.config.unwrap_or_default();
        let volumes =
            container::volumes_of(&name, &config.volumes.unwrap_or_default().into_keys().collect::<Vec<_>>())?;
        Ok(ImageFacts { volumes, has_healthcheck: config.healthcheck.is_some() })
    }

    /// The default program of a local image.
    pub(crate) async fn program(&self, reference: &Reference) -> Result<ImageProgram> {
        let name = reference.to_string();
        let found = self.client.inspect_image(&name).await;
        let config = found.map_err(|error| self.client.explain("image", &error))?.config.unwrap_or_default();
        Ok(ImageProgram {
            entrypoint: config.entrypoint.unwrap_or_default(),
            cmd: config.cmd.unwrap_or_default(),
            env: config.env.unwrap_or_default(),
            working_dir: config.working_dir.unwrap_or_default(),
        })
    }

    /// Whether the engine has an image.
    pub(crate) async fn has(&self, reference: &Reference) -> bool {
        self.client.inspect_image(&reference.to_string()).await.is_ok()
    }

    async fn fetch(&self, reference: &Reference, progress: impl FnMut(PullProgress) + Send) -> Result<()> {
        let options = CreateImageOptions {
            from_image: Some(reference.repository.clone()),
            tag: Some(reference.version().to_owned()),
            ..CreateImageOptions::default()
        };
        let stream = self.client.docker.create_image(Some(options), None, None);
        match tokio::time::timeout(self.pull_timeout, follow(stream, progress)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.explain_pull(reference, &error)),
            Err(_) => {
                let waited = self.pull_timeout.as_secs();
                let reason =
                    format!("it was not fetched within {waited} seconds; raise pull_timeout_sec, or fetch it first");
                Err(Error::BadImage { image: reference.to_string(), reason })
            }
        }
    }

    fn explain_pull(&self, reference: &Reference, error: &EngineError) -> Error {
        let text = match self.client.explain("image", error) {
            Error::Setup { reason, .. } => reason,
            other => return other,
        };
        Error::BadImage { image: reference.to_string(), reason: pull_reason(status(error), &text) }
    }
}

/// Why an image could not be fetched, and the fix. Registries also answer "denied" for images that do not exist.
fn pull_reason(status: Option<u16>, told: &str) -> String {
    let lower = told.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if status == Some(404) || says(&["not found", "manifest unknown", "no such image", "name unknown"]) {
        return format!("its registry does not have it; check the name and the tag ({told})");
    }
    if says(&["denied", "unauthorized", "authentication required", "forbidden"]) {
        return format!("its registry refuses it: it does not exist, or the engine has to log in first ({told})");
    }
    format!("it could not be fetched: {told}")
}

async fn follow(
    stream: impl Stream<Item = std::result::Result<bollard::models::CreateImageInfo, EngineError>>,
    mut progress: impl FnMut(PullProgress) + Send,
) -> std::result::Result<(), EngineError> {
    let mut stream = std::pin::pin!(stream);
    while let Some(step) = stream.next().await {
        let step = step?;
        if let Some(error) = step.error_detail.and_then(|detail| detail.message) {
            return Err(EngineError::DockerStreamError { error });
        }
        let count = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok());
        let detail = step.progress_detail.unwrap_or_default();
        progress(PullProgress {
            layer: step.id.unwrap_or_default(),
            status: step.status.unwrap_or_default(),
            bytes: count(detail.current),
            bytes_total: count(detail.total),
        });
    }
    Ok(())
}

fn missing(name: &str) -> Error {
    let reason = "the engine does not have it; fetch it with `strongbox image pull`, or set pull = \"missing\"";
    Error::BadImage { image: name.to_owned(), reason: reason.to_owned() }
}

/// Opens a tar file and finds out whether it holds whole images.
fn examine(path: &Path) -> Result<(std::fs::File, bool)> {
    let failed = |error: std::io::Error| Error::io(format!("reading {}", path.display()), error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let is_image_name = |entry: &tar::Entry<'_, _>| {
        let path = entry.path_bytes();
        let name = path.strip_prefix(b"./").unwrap_or(&path);
        IMAGE_NAMES.iter().any(|known| name == known.as_bytes())
    };
    let mut archive = tar::Archive::new(&file);
    let mut entries = archive.entries_with_seek().map_err(failed)?.take(ARCHIVE_NAMES_MAX);
    let holds_images = entries.any(|entry| entry.is_ok_and(|entry| is_image_name(&entry)));
    let mut opened = file;
    std::io::Seek::rewind(&mut opened).map_err(failed)?;
    Ok((opened, holds_images))
}

/// Passes the bytes through and reports progress.
fn told(
    bytes: impl Stream<Item = std::io::Result<Bytes>> + Send,
    total_bytes: u64,
    progress: Progress,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    let mut sent_bytes = 0_u64;
    bytes.inspect_ok(move |piece| {
        sent_bytes += piece.len() as u64;
        let (part, done_bytes) = ("sending".to_owned(), sent_bytes.min(total_bytes));
        progress(&PullStep { part, done_bytes, total_bytes: Some(total_bytes) });
    })
}

/// The bytes of a file, read on a thread that may block.
fn chunks(file: std::fs::File) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    futures_util::stream::try_unfold(file, async |file| {
        let read = box_core::tasks::blocking(move || {
            let mut buffer = vec![0; CHUNK_BYTES];
            let mut file = file;
            let count = file.read(&mut buffer)?;
            buffer.truncate(count);
            Ok::<_, std::io::Error>((Bytes::from(buffer), file))
        });
        let (bytes, file) = read.await.map_err(std::io::Error::other)??;
        Ok((!bytes.is_empty()).then_some((bytes, file)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_that_failed_says_what_to_do() {
        let table = [
            (Some(404), "manifest for x:1 not found", "does not have it"),
            (Some(500), "manifest unknown", "does not have it"),
            (Some(404), "pull access denied for x, repository does not exist", "does not have it"),
            (Some(500), "unauthorized: authentication required", "log in first"),
            (None, "requested access to the resource is denied", "log in first"),
            (Some(500), "dial tcp: no such host", "could not be fetched"),
        ];
        for (status, told, expected) in table {
            let reason = pull_reason(status, told);
            assert!(reason.contains(expected) && reason.contains(told), "{reason}");
        }
    }

    #[test]
    fn an_archive_of_images_is_told_from_a_root_file_system() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, entries: &[&str]| {
            let path = place.path().join(name);
            let mut archive = tar::Builder::new(std::fs::File::create(&path).unwrap());
            for entry in entries {
                let mut header = tar::Header::new_gnu();
                header.set_size(4);
                header.set_mode(0o644);
                header.set_cksum();
                archive.append_data(&mut header, entry, &b"text"[..]).unwrap();
            }
            archive.finish().unwrap();
            path
        };
        assert!(!examine(&write("root.tar", &["bin/sh", "etc/manifest.json"])).unwrap().1);
        assert!(examine(&write("saved.tar", &["0/layer.tar", "manifest.json"])).unwrap().1);
        assert!(examine(&write("oci.tar", &["./oci-layout", "./index.json"])).unwrap().1);
        assert!(examine(&place.path().join("none.tar")).is_err());
    }
}
