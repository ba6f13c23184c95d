//! What can go wrong, by what the caller can do about it.

use box_wire::{FrameError, Invalid, Refusal};

use crate::guarantee::{Dimension, Level};

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value was refused at the edge. Nothing was made.
    #[error(transparent)]
    Invalid(#[from] Invalid),

    /// A host path may not be mounted. Nothing was made.
    #[error("mount of {path} refused: {reason}")]
    MountDenied {
        /// As the caller wrote it.
        path: String,
        /// Which rule, and what would be allowed.
        reason: String,
    },

    /// The image does not exist or is not a usable root file system.
    #[error("image {image} cannot be used: {reason}")]
    BadImage {
        /// As the caller wrote it.
        image: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The machine cannot give what was asked.
    #[error("{what} is not available here: {reason}; {fix}")]
    Unavailable {
        /// What was asked.
        what: String,
        /// Why it cannot be had.
        reason: String,
        /// What would change that.
        fix: String,
    },

    /// A guarantee that was set as a floor cannot be held. Nothing was made.
    #[error("{dimension} would only be {found} here, but the floor is hard: {reason}")]
    FloorNotHeld {
        /// Which guarantee.
        dimension: Dimension,
        /// What it would have been.
        found: Level,
        /// Why, and what would change it.
        reason: String,
    },

    /// A step of making or changing a box failed; what had been made is gone again.
    #[error("{step} failed: {reason}")]
    Setup {
        /// Which step, as a stable word.
        step: String,
        /// What happened.
        reason: String,
    },

    /// The box does not exist any more.
    #[error("the box is gone: {reason}")]
    Gone {
        /// How that is known.
        reason: String,
    },

    /// The agent would not carry out a request.
    #[error(transparent)]
    Refused(#[from] Refusal),

    /// What came out of a box was not our protocol. The stream was dropped.
    #[error("the box broke the protocol: {0}")]
    Protocol(#[from] FrameError),

    /// An operating system call failed.
    #[error("{context}: {source}")]
    Io {
        /// What was being done.
        context: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::MountDenied { .. } => "mount_denied",
            Self::BadImage { .. } => "bad_image",
            Self::Unavailable { .. } => "unavailable",
            Self::FloorNotHeld { .. } => "floor_not_held",
            Self::Setup { .. } => "setup_failed",
            Self::Gone { .. } => "box_gone",
            Self::Refused(_) => "refused",
            Self::Protocol(_) => "protocol",
            Self::Io { .. } => "io",
        }
    }

    /// Says what was being done when the system refused.
    pub fn io(context: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::Io { context: context.into(), source: source.into() }
    }
}
