//! What can go wrong with skills, by what the caller can do about it.

use crate::limits::{
    CANDIDATES_SHOWN_MAX, NAME_CHARS_MAX, QUOTED_CHARS_MAX, SCAN_DEPTH_MAX, ZIP_BYTES_MAX, ZIP_ENTRIES_MAX,
    ZIP_ENTRY_BYTES_MAX, ZIP_RATIO_MAX, ZIP_TOTAL_BYTES_MAX,
};

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Entries of an archive that are refused, for doors that have words of their own for them.
pub mod archive_entry {
    /// A symbolic link.
    pub const LINK: &str = "a symbolic link";
    /// A device, a socket or a pipe.
    pub const SPECIAL: &str = "something that is neither file nor directory";
    /// A directory with content of its own.
    pub const FULL_DIRECTORY: &str = "a directory with content";
}

/// What can go wrong with skills. Clients know parts of these texts; they stay as they are.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No name was given.
    #[error("Skill name is required")]
    NameRequired,
    /// The name has other characters than it may have.
    #[error("Skill name can only contain letters, digits, - and _, at least one of the first two: {name}")]
    NameCharacters {
        /// As the caller or the package wrote it, shortened.
        name: String,
    },
    /// The name is too long.
    #[error("Skill name has more than {NAME_CHARS_MAX} characters: {name}")]
    NameLength {
        /// As the caller or the package wrote it, shortened.
        name: String,
    },
    /// No skill has that name.
    #[error("Skill \"{name}\" not found")]
    NotFound {
        /// As the caller wrote it, shortened.
        name: String,
    },
    /// Another skill has the name.
    #[error("Skill with name \"{name}\" already exists")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Something else is where the package would go.
    #[error("Skill directory already exists: {path}")]
    DirectoryTaken {
        /// Where in the store: callers do not learn where the store is.
        path: String,
    },
    /// A skill keeps its name.
    #[error("Renaming skills is not supported; create a skill of the new name and delete this one")]
    Rename,
    /// A skill stays where it is.
    #[error("the package_root of a skill cannot change; create another skill from the other package")]
    PackageRootFixed,
    /// A host path leads out of the store.
    #[error("{field} must lie in the skill store: {path}")]
    OutsideStore {
        /// Which path.
        field: &'static str,
        /// As the caller wrote it, shortened.
        path: String,
    },
    /// A host path is not one from which skills may be taken.
    #[error(
        "{path} is not in a directory from which skills may be installed; the operator names those as skills.checkout_roots"
    )]
    OutsideCheckouts {
        /// As the caller wrote it, shortened.
        path: String,
    },
    /// The archive is not the one that was previewed.
    #[error("the archive has the digest {found}, and {asked} was asked for; preview it again")]
    DigestDiffers {
        /// Of the archive that came.
        found: String,
        /// As the caller wrote it, shortened.
        asked: String,
    },
    /// A host path does not exist or is not a directory.
    #[error("directory {path} does not exist")]
    DirectoryNotFound {
        /// As the caller wrote it, shortened.
        path: String,
    },
    /// A directory contains an entry that is neither a file nor a directory.
    #[error("the directory contains {what}: {path}; a skill has only files and directories, so remove it")]
    DirectoryEntry {
        /// Its file type.
        what: &'static str,
        /// Its path in the directory, shortened.
        path: String,
    },
    /// A path within a package is absolute.
    #[error("path must be relative to the skill package root: {path}")]
    PathAbsolute {
        /// As the caller wrote it, shortened.
        path: String,
    },
    /// A path within a package leads out of it, or through a link, which could.
    #[error("path must stay within the skill package root: {path}{why}")]
    PathOutside {
        /// As the caller wrote it, shortened.
        path: String,
        /// What is wrong with it, where that is not plain to see.
        why: &'static str,
    },
    /// A path within a package cannot be a path here.
    #[error("path cannot be used: {path} ({reason})")]
    PathUnusable {
        /// As the caller wrote it, shortened.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The package has no such file.
    #[error("the skill has no file {path}")]
    FileNotFound {
        /// The path, shortened.
        path: String,
    },
    /// The package has no such directory.
    #[error("the skill has no directory {path}")]
    PackageDirectoryNotFound {
        /// The path, shortened.
        path: String,
    },
    /// The file is not text.
    #[error("the file {path} is not UTF-8 text")]
    NotText {
        /// The path, shortened.
        path: String,
    },
    /// There is more of something than is allowed.
    #[error("{what} exceeds the limit of {limit}{unit}")]
    TooMuch {
        /// Of what.
        what: String,
        /// How much there may be.
        limit: u64,
        /// What is counted, with a blank before it.
        unit: &'static str,
    },
    /// A number is not one of those that make sense.
    #[error("max_entries must be 1 or more")]
    EntriesZero,
    /// The front matter cannot be read.
    #[error("front matter of {path} cannot be read: {reason}")]
    FrontMatter {
        /// Which file.
        path: String,
        /// What the parser said.
        reason: String,
    },
    /// The directory holds no package.
    #[error("No SKILL.md found in {place} or up to {SCAN_DEPTH_MAX} directories below it")]
    NoSkill {
        /// Where.
        place: String,
    },
    /// A directory holds several packages, and one was asked for.
    #[error("Multiple skills found in {path}; scan one of these instead: {}", listed(.candidates))]
    SeveralInDirectory {
        /// The directory.
        path: String,
        /// The packages.
        candidates: Vec<String>,
    },
    /// An archive holds several packages, and none was chosen.
    #[error("Multiple skills found; choose source_paths from: {}", listed(.candidates))]
    SeveralInArchive {
        /// Their source paths.
        candidates: Vec<String>,
    },
    /// A source path is none of the archive's packages.
    #[error("Invalid source_path \"{path}\"; the archive has: {}", listed(.candidates))]
    SourcePath {
        /// As the caller wrote it, shortened.
        path: String,
        /// The source paths that there are.
        candidates: Vec<String>,
    },
    /// The directory that was named leads out of the archive.
    #[error("source_subdir must stay inside the archive: {path}")]
    SubdirectoryOutside {
        /// As the caller wrote it, shortened.
        path: String,
    },
    /// The directory that was named does not exist in the archive.
    #[error("source_subdir is not a directory of the archive: {path}")]
    SubdirectoryNotFound {
        /// As the caller wrote it, shortened.
        path: String,
    },
    /// A name from which the target directory is made contains characters that are not allowed.
    #[error("{field} {allowed}: {value}")]
    TargetName {
        /// Which one.
        field: &'static str,
        /// As the caller wrote it, shortened.
        value: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Two of the chosen packages would go into one directory.
    #[error("two of the chosen skills would go into one directory: {path}")]
    TargetTwice {
        /// Which one, in the store.
        path: String,
    },
    /// Nothing was uploaded.
    #[error("Uploaded file is empty")]
    UploadEmpty,
    /// The upload exceeds the limit.
    #[error("Uploaded file is larger than {ZIP_BYTES_MAX} bytes")]
    UploadTooLarge,
    /// The upload is not a zip archive, or is one that two programs could read differently.
    #[error("Uploaded file must be a valid .zip archive: {reason}")]
    NotZip {
        /// What is wrong with it.
        reason: String,
    },
    /// A path in the archive leads out of it, or could.
    #[error("Archive contains an unsafe path: {path}")]
    ArchivePath {
        /// As the archive has it, shortened.
        path: String,
    },
    /// Two entries of the archive would be one file, here or on a system that considers their names equal.
    #[error("Archive has two entries that are one path: {path}")]
    ArchiveDuplicate {
        /// The second one, shortened.
        path: String,
    },
    /// The archive holds something that is neither a file nor a directory, or that is encrypted.
    #[error("Archive contains {what}: {path}")]
    ArchiveEntry {
        /// What it is.
        what: &'static str,
        /// As the archive has it, shortened.
        path: String,
    },
    /// The archive has too many entries.
    #[error("Archive has more than {ZIP_ENTRIES_MAX} entries, or far more directories")]
    ArchiveEntries,
    /// A file in the archive is too large.
    #[error("Archive has a file of more than {ZIP_ENTRY_BYTES_MAX} bytes: {path}")]
    ArchiveEntrySize {
        /// As the archive has it, shortened.
        path: String,
    },
    /// The files of the archive are too large together.
    #[error("Archive inflates to more than {ZIP_TOTAL_BYTES_MAX} bytes")]
    ArchiveSize,
    /// Too much comes out of too little.
    #[error(
        "Archive inflates to more than {ZIP_RATIO_MAX} times its size: {}",
        .path.as_deref().unwrap_or("all entries together")
    )]
    ArchiveRatio {
        /// The entry; none for all of them together.
        path: Option<String>,
    },
    /// The file system did not do what was asked.
    #[error(transparent)]
    System(#[from] box_core::Error),
}

impl Error {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "skill_not_found",
            Self::FileNotFound { .. } | Self::PackageDirectoryNotFound { .. } | Self::DirectoryNotFound { .. } => {
                "file_not_found"
            }
            Self::NameTaken { .. } | Self::DirectoryTaken { .. } => "skill_exists",
            Self::PathAbsolute { .. }
            | Self::PathOutside { .. }
            | Self::OutsideStore { .. }
            | Self::OutsideCheckouts { .. } => "path_outside",
            Self::DigestDiffers { .. } => "digest_differs",
            Self::TooMuch { .. } => "too_large",
            Self::NotText { .. } => "not_text",
            Self::FrontMatter { .. } => "bad_skill",
            Self::NoSkill { .. } => "no_skill",
            Self::UploadEmpty
            | Self::UploadTooLarge
            | Self::NotZip { .. }
            | Self::ArchivePath { .. }
            | Self::ArchiveDuplicate { .. }
            | Self::ArchiveEntry { .. }
            | Self::DirectoryEntry { .. }
            | Self::ArchiveEntries
            | Self::ArchiveEntrySize { .. }
            | Self::ArchiveSize
            | Self::ArchiveRatio { .. } => "bad_archive",
            Self::System(error) => error.code(),
            _ => "invalid",
        }
    }

    /// Whether the system said that something is not there, or is not a directory on the way to it.
    pub(crate) fn is_absence(error: &box_core::Error) -> bool {
        use rustix::io::Errno;
        matches!(errno(error), Some(Errno::NOENT | Errno::NOTDIR))
    }

    /// Whether the system said that a link is in the way.
    pub(crate) fn is_link(error: &box_core::Error) -> bool {
        use rustix::io::Errno;
        matches!(errno(error), Some(Errno::LOOP | Errno::XDEV))
    }

    /// Whether the system said that the name has an owner.
    pub(crate) fn is_taken(error: &box_core::Error) -> bool {
        use rustix::io::Errno;
        matches!(errno(error), Some(Errno::EXIST | Errno::NOTEMPTY))
    }
}

fn errno(error: &box_core::Error) -> Option<rustix::io::Errno> {
    match error {
        box_core::Error::Io { source, .. } => rustix::io::Errno::from_io_error(source),
        _ => None,
    }
}

/// A stranger's value as errors repeat it: without anything that a terminal or a log would obey, and not all of it.
pub(crate) fn shown(value: &str) -> String {
    let mut shown: String = value.chars().take(QUOTED_CHARS_MAX).flat_map(char::escape_debug).collect();
    if value.chars().nth(QUOTED_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Paths to choose from as errors repeat them: the first ones, and how many more there are.
pub fn listed(candidates: &[String]) -> String {
    let mut shown: Vec<String> = candidates.iter().take(CANDIDATES_SHOWN_MAX).map(|path| shown(path)).collect();
    if candidates.len() > CANDIDATES_SHOWN_MAX {
        shown.push(format!("and {} more", candidates.len() - CANDIDATES_SHOWN_MAX));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_repeated_without_control_characters_and_not_whole() {
        assert_eq!(shown("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(shown(&"x".repeat(QUOTED_CHARS_MAX + 1)).chars().count(), QUOTED_CHARS_MAX + 1);
    }

    #[test]
    fn many_candidates_are_counted_instead_of_named() {
        let candidates = (0..100).map(|number| format!("skill-{number}")).collect();
        let text = Error::SeveralInArchive { candidates }.to_string();
        assert!(text.starts_with("Multiple skills found") && text.ends_with("and 80 more"), "{text}");
    }
}
