//! Decides how a box is set up. Pure: a specification and facts go in, a plan comes out, nothing is touched.

use std::path::{Path, PathBuf};

use box_core::limits::WORKSPACE;
use box_core::{BoxSpec, MountMode, Persistence};
use box_host::host_root::{HostRoot, TreeKind, Writable};
use box_host::layout::{self, DEVICE_BYTES_MAX, DIRECTORIES, LINKS, Owner, WORK_PLACES, known};
use box_host::standard::{self, DEVICE_LINKS, DEVICES, MASKED};
use box_wire::plan::{Access, Lifeline, Memory, Own, Plan, Root, Step, Storage, Tracking};
use box_wire::{BoxId, GuestPath, RootCapability, User};

/// Settings of the box's own namespaces: no further user namespace, without which nobody here can make any other, and low ports
/// for everybody, since hardly anybody has capabilities.
const SETTINGS: [(&str, &str); 2] = [("user/max_user_namespaces", "0"), ("net/ipv4/ip_unprivileged_port_start", "0")];

/// Settings of the box's user namespace, and where the machine's limit per account is.
const PER_ACCOUNT: [(&str, &str); 2] = [
    ("user/max_inotify_instances", "/proc/sys/fs/inotify/max_user_instances"),
    ("user/max_inotify_watches", "/proc/sys/fs/inotify/max_user_watches"),
];

/// Where files of `/etc` lie that differ from box to box.
const NAMES: &str = "/run/names";

/// The agent's program under the name by which it is `sudo`, and the name by which people find it. Packages use neither.
const SUDO: &str = "/run/strongbox/sudo";
const SUDO_LINK: &str = "/usr/local/bin/sudo";

/// `/dev/shm` of a box that stores on disk: as much as engines give.
const SHARED_MEMORY_BYTES_MAX: u64 = 64 << 20;
/// Files on a small tmpfs.
const SMALL_INODES_MAX: u64 = 1024;

/// What a plan needs from outside, to be opened before it is sent. The order is that of [`Plan::trees`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The part that all boxes without an image share, made once.
    Skeleton,
    /// The layer above `/usr` that all boxes with a writable root and the host's programs share.
    Programs,
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
pub(crate) struct PlanInputs<'a> {
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
    /// What root of the box is given.
    pub(crate) root_capabilities: Vec<RootCapability>,
    /// The agent's program, where the box can have it as `sudo`.
    pub(crate) sudo: Option<PathBuf>,
    /// More settings of the box's namespaces, which depend on the machine.
    pub(crate) settings: Vec<(&'static str, String)>,
}

/// Half of what one account of the machine gets of each, as settings of a box's user namespace. An ordinary user has one account for
/// all boxes, and no single box may take all of it.
pub(crate) fn half_of_account() -> Vec<(&'static str, String)> {
    let half = |(setting, whole): (&'static str, &str)| {
        let whole: u64 = std::fs::read_to_string(whole).ok()?.trim().parse().ok()?;
        Some((setting, (whole / 2).to_string()))
    };
    PER_ACCOUNT.into_iter().filter_map(half).collect()
}

/// A plan whose trees, storage and descriptors are filled in when they are opened.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) plan: Plan,
    pub(crate) sources: Vec<Source>,
}

/// Decides how a box is set up.
pub(crate) fn draft(spec: &BoxSpec, facts: &PlanInputs<'_>, seccomp: Vec<Vec<u8>>) -> Draft {
    let mut site = Site { spec, sources: Vec::new(), steps: Vec::new(), writable: Vec::new() };
    let shares = shares_skeleton(spec, facts);
    let root = match facts.host_root {
        Some(_) if shares => Root::Tree(site.source(Source::Skeleton)),
        Some(host) => {
            let accounts = layout::accounts(spec, host);
            let accounts = if spec.read_only_rootfs { accounts } else { host.writable().with_accounts(accounts) };
            site.steps.extend(skeleton(host, &site.own_directories(), accounts));
            Root::Empty
        }
        None => Root::Overlay(site.source(Source::Image)),
    };
    if let Some(host) = facts.host_root {
        site.host_trees(host, facts.shares_skeleton);
    }
    site.devices(shares);
    site.steps.push(Step::Proc { path: known("/proc") });
    site.steps.extend(MASKED.map(|path| Step::Mask { path: known(path) }));
    if let (Some(host), true) = (facts.host_root, spec.read_only_rootfs) {
        site.steps.extend(host.hidden.iter().map(|path| Step::Mask { path: path.clone() }));
    }
    site.writable.push(known("/proc"));
    site.work_places(facts, shares);
    site.names(facts, shares);
    let sudo = facts.sudo.as_deref().filter(|_| facts.host_root.is_none() || !spec.read_only_rootfs);
    if let Some(program) = sudo {
        site.sudo(program);
    }
    site.mounts();
    site.seal(&facts.settings);
    let landlock_writable = if spec.read_only_rootfs { site.writable } else { vec![GuestPath::root()] };
    let plan = Plan {
        agent: facts.agent,
        workload: spec.user,
        root_capabilities: facts.root_capabilities.clone(),
        sudo: sudo.is_some(),
        hostname: facts.id.as_str().to_owned(),
        trees: Vec::new(),
        storage: Storage::Tmpfs { bytes_max: spec.disk_bytes_max(), inodes_max: spec.disk_inodes_max() },
        snapshot: None,
        root,
        steps: site.steps,
        root_read_only: spec.read_only_rootfs,
        rlimits: standard::rlimits(spec, facts.pids_counted),
        landlock_writable,
        landlock_sockets: standard::socket_places(spec),
        seccomp,
        mode_guard: box_wire::plan::ModeGuard::default(),
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
/// there. Only the default user has a line in the shared list of accounts. A saved box may have had a root of its own.
fn shares_skeleton(spec: &BoxSpec, facts: &PlanInputs<'_>) -> bool {
    let below = |path: &GuestPath| path.is_within(&known(WORKSPACE));
    facts.shares_skeleton
        && spec.snapshot.is_none()
        && spec.read_only_rootfs
        && spec.user == User::ROOT
        && spec.mounts.iter().map(|mount| &mount.target).chain([&spec.home]).all(below)
}

/// Everything of a root without an image that does not differ from box to box, but for the directories `own`, which the box makes
/// itself, and for its accounts.
pub(crate) fn skeleton(host: &HostRoot, own: &[GuestPath], accounts: (String, String)) -> Vec<Step> {
    let directory = |path: &GuestPath| Step::Directory { path: path.clone(), mode: 0o755, owner: User::ROOT };
    let link = |path: &str, target: &str| Step::Symlink { path: known(path), target: target.to_owned() };
    let file = |(path, text): (&str, String)| Step::Provide { path: known(path), mode: 0o644, contents: text.into() };
    let common = DIRECTORIES.iter().map(|path| known(path)).filter(|path| !own.contains(path));
    let mut steps: Vec<Step> = common.map(|path| directory(&path)).collect();
    for (_, target, kind) in &host.trees {
        steps.push(match kind {
            TreeKind::Directory => directory(target),
            TreeKind::File => Step::Provide { path: target.clone(), mode: 0o644, contents: Vec::new() },
        });
    }
    for (path, contents) in &host.files {
        steps.push(Step::Provide { path: path.clone(), mode: 0o644, contents: contents.clone() });
    }
    steps.extend(host.links.iter().map(|(path, target)| Step::Symlink { path: path.clone(), target: target.clone() }));
    steps.extend(layout::account_files(accounts).map(file));
    for name in ["hostname", "hosts", "resolv.conf"] {
        steps.push(link(&format!("/etc/{name}"), &format!("..{NAMES}/{name}")));
    }
    steps.extend(LINKS.map(|(path, target)| link(path, target)));
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

    fn host_trees(&mut self, host: &HostRoot, has_layer: bool) {
        let is_writable = !self.spec.read_only_rootfs;
        for (source, target, kind) in &host.trees {
            // Programs replace files, which is impossible on a mount. The box has a copy instead.
            if is_writable && host.writable().files.iter().any(|(path, _)| path == target) {
                continue;
            }
            let tree = self.source(Source::Host(source.clone()));
            let path = target.clone();
            let step = match (is_writable, kind, target.as_str()) {
                (false, ..) | (_, TreeKind::File, _) => Step::Attach { tree, path, access: Access::ReadOnly },
                (true, _, "/usr") if has_layer => {
                    let shared = Some(self.source(Source::Programs));
                    Step::Overlay { tree, shared, path, own: Own::default() }
                }
                (true, _, "/usr") => Step::Overlay { tree, shared: None, path, own: host.writable().usr.clone() },
                (true, ..) => Step::Overlay { tree, shared: None, path, own: Own::default() },
            };
            self.steps.push(step);
        }
        if is_writable {
            self.packages(host.writable());
        }
    }

    /// The state directories of package managers.
    fn packages(&mut self, writable: &Writable) {
        for (source, target, own) in &writable.trees {
            let tree = self.source(Source::Host(source.clone()));
            let (path, own) = (target.clone(), own.clone());
            self.steps.push(Step::Overlay { tree, shared: None, path, own });
        }
        let file = |(path, contents): &(GuestPath, Vec<u8>)| Step::Provide {
            path: path.clone(),
            mode: 0o644,
            contents: contents.clone(),
        };
        self.steps.extend(writable.files.iter().map(file));
        let directory = |path: &GuestPath| Step::Directory { path: path.clone(), mode: 0o755, owner: User::ROOT };
        self.steps.extend(writable.directories.iter().map(directory));
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
            // The storage does not use memory here, so this may use a quarter of it.
            Persistence::Disk => {
                let bytes_max = SHARED_MEMORY_BYTES_MAX.min((self.spec.memory_mb << 20) / 4);
                self.tmpfs("/dev/shm", bytes_max, 0o1777);
            }
        }
        self.writable.push(known("/dev"));
    }

    /// Where the workload can write, with modes and owners.
    fn places(&self) -> Vec<(GuestPath, u32, User)> {
        let user = self.spec.user;
        let owner = |owner| if owner == Owner::Workload { user } else { User::ROOT };
        // A root of its own has a `/run`, and `/dev/shm` is one of the devices.
        let usual = WORK_PLACES.iter().filter(|(path, ..)| !["/run", "/dev/shm"].contains(path));
        let mut places: Vec<_> = usual.map(|(path, mode, of, _)| (known(path), *mode, owner(*of))).collect();
        if self.spec.home != known(WORKSPACE) {
            places.push((self.spec.home.clone(), 0o755, user));
        }
        places.retain(|(path, ..)| self.spec.mounts.iter().all(|mount| mount.target != *path));
        places
    }

    /// Directories that a skeleton must leave to the box: once they are there, nobody gives them another owner or mode.
    fn own_directories(&self) -> Vec<GuestPath> {
        if self.spec.read_only_rootfs {
            return Vec::new();
        }
        self.places().into_iter().map(|(path, ..)| path).collect()
    }

    /// Makes the places where the workload can write. On a read-only root these are mounts of the storage, else plain directories.
    fn work_places(&mut self, facts: &PlanInputs<'_>, shared: bool) {
        let mut places = self.places();
        if shared {
            places.push((known("/run"), 0o755, User::ROOT));
        }
        for (path, mode, owner) in places {
            if self.spec.read_only_rootfs {
                self.steps.push(Step::Writable { path: path.clone(), mode, owner });
            } else {
                self.steps.push(Step::Directory { path: path.clone(), mode, owner });
                // An image may have a directory of this name, which is somebody else's.
                if facts.host_root.is_none() && owner != User::ROOT && self.spec.snapshot.is_none() {
                    self.steps.push(Step::Own { path: path.clone(), owner });
                }
            }
            self.writable.push(path);
        }
    }

    fn names(&mut self, facts: &PlanInputs<'_>, shared: bool) {
        let place = if shared || facts.host_root.is_some() { NAMES } else { "/etc" };
        for (name, contents) in layout::name_files(facts.id, facts.resolver.as_ref()) {
            let path = known(&format!("{place}/{name}"));
            self.steps.push(Step::File { path, mode: 0o644, contents: contents.into_bytes() });
        }
    }

    /// The program `sudo`. Its name is a link, which the box may replace.
    fn sudo(&mut self, program: &Path) {
        let tree = self.source(Source::Host(program.to_owned()));
        self.steps.push(Step::Program { tree, path: known(SUDO), link: known(SUDO_LINK) });
    }

    /// Mounts of the host, parents before children whatever order they were given in.
    fn mounts(&mut self) {
        for index in layout::mount_order(self.spec) {
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
    fn seal(&mut self, settings: &[(&str, String)]) {
        let usual = SETTINGS.map(|(name, value)| (name, value.to_owned()));
        for (name, value) in usual.iter().chain(settings) {
            self.steps.push(Step::Sysctl { name: (*name).to_owned(), value: value.clone() });
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

#[cfg(test)]
mod tests;
