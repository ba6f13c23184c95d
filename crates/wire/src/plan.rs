//! How a box is set up, as plain data: computed on the host by pure functions, applied by the agent step by step.
//!
//! The host decides, the agent obeys. A plan has no conditions: what it says is done in order, and the first failure ends
//! the box. Paths are below the new root unless a field says otherwise.

use serde::{Deserialize, Serialize};

use crate::{GuestPath, RootCapability, User};

/// Everything the agent needs to turn fresh namespaces into a box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The agent's user after setup. Equal to `workload` only if a single id could be mapped.
    pub agent: User,
    /// The default user of commands.
    pub workload: User,
    /// Capabilities of root over the box's own files and processes; none in most boxes, and none for other users.
    pub root_capabilities: Vec<RootCapability>,
    /// Whether commands of the workload may start commands of root, in their own exec.
    pub sudo: bool,
    /// Host name inside.
    pub hostname: String,
    /// Trees of the host that are taken into the box, gathered before anything is mounted.
    pub trees: Vec<Tree>,
    /// The storage of everything that the box owns.
    pub storage: Storage,
    /// Which of the descriptors sent with the plan is the archive of a snapshot, with which the storage is filled first.
    #[serde(rename = "seed")]
    pub snapshot: Option<DescriptorIndex>,
    /// How the root is made.
    pub root: Root,
    /// File system steps, in order.
    pub steps: Vec<Step>,
    /// The root itself becomes read-only after the last step.
    pub root_read_only: bool,
    /// Resource limits by `RLIMIT_*` number: soft and hard value.
    pub rlimits: Vec<(u32, u64, u64)>,
    /// Places where the workload may write; the second lock behind the mounts. Best effort.
    pub landlock_writable: Vec<GuestPath>,
    /// Places where the workload may make sockets and named pipes; nothing means everywhere. Best effort.
    pub landlock_sockets: Option<Vec<GuestPath>>,
    /// Classic BPF programs, installed in order by every command; eight bytes an instruction.
    pub seccomp: Vec<Vec<u8>>,
    /// Filters that keep host files from getting set-id bits.
    pub mode_guard: ModeGuard,
    /// How the process tree of an exec is found again to be killed.
    pub tracking: Tracking,
    /// The limit on the commands' memory, and the source of figures about it.
    pub memory: Memory,
    /// Which of the descriptors sent with the plan is the listening socket.
    pub listener: DescriptorIndex,
    /// Files of v1 cgroups for the agent; a process that writes `0` to one joins it, and so do its children.
    pub entrances: Vec<DescriptorIndex>,
    /// The directory in which the agent keeps the output of journalled execs, where the box has one.
    pub journal: Option<DescriptorIndex>,
    /// What ends the box besides the host's request.
    pub lifeline: Lifeline,
}

/// Additional filters, installed last; none in a box that cannot write to host directories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeGuard {
    /// For commands.
    pub commands: Vec<Vec<u8>>,
    /// For file operations, which need a call that commands do not have.
    pub file_ops: Vec<Vec<u8>>,
}

/// What the agent needs in an engine's container. There it is the first process, with namespaces, a root and limits
/// that the engine made and that it may not change. It still drops its own rights and those of every command, and
/// checks what the engine promised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSetup {
    /// The user of every command, and of the agent where it cannot change its ids.
    pub workload: User,
    /// Who the agent is, where root of the container starts it: it keeps what it needs to start commands and to end them, and is dialed by
    /// root alone.
    pub agent: Option<User>,
    /// Facts to verify before anything runs.
    pub sights: Vec<Sight>,
    /// Directories that are made where they are missing, best effort.
    pub directories: Vec<GuestPath>,
    /// Resource limits by `RLIMIT_*` number: soft and hard value.
    pub rlimits: Vec<(u32, u64, u64)>,
    /// Places where the workload may write; the second lock behind the mounts. Best effort.
    pub landlock_writable: Vec<GuestPath>,
    /// Places where the workload may make sockets and named pipes; nothing means everywhere. Best effort.
    pub landlock_sockets: Option<Vec<GuestPath>>,
    /// Classic BPF programs, installed in order by every command; eight bytes an instruction.
    pub seccomp: Vec<Vec<u8>>,
    /// Filters that keep host files from getting set-id bits.
    pub mode_guard: ModeGuard,
    /// Which of the descriptors sent along is the listening socket; the agent makes one of its own where none could be.
    pub listener: Option<DescriptorIndex>,
    /// How the process tree of an exec is found again to be killed.
    pub tracking: Tracking,
    /// Where commands are held to their memory, where that is not the whole container with the agent in it.
    pub memory: Memory,
    /// A file in which the kernel counts `oom_kill`s of the whole box, where commands have no memory of their own.
    pub oom_kills: Option<DescriptorIndex>,
    /// The directory in which the agent keeps the output of journalled execs, where the box has one.
    pub journal: Option<DescriptorIndex>,
    /// The same directory as a place in the box, where none could be sent along.
    pub journal_in_box: Option<GuestPath>,
    /// What ends the box besides the host's request.
    pub lifeline: Lifeline,
    /// Which of the sent descriptors is closed when the process that creates the box ends. With it the agent closes the
    /// stream of this message, whose name the workload could see; without it the stream stays open.
    pub maker: Option<DescriptorIndex>,
    /// What keeps every process of the box from gaining a capability.
    pub bounding: Bounding,
}

/// What keeps every process of a container from gaining a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bounding {
    /// The bounding set is empty.
    Empty,
    /// `no_new_privs`: no program gains more than its caller has, and the agent has nothing. For hosts where the
    /// bounding set cannot be emptied.
    Inert,
}

/// Something that must be found in the box, because the host decided on it: a mount that shows another object is an attack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// Where.
    pub path: GuestPath,
    /// Device of the object.
    pub device: u64,
    /// Inode of the object.
    pub inode: u64,
    /// Whether it must not be possible to write there.
    pub read_only: bool,
}

/// Mounts for a container that an engine made, for a helper that the host starts outside of all boxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attaching {
    /// The process whose mount namespace is entered.
    pub process: DescriptorIndex,
    /// The root of that process.
    pub root: DescriptorIndex,
    /// The list of its mounts, as in `/proc/<pid>/mountinfo`.
    pub mount_table: DescriptorIndex,
    /// To whom belongs what has to be made, by ids of the host.
    pub owner: User,
    /// The mounts, in order.
    pub places: Vec<Placing>,
}

/// One mount and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placing {
    /// The detached mount, with everything set that restricts it.
    pub mount: DescriptorIndex,
    /// Its mount point; created if it is missing, with the type that the mount needs.
    pub path: GuestPath,
}

/// Position in the list of descriptors that travelled with the plan.
pub type DescriptorIndex = u32;

/// Position in [`Plan::trees`].
pub type TreeIndex = u32;

/// A file or directory tree of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tree {
    /// A detached mount that the host made and handed over.
    Mount(DescriptorIndex),
    /// A path of the host, opened without following links; must still be the object that the host decided on.
    Path {
        /// Real path in the host's file system.
        path: String,
        /// Device of the object.
        device: u64,
        /// Inode of the object.
        inode: u64,
    },
}

/// The storage of everything that the box owns. One file system, one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Storage {
    /// Memory, charged to the box.
    Tmpfs {
        /// Hard limit of bytes.
        bytes_max: u64,
        /// Hard limit of files.
        inodes_max: u64,
    },
    /// A detached mount of a file system of its own, made by the host.
    Mount(DescriptorIndex),
}

/// How the root is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Root {
    /// An empty directory of the storage, to be filled by steps.
    Empty,
    /// This tree, unchanged. It has a mount point for every step that mounts something, and is never written to.
    Tree(TreeIndex),
    /// An overlay with this tree below and the storage above.
    Overlay(TreeIndex),
}

/// One file system step below the new root. Targets are opened without following links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Make a directory and its parents where missing.
    Directory {
        /// Where.
        path: GuestPath,
        /// Permission bits.
        mode: u32,
        /// Owner.
        owner: User,
    },
    /// Change the owner of an existing directory, but not of its content.
    Own {
        /// Which.
        path: GuestPath,
        /// To whom.
        owner: User,
    },
    /// Make a symbolic link where nothing is.
    Symlink {
        /// Where.
        path: GuestPath,
        /// Its content.
        target: String,
    },
    /// Write a small file, replacing what has its name.
    File {
        /// Where.
        path: GuestPath,
        /// Permission bits.
        mode: u32,
        /// Contents.
        contents: Vec<u8>,
    },
    /// Write a small file if the path is missing or an empty file.
    Provide {
        /// Where.
        path: GuestPath,
        /// Permission bits.
        mode: u32,
        /// Contents.
        contents: Vec<u8>,
    },
    /// Mount a gathered tree.
    Attach {
        /// Which.
        tree: TreeIndex,
        /// On what; made when missing, as the tree's kind asks.
        path: GuestPath,
        /// Its restrictions.
        access: Access,
    },
    /// Mount a gathered file that is a program, with a link to it in a place that is in `PATH`. A root with something else at
    /// one of these paths keeps that.
    Program {
        /// Which.
        tree: TreeIndex,
        /// On what; made when missing.
        path: GuestPath,
        /// The link.
        link: GuestPath,
    },
    /// Mount a gathered tree as the lower layer of an overlay whose changes go to the storage.
    Overlay {
        /// Which.
        tree: TreeIndex,
        /// A layer between the tree and the storage that boxes share.
        shared: Option<TreeIndex>,
        /// On what.
        path: GuestPath,
        /// The storage's initial contents.
        own: Own,
    },
    /// Make a directory of the storage writable at this place of a read-only root.
    Writable {
        /// Where.
        path: GuestPath,
        /// Permission bits.
        mode: u32,
        /// Owner.
        owner: User,
    },
    /// Mount a fresh tmpfs.
    Tmpfs {
        /// Where.
        path: GuestPath,
        /// Hard limit of bytes.
        bytes_max: u64,
        /// Hard limit of files.
        inodes_max: u64,
        /// Permission bits.
        mode: u32,
        /// Whether it can be written after set-up.
        access: Access,
    },
    /// Mount this box's own process list, in which the agent cannot be looked into.
    Proc {
        /// Where.
        path: GuestPath,
    },
    /// Mount pseudo-terminals of the box's own.
    Devpts {
        /// Where.
        path: GuestPath,
    },
    /// Hide a file or directory if it exists.
    Mask {
        /// Which.
        path: GuestPath,
    },
    /// Make what was mounted here earlier read-only, but not what is mounted below it.
    Seal {
        /// Which.
        path: GuestPath,
    },
    /// Set a kernel setting of the box's own namespaces, best effort.
    Sysctl {
        /// Name below `/proc/sys`.
        name: String,
        /// Value.
        value: String,
    },
}

/// The initial contents of an overlay. A restored box already has them, and may have changed them. Paths are relative to the
/// tree.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// Directories, parents first, that belong to the box's root, so that it can write into them although the tree has another
    /// owner.
    pub directories: Vec<String>,
    /// Files copied for the box's root, because programs change them in place or hard-link them.
    pub copies: Vec<String>,
    /// Files of the tree that are hidden from the box.
    pub hidden: Vec<String>,
    /// Symbolic links, with their targets.
    pub links: Vec<(String, String)>,
}

/// Restrictions of a mount. `nosuid` and `nodev` are always set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read and execute.
    ReadOnly,
    /// Read, write and execute.
    ReadWrite,
    /// A device node: the one kind of mount that is not `nodev`.
    Device,
}

/// How the process tree of an exec is found again to be killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tracking {
    /// A cgroup v2 directory owned by the agent, in which it makes one child directory per exec.
    Cgroup(DescriptorIndex),
    /// Nothing but ancestry: a reaper above each exec and a walk over its descendants.
    Ancestry,
}

/// Where commands are held to their memory. Never the agent: a full box must not cost it its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    /// In each exec's own v2 cgroup.
    PerExec,
    /// In this v1 memory cgroup, for all execs together. Each command enters it before it starts.
    PerBox(DescriptorIndex),
    /// Nowhere.
    Absent,
}

/// What ends the box besides the host's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifeline {
    /// The death of the process that made it.
    Maker,
    /// Nothing.
    Detached,
}
