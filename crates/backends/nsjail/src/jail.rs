//! A jail as plain data, and the configuration by which nsjail learns of it.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use box_wire::GuestPath;
use box_wire::limits::TERMINALS_MAX;
use box_wire::plan::Access;

use crate::text::Text;

/// Where the agent's program is when nsjail starts: its standard output. It is executed from there, so that no file of the host has
/// to be shown to the box, and what is executed is sealed.
const AGENT: &str = "/proc/self/fd/1";

/// What nsjail itself forbids, to the agent as well as to the commands, which have a far narrower filter of their own: everything
/// that changes the machine or its mounts, or makes namespaces. A name that a machine of another kind lacks would keep the jail from
/// starting, so only those are here that all have.
const POLICY: &str = "ERRNO(1) { acct, add_key, bpf, clock_adjtime, clock_settime, delete_module, finit_module, fsconfig, \
                      fsmount, fsopen, fspick, init_module, kexec_load, keyctl, mount, mount_setattr, move_mount, \
                      open_by_handle_at, open_tree, perf_event_open, pivot_root, quotactl, reboot, request_key, setns, \
                      settimeofday, swapoff, swapon, syslog, umount, unshare, userfaultfd, vhangup } DEFAULT ALLOW";

/// Namespaces of a jail. All of them, always.
const NAMESPACES: [&str; 7] =
    ["clone_newnet", "clone_newuser", "clone_newns", "clone_newpid", "clone_newipc", "clone_newuts", "clone_newcgroup"];

/// What nsjail is told of a jail. Everything that it does not say is the same for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Jail {
    /// Host name inside.
    pub(crate) hostname: String,
    /// How users inside and of the host correspond. The first of the first line is who the agent is.
    pub(crate) users: Vec<IdLine>,
    /// The same for groups.
    pub(crate) groups: Vec<IdLine>,
    /// What there is to see, in order.
    pub(crate) mounts: Vec<Mount>,
    /// The socket inside at which the host waits for the agent.
    pub(crate) control_socket: GuestPath,
}

/// Ids that correspond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdLine {
    /// The first inside.
    pub(crate) inside: u32,
    /// The first of the host.
    pub(crate) outside: u32,
    /// How many.
    pub(crate) count: u32,
}

/// One thing that there is to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mount {
    /// A file or directory, as nsjail sees it when it starts.
    Bind {
        /// Where nsjail finds it.
        source: PathBuf,
        /// Where it is seen.
        target: GuestPath,
        /// What may be done with it.
        access: Access,
    },
    /// Memory of its own.
    Tmpfs {
        /// Where it is seen.
        target: GuestPath,
        /// Hard limit of bytes.
        bytes_max: u64,
        /// Hard limit of files.
        inodes_max: u64,
        /// Permission bits.
        mode: u32,
        /// What may be done with it once everything stands.
        access: Access,
    },
    /// The box's own process list.
    Processes(GuestPath),
    /// Pseudo-terminals of the box's own.
    Terminals(GuestPath),
    /// A symbolic link.
    Link {
        /// Where.
        path: GuestPath,
        /// What it says.
        target: String,
    },
    /// A small file.
    File {
        /// Where.
        path: GuestPath,
        /// What it says; not empty.
        contents: Vec<u8>,
        /// What may be done with it.
        access: Access,
    },
}

impl Jail {
    /// The configuration, in the form in which nsjail reads it.
    pub(crate) fn render(&self) -> String {
        let mut text = Text::default();
        text.word("mode", "ONCE");
        text.bytes("hostname", &self.hostname);
        text.bytes("cwd", "/");
        // A box lives until it is ended; how long a command may take is the agent's business.
        text.number("time_limit", 0);
        text.word("log_level", "WARNING");
        text.flag("silent", true);
        for name in ["keep_env", "keep_caps", "skip_setsid", "disable_no_new_privs", "no_pivotroot", "mount_proc"] {
            text.flag(name, false);
        }
        // The agent sets limits per process, the same on every backend.
        text.flag("disable_rl", true);
        text.number("nice_level", 0);
        for name in NAMESPACES {
            text.flag(name, true);
        }
        self.users.iter().for_each(|line| text.message("uidmap", |map| line.render(map)));
        self.groups.iter().for_each(|line| text.message("gidmap", |map| line.render(map)));
        self.mounts.iter().for_each(|mount| text.message("mount", |part| mount.render(part)));
        text.bytes("seccomp_string", POLICY);
        text.message("exec_bin", |program| {
            program.bytes("path", AGENT);
            program.bytes("arg", "lodge");
            program.bytes("arg", self.control_socket.as_str());
            program.bytes("arg0", "strongbox-agent");
            program.flag("exec_fd", true);
        });
        text.finish()
    }
}

impl IdLine {
    fn render(&self, text: &mut Text) {
        text.bytes("inside_id", self.inside.to_string());
        text.bytes("outside_id", self.outside.to_string());
        text.number("count", self.count.into());
    }
}

impl Mount {
    /// Where it is seen.
    pub(crate) fn target(&self) -> &GuestPath {
        match self {
            Self::Bind { target, .. }
            | Self::Tmpfs { target, .. }
            | Self::Processes(target)
            | Self::Terminals(target) => target,
            Self::Link { path, .. } | Self::File { path, .. } => path,
        }
    }

    fn render(&self, text: &mut Text) {
        text.bytes("dst", self.target().as_str());
        match self {
            Self::Bind { source, access, .. } => {
                text.bytes("src", source.as_os_str().as_bytes());
                text.flag("is_bind", true);
                restrict(text, *access);
            }
            Self::Tmpfs { bytes_max, inodes_max, mode, access, .. } => {
                text.bytes("fstype", "tmpfs");
                text.bytes("options", format!("size={bytes_max},nr_inodes={inodes_max},mode={mode:o}"));
                restrict(text, *access);
            }
            Self::Processes(_) => {
                text.bytes("fstype", "proc");
                restrict(text, Access::ReadOnly);
                text.flag("noexec", true);
            }
            Self::Terminals(_) => {
                text.bytes("fstype", "devpts");
                text.bytes("options", format!("newinstance,ptmxmode=0666,mode=0620,max={TERMINALS_MAX}"));
                // Terminals are devices.
                restrict(text, Access::Device);
                text.flag("noexec", true);
            }
            Self::Link { target, .. } => {
                text.bytes("src", target);
                text.flag("is_symlink", true);
            }
            Self::File { contents, access, .. } => {
                text.bytes("src_content", contents);
                restrict(text, *access);
            }
        }
    }
}

fn restrict(text: &mut Text, access: Access) {
    text.flag("rw", access != Access::ReadOnly);
    text.flag("nosuid", true);
    text.flag("nodev", access != Access::Device);
}
