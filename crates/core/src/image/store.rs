//! What every place that keeps images can do: our own store, and those of engines.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use box_wire::Invalid;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::ImageName;
use crate::{Error, Result};

/// A place that keeps images. Each backend has one.
#[async_trait]
pub trait ImageStore: Send + Sync + fmt::Debug {
    /// The images that there are, sorted by name.
    async fn list(&self) -> Result<Vec<ImageInfo>>;

    /// Fetches an image from its registry, whether or not it is there already. Dropping the future leaves nothing behind.
    async fn pull(&self, name: &ImageName, progress: Progress) -> Result<ImageInfo>;

    /// Takes images from a file or directory. `name` is given to what brings none of its own, or one image another name.
    async fn import(&self, path: &Path, name: Option<&ImageName>, progress: Progress) -> Result<Vec<ImageInfo>>;

    /// Forgets a name. What nothing else needs goes with it, once no box stands on it.
    async fn remove(&self, name: &ImageName) -> Result<()>;

    /// Removes what no name refers to and no box stands on; says how many bytes that were.
    async fn gc(&self) -> Result<u64> {
        Err(Error::Unavailable {
            what: "removing unused images".to_owned(),
            reason: "the engine has a command of its own for that".to_owned(),
            fix: "use `docker image prune` or `podman image prune`".to_owned(),
        })
    }
}

/// An image that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageInfo {
    /// Its name, in full; empty for one that has none.
    pub name: String,
    /// Digest of its manifest, or the engine's id of it.
    pub digest: String,
    /// Bytes that it occupies. What it shares with others is counted for each.
    pub size_bytes: u64,
    /// When it came here.
    pub created_at: Option<Timestamp>,
}

/// Receives the progress of a pull or an import. Called often, on any thread.
pub type Progress = Arc<dyn Fn(&PullStep) + Send + Sync>;

/// The progress of one part of a pull or an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullStep {
    /// The part: the beginning of a layer's digest, or a word such as `unpacking`.
    pub part: String,
    /// Bytes that were done.
    pub done_bytes: u64,
    /// Bytes that there are, where that is known.
    pub total_bytes: Option<u64>,
}

/// When a registry is asked for an image that a box wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PullPolicy {
    /// For every box, so that a tag is what it is now.
    Always,
    /// When the image is not there.
    #[default]
    Missing,
    /// Never: what is not there is an error.
    Never,
}

impl PullPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Always, Self::Missing, Self::Never];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Missing => "missing",
            Self::Never => "never",
        }
    }
}

impl FromStr for PullPolicy {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == text);
        found.ok_or_else(|| Invalid::new("pull policy", text, Self::ALL.map(Self::as_str).join(", ")))
    }
}

impl fmt::Display for PullPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
