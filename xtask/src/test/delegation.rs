//! Cgroups that root delegates to the test user, as `strongbox doctor` recommends.

use super::rootless::TestUser;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Hierarchies of a hybrid machine that a box uses. The last is v2.
const HIERARCHIES: [&str; 4] = ["cpu", "memory", "pids", "unified"];

/// A directory in each hierarchy that belongs to the test user; removed when dropped.
pub(super) struct Delegation {
    directories: Vec<PathBuf>,
}

impl Delegation {
    /// Makes the directories; none on a machine that is laid out in another way.
    pub(super) fn make(user: &TestUser) -> Result<Option<Self>> {
        let roots = HIERARCHIES.map(|name| Path::new("/sys/fs/cgroup").join(name));
        if !roots.iter().all(|root| root.join("cgroup.procs").exists()) {
            return Ok(None);
        }
        let mut made = Self { directories: Vec::new() };
        for root in roots {
            let directory = root.join(format!("strongbox-{}", user.uid));
            fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
            made.directories.push(directory.clone());
            give(&directory, user)?;
            for entry in fs::read_dir(&directory)? {
                give(&entry?.path(), user)?;
            }
        }
        Ok(Some(made))
    }

    /// The same command, started inside the v2 directory: only who lives there may move processes about in it.
    pub(super) fn enter(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]);
        inside.arg(self.directories.last().map_or(Path::new("/"), PathBuf::as_path)).arg(command.get_program());
        inside.args(command.get_args()).env_clear();
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                inside.env(name, value);
            }
        }
        if let Some(directory) = command.get_current_dir() {
            inside.current_dir(directory);
        }
        inside
    }
}

impl Drop for Delegation {
    fn drop(&mut self) {
        for directory in &self.directories {
            // What the suite left inside is its own failure, and keeps the directory for the leak check to find.
            let _ = fs::remove_dir(directory.join("strongbox-host"));
            let _ = fs::remove_dir(directory.join("strongbox"));
            let _ = fs::remove_dir(directory);
        }
    }
}

fn give(path: &Path, user: &TestUser) -> Result<()> {
    chown(path, Some(user.uid), Some(user.gid)).with_context(|| format!("cannot give {} away", path.display()))
}
