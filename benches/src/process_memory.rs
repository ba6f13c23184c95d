//! What processes take of the memory of this machine, as the kernel counts it.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

/// Proportional set size of a process: pages of its own, and its share of those that others use too.
pub(crate) fn proportional_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    kib_line(&text, "Pss:").with_context(|| format!("{path} has no Pss"))
}

/// Resident set size of a process, shared pages included.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    kib_line(&text, "VmRSS:").with_context(|| format!("{path} has no VmRSS"))
}

/// Memory that the kernel could still hand out.
pub(crate) fn available_bytes() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    kib_line(&text, "MemAvailable:").context("/proc/meminfo has no MemAvailable")
}

/// A process and all that descend from it and are still there.
pub(crate) fn tree(pid: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([pid]);
    let mut to_visit = vec![pid];
    while let Some(parent) = to_visit.pop() {
        let fresh: Vec<u32> = children(parent).into_iter().filter(|child| found.insert(*child)).collect();
        to_visit.extend(fresh);
    }
    found
}

/// The live children of a process, which may end at any moment. Zombies do not count.
fn children(pid: u32) -> Vec<u32> {
    listed_children(pid).into_iter().filter(|child| is_alive(*child)).collect()
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn listed_children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>()).collect()
}

fn kib_line(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read_as_bytes() {
        assert_eq!(kib_line("Rss:  9 kB\nPss:                 316 kB\nPss_Anon: 1 kB\n", "Pss:"), Some(316 << 10));
        assert_eq!(kib_line("Rss: 9 kB\n", "Pss:"), None);
    }

    #[test]
    fn a_child_is_in_the_tree_and_has_memory() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = tree(std::process::id());
        let bytes = proportional_bytes(child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains(&child.id()));
        assert!(bytes > 0 && resident_bytes(std::process::id()).unwrap() > 0);
    }
}
