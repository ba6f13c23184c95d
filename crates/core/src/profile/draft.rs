//! Profiles as an operator writes them: what differs from another one.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Account, LockedField, Profile};
use crate::session::HostPathMode;
use crate::{BackendName, Network, SyscallSet, limits};

/// What a profile changes of the one that it inherits from. What is not set is inherited.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileDraft {
    /// The profile that it starts from; `default` when it says nothing.
    pub inherits: Option<String>,
    /// What it is for, in a few words. The only thing that is never inherited.
    pub about: Option<String>,
    /// What a box can reach.
    pub network: Option<Network>,
    /// Root file system.
    pub image: Option<String>,
    /// What a box may do with its workspace.
    pub host_path_mode: Option<HostPathMode>,
    /// Processors.
    pub cpus: Option<f64>,
    /// Memory limit.
    pub memory_mb: Option<u64>,
    /// Most processes.
    pub pids_limit: Option<u64>,
    /// Whether the root is read-only.
    pub read_only_rootfs: Option<bool>,
    /// Who commands are when they do not say.
    pub user: Option<Account>,
    /// Whether root of a box has capabilities over what is the box's own.
    pub root_capabilities: Option<bool>,
    /// Most that the workspace may hold.
    pub workspace_quota_mb: Option<u64>,
    /// What a box may do with skills.
    pub skills_mode: Option<HostPathMode>,
    /// Deadline of a command that names none.
    pub timeout_sec: Option<u64>,
    /// Longest deadline that a caller can ask for.
    pub timeout_sec_max: Option<u64>,
    /// Whether debuggers work between processes of the box.
    pub ptrace: Option<bool>,
    /// The backend on which boxes live.
    pub backend: Option<BackendName>,
    /// What a caller cannot change, besides what is inherited: a lock is never lost on the way.
    pub locked: BTreeSet<LockedField>,
}

/// What is wrong with a profile that an operator wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftProblem {
    /// Which profile.
    pub profile: String,
    /// Which of its keys; the name itself when it is none.
    pub field: Option<&'static str>,
    /// What is wrong, and what would be right.
    pub reason: String,
}

impl ProfileDraft {
    fn base(&self) -> &str {
        self.inherits.as_deref().unwrap_or("default")
    }

    /// The profile that this makes of another one.
    fn over(&self, name: &str, base: &Profile) -> Profile {
        let about = || format!("as {}, with changes of the operator", base.name);
        let ptrace = self.ptrace.map(|allowed| if allowed { SyscallSet::Debug } else { SyscallSet::Default });
        Profile {
            name: name.to_owned(),
            about: self.about.clone().unwrap_or_else(about),
            network: self.network.unwrap_or(base.network),
            image: self.image.clone().unwrap_or_else(|| base.image.clone()),
            host_path_mode: self.host_path_mode.unwrap_or(base.host_path_mode),
            cpus: self.cpus.unwrap_or(base.cpus),
            memory_mb: self.memory_mb.unwrap_or(base.memory_mb),
            pids_limit: self.pids_limit.unwrap_or(base.pids_limit),
            read_only_rootfs: self.read_only_rootfs.unwrap_or(base.read_only_rootfs),
            user: self.user.unwrap_or(base.user),
            root_capabilities: self.root_capabilities.unwrap_or(base.root_capabilities),
            workspace_quota_mb: self.workspace_quota_mb.unwrap_or(base.workspace_quota_mb),
            skills_mode: self.skills_mode.unwrap_or(base.skills_mode),
            timeout_sec: self.timeout_sec.unwrap_or(base.timeout_sec),
            timeout_sec_max: self.timeout_sec_max.unwrap_or(base.timeout_sec_max),
            syscalls: ptrace.unwrap_or(base.syscalls),
            backend: self.backend.or(base.backend),
            locked: self.locked.union(&base.locked).copied().collect(),
        }
    }

    /// Whether this draft is where a bad value comes from, and by which key. Deadlines are bad together.
    fn culprit(&self, field: &'static str) -> Option<&'static str> {
        let is_set = |field: &str| match field {
            "cpus" => self.cpus.is_some(),
            "memory_mb" => self.memory_mb.is_some(),
            "pids_limit" => self.pids_limit.is_some(),
            "workspace_quota_mb" => self.workspace_quota_mb.is_some(),
            "skills_mode" => self.skills_mode.is_some(),
            "timeout_sec" => self.timeout_sec.is_some(),
            "timeout_sec_max" => self.timeout_sec_max.is_some(),
            _ => true,
        };
        match field {
            "timeout_sec" if !is_set(field) => is_set("timeout_sec_max").then_some("timeout_sec_max"),
            _ => is_set(field).then_some(field),
        }
    }
}

/// Completes all drafts, in the order of their names.
pub(super) fn complete(drafts: &BTreeMap<String, ProfileDraft>) -> Result<Vec<Profile>, Vec<DraftProblem>> {
    let mut problems = Vec::new();
    let mut profiles = Vec::new();
    for (name, draft) in drafts {
        match check_name(name, drafts.len()).and_then(|()| complete_one(name, drafts)) {
            Ok(profile) => {
                let invalid = profile.validate().err();
                let problem = invalid.and_then(|invalid| Some((draft.culprit(invalid.field)?, invalid)));
                problems.extend(problem.map(|(field, invalid)| problem_of(name, Some(field), invalid.to_string())));
                profiles.push(profile);
            }
            Err(problem) => problems.extend(problem),
        }
    }
    if problems.is_empty() { Ok(profiles) } else { Err(problems) }
}

/// One profile, from the built-in one at the end of its line down to itself. Nothing where another one is to blame.
fn complete_one(name: &str, drafts: &BTreeMap<String, ProfileDraft>) -> Result<Profile, Option<DraftProblem>> {
    let mut line: Vec<&str> = vec![name];
    let mut current = drafts.get(name).ok_or(None)?;
    let built_in = loop {
        let base = current.base();
        if let Some(built_in) = Profile::built_in(base) {
            break built_in;
        }
        if line.contains(&base) {
            // One of those in a circle tells of it; those that only lead to it do not.
            let tells = base == name && line.iter().all(|other| name <= *other);
            let chain = line.iter().chain([&base]).copied().collect::<Vec<_>>().join(" → ");
            let reason = format!("it inherits from itself: {chain}; let one of them inherit from a built-in profile");
            return Err(tells.then(|| problem_of(name, Some("inherits"), reason)));
        }
        let Some(next) = drafts.get(base) else {
            let unknown = || {
                let built_in = Profile::all_built_in().map(|profile| profile.name);
                let known: Vec<&str> =
                    built_in.iter().map(String::as_str).chain(drafts.keys().map(String::as_str)).collect();
                format!("inherits = {base:?} is not known; use one of {}", known.join(", "))
            };
            return Err((line.len() == 1).then(|| problem_of(name, Some("inherits"), unknown())));
        };
        line.push(base);
        current = next;
    };
    let apply = |base: Profile, name: &&str| drafts.get(*name).map_or(base.clone(), |draft| draft.over(name, &base));
    Ok(line.iter().rev().fold(built_in, apply))
}

fn check_name(name: &str, count: usize) -> Result<(), Option<DraftProblem>> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let refuse = |reason: String| Err(Some(problem_of(name, None, reason)));
    if name.is_empty() || name.len() > limits::PROFILE_NAME_BYTES_MAX || !name.bytes().all(good) {
        let most = limits::PROFILE_NAME_BYTES_MAX;
        return refuse(format!("the name of a profile has 1 to {most} letters, digits, dashes, dots and underscores"));
    }
    if Profile::built_in(name).is_some() {
        return refuse(format!(
            "{name} is built in and stays what it is; choose another name, inherit from it, and set default_profile"
        ));
    }
    if count > limits::PROFILES_MAX {
        return refuse(format!("there are {count} profiles; at most {} can be had", limits::PROFILES_MAX));
    }
    Ok(())
}

fn problem_of(profile: &str, field: Option<&'static str>, reason: String) -> DraftProblem {
    DraftProblem { profile: profile.to_owned(), field, reason }
}

#[cfg(test)]
mod tests {
    use super::super::Profiles;
    use super::*;

    fn drafts(table: &[(&str, ProfileDraft)]) -> BTreeMap<String, ProfileDraft> {
        table.iter().map(|(name, draft)| ((*name).to_owned(), draft.clone())).collect()
    }

    fn inherits(base: &str) -> ProfileDraft {
        ProfileDraft { inherits: Some(base.to_owned()), ..ProfileDraft::default() }
    }

    fn problems(table: &[(&str, ProfileDraft)]) -> Vec<DraftProblem> {
        Profiles::with_drafts(&drafts(table)).err().unwrap_or_default()
    }

    #[test]
    fn what_a_profile_does_not_set_comes_from_the_line_that_it_inherits() {
        let table = [
            ("a", ProfileDraft { cpus: Some(4.0), locked: [LockedField::Cpus].into(), ..inherits("b") }),
            ("b", ProfileDraft { memory_mb: Some(64), about: Some("small".into()), ..inherits("offline_readonly") }),
            ("c", ProfileDraft { ptrace: Some(true), ..ProfileDraft::default() }),
        ];
        let profiles = Profiles::with_drafts(&drafts(&table)).unwrap();
        let a = profiles.get("a").unwrap();
        assert_eq!((a.cpus, a.memory_mb, a.pids_limit, a.timeout_sec_max), (4.0, 64, 64, 60));
        let locked = ["network", "host_path_mode", "cpus", "read_only_rootfs"];
        assert_eq!(
            a.locked.iter().map(|field| field.as_str()).collect::<Vec<_>>(),
            locked,
            "its own and the inherited"
        );
        assert_eq!(
            (a.about.as_str(), profiles.get("b").unwrap().about.as_str()),
            ("as b, with changes of the operator", "small")
        );
        let c = profiles.get("c").unwrap();
        assert_eq!((c.syscalls, c.memory_mb), (SyscallSet::Debug, 512), "default where nothing is inherited");
        assert_eq!(profiles.names()[6..], ["a", "b", "c"]);
    }

    #[test]
    fn a_circle_is_refused_with_its_chain_named_once() {
        let table = [("x", inherits("y")), ("y", inherits("z")), ("z", inherits("x")), ("leads", inherits("x"))];
        let found = problems(&table);
        assert_eq!((found.len(), found[0].field), (1, Some("inherits")), "{found:?}");
        assert!(found[0].reason.contains("x → y → z → x"), "{found:?}");
        assert!(problems(&[("me", inherits("me"))])[0].reason.contains("me → me"));
    }

    #[test]
    fn an_unknown_base_is_answered_with_the_known_ones_where_it_is_written() {
        let found = problems(&[("a", inherits("b")), ("b", inherits("nonexistent"))]);
        assert_eq!((found.len(), found[0].profile.as_str()), (1, "b"), "{found:?}");
        assert!(
            found[0].reason.contains("default, offline_readonly, network_basic, network_extended, debug, e2b, a, b")
        );
    }

    #[test]
    fn a_bad_value_is_told_where_it_is_written_and_not_where_it_is_inherited() {
        let table = [
            ("bad", ProfileDraft { cpus: Some(0.0), ..ProfileDraft::default() }),
            ("child", inherits("bad")),
            ("short", ProfileDraft { timeout_sec_max: Some(10), ..ProfileDraft::default() }),
        ];
        let found: Vec<_> = problems(&table).into_iter().map(|problem| (problem.profile, problem.field)).collect();
        assert_eq!(found, [("bad".to_owned(), Some("cpus")), ("short".to_owned(), Some("timeout_sec_max"))]);
    }

    #[test]
    fn names_are_plain_and_the_built_in_ones_are_taken() {
        for bad in ["", "a b", "a/b", "é", &"x".repeat(65), "default", "debug"] {
            assert_eq!(problems(&[(bad, ProfileDraft::default())]).len(), 1, "{bad:?}");
        }
        let many: Vec<String> = (0..=limits::PROFILES_MAX).map(|number| format!("p{number}")).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), ProfileDraft::default())).collect();
        assert!(!problems(&many).is_empty());
    }
}
