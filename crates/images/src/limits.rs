//! Bounds on everything that a registry or an archive can size.

use std::time::Duration;

/// Most entries of all layers of one image.
pub const ENTRIES_MAX: u64 = 1_000_000;
/// Most bytes of all files of one image.
pub const UNPACKED_BYTES_MAX: u64 = 16 << 30;
/// Most bytes of all layers of one image as they are stored.
pub const STORED_BYTES_MAX: u64 = 16 << 30;
/// Most that the header, the padding and the extensions of one entry take in an archive, on average.
pub(crate) const ENTRY_OVERHEAD_BYTES_MAX: u64 = 4096;
/// Largest manifest, list of manifests or index.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Largest configuration of an image.
pub(crate) const CONFIG_BYTES_MAX: u64 = 8 << 20;
/// Most layers of one image.
pub(crate) const LAYERS_MAX: usize = 256;
/// Most entries of a list of manifests.
pub(crate) const INDEX_ENTRIES_MAX: usize = 256;
/// Lists of manifests within each other, the outermost included.
pub(crate) const INDEX_DEPTH_MAX: usize = 3;
/// Most entries of an archive that holds images.
pub(crate) const ARCHIVE_ENTRIES_MAX: usize = 100_000;
/// Most names and most images in one archive.
pub(crate) const ARCHIVE_IMAGES_MAX: usize = 100;
/// Most names that are remembered.
pub(crate) const NAMES_MAX: usize = 10_000;
/// Largest file in which names, or one image, are remembered.
pub(crate) const RECORD_BYTES_MAX: u64 = 16 << 20;
/// Most of the texts of a configuration that are remembered, in bytes.
pub(crate) const METADATA_BYTES_MAX: usize = 256 << 10;
/// Largest file of credentials.
pub(crate) const CREDENTIALS_BYTES_MAX: u64 = 1 << 20;
/// Largest answer of a server that gives tokens, and largest answer that only says what went wrong.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How often one question may be led elsewhere.
pub(crate) const REDIRECTS_MAX: usize = 5;
/// Attempts to download a blob.
pub(crate) const ATTEMPTS_MAX: usize = 3;
/// Blobs of one image that are fetched at once.
pub(crate) const FETCHES_MAX: usize = 3;
/// How long a registry may take to be reached.
pub(crate) const CONNECT_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a registry may say nothing.
pub(crate) const SILENCE_TIME_MAX: Duration = Duration::from_mins(1);
/// How often a lock that another process holds is tried again.
pub(crate) const LOCK_PAUSE: Duration = Duration::from_millis(50);
