//! The profiles that there are: the built-in ones, and those of the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use box_wire::Invalid;

use super::draft::{self, DraftProblem, ProfileDraft};
use super::{LockedField, Profile};

/// The profiles that there are. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiles(Arc<Vec<Profile>>);

impl Default for Profiles {
    /// The built-in ones.
    fn default() -> Self {
        Self(Arc::new(Profile::all_built_in().into()))
    }
}

impl Profiles {
    /// The built-in ones and those that the operator wrote. Every problem is told, not only the first.
    pub fn with_drafts(drafts: &BTreeMap<String, ProfileDraft>) -> Result<Self, Vec<DraftProblem>> {
        let mut profiles = Self::default();
        draft::complete(drafts)?.into_iter().for_each(|profile| profiles.insert(profile));
        Ok(profiles)
    }

    /// Adds a profile, in the place of one of the same name.
    pub fn insert(&mut self, profile: Profile) {
        let all = Arc::make_mut(&mut self.0);
        match all.iter_mut().find(|known| known.name == profile.name) {
            Some(known) => *known = profile,
            None => all.push(profile),
        }
    }

    /// The profile of that name. The error lists the names that there are.
    pub fn get(&self, name: &str) -> Result<&Profile, Invalid> {
        let found = self.0.iter().find(|profile| profile.name == name);
        found.ok_or_else(|| Invalid::new("profile", name, format!("one of {}", self.names().join(", "))))
    }

    /// All names, the built-in ones first.
    pub fn names(&self) -> Vec<&str> {
        self.iter().map(|profile| profile.name.as_str()).collect()
    }

    /// All of them, the built-in ones first.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.0.iter()
    }
}

impl Profile {
    /// Whether what a caller says of this does not count.
    pub fn locks(&self, field: LockedField) -> bool {
        self.locked.contains(&field)
    }

    /// What holds of a field: what is asked, else the profile's own. Asking for something else of a locked field is an error,
    /// for callers that report it instead of going on without it.
    pub fn choose<T: PartialEq>(&self, field: LockedField, asked: Option<T>, own: T) -> Result<T, LockedField> {
        match asked {
            Some(asked) if asked != own && self.locks(field) => Err(field),
            asked => Ok(asked.unwrap_or(own)),
        }
    }

    /// The deadline of every command, whatever it asks for, where `timeout_sec` is locked.
    pub fn locked_deadline_sec(&self) -> Option<u64> {
        locked_deadline_sec(&self.locked, self.timeout_sec, self.timeout_sec_max)
    }
}

/// The deadline of every command where `timeout_sec` is locked: the usual one.
pub(crate) fn locked_deadline_sec(
    locked: &BTreeSet<LockedField>,
    timeout_sec: u64,
    timeout_sec_max: u64,
) -> Option<u64> {
    locked.contains(&LockedField::TimeoutSec).then(|| timeout_sec.min(timeout_sec_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_all_that_are_known() {
        let mut profiles = Profiles::default();
        profiles.insert(Profile { name: "mine".into(), ..Profile::default() });
        assert!(profiles.get("mine").is_ok());
        let error = profiles.get("nonexistent").unwrap_err();
        let known = "one of default, offline_readonly, network_basic, network_extended, debug, e2b, mine";
        assert_eq!((error.field, error.allowed.as_str()), ("profile", known));
    }

    #[test]
    fn a_name_stands_for_one_profile() {
        let mut profiles = Profiles::default();
        for memory_mb in [64, 128] {
            profiles.insert(Profile { name: "mine".into(), memory_mb, ..Profile::default() });
        }
        assert_eq!((profiles.names().len(), profiles.get("mine").unwrap().memory_mb), (7, 128));
        assert_eq!(Profiles::default().names().len(), 6, "clones do not share what is added");
    }
}
