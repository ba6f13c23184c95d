//! How changes reach a store: prepared aside, then moved into place, one change at a time.
//!
//! Everything is made below one hidden directory of the store, whose lock the writer holds. So what lies there when the
//! lock has just been taken belongs to a dead process, and is finished first: a plan that was written is carried out,
//! everything else is removed.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use box_core::SafeRoot;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::fault;
use crate::limits::COMPONENT_BYTES_MAX;

/// Where changes are prepared, in the root of a store.
pub(crate) const DIRECTORY: &str = ".strongbox";
/// Mode of directories in a package.
pub(crate) const DIRECTORY_MODE: u32 = 0o755;
/// Mode of files in a package.
pub(crate) const FILE_MODE: u32 = 0o644;
/// Mode of files in a package that can be run.
pub(crate) const PROGRAM_MODE: u32 = 0o755;

/// Mode of what only the server uses.
const PRIVATE_MODE: u32 = 0o700;
/// In a stage: which package goes where. From the moment that it is there, they all go.
const PLAN: &str = "plan";
/// In a stage: that the plan failed, and what was moved comes back.
const UNDO: &str = "undo";
/// In a stage: the packages, by their number in the plan.
const PACKAGES: &str = "packages";
/// Largest plan that is read.
const PLAN_BYTES_MAX: u64 = 1 << 20;
/// Stages that could not be removed before a new one is refused.
const STAGES_MAX: usize = 1000;

/// The right to change a store. Held by one at a time, over all processes.
#[derive(Debug)]
pub(crate) struct Lock<'a> {
    root: &'a SafeRoot,
    area: SafeRoot,
}

impl<'a> Lock<'a> {
    /// Waits for the right, and ends what a dead process had begun.
    pub(crate) fn take(root: &'a SafeRoot) -> Result<Self> {
        let wait = FlockOperation::LockExclusive;
        Self::take_by(root, wait)?
            .ok_or_else(|| box_core::Error::io("locking the skill store", Errno::WOULDBLOCK).into())
    }

    /// Takes the lock if it is free, and finishes what a dead process had begun.
    pub(crate) fn take_if_free(root: &'a SafeRoot) -> Result<Option<Self>> {
        Self::take_by(root, FlockOperation::NonBlockingLockExclusive)
    }

    fn take_by(root: &'a SafeRoot, operation: FlockOperation) -> Result<Option<Self>> {
        root.make_directory_all(DIRECTORY, PRIVATE_MODE)?;
        // Opened for each lock: the kernel counts locks by opening, so threads exclude each other too.
        let area = root.below(DIRECTORY)?;
        loop {
            match rustix::fs::flock(area.directory(), operation) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(box_core::Error::io("locking the skill store", errno).into()),
            }
        }
        let lock = Self { root, area };
        lock.end_what_was_begun()?;
        Ok(Some(lock))
    }

    fn end_what_was_begun(&self) -> Result<()> {
        for name in self.area.list("")? {
            let stage = Stage { root: self.root, path: Path::new(DIRECTORY).join(name) };
            if let Some(targets) = stage.plan() {
                // A failed plan was undone; the store works without it, so the error is dropped.
                let _ = stage.carry_out(&targets);
            }
        }
        Ok(())
    }

    /// A new place to prepare a change in.
    pub(crate) fn stage(&self) -> Result<Stage<'a>> {
        for number in 0..STAGES_MAX {
            let path = Path::new(DIRECTORY).join(number.to_string());
            match self.root.make_directory(&path, PRIVATE_MODE) {
                Ok(()) => {
                    let stage = Stage { root: self.root, path };
                    self.root.make_directory(stage.path.join(PACKAGES), PRIVATE_MODE)?;
                    return Ok(stage);
                }
                Err(error) if Error::is_taken(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let what = format!("directories in {DIRECTORY} that cannot be removed");
        Err(Error::TooMuch { what, limit: STAGES_MAX as u64, unit: "" })
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(self.area.directory(), FlockOperation::Unlock);
    }
}

/// A change that is being prepared. What is in it when it is dropped is removed.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    root: &'a SafeRoot,
    path: PathBuf,
}

impl Stage<'_> {
    /// Where the package of a number is prepared.
    pub(crate) fn package(&self, number: usize) -> PathBuf {
        self.path.join(PACKAGES).join(number.to_string())
    }

    /// Makes a directory of a package, and those on the way to it.
    pub(crate) fn make_directory(&self, path: &Path) -> Result<()> {
        self.root.make_directory_all(path, DIRECTORY_MODE)?;
        Ok(self.root.set_directory_mode(path, DIRECTORY_MODE)?)
    }

    /// Makes a file and writes it to the end.
    pub(crate) fn write_file(&self, path: &Path, mode: u32, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
        let told = |error| box_core::Error::io(format!("writing {}", path.display()), error);
        let mut file = self.root.create_new_file(path, mode)?;
        write(&mut file)?;
        // By the file, because the mode above is subject to the umask.
        file.set_permissions(Permissions::from_mode(mode)).map_err(told)?;
        Ok(file.sync_all().map_err(told)?)
    }

    /// Puts a file into a package, in place of what had its name.
    pub(crate) fn replace_file(self, target: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        let path = self.path.join("file");
        self.write_file(&path, mode, |file| {
            Ok(file.write_all(bytes).map_err(|error| box_core::Error::io("writing a file of a skill", error))?)
        })?;
        Ok(self.root.rename(&path, target)?)
    }

    /// Takes a directory out of the store, to be removed.
    pub(crate) fn remove(self, name: &Path) -> Result<()> {
        Ok(self.root.rename_new(name, self.package(0))?)
    }

    /// Moves all packages to their places in the store: all of them or none, also when we are killed on the way.
    pub(crate) fn publish(self, targets: &[String]) -> Result<()> {
        fault::point("skill_staged");
        let plan = serde_json::to_vec(targets).map_err(|error| box_core::Error::io("writing a plan", error))?;
        self.root.write_atomic(self.path.join(PLAN), &plan, FILE_MODE)?;
        fault::point("skill_plan_written");
        self.carry_out(targets)
    }

    fn plan(&self) -> Option<Vec<String>> {
        let plan = self.root.read_to_end(self.path.join(PLAN), PLAN_BYTES_MAX).ok()?;
        let targets: Vec<String> = serde_json::from_slice(&plan).ok()?;
        let is_name =
            |name: &String| !name.starts_with('.') && !name.contains('/') && name.len() <= COMPONENT_BYTES_MAX;
        (targets.iter().all(is_name)).then_some(targets)
    }

    fn carry_out(&self, targets: &[String]) -> Result<()> {
        let undone = self.root.look(self.path.join(UNDO))?.is_some();
        let moved = if undone { self.undo(targets) } else { self.move_all(targets) };
        if moved.is_err() && !undone {
            self.root.write_atomic(self.path.join(UNDO), b"", FILE_MODE)?;
            self.undo(targets)?;
        }
        moved
    }

    fn move_all(&self, targets: &[String]) -> Result<()> {
        for (number, target) in targets.iter().enumerate() {
            let package = self.package(number);
            if self.root.look(&package)?.is_none() {
                continue;
            }
            self.root.rename_new(&package, target).map_err(|error| match error {
                error if Error::is_taken(&error) => Error::DirectoryTaken { path: target.clone() },
                error => error.into(),
            })?;
            fault::point("skill_moved");
        }
        rustix::fs::fsync(self.root.directory())
            .map_err(|errno| box_core::Error::io("writing the skill store", errno))?;
        fault::point("skill_all_moved");
        Ok(())
    }

    /// Takes back what had been moved: a package that is not here any more is at its target.
    fn undo(&self, targets: &[String]) -> Result<()> {
        for (number, target) in targets.iter().enumerate() {
            let package = self.package(number);
            if self.root.look(&package)?.is_none() && self.root.look(target)?.is_some() {
                self.root.rename_new(target, &package)?;
            }
        }
        // The plan goes first, so that it can never be carried out while its packages are being removed.
        Ok(self.root.remove_file(self.path.join(PLAN))?)
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        // The next process that takes the lock retries a failed removal.
        let _ = self.root.remove_tree(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, SafeRoot) {
        let directory = tempfile::tempdir().unwrap();
        let root = SafeRoot::open_path(directory.path()).unwrap();
        (directory, root)
    }

    fn targets(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_taken_target_takes_back_what_was_moved() {
        let (directory, root) = root();
        let lock = Lock::take(&root).unwrap();
        let stage = lock.stage().unwrap();
        for number in 0..3 {
            stage.make_directory(&stage.package(number)).unwrap();
        }
        std::fs::create_dir(directory.path().join("b")).unwrap();
        let error = stage.publish(&targets(&["a", "b", "c"])).unwrap_err();
        assert_eq!(error.to_string(), "Skill directory already exists: b");
        assert_eq!(root.list("").unwrap().len(), 2, "the store's own directory and b");
        assert!(root.list(DIRECTORY).unwrap().is_empty());
    }

    #[test]
    fn a_failed_plan_that_was_interrupted_is_taken_back_at_the_next_lock() {
        let (directory, root) = root();
        let stage = directory.path().join(DIRECTORY).join("7");
        std::fs::create_dir_all(stage.join("packages/1")).unwrap();
        std::fs::write(stage.join("plan"), r#"["a","b"]"#).unwrap();
        std::fs::write(stage.join("undo"), "").unwrap();
        std::fs::create_dir(directory.path().join("a")).unwrap();
        drop(Lock::take(&root).unwrap());
        assert_eq!(root.list("").unwrap(), [DIRECTORY]);
        assert!(root.list(DIRECTORY).unwrap().is_empty());
    }

    #[test]
    fn whoever_finds_the_lock_taken_leaves_the_stage_of_its_holder_alone() {
        let (_directory, root) = root();
        let lock = Lock::take(&root).unwrap();
        let stage = lock.stage().unwrap();
        assert!(Lock::take_if_free(&root).unwrap().is_none());
        assert_eq!(root.list(DIRECTORY).unwrap().len(), 1);
        drop((stage, lock));
        assert!(Lock::take_if_free(&root).unwrap().is_some());
    }

    #[test]
    fn a_plan_that_is_not_ours_moves_nothing() {
        let (directory, root) = root();
        let stage = directory.path().join(DIRECTORY).join("7");
        for plan in [r#"["../x"]"#, r#"[".ssh"]"#, r#"["/x"]"#, "[", r#"{"a":1}"#] {
            std::fs::create_dir_all(stage.join("packages/0")).unwrap();
            std::fs::write(stage.join("plan"), plan).unwrap();
            drop(Lock::take(&root).unwrap());
            assert_eq!(root.list("").unwrap(), [DIRECTORY], "{plan}");
            assert!(root.list(DIRECTORY).unwrap().is_empty(), "{plan}");
        }
    }
}
