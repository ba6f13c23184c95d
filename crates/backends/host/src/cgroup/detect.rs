//! What this machine has of cgroups, and what of it we may use.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cgroup_files::{Hierarchy as Mount, parse_hierarchies};
use rustix::fs::{Access, Mode, OFlags};

use super::hybrid::Hierarchy;
use super::top::{HOST_LEAF, Top, gives};
use super::{Absence, Cgroups, DriverKind, file};

/// What `statfs` says of a v2 hierarchy.
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;
/// What `statfs` says of a v1 hierarchy.
const CGROUP_SUPER_MAGIC: u64 = 0x0027_e0eb;
/// Directory of all boxes when root makes them.
const TOP_NAME: &str = "strongbox";
/// Controllers that boxes get on v2, if the machine has them. Boxes require the first two.
const CONTROLLERS: [&str; 4] = ["memory", "pids", "cpu", "io"];

/// Looks at the machine; makes and moves nothing.
pub(super) fn detect() -> Cgroups {
    let mountinfo = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = parse_hierarchies(&mountinfo);
    let place = if rustix::process::geteuid().is_root() {
        CgroupParent::Root
    } else {
        CgroupParent::User(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
    };
    let v2 = mounts.iter().find(|mount| mount.v1_controllers.is_none());
    let base = v2.and_then(|mount| place.v2_base(mount, &own));
    let available = base.as_ref().map(|base| file::read(base, "cgroup.controllers").unwrap_or_default());
    let machine = v2.map(|mount| std::fs::read_to_string(mount.point.join("cgroup.controllers")).unwrap_or_default());
    if machine.is_some_and(|all| has_limits(&all)) {
        return unified(base, &available.unwrap_or_default(), &place);
    }
    let v1: Vec<Hierarchy> = mounts.iter().filter_map(|mount| place.v1_hierarchy(mount)).collect();
    hybrid(base, v1, &mounts, &place)
}

/// Who we are decides where we may make directories.
#[derive(Debug, Clone, Copy)]
enum CgroupParent {
    /// Anywhere: at the top of each hierarchy.
    Root,
    /// On v2 in the cgroup that we run in, on v1 in a directory that root prepared: uid and gid.
    User(u32, u32),
}

impl CgroupParent {
    fn top_name(self) -> String {
        match self {
            Self::Root => TOP_NAME.to_owned(),
            Self::User(uid, _) => format!("{TOP_NAME}-{uid}"),
        }
    }

    /// The v2 directory in which the directory of all boxes can be made.
    fn v2_base(self, mount: &Mount, own: &str) -> Option<OwnedFd> {
        let path = match self {
            Self::Root => mount.point.clone(),
            Self::User(..) => own_directory(mount, own)?,
        };
        for needed in ["", "cgroup.procs", "cgroup.subtree_control"] {
            rustix::fs::access(path.join(needed), Access::WRITE_OK).ok()?;
        }
        open_of_kind(&path, CGROUP2_SUPER_MAGIC)
    }

    /// A v1 hierarchy with a controller that we use and a place for us.
    fn v1_hierarchy(self, mount: &Mount) -> Option<Hierarchy> {
        let (memory, pids, cpu) = (mount.carries("memory"), mount.carries("pids"), mount.carries("cpu"));
        if !(memory || pids || cpu) {
            return None;
        }
        let needed = match self {
            Self::Root => mount.point.clone(),
            Self::User(..) => mount.point.join(self.top_name()),
        };
        rustix::fs::access(&needed, Access::WRITE_OK).ok()?;
        let base = open_of_kind(&mount.point, CGROUP_SUPER_MAGIC)?;
        Some(Hierarchy { top: Arc::new(Top::new(base, self.top_name(), "")), memory, pids, cpu })
    }
}

fn unified(base: Option<OwnedFd>, available: &str, place: &CgroupParent) -> Cgroups {
    let Some(base) = base.filter(|_| has_limits(available)) else {
        let reason = match place {
            CgroupParent::Root => "the cgroup file system is mounted read-only".to_owned(),
            CgroupParent::User(uid, _) => {
                format!("uid {uid} does not own the cgroup it runs in with memory and pids in it")
            }
        };
        let fix = match place {
            CgroupParent::Root => "start strongbox where /sys/fs/cgroup is writable, e.g. outside of the container",
            CgroupParent::User(..) => {
                "start it in a scope of its own: systemd-run --user --scope -p Delegate=yes strongbox …"
            }
        };
        return Cgroups::absent(reason, fix);
    };
    let given = file::read(&base, "cgroup.subtree_control").unwrap_or_default();
    let wanted: Vec<&str> = CONTROLLERS.into_iter().filter(|controller| gives(available, controller)).collect();
    if !wanted.iter().all(|controller| gives(&given, controller)) && is_shared(&base) {
        let reason = "other processes live in the cgroup that strongbox would have to divide";
        return Cgroups::absent(
            reason,
            "start it in a scope of its own: systemd-run --user --scope -p Delegate=yes strongbox …",
        );
    }
    let controllers = wanted.iter().map(|controller| format!("+{controller}")).collect::<Vec<_>>().join(" ");
    let absence = (!gives(available, "cpu")).then(|| Absence {
        reason: "the cpu controller is not handed to the cgroup that strongbox runs in".to_owned(),
        fix: "as root: systemctl set-property user.slice CPUAccounting=yes".to_owned(),
    });
    let v2 = Some(Arc::new(Top::new(base, TOP_NAME, controllers)));
    Cgroups { kind: DriverKind::Unified, v2, v1: Vec::new(), absence }
}

fn hybrid(base: Option<OwnedFd>, v1: Vec<Hierarchy>, mounts: &[Mount], place: &CgroupParent) -> Cgroups {
    let has = |carried: fn(&Hierarchy) -> bool| v1.iter().any(carried);
    let found = [("memory", has(|one| one.memory)), ("pids", has(|one| one.pids)), ("cpu", has(|one| one.cpu))];
    let mut missing: Vec<&str> = found.iter().filter(|(_, there)| !there).map(|(controller, _)| *controller).collect();
    if base.is_none() {
        missing.push("v2");
    }
    let absence = (!missing.is_empty()).then(|| Absence {
        reason: match place {
            CgroupParent::Root => format!("no writable cgroup hierarchy for {}", missing.join(", ")),
            CgroupParent::User(uid, _) => format!("uid {uid} has no cgroup of its own for {}", missing.join(", ")),
        },
        fix: fix_command(&missing, mounts, *place),
    });
    let kind = if v1.is_empty() && base.is_none() { DriverKind::Absent } else { DriverKind::Hybrid };
    let v2 = base.map(|base| Arc::new(Top::new(base, TOP_NAME, "")));
    Cgroups { kind, v2, v1, absence }
}

/// What root has to type so that the missing parts are there.
fn fix_command(missing: &[&str], mounts: &[Mount], place: CgroupParent) -> String {
    let CgroupParent::User(uid, gid) = place else {
        return "mount the missing hierarchies writable, or boot with systemd.unified_cgroup_hierarchy=1".to_owned();
    };
    let name = place.top_name();
    let directories: Vec<String> = mounts
        .iter()
        .filter(|mount| match &mount.v1_controllers {
            Some(carried) => carried.iter().any(|controller| missing.contains(&controller.as_str())),
            None => missing.contains(&"v2"),
        })
        .map(|mount| mount.point.join(&name).display().to_string())
        .collect();
    if directories.is_empty() {
        return "boot with systemd.unified_cgroup_hierarchy=1: this machine has no such hierarchy".to_owned();
    }
    let enter = mounts
        .iter()
        .find(|mount| mount.v1_controllers.is_none() && missing.contains(&"v2"))
        .map(|mount| format!("; echo SHELL_PID > {}", mount.point.join(&name).join("cgroup.procs").display()));
    let shell = rustix::process::getppid().map_or_else(|| "$PPID".to_owned(), |pid| pid.to_string());
    let enter = enter.unwrap_or_default().replace("SHELL_PID", &shell);
    format!("as root: for d in {}; do mkdir -p $d; chown -R {uid}:{gid} $d; done{enter}", directories.join(" "))
}

fn has_limits(controllers: &str) -> bool {
    gives(controllers, "memory") && gives(controllers, "pids")
}

/// Whether a cgroup below the real root has processes besides us.
fn is_shared(base: &OwnedFd) -> bool {
    let own = std::process::id().to_string();
    let members = file::read(base, "cgroup.procs").unwrap_or_default();
    file::exists(base, "cgroup.type") && members.lines().any(|member| member != own)
}

/// The v2 directory that we run in; its parent if we moved into a leaf of it before.
fn own_directory(mount: &Mount, own: &str) -> Option<PathBuf> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let path = path.strip_suffix(HOST_LEAF).map_or(path, |base| base.trim_end_matches('/'));
    mount.directory(path)
}

fn open_of_kind(path: &Path, magic: u64) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let kind = rustix::fs::fstatfs(&directory).ok()?.f_type;
    (u64::try_from(kind).ok()? == magic).then_some(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &[u8] = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 /a /sys/fs/cgroup/my\\040memory rw - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn own_directory_leaves_our_leaf_and_never_leaves_the_mount() {
        let mount = |root: &str| Mount { point: "/cg".into(), root: root.into(), v1_controllers: None };
        let of = |root: &str, path: &str| own_directory(&mount(root), &format!("3:cpu:/x\n0::{path}\n"));
        assert_eq!(of("/", "/user.slice/a.scope"), Some("/cg/user.slice/a.scope".into()));
        assert_eq!(of("/", "/user.slice/a.scope/strongbox-host"), Some("/cg/user.slice/a.scope".into()));
        assert_eq!(of("/a", "/a/b"), Some("/cg/b".into()));
        assert_eq!(of("/", "/../b"), None);
        assert_eq!(of("/other", "/a"), None);
    }

    #[test]
    fn the_fix_names_what_is_missing_and_nothing_else() {
        let fix = fix_command(&["memory", "v2"], &parse_hierarchies(HYBRID), CgroupParent::User(1000, 100));
        assert!(fix.contains("/sys/fs/cgroup/my memory/strongbox-1000"), "{fix}");
        assert!(fix.contains("chown -R 1000:100"), "{fix}");
        assert!(!fix.contains("cpuacct"), "{fix}");
        assert!(fix.contains("> /sys/fs/cgroup/unified/strongbox-1000/cgroup.procs"), "{fix}");
    }
}
