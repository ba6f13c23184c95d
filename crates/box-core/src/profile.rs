//! Presets of limits.

use box_wire::User;

use crate::{BoxSpec, Floors, Image, Network, Persistence, SyscallSet};

/// A named preset of limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// What it is for, in a few words.
    pub about: &'static str,
    /// What a box can reach.
    pub network: Network,
    /// Processors.
    pub cpus: f64,
    /// Memory limit.
    pub memory_mb: u64,
    /// Most processes.
    pub pids_limit: u64,
    /// Whether the root is read-only.
    pub read_only_rootfs: bool,
    /// Deadline of a command that names none.
    pub timeout_sec: u64,
    /// Longest deadline that a caller can ask for.
    pub timeout_sec_max: u64,
    /// Which system calls there are.
    pub syscalls: SyscallSet,
}

/// The profiles that are always there. The first is the default.
pub const BUILT_IN: [Profile; 5] = [
    Profile {
        name: "default",
        about: "no network, one processor, 512 MiB",
        network: Network::Off,
        cpus: 1.0,
        memory_mb: 512,
        pids_limit: 128,
        read_only_rootfs: true,
        timeout_sec: 30,
        timeout_sec_max: 120,
        syscalls: SyscallSet::Default,
    },
    Profile {
        name: "offline_readonly",
        about: "no network, half a processor, 256 MiB",
        network: Network::Off,
        cpus: 0.5,
        memory_mb: 256,
        pids_limit: 64,
        read_only_rootfs: true,
        timeout_sec: 30,
        timeout_sec_max: 60,
        syscalls: SyscallSet::Default,
    },
    Profile {
        name: "network_basic",
        about: "outbound network, one processor, 512 MiB",
        network: Network::On,
        cpus: 1.0,
        memory_mb: 512,
        pids_limit: 128,
        read_only_rootfs: true,
        timeout_sec: 30,
        timeout_sec_max: 120,
        syscalls: SyscallSet::Default,
    },
    Profile {
        name: "network_extended",
        about: "outbound network, two processors, 1 GiB, writable root",
        network: Network::On,
        cpus: 2.0,
        memory_mb: 1024,
        pids_limit: 256,
        read_only_rootfs: false,
        timeout_sec: 30,
        timeout_sec_max: 300,
        syscalls: SyscallSet::Default,
    },
    Profile {
        name: "debug",
        about: "as default, and ptrace works between processes of the box",
        network: Network::Off,
        cpus: 1.0,
        memory_mb: 512,
        pids_limit: 128,
        read_only_rootfs: true,
        timeout_sec: 30,
        timeout_sec_max: 120,
        syscalls: SyscallSet::Debug,
    },
];

impl Default for Profile {
    fn default() -> Self {
        BUILT_IN[0].clone()
    }
}

impl Profile {
    /// The built-in profile of that name.
    pub fn built_in(name: &str) -> Option<Self> {
        BUILT_IN.iter().find(|profile| profile.name == name).cloned()
    }

    /// A box with the limits of this profile and nothing else.
    pub fn spec(&self) -> BoxSpec {
        BoxSpec {
            network: self.network,
            image: Image::Host,
            mounts: Vec::new(),
            cpus: self.cpus,
            memory_mb: self.memory_mb,
            pids_limit: self.pids_limit,
            disk_mb: 0,
            read_only_rootfs: self.read_only_rootfs,
            user: User::ROOT,
            syscalls: self.syscalls,
            persistence: Persistence::Memory,
            dies_with_maker: false,
            keeps_journal: false,
            floors: Floors::default(),
        }
    }
}
