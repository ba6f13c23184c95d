//! What exists on the machine because of boxes, so that two moments can be compared.
//!
//! Only boxes of this suite's instances count, recognized by the names of their cgroups: other suites may run at the
//! same time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Serialize;

use crate::host;
use crate::isolation::RUN_DIRECTORY;

/// What exists on the machine because of boxes, as lines of text by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Leaks(BTreeSet<String>);

/// What stays for the next box: the agent, unpacked images, the skills of tenants, and what their MCP servers installed. And the
/// audit log, which begins new files.
pub const KEPT: [&str; 8] =
    ["agent-", "audit/audit-", "images/", "skills/", "mcp/kept/", "docker/images/", "podman/images/", "nsjail/images/"];

/// The directory of archives, which stays when the last one is deleted. Archives in it are looked for.
const ARCHIVES: &str = "e2b/templates";

/// Where ranges of ids are claimed.
const CLAIMS: &str = "/run/strongbox/ids";

/// How deep control groups are searched. Ours are a few levels below the top or below a delegated directory.
const CGROUP_DEPTH_MAX: usize = 12;

impl Leaks {
    /// Looks at everything that a box can leave behind.
    pub fn snapshot(state_directory: &Path) -> Self {
        let ours = remember(state_directory);
        let mut found = BTreeSet::new();
        let mut add = |kind: &str, items: Vec<String>| found.extend(items.iter().map(|item| format!("{kind} {item}")));
        add("cgroup", cgroups(&ours));
        add("mount", mounts());
        add("loop device", loop_devices(state_directory));
        add("process", own_processes(state_directory, &ours));
        for place in places(state_directory) {
            let is_kept = |path: &String| path == ARCHIVES || KEPT.iter().any(|kept| path.starts_with(kept));
            add("file", files(&place).into_iter().filter(|path| !is_kept(path)).collect());
        }
        add("range of ids", claims(&ours));
        add("network link", network_links());
        add("packet filter", packet_filters());
        Self(found)
    }

    /// What is there now and was not there before.
    pub fn since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }

    /// The same with more things, for those who know of some that are not looked for here.
    #[must_use]
    pub fn with(mut self, things: Vec<String>) -> Self {
        self.0.extend(things);
        self
    }

    /// Waits until nothing more exists than now, or names what is left after `limit`.
    pub async fn settle(&self, look: impl Fn() -> Self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let left = look().since(self);
            if left.is_empty() {
                return Ok(());
            }
            if start.elapsed() > limit {
                bail!("left behind: {}", left.join("; "));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Notes the instances that a state directory holds now, and returns all that were ever noted.
///
/// An instance is forgotten on disk when it is swept, while its cgroups may still be there: that would be the leak.
pub fn remember(state_directory: &Path) -> BTreeSet<String> {
    static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    for place in places(state_directory) {
        let instances = files(&place).into_iter().filter_map(|path| {
            let (_, below) = path.rsplit_once("instances/")?;
            (!below.contains('/')).then(|| below.to_owned())
        });
        seen.extend(instances);
    }
    seen.clone()
}

/// Where a backend remembers its boxes: the state directory and, as root, a run directory that only this suite sees.
pub fn places(state_directory: &Path) -> Vec<PathBuf> {
    let mut places = vec![state_directory.to_owned()];
    if rustix::process::geteuid().is_root() {
        places.push(RUN_DIRECTORY.into());
    }
    places
}

/// What instances have in the run directory of root, which only this suite sees.
pub fn run_directories() -> BTreeSet<PathBuf> {
    names(Path::new(RUN_DIRECTORY)).into_iter().map(|name| Path::new(RUN_DIRECTORY).join(name)).collect()
}

/// Whether a name of the form `instance.box` is of one of our instances.
fn is_of(name: &str, ours: &BTreeSet<String>) -> bool {
    name.split_once('.').is_some_and(|(instance, _)| ours.contains(instance))
}

/// Mount points of a kind of file system that begins with `kind`.
fn mount_points(kind: &str) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            back.starts_with(kind).then(|| front.split(' ').nth(4).map(PathBuf::from))?
        })
        .collect()
}

/// Names in a directory; none where it does not exist.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Ranges of ids that our boxes have claimed.
fn claims(ours: &BTreeSet<String>) -> Vec<String> {
    let owner = |claim: &String| fs::read_to_string(Path::new(CLAIMS).join(claim)).unwrap_or_default();
    names(Path::new(CLAIMS)).into_iter().filter(|claim| is_of(&owner(claim), ours)).collect()
}

/// Control groups of our boxes in every hierarchy.
fn cgroups(ours: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut ahead: Vec<(PathBuf, usize)> = mount_points("cgroup").into_iter().map(|path| (path, 0)).collect();
    while let Some((directory, depth)) = ahead.pop() {
        let children = fs::read_dir(&directory).into_iter().flatten().flatten();
        for child in children.filter(|child| child.file_type().is_ok_and(|kind| kind.is_dir())) {
            let path = child.path();
            if path.components().any(|part| is_of(&part.as_os_str().to_string_lossy(), ours)) {
                found.push(path.display().to_string());
            }
            if depth < CGROUP_DEPTH_MAX {
                ahead.push((path, depth + 1));
            }
        }
    }
    found
}

/// The mount table without the numbers that change from one reading to the next.
pub fn mounts() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let without_ids = |line: &str| line.split(' ').skip(3).collect::<Vec<_>>().join(" ");
    text.lines().map(without_ids).collect()
}

/// Loop devices over a file of this state directory, even when the file is deleted already.
fn loop_devices(state_directory: &Path) -> Vec<String> {
    let Some(name) = state_directory.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return Vec::new();
    };
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    blocks
        .filter_map(|block| {
            let file = fs::read_to_string(block.path().join("loop/backing_file")).ok()?;
            file.contains(&name).then(|| format!("{} over {}", block.file_name().display(), file.trim()))
        })
        .collect()
}

/// Agents of our boxes, and programs that were started with a path of the state directory.
fn own_processes(state_directory: &Path, ours: &BTreeSet<String>) -> Vec<String> {
    let state = state_directory.display().to_string();
    let is_ours = |process: &host::Process| {
        process.command.contains(&state) || (process.name.starts_with("strongbox-agent") && lives_in(process.pid, ours))
    };
    host::processes().into_iter().filter(is_ours).map(|p| format!("{} {} {}", p.pid, p.name, p.command)).collect()
}

/// Whether a process is in a cgroup of one of these boxes. One outside of all boxes' cgroups counts too.
fn lives_in(pid: i32, ours: &BTreeSet<String>) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let mut boxes = text.split(['/', '\n']).filter(|part| part.contains('.')).peekable();
    boxes.peek().is_none() || boxes.any(|part| is_of(part, ours))
}

/// Names of everything below the state directory.
pub fn files(state_directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut ahead = vec![state_directory.to_owned()];
    while let Some(directory) = ahead.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                ahead.push(path.clone());
            }
            let below = path.strip_prefix(state_directory).unwrap_or(&path);
            found.push(below.display().to_string());
        }
    }
    found
}

fn network_links() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// Tables of the packet filter, where we may see them and the tool is there.
fn packet_filters() -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let listing = Command::new("nft").args(["list", "tables"]).output();
    let text = listing.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_file_is_a_leak_until_it_is_gone() {
        let state = tempfile::tempdir().unwrap();
        let before = Leaks::snapshot(state.path());
        let stray = state.path().join("stray");
        fs::write(&stray, "").unwrap();
        let after = Leaks::snapshot(state.path());
        assert!(after.since(&before).contains(&"file stray".to_owned()));
        let error = before.settle(|| Leaks::snapshot(state.path()), Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains("file stray"), "{error}");
    }
}
