//! An ordinary user for the rootless half of the proof, and a directory where it finds what it runs.

use super::cell::Cell;
use crate::engines::Account;
use crate::{own_tmp, run};
use anyhow::{Context, Result, ensure};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The user that root makes for the rootless runs.
const NAME: &str = "strongbox-test";

/// Where the user finds programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How many subordinate ids the user gets: as many as one user namespace of a distribution's image uses.
const SUB_IDS: u32 = 65536;

/// Subordinate ids are handed out from here on; distributions begin lower.
const SUB_ID_MIN: u32 = 200_000;

/// Copies for the user lie in directories of this name, which is how the check for leaks knows processes from there.
pub(super) const STAGING_PREFIX: &str = "strongbox-suites-";

/// The user and where it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TestUser {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: PathBuf,
}

impl TestUser {
    /// Finds the user, or makes it, and sees to it that it has subordinate ids. Needs root.
    pub(super) fn ensure() -> Result<Self> {
        if Self::find()?.is_none() {
            succeed(Command::new("useradd").args(["--create-home", "--shell", "/bin/sh", NAME]))?;
        }
        for (file, option) in [("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")] {
            let table = fs::read_to_string(file).unwrap_or_default();
            if let Some(range) = range_to_add(&table) {
                succeed(Command::new("usermod").args([option, &range, NAME]))?;
            }
        }
        Self::find()?.with_context(|| format!("useradd succeeded, but user {NAME} does not exist"))
    }

    /// The user as engines know it.
    pub(super) fn account(&self) -> Account {
        Account { uid: self.uid, gid: self.gid, home: self.home.clone() }
    }

    fn find() -> Result<Option<Self>> {
        let passwd = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        Ok(passwd.lines().find_map(Self::parse))
    }

    /// Reads the user's line of the passwd file; `None` for any other line.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split(':').collect();
        match fields.as_slice() {
            [NAME, _, uid, gid, _, home, ..] => {
                Some(Self { uid: uid.parse().ok()?, gid: gid.parse().ok()?, home: PathBuf::from(home) })
            }
            _ => None,
        }
    }
}

/// The range to add for the user, behind those of all others; `None` when it has one.
fn range_to_add(table: &str) -> Option<String> {
    let mut first = SUB_ID_MIN;
    for line in table.lines() {
        let mut fields = line.split(':');
        if fields.next() == Some(NAME) {
            return None;
        }
        let numbers: Vec<u32> = fields.filter_map(|field| field.trim().parse().ok()).collect();
        if let [start, count] = numbers.as_slice() {
            first = first.max(start.saturating_add(*count));
        }
    }
    Some(format!("{first}-{}", first.saturating_add(SUB_IDS - 1)))
}

/// A directory that the user can read, with a suite and the strongbox program in it. Removed when dropped.
pub(super) struct Staging {
    directory: TempDir,
    suite: PathBuf,
    strongbox: PathBuf,
    reports: PathBuf,
}

impl Staging {
    /// Copies both programs, because the user may not be able to enter the directory where they were built.
    pub(super) fn new(user: &TestUser, suite: &Path, strongbox: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix(STAGING_PREFIX).tempdir_in(own_tmp::PLACE)?;
        let path = directory.path();
        fs::set_permissions(path, Permissions::from_mode(0o755))?;
        let copy = |from: &Path, name: &str| -> Result<PathBuf> {
            let to = path.join(name);
            fs::copy(from, &to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
            fs::set_permissions(&to, Permissions::from_mode(0o755))?;
            Ok(to)
        };
        let suite = copy(suite, "suite")?;
        let strongbox = copy(strongbox, "strongbox")?;
        let reports = path.join("reports");
        fs::create_dir(&reports)?;
        chown(&reports, Some(user.uid), Some(user.gid))?;
        Ok(Self { directory, suite, strongbox, reports })
    }

    /// The command that runs the suite as the user in a cell. The suite is started as root and becomes the user itself, once it
    /// has a network that leads nowhere.
    pub(super) fn in_cell(&self, user: &TestUser, cell: &Cell) -> Command {
        self.for_user(cell.command(&self.suite), user)
    }

    /// The same without a cell, for who has namespaces already.
    pub(super) fn command(&self, user: &TestUser) -> Command {
        self.for_user(run::mortal(&self.suite), user)
    }

    /// Nothing of root's environment reaches the suite.
    fn for_user(&self, mut command: Command, user: &TestUser) -> Command {
        command.args(["--as-user", NAME]);
        command.env_clear().env("PATH", PATH).env("HOME", &user.home).env("USER", NAME);
        command.env("STRONGBOX_BIN", &self.strongbox).env("STRONGBOX_REPORT_DIR", &self.reports);
        for name in ["CI", "RUST_BACKTRACE"] {
            if let Ok(value) = std::env::var(name) {
                command.env(name, value);
            }
        }
        command.current_dir(&user.home);
        command
    }

    /// Brings the reports to where the others are. The user wrote them, so only plain files are taken: a link could
    /// point at anything that root can read.
    pub(super) fn collect_reports(self, to: &Path) -> Result<()> {
        for entry in fs::read_dir(&self.reports)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
        self.directory.close().context("cannot remove the directory of the rootless run")
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} failed: {}", command.get_program().display(), said.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_is_read_from_its_own_line_only() {
        let user = TestUser::parse("strongbox-test:x:1001:1002::/home/strongbox-test:/bin/sh");
        assert_eq!(user, Some(TestUser { uid: 1001, gid: 1002, home: "/home/strongbox-test".into() }));
        assert_eq!(TestUser::parse("root:x:0:0:root:/root:/bin/bash"), None);
        assert_eq!(TestUser::parse("strongbox-test-2:x:1:1::/:/bin/sh"), None);
    }

    #[test]
    fn a_new_range_lies_behind_all_others() {
        assert_eq!(range_to_add("").as_deref(), Some("200000-265535"));
        assert_eq!(range_to_add("anna:100000:65536\n").as_deref(), Some("200000-265535"));
        assert_eq!(range_to_add("anna:300000:65536\n").as_deref(), Some("365536-431071"));
        assert_eq!(range_to_add("strongbox-test:100000:65536\n"), None);
    }
}
