//! What this machine can enforce, found by trying, and the exact command that would make it enforce more.
//!
//! Everything is tried in child processes and on detached objects: nothing of the machine is changed.

mod files;
mod identity;
mod kernel;
mod namespaces;
mod resources;
mod trial;

use box_core::backend::{Finding, FindingState};

/// Looks at everything that boxes are made of, one finding each, and at outbound network.
pub fn findings() -> Vec<Finding> {
    let mut findings = of_boxes();
    findings.push(resources::network());
    findings
}

/// Looks at everything that boxes are made of, and leaves the network alone: trying that takes seconds on some machines.
pub fn of_boxes() -> Vec<Finding> {
    vec![
        kernel::version(),
        namespaces::user(),
        namespaces::others(),
        namespaces::process_list(),
        identity::sub_ids(),
        identity::idmapped_mounts(),
        kernel::seccomp(),
        kernel::landlock(),
        kernel::process_handles(),
        resources::cgroups(),
        resources::swap(),
        files::tmpfs(),
        files::overlay(),
        files::disk(),
        kernel::core_dumps(),
    ]
}

fn good(name: &str, detail: impl Into<String>) -> Finding {
    Finding { name: name.to_owned(), state: FindingState::Good, detail: detail.into(), fix: None }
}

fn weaker(name: &str, detail: impl Into<String>, fix: Option<&str>) -> Finding {
    let fix = fix.map(str::to_owned);
    Finding { name: name.to_owned(), state: FindingState::Weaker, detail: detail.into(), fix }
}

fn missing(name: &str, detail: impl Into<String>, fix: &str) -> Finding {
    let fix = Some(fix.to_owned());
    Finding { name: name.to_owned(), state: FindingState::Missing, detail: detail.into(), fix }
}

/// A kernel setting as text, where there is one of that name.
fn setting(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_a_name_of_its_own_and_the_worse_ones_say_what_to_do() {
        let findings = findings();
        let mut names: Vec<&str> = findings.iter().map(|finding| finding.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), findings.len());
        for finding in findings {
            assert!(!finding.detail.is_empty(), "{finding:?}");
            assert!(finding.state != FindingState::Missing || finding.fix.is_some(), "{finding:?}");
        }
    }
}
