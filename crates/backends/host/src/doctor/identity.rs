//! Ids of the host that boxes run as.

use std::os::fd::AsFd;

use crate::sys::{NamespaceHolder, map_mount_ids};
use box_core::Error;
use box_core::backend::Finding;
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};

use super::{good, is_root, weaker};
use crate::ids::IdMaps;
use crate::program;

/// Ids that a box has besides its root: its users and its agent.
const IDS_PER_BOX: u32 = 65535;

/// Ranges of ids that an ordinary user may give to boxes.
pub(super) fn sub_ids() -> Finding {
    const NAME: &str = "sub_ids";
    if is_root() {
        return good(NAME, "root gives each box a range of its own and never its own id");
    }
    let uid = rustix::process::geteuid().as_raw();
    let name = user_name(&std::fs::read_to_string("/etc/passwd").unwrap_or_default(), uid);
    let less = "a box then has a single id, which its agent shares with the commands";
    if program::find("newuidmap").is_none() || program::find("newgidmap").is_none() {
        let detail = format!("newuidmap is not installed: {less}");
        return weaker(NAME, detail, Some("sudo apt-get install uidmap"));
    }
    for file in ["/etc/subuid", "/etc/subgid"] {
        let largest = largest_range(&std::fs::read_to_string(file).unwrap_or_default(), &name, uid);
        if largest < IDS_PER_BOX {
            let less = if largest < 2 { less } else { "a box then has fewer users" };
            let detail = format!("{file} gives {name} {largest} ids in one range, of {IDS_PER_BOX} wanted: {less}");
            let fix = format!("sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {name}");
            return weaker(NAME, detail, Some(&fix));
        }
    }
    good(NAME, format!("newuidmap, and a range of {IDS_PER_BOX} ids or more for {name}"))
}

/// Mounts whose files appear with other owners, so that what a box makes in a workspace belongs to its owner.
pub(super) fn idmapped_mounts() -> Finding {
    const NAME: &str = "idmapped_mounts";
    if !is_root() {
        let detail = "only root can make them: in a workspace, files of a box's root are yours, those of its other users \
                      belong to your sub-ids";
        return weaker(NAME, detail, Some("run strongbox as root"));
    }
    match try_idmapped_mount() {
        Ok(()) => good(NAME, "work on the root file system: what a box makes in a workspace belongs to its owner"),
        Err(error) => weaker(
            NAME,
            format!(
                "do not work on the root file system ({error}): mounted directories are seen with the owners that they have"
            ),
            Some("keep workspaces on ext4, btrfs, xfs or tmpfs, and use Linux 5.19 or newer"),
        ),
    }
}

/// Makes a detached mount of the root file system, which vanishes when it is closed, and gives it other owners.
fn try_idmapped_mount() -> box_core::Result<()> {
    let failed = |error: std::io::Error| Error::io("trying an idmapped mount", error);
    let holder = NamespaceHolder::start().map_err(failed)?;
    IdMaps::of_range(0).write(holder.pid)?;
    let namespace = std::fs::File::open(format!("/proc/{}/ns/user", holder.pid)).map_err(failed)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let mount = open_tree(CWD, "/", flags).map_err(|error| failed(error.into()))?;
    map_mount_ids(mount, namespace.as_fd()).map_err(failed)
}

/// The name of a user by its number, or the number itself.
fn user_name(passwd: &str, uid: u32) -> String {
    let is_ours = |line: &&str| line.split(':').nth(2).is_some_and(|field| field.parse() == Ok(uid));
    let line = passwd.lines().find(is_ours);
    line.and_then(|line| line.split(':').next()).map_or_else(|| uid.to_string(), str::to_owned)
}

/// The longest range that a sub-id file gives to a user, named either way.
fn largest_range(file: &str, name: &str, uid: u32) -> u32 {
    let number = uid.to_string();
    let count = |line: &str| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        (owner == name || owner == number).then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    file.lines().filter_map(count).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_by_name_and_by_number() {
        let file = "alice:100000:65536\n1001:200000:1000\nbob:300000:70000\nbroken\nalice:1:x\n";
        assert_eq!(largest_range(file, "alice", 1000), 65536);
        assert_eq!(largest_range(file, "carol", 1001), 1000);
        assert_eq!(largest_range(file, "dave", 1002), 0);
    }

    #[test]
    fn a_user_without_an_entry_goes_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        assert_eq!(user_name(passwd, 1000), "alice");
        assert_eq!(user_name(passwd, 7), "7");
    }
}
