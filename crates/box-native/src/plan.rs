//! Decides how a box is set up. Pure: a specification and facts go in, a plan comes out, nothing is touched.

use std::path::PathBuf;

use box_core::{BoxSpec, MountMode, Network, Persistence};
use box_host::host_root::{HostRoot, TreeKind};
use box_host::standard::{self, DEVICE_LINKS, DEVICES, MASKED};
use box_wire::plan::{Access, Lifeline, Memory, Plan, Root, Step, Storage, Tracking};
use box_wire::{BoxId, GuestPath, User};

/// Settings of the box's own namespaces: no further user namespace, without which nobody here can make any other, and low ports
/// for everybody, since nobody has capabilities.
const SETTINGS: [(&str, &str); 2] = [("user/max_user_namespaces", "0"), ("net/ipv4/ip_unprivileged_port_start", "0")];

/// Empty directories that programs expect, and places on which something is mounted.
const DIRECTORIES: [&str; 14] = [
    "/dev",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/srv",
    "/sys",
    "/tmp",
    "/var/cache",
    "/var/lib",
    WORKSPACE,
];

/// Where files of `/etc` lie that differ from box to box.
const NAMES: &str = "/run/names";

/// `/dev/shm` of a box that stores on disk: as much as engines give.
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
    /// The part that all boxes without an image share, made once.
    Skeleton,
    /// The devices that all boxes without an image share, made once.
    Devices,
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
    /// Whether a skeleton can be shared between boxes; else each makes its own.
    pub(crate) shares_skeleton: bool,
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
    let shares = shares_skeleton(spec, facts);
    let root = match facts.host_root {
        Some(_) if shares => Root::Tree(site.source(Source::Skeleton)),
        Some(host) => {
            site.steps.extend(skeleton(host, spec.user));
            Root::Empty
        }
        None => Root::Overlay(site.source(Source::Image)),
    };
    if let Some(host) = facts.host_root {
        site.host_trees(host);
    }
    site.devices(shares);
    site.steps.push(Step::Proc { path: known("/proc") });
    site.steps.extend(MASKED.map(|path| Step::Mask { path: known(path) }));
    site.writable.push(known("/proc"));
    site.work_places(shares);
    site.names(facts, shares);
    site.mounts();
    site.seal();
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
        rlimits: standard::rlimits(spec, facts.pids_counted),
        landlock_writable,
        seccomp,
        tracking: Tracking::Ancestry,
        memory: Memory::Absent,
        listener: 0,
        entrances: Vec::new(),
        journal: None,
        lifeline: if spec.dies_with_maker { Lifeline::Maker } else { Lifeline::Detached },
    };
    Draft { plan, sources: site.sources }
}

/// Whether this box can stand on the shared skeleton: nothing of it is to be written, and all its mounts go to places that are
/// there. Only the default user has a line in the shared list of accounts.
fn shares_skeleton(spec: &BoxSpec, facts: &Facts<'_>) -> bool {
    let below = |mount: &box_core::MountSpec| mount.target.is_within(&known(WORKSPACE));
    facts.shares_skeleton && spec.read_only_rootfs && spec.user == User::ROOT && spec.mounts.iter().all(below)
}

/// Everything of a root without an image that does not differ from box to box.
pub(crate) fn skeleton(host: &HostRoot, user: User) -> Vec<Step> {
    let directory = |path: &GuestPath| Step::Directory { path: path.clone(), mode: 0o755, owner: User::ROOT };
    let link = |path: &str, target: &str| Step::Symlink { path: known(path), target: target.to_owned() };
    let file = |path: &str, text: &str| Step::File { path: known(path), mode: 0o644, contents: text.into() };
    let mut steps: Vec<Step> = DIRECTORIES.iter().map(|path| directory(&known(path))).collect();
    for (_, target, kind) in &host.trees {
        steps.push(match kind {
            TreeKind::Directory => directory(target),
            TreeKind::File => Step::File { path: target.clone(), mode: 0o644, contents: Vec::new() },
        });
    }
    for (path, contents) in &host.files {
        steps.push(Step::File { path: path.clone(), mode: 0o644, contents: contents.clone() });
    }
    steps.extend(host.links.iter().map(|(path, target)| Step::Symlink { path: path.clone(), target: target.clone() }));
    let (users, groups) = standard::accounts(user);
    steps.push(file("/etc/passwd", &users));
    steps.push(file("/etc/group", &groups));
    steps.push(file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"));
    for name in ["hostname", "hosts", "resolv.conf"] {
        steps.push(link(&format!("/etc/{name}"), &format!("..{NAMES}/{name}")));
    }
    steps.push(link("/etc/os-release", "../usr/lib/os-release"));
    steps.push(link("/etc/mtab", "../proc/self/mounts"));
    steps.push(link("/var/tmp", "/tmp"));
    steps.push(link("/var/run", "/run"));
    steps
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

    fn host_trees(&mut self, host: &HostRoot) {
        for (source, target, _) in &host.trees {
            let tree = self.source(Source::Host(source.clone()));
            let step = if !self.spec.read_only_rootfs && target.as_str() == "/usr" {
                Step::Overlay { tree, path: target.clone(), own: host.directories.clone() }
            } else {
                Step::Attach { tree, path: target.clone(), access: Access::ReadOnly }
            };
            self.steps.push(step);
        }
    }

    fn devices(&mut self, shared: bool) {
        if shared {
            let tree = self.source(Source::Devices);
            self.steps.push(Step::Attach { tree, path: known("/dev"), access: Access::Device });
        } else {
            self.tmpfs("/dev", DEVICE_BYTES_MAX, 0o755);
            for name in DEVICES {
                let path = format!("/dev/{name}");
                let tree = self.source(Source::Host(PathBuf::from(&path)));
                self.steps.push(Step::Attach { tree, path: known(&path), access: Access::Device });
            }
            self.steps.extend(device_links());
        }
        self.steps.push(Step::Devpts { path: known("/dev/pts") });
        match self.spec.persistence {
            // The storage is memory already, and its size holds for this as well.
            Persistence::Memory => {
                let (path, mode, owner) = (known("/dev/shm"), 0o1777, User::ROOT);
                self.steps.push(Step::Writable { path, mode, owner });
            }
            Persistence::Disk => self.tmpfs("/dev/shm", SHARED_MEMORY_BYTES_MAX, 0o1777),
        }
        self.writable.push(known("/dev"));
    }

    /// Where the workload can write. On a read-only root these are mounts of the storage, else plain directories.
    fn work_places(&mut self, shared: bool) {
        let owner = self.spec.user;
        let mut places = vec![(WORKSPACE, 0o755, owner), ("/tmp", 0o1777, User::ROOT), ("/root", 0o700, User::ROOT)];
        if shared {
            places.push(("/run", 0o755, User::ROOT));
        }
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

    /// How names are found. In an image its own files give way, as with every engine.
    fn names(&mut self, facts: &Facts<'_>, shared: bool) {
        let place = if shared || facts.host_root.is_some() { NAMES } else { "/etc" };
        let mut file = |name: &str, contents: String| {
            let path = known(&format!("{place}/{name}"));
            self.steps.push(Step::File { path, mode: 0o644, contents: contents.into_bytes() });
        };
        file("hostname", format!("{}\n", facts.id));
        file("hosts", format!("127.0.0.1 localhost {}\n::1 localhost\n", facts.id));
        if let Some(resolver) = &facts.resolver {
            file("resolv.conf", resolver.clone());
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

    /// What can be closed only when nothing is left to mount.
    fn seal(&mut self) {
        for (name, value) in SETTINGS {
            self.steps.push(Step::Sysctl { name: name.to_owned(), value: value.to_owned() });
        }
        self.steps.extend(["/proc", "/dev"].map(|path| Step::Seal { path: known(path) }));
    }

    fn tmpfs(&mut self, path: &str, bytes_max: u64, mode: u32) {
        let (path, inodes_max) = (known(path), SMALL_INODES_MAX);
        self.steps.push(Step::Tmpfs { path, bytes_max, inodes_max, mode, access: Access::ReadWrite });
    }
}

/// Links of `/dev` that programs expect.
pub(crate) fn device_links() -> impl Iterator<Item = Step> {
    DEVICE_LINKS.iter().map(|(path, target)| Step::Symlink { path: known(path), target: (*target).to_owned() })
}

/// A path that stands in this file.
fn known(path: &str) -> GuestPath {
    GuestPath::parse("path", path).unwrap_or_else(|_| GuestPath::root())
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
            trees: vec![
                ("/usr".into(), known("/usr"), TreeKind::Directory),
                ("/etc/ld.so.cache".into(), known("/etc/ld.so.cache"), TreeKind::File),
            ],
            files: vec![(known("/etc/services"), b"http 80/tcp\n".to_vec())],
            links: vec![(known("/bin"), "usr/bin".to_owned())],
            directories: vec!["bin".to_owned(), "local".to_owned(), "local/lib".to_owned()],
        }
    }

    fn draft_of(spec: &BoxSpec, host: Option<&HostRoot>, shares_skeleton: bool) -> Draft {
        let id = "b1".parse().unwrap();
        let agent = User { uid: 65535, gid: 65535 };
        let resolver = has_network(spec).then(|| "nameserver 192.0.2.1\n".to_owned());
        let facts = Facts { id: &id, agent, host_root: host, shares_skeleton, resolver, pids_counted: true };
        draft(spec, &facts, vec![])
    }

    #[test]
    fn the_default_plan() {
        insta::assert_debug_snapshot!(draft_of(&Profile::default().spec(), Some(&host()), true));
    }

    #[test]
    fn the_plan_of_an_ordinary_user() {
        insta::assert_debug_snapshot!(draft_of(&Profile::default().spec(), Some(&host()), false));
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
        insta::assert_debug_snapshot!(draft_of(&spec, None, true));
    }

    #[test]
    fn what_forbids_further_mounts_comes_after_the_last_one() {
        for shared in [true, false] {
            let steps = draft_of(&Profile::default().spec(), Some(&host()), shared).plan.steps;
            let setting = steps.iter().position(|step| matches!(step, Step::Sysctl { .. })).unwrap();
            let late = |step: &Step| matches!(step, Step::Sysctl { .. } | Step::Seal { .. });
            assert!(steps[setting..].iter().all(late), "{steps:?}");
        }
    }

    #[test]
    fn a_box_that_needs_more_than_the_skeleton_gets_a_root_of_its_own() {
        let shares = |spec: &BoxSpec| matches!(draft_of(spec, Some(&host()), true).plan.root, Root::Tree(_));
        let plain = Profile::default().spec();
        assert!(shares(&plain));
        assert!(!shares(&BoxSpec { read_only_rootfs: false, ..plain.clone() }));
        assert!(!shares(&BoxSpec { user: User { uid: 1, gid: 1 }, ..plain.clone() }));
        let mount = |target: &str| MountSpec {
            source: "/srv".into(),
            target: target.parse().unwrap(),
            mode: MountMode::Ro,
            origin: Origin::Caller,
        };
        assert!(shares(&BoxSpec { mounts: vec![mount("/workspace/a")], ..plain.clone() }));
        assert!(!shares(&BoxSpec { mounts: vec![mount("/mnt/a")], ..plain }));
    }
}
