//! Errors of skill packages in the words of the original: LangBot shows them to its users as they are.

use box_skills::{Error, listed};

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
        ] {
            assert_eq!(Fault::from(error), Fault::new(Class::Validation, text));
        }
    }
}
