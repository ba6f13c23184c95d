//! Decides how a box is set up. Pure: a specification and facts go in, a plan comes out, nothing is touched.

use std::path::PathBuf;

use box_core::{BoxSpec, MountMode, Network};
use box_wire::plan::{Access, Lifeline, Plan, Root, Step, Storage, Tracking};
use box_wire::{BoxId, GuestPath, User};

use crate::host_root::HostRoot;

/// Devices of a box. All harmless, and all there are.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// Links of `/dev` that programs expect.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// Files and directories of `/proc` that tell of the whole machine and are of no use in a box.
const MASKED: [&str; 14] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/pagetypeinfo",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/vmallocinfo",
];

/// Parts of `/proc` that stay readable and can never be written, whoever one is.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Settings of the box's own namespaces: no further namespaces, and low ports for everybody, since nobody has capabilities.
const SETTINGS: [(&str, &str); 9] = [
    ("user/max_user_namespaces", "0"),
    ("user/max_mnt_namespaces", "0"),
    ("user/max_pid_namespaces", "0"),
    ("user/max_net_namespaces", "0"),
    ("user/max_ipc_namespaces", "0"),
    ("user/max_uts_namespaces", "0"),
    ("user/max_cgroup_namespaces", "0"),
    ("user/max_time_namespaces", "0"),
    ("net/ipv4/ip_unprivileged_port_start", "0"),
];

/// Empty directories that programs expect at the top.
const DIRECTORIES: [&str; 9] = ["/home", "/media", "/mnt", "/opt", "/srv", "/sys", "/run", "/var/cache", "/var/lib"];

/// `/dev/shm`: as much as engines give.
const SHARED_MEMORY_BYTES_MAX: u64 = 64 << 20;
/// Room for the links and mount points of `/dev`.
const DEVICE_BYTES_MAX: u64 = 64 << 10;
/// Files on a small tmpfs.
const SMALL_INODES_MAX: u64 = 1024;

/// Where the workload works.
pub(crate) const WORKSPACE: &str = "/workspace";

/// What a plan needs from outside, to be opened before it is sent. The order is that of [`Plan::trees`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A file or directory of the host that is always shown.
    Host(PathBuf),
    /// The mount of this number in the specification, as granted.
    Grant(usize),
    /// The root file system of the image.
    Image,
}

/// Facts that the specification does not hold.
#[derive(Debug, Clone)]
pub(crate) struct Facts<'a> {
    /// The box.
    pub(crate) id: &'a BoxId,
    /// Who the agent becomes.
    pub(crate) agent: User,
    /// The host's programs, when there is no image.
    pub(crate) host_root: Option<&'a HostRoot>,
    /// What the box's `/etc/resolv.conf` says, where there is a network.
    pub(crate) resolver: Option<String>,
    /// Whether the kernel counts the box's processes; else a limit per user has to do.
    pub(crate) pids_counted: bool,
}

/// A plan whose trees, storage and descriptors are filled in when they are opened.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) plan: Plan,
    pub(crate) sources: Vec<Source>,
}

/// Decides how a box is set up.
pub(crate) fn draft(spec: &BoxSpec, facts: &Facts<'_>, seccomp: Vec<Vec<u8>>) -> Draft {
    let mut site = Site { spec, sources: Vec::new(), steps: Vec::new(), writable: Vec::new() };
    let root = match facts.host_root {
        Some(host) => {
            site.host_root(host, facts.id);
            Root::Empty
        }
        None => Root::Overlay(site.source(Source::Image)),
    };
    site.names(facts);
    site.devices();
    site.processes();
    site.work_places();
    site.mounts();
    let landlock_writable = if spec.read_only_rootfs { site.writable } else { vec![GuestPath::root()] };
    let plan = Plan {
        agent: facts.agent,
        workload: spec.user,
        hostname: facts.id.as_str().to_owned(),
        trees: Vec::new(),
        storage: Storage::Tmpfs { bytes_max: spec.disk_bytes_max(), inodes_max: spec.disk_inodes_max() },
        root,
        steps: site.steps,
        root_read_only: spec.read_only_rootfs,
        rlimits: rlimits(spec, facts.pids_counted),
        landlock_writable,
        seccomp,
        tracking: Tracking::Ancestry,
        listener: 0,
        lifeline: if spec.dies_with_maker { Lifeline::Maker } else { Lifeline::Detached },
    };
    Draft { plan, sources: site.sources }
}

struct Site<'a> {
    spec: &'a BoxSpec,
    sources: Vec<Source>,
    steps: Vec<Step>,
    /// Where the workload can write although the root is read-only.
    writable: Vec<GuestPath>,
}

impl Site<'_> {
    fn source(&mut self, source: Source) -> u32 {
        self.sources.push(source);
        u32::try_from(self.sources.len() - 1).unwrap_or(u32::MAX)
    }

    fn host_root(&mut self, host: &HostRoot, id: &BoxId) {
        for (source, target) in &host.trees {
            let tree = self.source(Source::Host(source.clone()));
            let step = if !self.spec.read_only_rootfs && target.as_str() == "/usr" {
                Step::Overlay { tree, path: target.clone() }
            } else {
                Step::Attach { tree, path: target.clone(), access: Access::ReadOnly }
            };
            self.steps.push(step);
        }
        for (path, target) in &host.links {
            self.steps.push(Step::Symlink { path: path.clone(), target: target.clone() });
        }
        self.accounts();
        self.file("/etc/hostname", format!("{id}\n"));
        self.file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n".into());
        self.link("/etc/os-release", "../usr/lib/os-release");
        self.link("/etc/mtab", "../proc/self/mounts");
        for path in DIRECTORIES {
            self.directory(path, 0o755, User::ROOT);
        }
        self.link("/var/tmp", "/tmp");
        self.link("/var/run", "/run");
    }

    /// Everybody there is in a box: root, nobody, and the workload if it is somebody else.
    fn accounts(&mut self) {
        let User { uid, gid } = self.spec.user;
        let mut users = String::from("root:x:0:0:root:/root:/bin/sh\n");
        let mut groups = String::from("root:x:0:\ntty:x:5:\n");
        if uid != 0 {
            users += &format!("user:x:{uid}:{gid}:user:{WORKSPACE}:/bin/sh\n");
        }
        if gid != 0 {
            groups += &format!("user:x:{gid}:\n");
        }
        users += "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n";
        groups += "nogroup:x:65534:\n";
        self.file("/etc/passwd", users);
        self.file("/etc/group", groups);
    }

    /// How names are found; an image's own files give way, as with every engine.
    fn names(&mut self, facts: &Facts<'_>) {
        self.file("/etc/hosts", format!("127.0.0.1 localhost {}\n::1 localhost\n", facts.id));
        if let Some(resolver) = &facts.resolver {
            self.file("/etc/resolv.conf", resolver.clone());
        }
    }

    fn devices(&mut self) {
        self.tmpfs("/dev", DEVICE_BYTES_MAX, 0o755);
        for name in DEVICES {
            let path = format!("/dev/{name}");
            let tree = self.source(Source::Host(PathBuf::from(&path)));
            self.steps.push(Step::Attach { tree, path: known(&path), access: Access::Device });
        }
        for (path, target) in DEVICE_LINKS {
            self.link(path, target);
        }
        self.steps.push(Step::Devpts { path: known("/dev/pts") });
        self.tmpfs("/dev/shm", SHARED_MEMORY_BYTES_MAX, 0o1777);
        self.steps.push(Step::Mqueue { path: known("/dev/mqueue") });
        self.steps.push(Step::Seal { path: known("/dev") });
        self.writable.push(known("/dev"));
    }

    fn processes(&mut self) {
        self.steps.push(Step::Proc { path: known("/proc") });
        for (name, value) in SETTINGS {
            self.steps.push(Step::Sysctl { name: name.to_owned(), value: value.to_owned() });
        }
        self.steps.extend(MASKED.map(|path| Step::Mask { path: known(path) }));
        self.steps.extend(READ_ONLY.map(|path| Step::ReadOnly { path: known(path) }));
        self.writable.push(known("/proc"));
    }

    /// Where the workload can write. On a read-only root these are mounts of the storage, else plain directories.
    fn work_places(&mut self) {
        let owner = self.spec.user;
        let places = [(WORKSPACE, 0o755, owner), ("/tmp", 0o1777, User::ROOT), ("/root", 0o700, User::ROOT)];
        for (path, mode, owner) in places {
            let path = known(path);
            if self.spec.mounts.iter().any(|mount| mount.target == path) {
                continue;
            }
            self.steps.push(if self.spec.read_only_rootfs {
                Step::Writable { path: path.clone(), mode, owner }
            } else {
                Step::Directory { path: path.clone(), mode, owner }
            });
            self.writable.push(path);
        }
    }

    /// Mounts of the host, parents before children whatever order they were given in.
    fn mounts(&mut self) {
        let mut order: Vec<usize> = (0..self.spec.mounts.len()).collect();
        order.sort_by_key(|&index| self.spec.mounts[index].target.as_str().matches('/').count());
        for index in order {
            let mount = &self.spec.mounts[index];
            let tree = self.source(Source::Grant(index));
            let access = match mount.mode {
                MountMode::Ro => Access::ReadOnly,
                MountMode::Rw => Access::ReadWrite,
            };
            if mount.mode == MountMode::Rw {
                self.writable.push(mount.target.clone());
            }
            self.steps.push(Step::Attach { tree, path: mount.target.clone(), access });
        }
    }

    fn directory(&mut self, path: &str, mode: u32, owner: User) {
        self.steps.push(Step::Directory { path: known(path), mode, owner });
    }

    fn file(&mut self, path: &str, contents: String) {
        self.steps.push(Step::File { path: known(path), mode: 0o644, contents: contents.into_bytes() });
    }

    fn link(&mut self, path: &str, target: &str) {
        self.steps.push(Step::Symlink { path: known(path), target: target.to_owned() });
    }

    fn tmpfs(&mut self, path: &str, bytes_max: u64, mode: u32) {
        let (path, inodes_max) = (known(path), SMALL_INODES_MAX);
        self.steps.push(Step::Tmpfs { path, bytes_max, inodes_max, mode, access: Access::ReadWrite });
    }
}

/// A path that stands in this file.
fn known(path: &str) -> GuestPath {
    GuestPath::parse("path", path).unwrap_or_else(|_| GuestPath::root())
}

/// Limits per process. They are not what holds a box, but they keep one process from being a nuisance to the others.
fn rlimits(spec: &BoxSpec, pids_counted: bool) -> Vec<(u32, u64, u64)> {
    let mut limits = vec![
        // One byte, not zero: with zero the kernel still starts a core handler that is a program.
        (libc::RLIMIT_CORE, 1, 1),
        (libc::RLIMIT_NOFILE, 1024, 4096),
        (libc::RLIMIT_MEMLOCK, 8 << 20, 8 << 20),
        (libc::RLIMIT_SIGPENDING, 4096, 4096),
        (libc::RLIMIT_MSGQUEUE, 800 << 10, 800 << 10),
        (libc::RLIMIT_NICE, 0, 0),
        (libc::RLIMIT_RTPRIO, 0, 0),
    ];
    if !pids_counted {
        limits.push((libc::RLIMIT_NPROC, spec.pids_limit, spec.pids_limit));
    }
    limits
}

/// Whether the box has a way out.
pub(crate) fn has_network(spec: &BoxSpec) -> bool {
    spec.network == Network::On
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::{MountSpec, Origin, Profile};

    fn host() -> HostRoot {
        HostRoot {
            trees: vec![("/usr".into(), known("/usr")), ("/etc/ssl/certs".into(), known("/etc/ssl/certs"))],
            links: vec![(known("/bin"), "usr/bin".to_owned())],
        }
    }

    fn draft_of(spec: &BoxSpec, host: Option<&HostRoot>) -> Draft {
        let id = "b1".parse().unwrap();
        let agent = User { uid: 65535, gid: 65535 };
        let resolver = has_network(spec).then(|| "nameserver 192.0.2.1\n".to_owned());
        let facts = Facts { id: &id, agent, host_root: host, resolver, pids_counted: true };
        draft(spec, &facts, vec![])
    }

    #[test]
    fn the_default_plan() {
        let drafted = draft_of(&Profile::default().spec(), Some(&host()));
        insta::assert_debug_snapshot!(drafted);
    }

    #[test]
    fn the_plan_of_a_writable_image_with_mounts() {
        let mount = |source: &str, target: &str, mode| MountSpec {
            source: source.into(),
            target: target.parse().unwrap(),
            mode,
            origin: Origin::Caller,
        };
        let mut spec = Profile::built_in("network_extended").unwrap().spec();
        spec.user = User { uid: 1000, gid: 1000 };
        spec.mounts =
            vec![mount("/srv/a/deep", "/workspace/deep", MountMode::Ro), mount("/srv/a", "/workspace", MountMode::Rw)];
        insta::assert_debug_snapshot!(draft_of(&spec, None));
    }

    #[test]
    fn nothing_is_masked_before_it_is_mounted_and_the_settings_are_made_before_they_are_sealed() {
        let steps = draft_of(&Profile::default().spec(), Some(&host())).plan.steps;
        let position = |wanted: &dyn Fn(&Step) -> bool| steps.iter().position(wanted).unwrap();
        let proc = position(&|step| matches!(step, Step::Proc { .. }));
        let setting = steps.iter().rposition(|step| matches!(step, Step::Sysctl { .. })).unwrap();
        let mask = position(&|step| matches!(step, Step::Mask { .. }));
        let sealed = position(&|step| matches!(step, Step::ReadOnly { path } if path.as_str() == "/proc/sys"));
        assert!(proc < setting && setting < sealed && proc < mask);
    }
}
