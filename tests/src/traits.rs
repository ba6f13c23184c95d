//! Where backends differ, and the contract says so. Everything that is not here is the same on all of them.

use anyhow::Result;
use box_core::BackendName;

use crate::suite::skip;

/// A known difference between backends, with its reason, which is shown wherever it changes a case.
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
    /// The files of the root belong to another user than the workload.
    ForeignRoot,
    /// The workload sees how many descriptors the agent has, but not what they are.
    ListedAgent,
    /// What a box sees of the host is a copy, carried in before a command and out after it.
    CopiedMounts,
    /// The provider decides the size of a box.
    SizeOfProvider,
    /// The machine of a box is the provider's, and so is what of it can be seen.
    MachineOfProvider,
    /// A box that is stopped loses its streams.
    PauseEndsStreams,
    /// The journal of a command is inside the box, and only the box's agent can read it.
    JournalInBox,
    /// A box cannot be saved, nor made from a saved one.
    NeverSaved,
    /// The kernel charges boxes to an account of the host that they share with others.
    SharedAccount,
    /// A box can take as many terminals as the machine has.
    UnboundedTerminals,
}

/// Whose boxes a difference is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Everybody,
    OrdinaryUsers,
}

/// What is known, for whom, and why it is so.
const KNOWN: &[(Difference, &[BackendName], Who, &str)] = &[
    (
        Difference::ImagesByName,
        &[BackendName::Docker, BackendName::Podman],
        Who::Everybody,
        "an engine has images by name; import a tar file with `strongbox image import`",
    ),
    (
        Difference::OneUser,
        &[BackendName::Docker, BackendName::Podman, BackendName::Nsjail],
        Who::Everybody,
        "the agent has no capability in a container that an engine made, and so cannot change its user",
    ),
    (
        Difference::NamelessUser,
        &[BackendName::Docker, BackendName::Podman],
        Who::Everybody,
        "an image has accounts of its own, and the workload's id is in no account, neither there nor on the host",
    ),
    (
        Difference::SeparateStorage,
        &[BackendName::Docker, BackendName::Podman],
        Who::Everybody,
        "each work place of a container is a file system of its own",
    ),
    (
        Difference::SeparateStorage,
        &[BackendName::Nsjail],
        Who::OrdinaryUsers,
        "nsjail mounts a file system for each work place, and cannot bind one below another",
    ),
    (
        Difference::UnboundedDisk,
        &[BackendName::Docker, BackendName::Podman],
        Who::Everybody,
        "a directory of the host is shown, and it has no limit of its own; the guarantee says absent",
    ),
    (
        Difference::FewerWorkPlaces,
        &[BackendName::Docker, BackendName::Podman],
        Who::Everybody,
        "the root of an image is read-only except /workspace, /tmp and /dev/shm",
    ),
    (
        Difference::ListedAgent,
        &[BackendName::Podman, BackendName::Nsjail],
        Who::OrdinaryUsers,
        "an ordinary user's agent is root of the user namespace that it was started in, and so is the workload",
    ),
    (
        Difference::ForeignRoot,
        &[BackendName::Docker, BackendName::Podman],
        Who::Everybody,
        "the files of an image belong to its root, and commands in a container never run as root",
    ),
    (
        Difference::SharedAccount,
        &[BackendName::Docker, BackendName::Podman, BackendName::Nsjail, BackendName::E2b],
        Who::Everybody,
        "who makes the namespaces of a box decides which account the kernel charges, and that is the engine or nsjail",
    ),
    (
        Difference::UnboundedTerminals,
        &[BackendName::Docker, BackendName::Podman, BackendName::E2b],
        Who::Everybody,
        "the engine mounts /dev/pts, and takes no limit for it",
    ),
    (Difference::ImagesByName, &[BackendName::E2b], Who::Everybody, "E2B has templates by name, which are built there"),
    (
        Difference::OneUser,
        &[BackendName::E2b],
        Who::Everybody,
        "the agent gives up everything that root of the sandbox has, and so cannot change its user",
    ),
    (
        Difference::ForeignRoot,
        &[BackendName::E2b],
        Who::Everybody,
        "the files of a template belong to its root, and no command is root",
    ),
    (
        Difference::UnboundedDisk,
        &[BackendName::E2b],
        Who::Everybody,
        "the disk of a sandbox is as large as its template says; the guarantee tells",
    ),
    (
        Difference::FewerWorkPlaces,
        &[BackendName::E2b],
        Who::Everybody,
        "the root of a template belongs to its root user except /workspace and /tmp",
    ),
    (
        Difference::CopiedMounts,
        &[BackendName::E2b],
        Who::Everybody,
        "the machine is somewhere else: trees are carried in before a command, and what it changed is carried out after it",
    ),
    (
        Difference::SizeOfProvider,
        &[BackendName::E2b],
        Who::Everybody,
        "processors, memory and disk are those of the template; the guarantees say absent",
    ),
    (
        Difference::MachineOfProvider,
        &[BackendName::E2b],
        Who::Everybody,
        "a sandbox is a machine with processes, devices and a network that the provider set up",
    ),
    (
        Difference::PauseEndsStreams,
        &[BackendName::E2b],
        Who::Everybody,
        "a sandbox that is stopped is cut off; commands with a journal are followed again when it goes on",
    ),
    (
        Difference::JournalInBox,
        &[BackendName::E2b],
        Who::Everybody,
        "a sandbox shares no file with us; the service asks the agent for what was kept",
    ),
    (
        Difference::NamelessUser,
        &[BackendName::E2b],
        Who::Everybody,
        "a template has accounts of its own, and no command is root",
    ),
    (
        Difference::NeverSaved,
        &[BackendName::Docker, BackendName::Podman, BackendName::Nsjail, BackendName::E2b],
        Who::Everybody,
        "what a box stores lies where others put it, and the agent in it has no view of all of it",
    ),
];

impl Difference {
    /// Why it is so on this backend; none when it is not.
    pub fn reason(self, backend: BackendName) -> Option<&'static str> {
        let is_root = rustix::process::geteuid().is_root();
        let known = KNOWN.iter().find(|(difference, backends, who, _)| {
            *difference == self && backends.contains(&backend) && (*who == Who::Everybody || !is_root)
        });
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
        }
        assert!(Difference::ImagesByName.unless(BackendName::Docker).is_err());
        assert!(Difference::ImagesByName.unless(BackendName::Nsjail).is_ok());
    }
}
