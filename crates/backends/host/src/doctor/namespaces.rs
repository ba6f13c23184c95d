//! Namespaces, really entered.

use std::io;

use box_core::backend::Finding;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;

use super::trial::{SingleMap, in_child, in_grandchild};
use super::{good, missing, setting, weaker};

const USERNS_CLONE: &str = "/proc/sys/kernel/unprivileged_userns_clone";
const USERNS_MAX: &str = "/proc/sys/user/max_user_namespaces";
const USERNS_APPARMOR: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// User namespaces in which one can do something: some machines let them be made and then deny everything inside.
pub(super) fn user() -> Finding {
    const NAME: &str = "user_namespaces";
    match in_new_root(UnshareFlags::NEWNS, || Ok(())) {
        Ok(()) => good(NAME, "they can be made and mounts work in them"),
        Err(error) => {
            let (reason, fix) = why_no_user_namespace();
            missing(NAME, format!("{reason} ({error})"), fix)
        }
    }
}

fn why_no_user_namespace() -> (&'static str, &'static str) {
    let is = |path: &str, value: &str| setting(path).as_deref() == Some(value);
    if is(USERNS_MAX, "0") {
        return ("user.max_user_namespaces is 0", "sudo sysctl -w user.max_user_namespaces=63359");
    }
    if is(USERNS_CLONE, "0") && !super::is_root() {
        return ("this system keeps them from ordinary users", "sudo sysctl -w kernel.unprivileged_userns_clone=1");
    }
    if is(USERNS_APPARMOR, "1") && !super::is_root() {
        return (
            "AppArmor keeps ordinary users from doing anything in them",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        );
    }
    if !std::path::Path::new("/proc/self/ns/user").exists() {
        return ("this kernel has none", "boot a kernel with CONFIG_USER_NS=y");
    }
    (
        "they are refused, as a container's system call filter does",
        "run strongbox outside of the container, or start the container with --security-opt seccomp=unconfined \
         --security-opt apparmor=unconfined --cap-add SYS_ADMIN",
    )
}

/// The other namespaces of a box.
pub(super) fn others() -> Finding {
    const NAME: &str = "namespaces";
    let kinds = [
        ("mount", UnshareFlags::NEWNS, "CONFIG_NAMESPACES"),
        ("process", UnshareFlags::NEWPID, "CONFIG_PID_NS"),
        ("network", UnshareFlags::NEWNET, "CONFIG_NET_NS"),
        ("ipc", UnshareFlags::NEWIPC, "CONFIG_IPC_NS"),
        ("host name", UnshareFlags::NEWUTS, "CONFIG_UTS_NS"),
        ("cgroup", UnshareFlags::NEWCGROUP, "CONFIG_CGROUPS"),
    ];
    let map = SingleMap::new();
    for (kind, flag, option) in kinds {
        if let Err(error) = in_child(|| map.enter(flag)) {
            let detail = format!("a {kind} namespace cannot be made ({error})");
            let fix = format!("boot a kernel with {option}=y, or see user_namespaces above");
            return missing(NAME, detail, &fix);
        }
    }
    good(NAME, kinds.map(|(kind, ..)| kind).join(", "))
}

/// A box's own process list, which the kernel refuses where the caller's own is covered in places.
pub(super) fn process_list() -> Finding {
    const NAME: &str = "process_list";
    let attempt = in_new_root(UnshareFlags::NEWNS | UnshareFlags::NEWPID, || {
        in_grandchild(|| mount(c"proc", c"/proc", c"proc", MountFlags::empty(), None))
    });
    match attempt {
        Ok(()) => good(NAME, "a box can have a /proc of its own"),
        Err(error) if user_namespaces_work() => missing(
            NAME,
            format!("a box cannot have a /proc of its own ({error}): parts of this one are covered, as in a container"),
            "run strongbox outside of the container, or start the container with --security-opt systempaths=unconfined",
        ),
        Err(_) => weaker(NAME, "could not be tried without user namespaces", None),
    }
}

fn user_namespaces_work() -> bool {
    in_new_root(UnshareFlags::NEWNS, || Ok(())).is_ok()
}

/// Runs `attempt` in a child that is root of new namespaces, with an empty tmpfs of its own on `/tmp`.
pub(super) fn in_new_root(others: UnshareFlags, attempt: impl FnOnce() -> rustix::io::Result<()>) -> io::Result<()> {
    let map = SingleMap::new();
    in_child(|| {
        map.enter(others)?;
        mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        mount(c"tmpfs", c"/tmp", c"tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)?;
        attempt()
    })
}
