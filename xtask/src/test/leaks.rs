//! `leaks`: the test run left nothing on the machine that was not there before the first stage.

use super::rootless::STAGING_PREFIX;
use super::{Proof, Verdict};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The word in the names of everything that we make.
const OUR_WORD: &str = "strongbox";

/// The agent's name in the process list. The kernel cuts names at 15 bytes; this one has just as many.
const AGENT_COMM: &str = "strongbox-agent";

/// The kernel takes some cgroups and mounts down behind our back; that may take this long.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(30);

/// Strongbox's cgroups, mounts, loop devices and processes at one moment, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    things: BTreeSet<String>,
}

impl Snapshot {
    pub(super) fn take() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut things = BTreeSet::new();
        things.extend(our_cgroups(Path::new("/sys/fs/cgroup")).iter().map(|it| format!("cgroup {}", it.display())));
        things.extend(our_mounts(&mounts));
        things.extend(our_loop_devices(Path::new("/sys/block")));
        things.extend(our_processes(Path::new("/proc")));
        Self { things }
    }

    fn added_since(&self, before: &Self) -> Vec<String> {
        self.things.difference(&before.things).cloned().collect()
    }
}

pub(super) fn run(proof: &mut Proof) -> Verdict {
    let deadline = Instant::now() + SETTLE_TIME_MAX;
    loop {
        let leaked = Snapshot::take().added_since(&proof.shared.before);
        if leaked.is_empty() {
            return Verdict::Passed;
        }
        if Instant::now() >= deadline {
            for thing in &leaked {
                proof.tally.observe(&format!("leaked: {thing}"));
            }
            return Verdict::Failed(format!("{} things are left", leaked.len()));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Directories with our name in any hierarchy below `root`, and everything inside them: a box may be left in a
/// directory that was there before.
fn our_cgroups(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut to_visit = vec![(root.to_owned(), Within::Others)];
    while let Some((directory, within)) = to_visit.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let is_ours = within == Within::Ours || entry.file_name().to_string_lossy().starts_with(OUR_WORD);
            if is_ours {
                found.push(entry.path());
            }
            to_visit.push((entry.path(), if is_ours { Within::Ours } else { Within::Others }));
        }
    }
    found
}

/// Whose cgroup a directory lies in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Ours,
    Others,
}

fn our_mounts(mountinfo: &str) -> Vec<String> {
    mountinfo.lines().filter(|line| line.contains(OUR_WORD)).map(|line| format!("mount {line}")).collect()
}

fn our_loop_devices(block: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(block).into_iter().flatten().flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if backing.contains(OUR_WORD) {
            found.push(format!("{} of {}", entry.file_name().display(), backing.trim()));
        }
    }
    found
}

fn our_processes(proc: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(proc).into_iter().flatten().flatten() {
        let directory = entry.path();
        let comm = fs::read_to_string(directory.join("comm")).unwrap_or_default();
        let executable = fs::read_link(directory.join("exe")).unwrap_or_default();
        let is_ours = comm.trim() == AGENT_COMM || is_our_executable(&executable);
        if is_ours && !is_zombie(&directory) {
            let (pid, comm) = (entry.file_name(), comm.trim().to_owned());
            found.push(format!("process {} ({comm}, {})", pid.display(), executable.display()));
        }
    }
    found
}

/// Our program, the agent that it carries in memory, or anything that a rootless run started from its copies. A file
/// that was removed since is shown by the kernel with ` (deleted)` behind its name.
fn is_our_executable(executable: &Path) -> bool {
    let text = executable.to_string_lossy();
    let path = Path::new(text.trim_end_matches(" (deleted)"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_program = name == OUR_WORD || name == AGENT_COMM || name.starts_with("memfd:strongbox");
    is_program || path.iter().any(|part| part.to_string_lossy().starts_with(STAGING_PREFIX))
}

/// The dead whom process 1 has not reaped yet hold nothing.
fn is_zombie(directory: &Path) -> bool {
    let stat = fs::read_to_string(directory.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_are_found_by_name_at_any_depth() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("memory/strongbox/session")).expect("made");
        fs::create_dir_all(root.path().join("unified/user.slice/strongbox-1")).expect("made");
        fs::create_dir_all(root.path().join("pids/other")).expect("made");
        let mut found = our_cgroups(root.path());
        found.sort();
        let expected = ["memory/strongbox", "memory/strongbox/session", "unified/user.slice/strongbox-1"];
        assert_eq!(found, expected.map(|it| root.path().join(it)));
    }

    #[test]
    fn mounts_and_loop_devices_are_found_by_path() {
        assert_eq!(our_mounts("1 2 0:3 / /run/strongbox/a rw\n4 5 0:6 / /proc rw\n").len(), 1);
        let block = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(block.path().join("loop0/loop")).expect("made");
        fs::create_dir_all(block.path().join("loop1")).expect("made");
        fs::write(block.path().join("loop0/loop/backing_file"), "/var/lib/strongbox/disk\n").expect("written");
        assert_eq!(our_loop_devices(block.path()), ["loop0 of /var/lib/strongbox/disk"]);
    }

    #[test]
    fn processes_are_known_by_name_or_executable_and_the_dead_do_not_count() {
        let proc = tempfile::tempdir().expect("a directory");
        let process = |pid: &str, comm: &str, state: &str, executable: &str| {
            let directory = proc.path().join(pid);
            fs::create_dir(&directory).expect("made");
            fs::write(directory.join("comm"), format!("{comm}\n")).expect("written");
            fs::write(directory.join("stat"), format!("{pid} ({comm}) {state} 1 1")).expect("written");
            std::os::unix::fs::symlink(executable, directory.join("exe")).expect("linked");
        };
        process("10", "strongbox-agent", "S", "/memfd:agent (deleted)");
        process("11", "strongbox-agent", "Z", "gone");
        process("12", "other", "S", "/usr/bin/strongbox (deleted)");
        process("13", "sleep", "S", "/usr/bin/sleep");
        process("14", "suite", "R", "/tmp/strongbox-suites-Ab12/suite");
        let mut found = our_processes(proc.path());
        found.sort();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("process 10") && found[1].starts_with("process 12"), "{found:?}");
    }

    #[test]
    fn only_what_is_new_has_leaked() {
        let snapshot = |things: &[&str]| Snapshot { things: things.iter().map(ToString::to_string).collect() };
        assert_eq!(snapshot(&["a", "b"]).added_since(&snapshot(&["a", "c"])), ["b"]);
    }
}
