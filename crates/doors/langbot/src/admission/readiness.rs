//! Whether this machine holds what admission promises.

use box_core::backend::{Capabilities, FindingState};
use serde_json::{Map, Value, json};

use super::policy::Policy;
use crate::fault::{Class, Fault};

/// The facts for the checks.
#[derive(Debug)]
pub(crate) struct ReadinessFacts<'a> {
    /// The rules.
    pub(crate) policy: &'a Policy,
    /// The name under which clients see the backend; nothing when the one that they want is not here.
    pub(crate) backend_name: Option<&'a str>,
    /// The backend's own report.
    pub(crate) capabilities: &'a Capabilities,
    /// Whether the directory of workspaces is there.
    pub(crate) has_workspace: bool,
    /// Most sessions at once.
    pub(crate) max_sessions: usize,
    /// Whether storage that is not hard-limited will do.
    pub(crate) soft_storage_allowed: bool,
}

/// Whether this machine holds what admission promises, point by point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Readiness {
    checks: Vec<(&'static str, bool)>,
    backend: Value,
    soft_storage_allowed: bool,
    error: Option<String>,
}

impl Readiness {
    /// Judges.
    pub(crate) fn of(found: &ReadinessFacts<'_>) -> Self {
        let rules = match found.policy {
            Policy::On(rules) => Some(rules),
            Policy::Off | Policy::Broken(_) => None,
        };
        let available = found.backend_name.is_some() && found.capabilities.available;
        let is_good = |names: &[&str]| {
            available && names.iter().all(|name| stands(found.capabilities, name) == Some(FindingState::Good))
        };
        let can_be_had = |names: &[&str]| {
            let there =
                |name: &&str| stands(found.capabilities, name).is_some_and(|state| state != FindingState::Missing);
            available && names.iter().all(there)
        };
        // The workspace is a directory of the host, which has no limit of its own, in bytes as in files: what a box can
        // write there is only bounded by the host's file system.
        let held_by_host = found.soft_storage_allowed;
        let checks = vec![
            ("configuration", rules.is_some()),
            ("required_backend", rules.is_some_and(|rules| found.backend_name == Some(&rules.required_backend))),
            ("workspace_mount", found.has_workspace),
            ("backend_available", available),
            ("cgroup_v2", is_good(&["cgroups"])),
            ("namespace_isolation", can_be_had(&["user_namespaces", "namespaces"])),
            ("mount_isolation", can_be_had(&["user_namespaces", "namespaces"])),
            ("network_isolation", can_be_had(&["user_namespaces", "namespaces"])),
            ("hard_workspace_quota", held_by_host),
            // Boxes cannot write to what is mounted read-only.
            ("hard_read_only_mount_quota", can_be_had(&["namespaces"])),
            ("hard_skill_storage_quota", can_be_had(&["namespaces"])),
            ("bounded_ephemeral_storage", is_good(&["tmpfs"]) || held_by_host),
            ("inode_quota", held_by_host),
            ("session_cap", rules.is_some_and(|rules| rules.max_sessions <= found.max_sessions as u64)),
            ("managed_process_cap", rules.is_some_and(|rules| rules.max_managed_processes == 0)),
        ];
        let error = match found.policy {
            Policy::Broken(reason) => Some(reason.clone()),
            Policy::Off | Policy::On(_) => None,
        };
        let backend = json!({
            "name": found.backend_name.filter(|_| available),
            "available": available,
            "details": details(found.capabilities),
        });
        Self { checks, backend, soft_storage_allowed: found.soft_storage_allowed, error }
    }

    /// Whether everything is held.
    pub(crate) fn is_ready(&self) -> bool {
        self.checks.iter().all(|(_, passed)| *passed)
    }

    /// Refuses a sandbox unless everything is held.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.is_ready() {
            return Ok(());
        }
        let failed: Vec<_> = self.checks.iter().filter(|(_, passed)| !passed).map(|(name, _)| *name).collect();
        let text = format!("Managed sandbox isolation is not ready (failed checks: {})", failed.join(", "));
        Err(Fault::new(Class::Readiness, text))
    }

    /// The reply to clients.
    pub(crate) fn shown(&self) -> Map<String, Value> {
        let checks: Map<_, _> = self.checks.iter().map(|(name, passed)| ((*name).to_owned(), json!(passed))).collect();
        let mut shown = Map::from_iter([
            ("ready".to_owned(), json!(self.is_ready())),
            ("mode".to_owned(), json!("grant_enforced")),
            ("backend".to_owned(), self.backend.clone()),
            ("checks".to_owned(), Value::Object(checks)),
            ("unsafe_soft_storage_limits".to_owned(), json!(self.soft_storage_allowed)),
        ]);
        if let Some(error) = &self.error {
            shown.insert("error".to_owned(), json!(error));
        }
        shown
    }
}

fn stands(capabilities: &Capabilities, name: &str) -> Option<FindingState> {
    capabilities.findings.iter().find(|finding| finding.name == name).map(|finding| finding.state)
}

/// The state of every check. It leaves out what exactly was found, because every client may read it.
fn details(capabilities: &Capabilities) -> Map<String, Value> {
    capabilities.findings.iter().map(|finding| (finding.name.clone(), json!(finding.state))).collect()
}

#[cfg(test)]
mod tests {
    use box_core::backend::Finding;

    use super::*;
    use crate::admission::Rules;

    fn capabilities(change: &[(&str, FindingState)]) -> Capabilities {
        let names = ["user_namespaces", "namespaces", "cgroups", "tmpfs"];
        let finding = |name: &&str| {
            let state =
                change.iter().find(|(changed, _)| changed == name).map_or(FindingState::Good, |(_, state)| *state);
            Finding { name: (*name).to_owned(), state, detail: "a secret of the host".into(), fix: None }
        };
        Capabilities { available: true, findings: names.iter().map(finding).collect() }
    }

    fn failed(found: &ReadinessFacts<'_>) -> Vec<&'static str> {
        Readiness::of(found).checks.iter().filter(|(_, passed)| !passed).map(|(name, _)| *name).collect()
    }

    fn found<'a>(policy: &'a Policy, capabilities: &'a Capabilities) -> ReadinessFacts<'a> {
        ReadinessFacts {
            policy,
            backend_name: Some("nsjail"),
            capabilities,
            has_workspace: true,
            max_sessions: 64,
            soft_storage_allowed: true,
        }
    }

    #[test]
    fn it_is_told_point_by_point() {
        let (policy, capabilities) = (Policy::On(Rules::default()), capabilities(&[]));
        let readiness = Readiness::of(&found(&policy, &capabilities));
        assert!(readiness.is_ready());
        insta::assert_json_snapshot!(readiness.shown());
        assert!(!serde_json::to_string(&readiness.shown()).unwrap().contains("secret"));
    }

    #[test]
    fn a_directory_of_the_host_is_no_hard_quota() {
        let (policy, capabilities) = (Policy::On(Rules::default()), capabilities(&[]));
        let strict = ReadinessFacts { soft_storage_allowed: false, ..found(&policy, &capabilities) };
        assert_eq!(failed(&strict), ["hard_workspace_quota", "inode_quota"]);
        let told = Readiness::of(&strict).check().unwrap_err().to_string();
        assert_eq!(
            told,
            "BoxReadinessError: Managed sandbox isolation is not ready (failed checks: hard_workspace_quota, inode_quota)"
        );
    }

    #[test]
    fn every_point_can_fail() {
        let (policy, good) = (Policy::On(Rules::default()), capabilities(&[]));
        assert_eq!(failed(&ReadinessFacts { has_workspace: false, ..found(&policy, &good) }), ["workspace_mount"]);
        assert_eq!(
            failed(&ReadinessFacts { backend_name: Some("native"), ..found(&policy, &good) }),
            ["required_backend"]
        );
        assert_eq!(failed(&ReadinessFacts { max_sessions: 0, ..found(&policy, &good) }), ["session_cap"]);
        let weaker = capabilities(&[("cgroups", FindingState::Weaker)]);
        assert_eq!(failed(&found(&policy, &weaker)), ["cgroup_v2"]);
        let nothing = Capabilities { available: false, findings: Vec::new() };
        let all = failed(&found(&policy, &nothing));
        assert!(
            ["backend_available", "cgroup_v2", "network_isolation"].iter().all(|name| all.contains(name)),
            "{all:?}"
        );
        let broken = Policy::Broken("the reason".into());
        let readiness = Readiness::of(&found(&broken, &good));
        assert_eq!((readiness.is_ready(), &readiness.shown()["error"]), (false, &json!("the reason")));
    }
}
