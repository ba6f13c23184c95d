//! Errors of skill packages in the words of the original: LangBot shows them to its users as they are.

use box_skills::limits::{ZIP_BYTES_MAX, ZIP_ENTRIES_MAX};
use box_skills::{Error, archive_entry, listed};

use super::{Class, Fault};

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let text = match error {
            // It names paths of the host.
            Error::System(error) => {
                tracing::error!(error = %error, "skill store failed");
                "the skill store cannot be used; the log of the server has the reason".to_owned()
            }
            Error::NameCharacters { .. } => {
                "Skill name can only contain letters, numbers, hyphens and underscores".to_owned()
            }
            Error::NameLength { .. } => "Skill name cannot exceed 64 characters".to_owned(),
            Error::PackageRootFixed => {
                "Updating package_root is not supported; recreate the skill to import a different package".to_owned()
            }
            Error::OutsideStore { field, .. } => format!("{field} must stay within the Workspace skill root"),
            Error::DirectoryNotFound { path } => format!("Directory does not exist: {path}"),
            Error::FileNotFound { path } => format!("Skill file not found: {path}"),
            Error::PackageDirectoryNotFound { path } => format!("Skill directory not found: {path}"),
            Error::EntriesZero => "max_entries must be a positive integer".to_owned(),
            Error::NoSkill { place } => format!("No SKILL.md found in {place} or its subdirectories (max depth: 2)"),
            Error::SeveralInDirectory { path, candidates } => format!(
                "Multiple skill directories found in {path}. Please choose a more specific path: {}",
                listed(&candidates)
            ),
            Error::SeveralInArchive { candidates } => {
                format!("Multiple skills found. Please choose one or more source_paths: {}", listed(&candidates))
            }
            Error::SourcePath { path, candidates } => {
                format!("Invalid source_path \"{path}\". Available: {}", listed(&candidates))
            }
            Error::TargetTwice { path } => format!("Duplicate target directory selected: {path}"),
            Error::ArchiveDuplicate { path } => format!("Archive contains a duplicate path: {path}"),
            Error::TooMuch { what, limit, unit: " bytes" } => format!("{what} exceeds the {limit}-byte limit"),
            Error::NotText { path } => format!("Skill file {path} is not valid UTF-8 text"),
            Error::Rename => "Renaming skills is not supported".to_owned(),
            Error::PathAbsolute { .. } => "path must be relative to the skill package root".to_owned(),
            Error::PathOutside { .. } => "path must stay within the skill package root".to_owned(),
            Error::NotZip { .. } => "Uploaded file must be a valid .zip archive".to_owned(),
            Error::TooMuch { unit: " bytes of text", .. } => {
                "Skill listing exceeds the configured text limit".to_owned()
            }
            Error::TooMuch { what, unit: " entries", .. } => format!("{what} exceeds the configured entry limit"),
            Error::ArchiveEntry { what: archive_entry::SPECIAL, path } => {
                format!("Archive contains a non-regular entry: {path}")
            }
            Error::ArchiveEntry { what: archive_entry::FULL_DIRECTORY, path } => {
                format!("Archive directory has unexpected content: {path}")
            }
            Error::UploadTooLarge => {
                format!("Uploaded archive exceeds the compressed size limit ({ZIP_BYTES_MAX} bytes)")
            }
            Error::ArchiveEntries => format!("Archive contains too many entries (maximum {ZIP_ENTRIES_MAX})"),
            Error::ArchiveEntrySize { path } => format!("Archive entry exceeds the uncompressed size limit: {path}"),
            Error::ArchiveRatio { path: Some(path) } => {
                format!("Archive entry exceeds the compression ratio limit: {path}")
            }
            Error::ArchiveRatio { path: None } => "Archive exceeds the aggregate compression ratio limit".to_owned(),
            Error::ArchiveSize => "Archive exceeds the total uncompressed size limit".to_owned(),
            Error::SubdirectoryOutside { .. } => "source_subdir must stay within the uploaded archive".to_owned(),
            Error::SubdirectoryNotFound { path } => {
                format!("source_subdir does not exist in the uploaded archive: {path}")
            }
            // These have the words of the original, or it has no such error.
            error => error.to_string(),
        };
        Self::new(Class::Validation, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_skills_have_the_words_of_the_original() {
        let (path, two) = (|| "/x".to_owned(), || vec!["/x/a".to_owned(), "/x/b".to_owned()]);
        for (error, text) in [
            (Error::DirectoryNotFound { path: path() }, "Directory does not exist: /x"),
            (Error::NoSkill { place: path() }, "No SKILL.md found in /x or its subdirectories (max depth: 2)"),
            (
                Error::SeveralInDirectory { path: path(), candidates: two() },
                "Multiple skill directories found in /x. Please choose a more specific path: /x/a, /x/b",
            ),
            (
                Error::NameCharacters { name: "a b".into() },
                "Skill name can only contain letters, numbers, hyphens and underscores",
            ),
            (Error::NameLength { name: "x".repeat(65) }, "Skill name cannot exceed 64 characters"),
            (Error::FileNotFound { path: "f".into() }, "Skill file not found: f"),
            (Error::PackageDirectoryNotFound { path: "d".into() }, "Skill directory not found: d"),
            (
                Error::PackageRootFixed,
                "Updating package_root is not supported; recreate the skill to import a different package",
            ),
            (
                Error::OutsideStore { field: "scan path", path: path() },
                "scan path must stay within the Workspace skill root",
            ),
            (
                Error::OutsideStore { field: "package_root", path: path() },
                "package_root must stay within the Workspace skill root",
            ),
            (Error::ArchiveDuplicate { path: "a".into() }, "Archive contains a duplicate path: a"),
            (Error::EntriesZero, "max_entries must be a positive integer"),
            (
                Error::SeveralInArchive { candidates: two() },
                "Multiple skills found. Please choose one or more source_paths: /x/a, /x/b",
            ),
            (
                Error::SourcePath { path: "c".into(), candidates: two() },
                "Invalid source_path \"c\". Available: /x/a, /x/b",
            ),
            (Error::TargetTwice { path: "t".into() }, "Duplicate target directory selected: t"),
            (
                Error::TooMuch { what: "Skill file f".into(), limit: 1 << 20, unit: " bytes" },
                "Skill file f exceeds the 1048576-byte limit",
            ),
            (Error::NotText { path: "f".into() }, "Skill file f is not valid UTF-8 text"),
            (Error::Rename, "Renaming skills is not supported"),
            (Error::PathAbsolute { path: path() }, "path must be relative to the skill package root"),
            (Error::PathOutside { path: "../x".into(), why: "" }, "path must stay within the skill package root"),
            (
                Error::PathOutside { path: "x".into(), why: " leads through a link" },
                "path must stay within the skill package root",
            ),
            (Error::NotZip { reason: "no end".into() }, "Uploaded file must be a valid .zip archive"),
            (Error::UploadEmpty, "Uploaded file is empty"),
            (Error::NameRequired, "Skill name is required"),
            (Error::NotFound { name: "a".into() }, "Skill \"a\" not found"),
            (Error::NameTaken { name: "a".into() }, "Skill with name \"a\" already exists"),
            (Error::DirectoryTaken { path: path() }, "Skill directory already exists: /x"),
            (Error::ArchivePath { path: "../x".into() }, "Archive contains an unsafe path: ../x"),
            (
                Error::ArchiveEntry { what: archive_entry::LINK, path: "a".into() },
                "Archive contains a symbolic link: a",
            ),
            (
                Error::ArchiveEntry { what: archive_entry::SPECIAL, path: "a".into() },
                "Archive contains a non-regular entry: a",
            ),
            (
                Error::ArchiveEntry { what: archive_entry::FULL_DIRECTORY, path: "a/".into() },
                "Archive directory has unexpected content: a/",
            ),
            (
                Error::TooMuch { what: "Skill directory".into(), limit: 9, unit: " entries" },
                "Skill directory exceeds the configured entry limit",
            ),
            (
                Error::TooMuch { what: "All skills".into(), limit: 9, unit: " bytes of text" },
                "Skill listing exceeds the configured text limit",
            ),
            (Error::UploadTooLarge, "Uploaded archive exceeds the compressed size limit (20971520 bytes)"),
            (Error::ArchiveEntries, "Archive contains too many entries (maximum 512)"),
            (Error::ArchiveEntrySize { path: "a".into() }, "Archive entry exceeds the uncompressed size limit: a"),
            (Error::ArchiveRatio { path: Some("a".into()) }, "Archive entry exceeds the compression ratio limit: a"),
            (Error::ArchiveRatio { path: None }, "Archive exceeds the aggregate compression ratio limit"),
            (Error::ArchiveSize, "Archive exceeds the total uncompressed size limit"),
            (Error::SubdirectoryOutside { path: "../x".into() }, "source_subdir must stay within the uploaded archive"),
            (
                Error::SubdirectoryNotFound { path: "x".into() },
                "source_subdir does not exist in the uploaded archive: x",
            ),
        ] {
            assert_eq!(Fault::from(error), Fault::new(Class::Validation, text));
        }
    }
}
