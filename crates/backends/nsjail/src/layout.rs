//! Decides how a jail is furnished. Pure: a specification and facts go in, a jail comes out, nothing is touched.

use std::path::{Path, PathBuf};

use box_core::limits::WORKSPACE;
use box_core::{BoxSpec, MountMode};
use box_host::host_root::{HostRoot, TreeKind};
use box_host::layout::{self, DEVICE_BYTES_MAX, LINKS, WORK_PLACES, empty_directories, known};
use box_host::standard::{DEVICE_LINKS, DEVICES};
use box_host::storage::{self, Division};
use box_wire::plan::Access;
use box_wire::{BoxId, GuestPath};

use crate::jail::{IdLine, Jail, Mount};
use crate::stage;

/// The directory inside in which the host waits for the agent.
pub(crate) const CONTROL_DIRECTORY: &str = "/.strongbox/door";

/// The socket there.
pub(crate) const CONTROL: &str = "control.sock";

/// Files on a tmpfs that holds nothing but mount points.
const SMALL_INODES_MAX: u64 = 64;

/// Bytes of a tmpfs that holds nothing.
const EMPTY_BYTES_MAX: u64 = 4096;

/// How nsjail comes by what it mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MountMethod {
    /// We are root: everything stands ready in a mount namespace of nsjail's own, under names of ours.
    Staged,
    /// By the paths of the host. What is mounted is looked at by the agent.
    Paths,
}

/// Facts that the specification does not hold.
#[derive(Debug, Clone)]
pub(crate) struct LayoutInputs<'a> {
    /// The box.
    pub(crate) id: &'a BoxId,
    /// How users correspond.
    pub(crate) users: Vec<IdLine>,
    /// How groups correspond.
    pub(crate) groups: Vec<IdLine>,
    /// How nsjail comes by what it mounts.
    pub(crate) way: MountMethod,
    /// The host's programs, when there is no image.
    pub(crate) host_root: Option<&'a HostRoot>,
    /// What is mounted below the host's programs, where it comes along with them.
    pub(crate) submounts: Vec<GuestPath>,
    /// The directory of the control socket on the host.
    pub(crate) control_socket: &'a Path,
    /// Granted mounts, in the order of the specification: the real path, and what kind of place it needs.
    pub(crate) grants: Vec<(PathBuf, TreeKind)>,
    /// What of `/proc` is hidden.
    pub(crate) masked: Vec<(GuestPath, TreeKind)>,
    /// What `/etc/resolv.conf` says, where there is a network.
    pub(crate) resolver: Option<String>,
    /// Files of `/etc` that stand in an image as links, which are left alone.
    pub(crate) kept: Vec<GuestPath>,
}

/// Decides how a jail is furnished.
pub(crate) fn populate(spec: &BoxSpec, facts: &LayoutInputs<'_>) -> Jail {
    let mut site = Site { spec, facts, mounts: Vec::new() };
    site.root();
    if let Some(host) = facts.host_root {
        site.host(host);
    }
    site.devices();
    site.processes();
    site.work_places();
    site.names();
    site.grants();
    site.bind(facts.control_socket, stage::CONTROL_DIRECTORY, known(CONTROL_DIRECTORY), Access::ReadOnly);
    Jail {
        hostname: facts.id.as_str().to_owned(),
        users: facts.users.clone(),
        groups: facts.groups.clone(),
        mounts: site.mounts,
        control_socket: known(&format!("{CONTROL_DIRECTORY}/{CONTROL}")),
    }
}

/// Where the workload can write; the second lock behind the mounts.
pub(crate) fn writable(spec: &BoxSpec) -> Vec<GuestPath> {
    if !spec.read_only_rootfs {
        return vec![GuestPath::root()];
    }
    let own = [known("/dev"), known("/proc"), spec.home.clone()];
    let places = WORK_PLACES.iter().map(|(path, ..)| known(path)).chain(own);
    let mounts = spec.mounts.iter().filter(|mount| mount.mode == MountMode::Rw).map(|mount| mount.target.clone());
    places.chain(mounts).collect()
}

/// How the memory of a box is divided where each place is a file system of its own.
pub(crate) fn division(spec: &BoxSpec) -> Division {
    let places = WORK_PLACES.iter().filter(|(path, ..)| *path != spec.home.as_str()).count();
    let root = usize::from(!spec.read_only_rootfs);
    Division { sides: (places + root) as u64, taken_mb: 0 }
}

struct Site<'a> {
    spec: &'a BoxSpec,
    facts: &'a LayoutInputs<'a>,
    mounts: Vec<Mount>,
}

impl Site<'_> {
    /// What lies below everything else. Without a word, it is a small tmpfs that becomes read-only.
    fn root(&mut self) {
        let access = if self.spec.read_only_rootfs { Access::ReadOnly } else { Access::ReadWrite };
        let is_own = self.facts.host_root.is_none() || !self.spec.read_only_rootfs;
        match self.facts.way {
            _ if !is_own => {}
            MountMethod::Staged => {
                self.mounts.push(Mount::Bind { source: stage::ROOT.into(), target: GuestPath::root(), access });
            }
            MountMethod::Paths => self.side("/", 0o755, access),
        }
    }

    fn host(&mut self, host: &HostRoot) {
        for (index, (source, target, _)) in host.trees.iter().enumerate() {
            let is_overlay =
                !self.spec.read_only_rootfs && self.facts.way == MountMethod::Staged && target.as_str() == "/usr";
            if is_overlay {
                self.bind(source, stage::USR, target.clone(), Access::ReadWrite);
            } else {
                self.bind(source, &stage::host_tree(index), target.clone(), Access::ReadOnly);
            }
        }
        // Nsjail makes a tree read-only, and not what is mounted below it.
        for path in &self.facts.submounts {
            let (source, target) = (PathBuf::from(path.as_str()), path.clone());
            self.mounts.push(Mount::Bind { source, target, access: Access::ReadOnly });
        }
        if self.spec.read_only_rootfs || self.facts.way == MountMethod::Paths {
            for path in &host.hidden {
                self.mask(path.clone());
            }
        }
        for (path, contents) in &host.files {
            self.file(path.clone(), contents.clone());
        }
        for (path, target) in &host.links {
            self.link(path.as_str(), target);
        }
        for (path, text) in layout::account_files(layout::accounts(self.spec, host)) {
            self.file(known(path), text.into_bytes());
        }
        for (path, target) in LINKS {
            self.link(path, target);
        }
        if self.spec.read_only_rootfs {
            for path in empty_directories() {
                self.tmpfs(path, EMPTY_BYTES_MAX, SMALL_INODES_MAX, 0o755, Access::ReadOnly);
            }
        }
    }

    fn devices(&mut self) {
        // Not yet what it says of itself: everything that becomes read-only can be written until all stands.
        self.tmpfs("/dev", DEVICE_BYTES_MAX, SMALL_INODES_MAX, 0o755, Access::ReadOnly);
        for name in DEVICES {
            let path = format!("/dev/{name}");
            self.mounts.push(Mount::Bind { source: path.clone().into(), target: known(&path), access: Access::Device });
        }
        for (path, target) in DEVICE_LINKS {
            self.link(path, target);
        }
        self.mounts.push(Mount::Terminals(known("/dev/pts")));
    }

    fn processes(&mut self) {
        self.mounts.push(Mount::Processes(known("/proc")));
        for (target, kind) in &self.facts.masked {
            match kind {
                TreeKind::File => self.mask(target.clone()),
                TreeKind::Directory => self.tmpfs(target.as_str(), EMPTY_BYTES_MAX, 1, 0o555, Access::ReadOnly),
            }
        }
    }

    fn work_places(&mut self) {
        // Who is at home elsewhere finds the workspace there.
        let home = (self.spec.home.as_str() != WORKSPACE).then_some((self.spec.home.as_str(), 0o755, "workspace"));
        let usual = WORK_PLACES.iter().map(|(path, mode, _, name)| (*path, *mode, *name));
        for (path, mode, name) in usual.chain(home) {
            match self.facts.way {
                MountMethod::Staged => {
                    let (source, access) = (stage::storage(name).into(), Access::ReadWrite);
                    self.mounts.push(Mount::Bind { source, target: known(path), access });
                }
                MountMethod::Paths if path == self.spec.home.as_str() => {
                    let home_mb = division(self.spec).shares(self.spec).home_mb;
                    self.place(path, home_mb, mode, Access::ReadWrite);
                }
                MountMethod::Paths => self.side(path, mode, Access::ReadWrite),
            }
        }
    }

    fn names(&mut self) {
        for (name, contents) in layout::name_files(self.facts.id, self.facts.resolver.as_ref()) {
            let path = known(&format!("/etc/{name}"));
            if !self.facts.kept.contains(&path) {
                self.file(path, contents.into_bytes());
            }
        }
    }

    /// Mounts of the host, parents before children. Where they are put into the jail later, a place that could not be made then is
    /// made now.
    fn grants(&mut self) {
        for index in layout::mount_order(self.spec) {
            let (mount, (source, kind)) = (&self.spec.mounts[index], &self.facts.grants[index]);
            let target = mount.target.clone();
            let access = if mount.mode == MountMode::Rw { Access::ReadWrite } else { Access::ReadOnly };
            match (self.facts.way, kind) {
                (MountMethod::Paths, _) => self.mounts.push(Mount::Bind { source: source.clone(), target, access }),
                (MountMethod::Staged, _) if self.can_be_made_later(&target) => {}
                // Not a file of nsjail's own: that has no name any more, and nothing can be mounted on it.
                (MountMethod::Staged, TreeKind::File) => self.mask(target),
                (MountMethod::Staged, TreeKind::Directory) => {
                    self.tmpfs(target.as_str(), EMPTY_BYTES_MAX, SMALL_INODES_MAX, 0o755, Access::ReadOnly);
                }
            }
        }
    }

    fn can_be_made_later(&self, target: &GuestPath) -> bool {
        let is_below = |place: &GuestPath| target.is_within(place);
        let others = self.spec.mounts.iter().filter(|mount| mount.target != *target).map(|mount| &mount.target);
        WORK_PLACES.iter().any(|(path, ..)| is_below(&known(path)))
            || is_below(&self.spec.home)
            || others.into_iter().any(is_below)
    }

    fn bind(&mut self, path: &Path, staged: &str, target: GuestPath, access: Access) {
        let source = match self.facts.way {
            MountMethod::Staged => PathBuf::from(staged),
            MountMethod::Paths => path.to_owned(),
        };
        self.mounts.push(Mount::Bind { source, target, access });
    }

    fn file(&mut self, path: GuestPath, contents: Vec<u8>) {
        let access = if self.spec.read_only_rootfs { Access::ReadOnly } else { Access::ReadWrite };
        if !contents.is_empty() {
            self.mounts.push(Mount::File { path, contents, access });
        }
    }

    /// A file in which there is nothing.
    fn mask(&mut self, target: GuestPath) {
        self.mounts.push(Mount::Bind { source: "/dev/null".into(), target, access: Access::Device });
    }

    fn link(&mut self, path: &str, target: &str) {
        self.mounts.push(Mount::Link { path: known(path), target: target.to_owned() });
    }

    /// A place besides the home that is a file system of its own.
    fn side(&mut self, target: &str, mode: u32, access: Access) {
        let side_mb = division(self.spec).shares(self.spec).side_mb;
        self.place(target, side_mb, mode, access);
    }

    fn place(&mut self, target: &str, mb: u64, mode: u32, access: Access) {
        self.tmpfs(target, mb << 20, storage::files_of(mb), mode, access);
    }

    fn tmpfs(&mut self, target: &str, bytes_max: u64, inodes_max: u64, mode: u32, access: Access) {
        self.mounts.push(Mount::Tmpfs { target: known(target), bytes_max, inodes_max, mode, access });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::{MountSpec, Origin, Profile};
    use box_wire::User;

    fn host() -> HostRoot {
        HostRoot {
            trees: vec![
                ("/usr".into(), known("/usr"), TreeKind::Directory),
                ("/etc/ld.so.cache".into(), known("/etc/ld.so.cache"), TreeKind::File),
            ],
            files: vec![(known("/etc/services"), b"http 80/tcp\n".to_vec())],
            links: vec![(known("/bin"), "usr/bin".to_owned())],
            shell: "/bin/bash",
            ..HostRoot::default()
        }
    }

    fn populated(spec: &BoxSpec, way: MountMethod, host: Option<&HostRoot>) -> Jail {
        let id = "b1".parse().unwrap();
        let line = |outside| vec![IdLine { inside: 0, outside, count: 1 }];
        let facts = LayoutInputs {
            id: &id,
            users: line(0x7000_0000),
            groups: line(0x7000_0000),
            way,
            host_root: host,
            submounts: if way == MountMethod::Paths { vec![known("/usr/local")] } else { Vec::new() },
            control_socket: Path::new("/run/user/1000/strongbox/door \"a\""),
            grants: spec
                .mounts
                .iter()
                .map(|mount| {
                    let is_file = mount.target.name() == "file";
                    (mount.source.clone(), if is_file { TreeKind::File } else { TreeKind::Directory })
                })
                .collect(),
            masked: vec![(known("/proc/keys"), TreeKind::File), (known("/proc/scsi"), TreeKind::Directory)],
            resolver: None,
            kept: vec![known("/etc/hosts")],
        };
        populate(spec, &facts)
    }

    fn with_mounts() -> BoxSpec {
        let mount = |source: &str, target: &str, mode| MountSpec {
            source: source.into(),
            target: target.parse().unwrap(),
            mode,
            origin: Origin::Caller,
        };
        let mounts = vec![
            mount("/srv/a/deep", "/workspace/deep", MountMode::Ro),
            mount("/srv/a", "/workspace", MountMode::Rw),
            mount("/srv/b \"}\nmount {", "/mnt/b", MountMode::Ro),
            mount("/srv/c", "/opt/file", MountMode::Ro),
        ];
        BoxSpec { mounts, user: User { uid: 1000, gid: 1000 }, ..Profile::default().spec() }
    }

    #[test]
    fn the_jail_that_root_makes() {
        insta::assert_snapshot!(populated(&Profile::default().spec(), MountMethod::Staged, Some(&host())).render());
    }

    #[test]
    fn the_jail_of_an_ordinary_user_with_mounts() {
        insta::assert_snapshot!(populated(&with_mounts(), MountMethod::Paths, Some(&host())).render());
    }

    #[test]
    fn the_jail_of_an_image_with_mounts() {
        insta::assert_snapshot!(populated(&with_mounts(), MountMethod::Staged, None).render());
    }

    #[test]
    fn no_word_of_a_caller_but_its_targets_is_told_to_an_nsjail_that_is_root() {
        let told = populated(&with_mounts(), MountMethod::Staged, Some(&host())).render();
        assert!(!told.contains("/srv/"), "{told}");
    }

    #[test]
    fn parents_are_mounted_before_what_lies_in_them() {
        for (way, host) in
            [(MountMethod::Paths, Some(host())), (MountMethod::Staged, Some(host())), (MountMethod::Staged, None)]
        {
            let mounts = populated(&with_mounts(), way, host.as_ref()).mounts;
            for (index, mount) in mounts.iter().enumerate() {
                let covers =
                    |later: &&Mount| later.target() != mount.target() && mount.target().is_within(later.target());
                assert_eq!(mounts[index..].iter().find(covers), None, "{mount:?}");
            }
        }
    }
}
