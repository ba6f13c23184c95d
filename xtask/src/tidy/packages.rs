//! Each crate says what it is: a description, and a README that fits on one screen.

use super::Violation;
use cargo_metadata::Metadata;

/// The longest README of a crate. More belongs in ARCHITECTURE.md or in doc comments.
const README_LINES_MAX: usize = 60;

/// What a package says about itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Described {
    name: String,
    description: String,
    readme: Option<String>,
}

/// The packages of the workspace with their READMEs.
pub(crate) fn described(metadata: &Metadata) -> Vec<Described> {
    let describe = |package: &cargo_metadata::Package| Described {
        name: package.name.to_string(),
        description: package.description.clone().unwrap_or_default(),
        readme: std::fs::read_to_string(package.manifest_path.with_file_name("README.md")).ok(),
    };
    metadata.workspace_packages().into_iter().map(describe).collect()
}

/// The rule.
pub(crate) fn check(packages: &[Described]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        if package.description.trim().is_empty() {
            violations.push(Violation::new(&package.name, "has no description; add one line to its Cargo.toml"));
        }
        match &package.readme {
            None => violations.push(Violation::new(
                &package.name,
                "has no README.md; say what it is for, what it never does and where to start reading",
            )),
            Some(readme) if readme.lines().count() > README_LINES_MAX => violations.push(Violation::new(
                &package.name,
                format!("README.md has {} lines; {README_LINES_MAX} are allowed", readme.lines().count()),
            )),
            Some(_) => {}
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(description: &str, readme: Option<String>) -> Described {
        Described { name: "box-example".into(), description: description.into(), readme }
    }

    #[test]
    fn a_described_crate_with_a_short_readme_passes() {
        assert!(check(&[package("What it is", Some("line\n".repeat(README_LINES_MAX)))]).is_empty());
    }

    #[test]
    fn a_missing_description_and_a_missing_readme_are_two_violations() {
        assert_eq!(check(&[package(" ", None)]).len(), 2);
    }

    #[test]
    fn a_readme_of_more_than_one_screen_is_refused() {
        let violations = check(&[package("What it is", Some("line\n".repeat(README_LINES_MAX + 1)))]);
        assert!(violations[0].message.contains("61 lines"), "{violations:?}");
    }
}
