//! Where backends differ, and the contract says so. Everything that is not here is the same on all of them.

use anyhow::Result;
use box_core::BackendName;

use crate::suite::skip;

/// A difference that is known, has a reason, and is told wherever it makes a case another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// A directory or a tar file of the host cannot be the root of a box.
    ImagesByName,
    /// No command can have another user than its box.
    OneUser,
    /// The user has no name in the box.
    NamelessUser,
    /// Each work place has a limit of its own.
    SeparateStorage,
    /// What a box keeps on disk has no limit of its own.
    UnboundedDisk,
    /// Only some of the usual places can be written.
    FewerWorkPlaces,
    /// The files of the root belong to somebody else than the workload.
    ForeignRoot,
}

/// What is known, for whom, and why it is so.
const KNOWN: &[(Difference, &[BackendName], &str)] = &[
    (
        Difference::ImagesByName,
        &[BackendName::Docker, BackendName::Podman],
        "an engine has images by name; import a tar file with `strongbox image import`",
    ),
    (
        Difference::OneUser,
        &[BackendName::Docker, BackendName::Podman, BackendName::Nsjail],
        "the agent has no capability in a house that others made, and so cannot become somebody else",
    ),
    (
        Difference::NamelessUser,
        &[BackendName::Docker, BackendName::Podman],
        "an image has accounts of its own, and the workload's number is nobody's, so that it is nobody's on the host either",
    ),
    (
        Difference::SeparateStorage,
        &[BackendName::Docker, BackendName::Podman],
        "each work place of a container is a file system of its own",
    ),
    (
        Difference::UnboundedDisk,
        &[BackendName::Docker, BackendName::Podman],
        "a directory of the host is shown, and it has no limit of its own; the guarantee says absent",
    ),
    (
        Difference::FewerWorkPlaces,
        &[BackendName::Docker, BackendName::Podman],
        "the root of an image is read-only but for /workspace, /tmp and /dev/shm",
    ),
    (
        Difference::ForeignRoot,
        &[BackendName::Docker, BackendName::Podman],
        "the files of an image belong to its root, and nobody in a container is root",
    ),
];

impl Difference {
    /// Why it is so on this backend; none when it is not.
    pub fn reason(self, backend: BackendName) -> Option<&'static str> {
        let known = KNOWN.iter().find(|(difference, backends, _)| *difference == self && backends.contains(&backend));
        known.map(|(.., reason)| *reason)
    }

    /// Ends a case that makes no sense on this backend, with the difference's name and reason.
    pub fn unless(self, backend: BackendName) -> Result<()> {
        match self.reason(backend) {
            Some(reason) => skip(format!("known difference {self:?}: {reason}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_differs_in_nothing() {
        for (difference, ..) in KNOWN {
            assert_eq!(difference.reason(BackendName::Native), None);
            assert!(difference.unless(BackendName::Native).is_ok());
            assert!(difference.unless(BackendName::Docker).is_err());
        }
    }
}
