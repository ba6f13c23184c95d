//! Eyes on the host: counters, processes and trees, read from outside of every box.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::leaks;

/// One process of the host, from `/proc`.
#[derive(Debug, Clone)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Name, at most 15 characters.
    pub name: String,
    /// Command line, arguments separated by blanks.
    pub command: String,
}

/// All processes of the host but ourselves.
pub fn processes() -> Vec<Process> {
    let own = std::process::id().cast_signed();
    let pids = numbers_in("/proc").filter(|&pid| pid != own);
    pids.filter_map(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned();
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        Some(Process { pid, name, command })
    })
    .collect()
}

/// Processes whose command line holds `text`.
pub fn processes_with(text: &str) -> Vec<Process> {
    processes().into_iter().filter(|process| process.command.contains(text)).collect()
}

/// The `sleep` whose command line holds `marker`; not the shell or the client that started it.
pub fn sleeper(marker: &str) -> Option<i32> {
    processes_with(marker).into_iter().find(|process| process.name == "sleep").map(|process| process.pid)
}

/// The agents of all boxes of a state directory whose id begins so: the records of boxes name them.
pub fn agents_of(state_directory: &Path, box_id: &str) -> Vec<i32> {
    let mut agents = Vec::new();
    for place in leaks::places(state_directory) {
        for file in leaks::files(&place) {
            if !file.contains(&format!("/boxes/{box_id}")) || !file.ends_with("/record.json") {
                continue;
            }
            let text = fs::read_to_string(place.join(file)).unwrap_or_default();
            let record: Value = serde_json::from_str(&text).unwrap_or_default();
            agents.extend(record["agent"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()));
        }
    }
    agents
}

fn numbers_in(directory: &str) -> impl Iterator<Item = i32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A number behind a name in a file of `name: number kB` lines.
fn kilobytes(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Memory that kernel objects of the whole machine take and that cannot be reclaimed.
pub fn kernel_memory_mb() -> Option<u64> {
    let kinds = ["SUnreclaim:", "PageTables:", "KernelStack:", "Percpu:"];
    kinds.iter().map(|kind| kilobytes("/proc/meminfo", kind)).sum::<Option<u64>>().map(|kb| kb / 1024)
}

/// Memory that this process has resident.
pub fn own_resident_kb() -> Option<u64> {
    kilobytes("/proc/self/status", "VmRSS:")
}

/// Memory that a process has resident.
pub fn resident_kb(pid: u32) -> Option<u64> {
    kilobytes(&format!("/proc/{pid}/status"), "VmRSS:")
}

/// The most that this process had resident since [`reset_own_peak`].
pub fn own_peak_kb() -> Option<u64> {
    kilobytes("/proc/self/status", "VmHWM:")
}

/// Restarts the measurement of [`own_peak_kb`].
pub fn reset_own_peak() -> Result<()> {
    fs::write("/proc/self/clear_refs", "5").context("resetting the peak of our memory")
}

/// Free space of the file system that holds `path`.
pub fn disk_free_mb(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize) >> 20)
}

/// Open files of the whole host.
pub fn open_files() -> Option<u64> {
    fs::read_to_string("/proc/sys/fs/file-nr").ok()?.split_whitespace().next()?.parse().ok()
}

/// Connections that the kernel tracks in our network namespace; none when it tracks none at all.
pub fn tracked_connections() -> u64 {
    let count = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count");
    count.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// A kernel setting by its dotted name.
pub fn sysctl(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()
}

/// System V objects of our IPC namespace.
pub fn ipc_objects() -> usize {
    let lines = |kind| fs::read_to_string(format!("/proc/sysvipc/{kind}")).map_or(0, |text| text.lines().count());
    ["shm", "sem", "msg"].into_iter().map(lines).sum()
}

/// A number that changes when a name, size or time below `/usr/bin` changes.
pub fn system_digest() -> u64 {
    let mut entries: Vec<_> = fs::read_dir("/usr/bin")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name(), entry.metadata().ok()?)))
        .map(|(name, data)| (name, data.size(), data.mtime(), data.mode()))
        .collect();
    entries.sort();
    let mut hasher = DefaultHasher::new();
    entries.hash(&mut hasher);
    hasher.finish()
}

/// Everything below `path`: kind, mode, owner and contents or link target. Links are not followed.
pub fn tree(path: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    let mut ahead = vec![path.to_owned()];
    while let Some(next) = ahead.pop() {
        let data = fs::symlink_metadata(&next).with_context(|| format!("reading {}", next.display()))?;
        let contents = if data.is_symlink() {
            format!("-> {}", fs::read_link(&next)?.display())
        } else if data.is_file() {
            String::from_utf8_lossy(&fs::read(&next)?).into_owned()
        } else {
            String::new()
        };
        found.insert(next.display().to_string(), format!("{:o} {} {contents}", data.mode(), data.uid()));
        if data.is_dir() {
            ahead.extend(fs::read_dir(&next)?.flatten().map(|entry| entry.path()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_shows_links_without_following_them() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("link")).unwrap();
        fs::write(dir.path().join("file"), "text").unwrap();
        let seen = tree(dir.path()).unwrap();
        assert_eq!(seen.len(), 3);
        assert!(seen.values().any(|entry| entry.ends_with("-> /etc")));
        fs::write(dir.path().join("file"), "other").unwrap();
        assert_ne!(tree(dir.path()).unwrap(), seen);
    }
}
