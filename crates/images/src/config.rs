//! How images are kept and fetched.

use std::path::PathBuf;
use std::time::Duration;

use box_core::PullPolicy;

use crate::limits::{ENTRIES_MAX, ENTRY_OVERHEAD_BYTES_MAX, UNPACKED_BYTES_MAX};

/// How images are kept and fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagesConfig {
    /// When images are pulled.
    pub pull: PullPolicy,
    /// How long one image may take to arrive, unpacking included.
    pub timeout: Duration,
    /// File with names and passwords for registries, in the form of docker's `config.json`; without one, all requests
    /// are anonymous.
    pub auth_file: Option<PathBuf>,
    /// How large an image may be.
    pub limits: ImageLimits,
    /// Registries that the operator named in full, which may be on a private network. All others must have public
    /// addresses. None if the operator makes the request.
    pub named_registries: Option<Vec<String>>,
}

impl Default for ImagesConfig {
    fn default() -> Self {
        let (pull, timeout) = (PullPolicy::default(), Duration::from_mins(10));
        Self { pull, timeout, auth_file: None, limits: ImageLimits::default(), named_registries: None }
    }
}

/// How large an image may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageLimits {
    /// Most entries of all layers.
    pub entries_max: u64,
    /// Most bytes of all files.
    pub unpacked_bytes_max: u64,
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self { entries_max: ENTRIES_MAX, unpacked_bytes_max: UNPACKED_BYTES_MAX }
    }
}

impl ImageLimits {
    /// Most bytes of one archive when it is not compressed: its files, and what stands before and between them.
    pub(crate) fn decoded_bytes_max(&self) -> u64 {
        let overhead = self.entries_max.saturating_mul(ENTRY_OVERHEAD_BYTES_MAX);
        self.unpacked_bytes_max.saturating_add(overhead)
    }
}
