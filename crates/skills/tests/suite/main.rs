//! What a store does, from outside: with real directories, real archives and real crashes.

#![expect(clippy::unwrap_used, reason = "what goes wrong in a test ends it")]

mod archive;
mod crash;
mod files;
mod import;
mod mutated;
mod store;
mod zip;

use std::path::{Path, PathBuf};

use box_skills::{NewSkill, SkillStore, ZipRequest};

/// A store in a directory of its own, next to a file that must stay untouched.
struct TestStore {
    directory: tempfile::TempDir,
    store: SkillStore,
}

impl TestStore {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("canary"), "untouched").unwrap();
        let store = SkillStore::open(&directory.path().join("skills")).unwrap();
        Self { directory, store }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("skills")
    }

    fn create(&self, name: &str) {
        let instructions = Some(format!("Do {name}.\n"));
        self.store.create(&NewSkill { name: name.into(), instructions, ..NewSkill::default() }).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.store.list().unwrap().into_iter().map(|skill| skill.name).collect();
        names.sort_unstable();
        names
    }

    /// That nothing is left of what was prepared, and nothing was written next to the store.
    fn check_clean(&self) {
        assert_eq!(entries(&self.root().join(".strongbox")), [""; 0]);
        assert_eq!(entries(self.directory.path()), ["canary", "skills"]);
        assert_eq!(std::fs::read_to_string(self.directory.path().join("canary")).unwrap(), "untouched");
    }
}

/// Every path below a directory with the mode and, for files, the text: what must not change when something is refused.
fn snapshot(directory: &Path) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        for name in entries(&path) {
            let path = path.join(name);
            let metadata = path.symlink_metadata().unwrap();
            let text = if metadata.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            found.push(format!("{} {:o} {text:?}", path.display(), metadata.permissions().mode()));
            if metadata.is_dir() {
                left.push(path);
            }
        }
    }
    found.sort_unstable();
    found
}

fn entries(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

fn request(filename: &str) -> ZipRequest {
    ZipRequest { filename: filename.into(), ..ZipRequest::default() }
}
