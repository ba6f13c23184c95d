//! Requests about skills and answers to them, in the form that clients know.

use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use crate::limits::LISTED_ENTRIES_DEFAULT;

/// A skill: what its `SKILL.md` says, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skill {
    /// From the front matter, or that of its directory.
    pub name: String,
    /// What people see; the name unless the front matter says otherwise.
    pub display_name: String,
    /// What it is good for; may be empty.
    pub description: String,
    /// What follows the front matter.
    pub instructions: String,
    /// Absolute path of the package on the host.
    pub package_root: String,
    /// `SKILL.md` or `skill.md`.
    pub entry_file: String,
    /// Whether the package looks like a Python project, which gets an environment of its own.
    pub python_project: bool,
    /// When the entry file's inode last changed, which for most skills is when they were made.
    #[serde(serialize_with = "as_utc")]
    pub created_at: Timestamp,
    /// When the entry file was last written.
    #[serde(serialize_with = "as_utc")]
    pub updated_at: Timestamp,
}

/// A skill in an archive that is not installed. Its package root is where it would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// What it would be.
    #[serde(flatten)]
    pub skill: Skill,
    /// Where in the archive it is: empty for the whole of it.
    pub source_path: String,
}

/// A skill to be made.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NewSkill {
    /// Its name.
    pub name: String,
    /// What people see.
    pub display_name: Option<String>,
    /// What it is good for.
    pub description: Option<String>,
    /// What it says to do.
    pub instructions: Option<String>,
    /// A package in the store that becomes this skill. It provides the values that are left out above.
    pub package_root: Option<String>,
}

/// A change of a skill; absent values stay.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct SkillChange {
    /// Must be the name that it has.
    pub name: Option<String>,
    /// Must be where it is.
    pub package_root: Option<String>,
    /// What people see; empty takes it away.
    pub display_name: Option<String>,
    /// What it is good for; empty takes it away.
    pub description: Option<String>,
    /// What it says to do.
    pub instructions: Option<String>,
}

/// Which files of a package are wanted.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct FileQuery {
    /// A directory of the package.
    pub path: String,
    /// Whether names that start with a dot are wanted too.
    pub include_hidden: bool,
    /// How many; more than the store's own limit are never given.
    pub max_entries: u64,
}

impl Default for FileQuery {
    fn default() -> Self {
        Self { path: ".".into(), include_hidden: false, max_entries: LISTED_ENTRIES_DEFAULT }
    }
}

/// Files of one directory of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileList {
    /// Whose they are.
    pub skill: SkillReference,
    /// The directory; `.` for the package itself.
    pub base_path: String,
    /// What is in it, by name.
    pub entries: Vec<FileEntry>,
    /// Whether there is more than was asked for.
    pub truncated: bool,
}

/// A skill, by its name alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SkillReference {
    /// The name.
    pub name: String,
}

/// Something in a directory of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileEntry {
    /// Path within the package.
    pub path: String,
    /// Last part of the path.
    pub name: String,
    /// Whether it is a directory. A link to one does not count, because links are not followed.
    pub is_dir: bool,
    /// Its size; none for directories.
    pub size: Option<u64>,
}

/// How an archive is read.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct ZipRequest {
    /// What the archive was called; names the directories of its skills.
    pub filename: String,
    /// A directory of the archive to look in, instead of all of it.
    pub source_subdir: String,
    /// What the names of the directories end in.
    pub target_suffix: String,
}

impl Default for ZipRequest {
    fn default() -> Self {
        Self { filename: String::new(), source_subdir: String::new(), target_suffix: "upload".into() }
    }
}

/// Which of an archive's skills to install. None chosen is right when there is one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// Source paths of a preview.
    pub source_paths: Vec<String>,
    /// One more, as older clients say it.
    pub source_path: String,
    /// What a preview said of the archive: only that one is installed.
    pub digest: Option<String>,
}

/// Names of files that make a package a Python project, besides a directory `.venv`.
pub(crate) const PYTHON_FILES: &[&str] = &["requirements.txt", "pyproject.toml", "setup.py", "setup.cfg"];
/// The directory that does.
pub(crate) const PYTHON_DIRECTORY: &str = ".venv";
/// Names of the file that makes a directory a package, in the order in which they count.
pub(crate) const ENTRY_FILES: &[&str] = &["SKILL.md", "skill.md"];

/// A path in answers to clients.
pub(crate) fn told(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// ISO 8601 with six digits and the offset in figures.
fn as_utc<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&time.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_has_the_shape_that_clients_know() {
        let skill = Skill {
            name: "zipped".into(),
            display_name: "zipped".into(),
            description: "zd".into(),
            instructions: "hello\n".into(),
            package_root: "/skills/my-skill-upload".into(),
            entry_file: "SKILL.md".into(),
            python_project: false,
            created_at: Timestamp::new(1_794_709_278, 191_565_999).unwrap(),
            updated_at: Timestamp::new(1_794_709_278, 0).unwrap(),
        };
        let json = serde_json::to_string(&Preview { skill, source_path: String::new() }).unwrap();
        let expected = r#"{"name":"zipped","display_name":"zipped","description":"zd","instructions":"hello\n","package_root":"/skills/my-skill-upload","entry_file":"SKILL.md","python_project":false,"created_at":"2026-11-15T02:21:18.191565+00:00","updated_at":"2026-11-15T02:21:18.000000+00:00","source_path":""}"#;
        assert_eq!(json, expected);
    }

    #[test]
    fn what_a_client_leaves_out_has_the_defaults_of_the_protocol() {
        let query: FileQuery = serde_json::from_str("{}").unwrap();
        assert_eq!((query.path.as_str(), query.include_hidden, query.max_entries), (".", false, 200));
        let request: ZipRequest = serde_json::from_str("{}").unwrap();
        assert_eq!(request.target_suffix, "upload");
    }
}
