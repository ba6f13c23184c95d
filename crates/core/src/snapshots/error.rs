//! What can go wrong with snapshots and templates.

use crate::limits;

/// Why something cannot be saved, found or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// No snapshot of this reference that the caller may use.
    #[error("snapshot {name:?} not found; `strongbox snapshot ls` and GET /v1/snapshots list them")]
    NotFound {
        /// As the caller wrote it.
        name: String,
    },
    /// No template of this reference that the caller may use.
    #[error("template {name:?} not found; `strongbox template ls` and GET /v1/templates list them")]
    TemplateNotFound {
        /// As the caller wrote it.
        name: String,
    },
    /// The server has no directory for archives.
    #[error("this server has no place for snapshots; start it with a state directory")]
    NoDirectory,
    /// The tenant has as much as it may have.
    #[error(
        "{what}; delete some first: `strongbox snapshot rm ID`, DELETE /v1/snapshots/ID, or Sandbox.delete_snapshot(id)"
    )]
    Full {
        /// Of what, and how much there may be.
        what: String,
    },
    /// The box holds more than an archive of it may have.
    #[error("the box is too large to save: more than {mb} MiB; remove files that need not be saved")]
    TooLarge {
        /// Most that the archive may have.
        mb: u64,
    },
    /// A file for a build is too large.
    #[error("files of a COPY step may have {} MiB; copy less", limits::UPLOAD_BYTES_MAX >> 20)]
    UploadTooLarge,
    /// The box stopped sending, or took too long.
    #[error("the box could not be saved in time; it may have been paused meanwhile, or is too large")]
    Stalled,
}

impl SnapshotError {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "snapshot_not_found",
            Self::TemplateNotFound { .. } => "template_not_found",
            Self::NoDirectory => "no_snapshot_directory",
            Self::Full { .. } => "snapshots_full",
            Self::TooLarge { .. } => "box_too_large",
            Self::UploadTooLarge => "upload_too_large",
            Self::Stalled => "snapshot_stalled",
        }
    }
}
