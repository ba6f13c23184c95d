//! Which skill a command uses, found by looking at the command.
//!
//! This is guidance for agents and no wall: all mounted packages can be seen from every command of the box. Its point is that an agent
//! reads what a skill says before it runs what is in it, and that a command gets the environment of one skill.

use std::collections::BTreeSet;

use box_wire::GuestPath;

use super::mounts::DIRECTORY;
use super::{SkillError, mount_path};

/// The one skill that a command uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillUse {
    /// Its name.
    pub name: String,
    /// Where its package is in the box.
    pub path: GuestPath,
}

/// The skill that a command uses, if any: the one that is named, the one whose directory it works in, and the one whose directory
/// its text refers to must be the same, and must be activated.
pub fn used_skill(
    activated: &BTreeSet<String>,
    workspace: &GuestPath,
    stated: Option<&str>,
    workdir: Option<&GuestPath>,
    command: &str,
) -> Result<Option<SkillUse>, SkillError> {
    let mut names: BTreeSet<&str> = referenced(command);
    names.extend(stated.map(str::trim).filter(|name| !name.is_empty()));
    names.extend(workdir.and_then(|workdir| skill_at(workspace, workdir)));
    let mut names = names.into_iter();
    let Some(name) = names.next() else { return Ok(None) };
    let others: Vec<String> = names.map(str::to_owned).collect();
    if !others.is_empty() {
        return Err(SkillError::Several { names: [vec![name.to_owned()], others].concat() });
    }
    let not_activated = || SkillError::NotActivated { name: name.to_owned() };
    let path = mount_path(workspace, name).map_err(|_| not_activated())?;
    if activated.contains(name) { Ok(Some(SkillUse { name: name.to_owned(), path })) } else { Err(not_activated()) }
}

/// The skill whose package a path of the box is in.
fn skill_at<'p>(workspace: &GuestPath, path: &'p GuestPath) -> Option<&'p str> {
    let below = path.as_str().strip_prefix(workspace.as_str().trim_end_matches('/'))?;
    let mut parts = below.strip_prefix('/')?.split('/');
    if parts.next() == Some(DIRECTORY) { parts.next() } else { None }
}

/// The names behind `.skills/` in a text, wherever a word can start.
fn referenced(command: &str) -> BTreeSet<&str> {
    let starts = command.match_indices(DIRECTORY).filter(|(at, _)| {
        let before = command[..*at].chars().next_back();
        before.is_none_or(|before| !is_name(before) && before != '.')
    });
    let names = starts.filter_map(|(at, found)| {
        let rest = command[at + found.len()..].strip_prefix('/')?.trim_start_matches('/');
        let end = rest.find(|character| !is_name(character)).unwrap_or(rest.len());
        Some(&rest[..end]).filter(|name| !name.is_empty())
    });
    names.collect()
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || character == '-' || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn used(
        activated: &[&str],
        named: Option<&str>,
        workdir: Option<&str>,
        command: &str,
    ) -> Result<Option<SkillUse>, SkillError> {
        let activated = activated.iter().map(ToString::to_string).collect();
        let workdir = workdir.map(|path| path.parse().unwrap());
        used_skill(&activated, &"/workspace".parse().unwrap(), named, workdir.as_ref(), command)
    }

    #[test]
    fn names_are_found_wherever_a_path_can_stand() {
        let table: &[(&str, &[&str])] = &[
            ("ls", &[]),
            ("ls /workspace/.skills", &[]),
            ("ls /workspace/.skills/", &[]),
            ("ls .skills/a", &["a"]),
            ("python3 /workspace/.skills/my_skill-2/run.py --x", &["my_skill-2"]),
            ("cat '.skills/a/x' \".skills/b\"", &["a", "b"]),
            ("X=/w/.skills/a;cd $X", &["a"]),
            ("cat ./.skills//技能/SKILL.md", &["技能"]),
            ("cat x.skills/a my.skills/a ..skills/a", &[]),
            ("cat .skillset/a", &[]),
        ];
        for (command, names) in table {
            assert_eq!(referenced(command), names.iter().copied().collect(), "{command}");
        }
    }

    #[test]
    fn a_command_without_a_skill_needs_none() {
        assert_eq!(used(&[], None, None, "echo hello"), Ok(None));
        assert_eq!(used(&[], Some("  "), Some("/workspace"), "ls /workspace/.skills"), Ok(None));
    }

    #[test]
    fn a_skill_is_used_only_after_it_was_activated() {
        for (named, workdir, command) in [
            (Some("a"), None, "ls"),
            (None, Some("/workspace/.skills/a/scripts"), "ls"),
            (None, None, "ls .skills/a"),
            (Some("a"), Some("/workspace/.skills/a"), "ls /workspace/.skills/a"),
        ] {
            let error = used(&["b"], named, workdir, command).unwrap_err();
            assert_eq!(error, SkillError::NotActivated { name: "a".into() }, "{command}");
            assert!(error.to_string().contains("activate"), "{error}");
            let found = used(&["a"], named, workdir, command).unwrap().unwrap();
            assert_eq!((found.name.as_str(), found.path.as_str()), ("a", "/workspace/.skills/a"));
        }
    }

    #[test]
    fn a_command_uses_one_skill() {
        for (named, workdir, command) in [
            (Some("a"), None, "ls .skills/b"),
            (Some("a"), Some("/workspace/.skills/b"), "ls"),
            (None, Some("/workspace/.skills/a"), "ls ../b /workspace/.skills/b"),
            (None, None, "diff .skills/a .skills/b"),
        ] {
            let error = used(&["a", "b"], named, workdir, command).unwrap_err();
            assert_eq!(error, SkillError::Several { names: vec!["a".into(), "b".into()] }, "{command}");
        }
    }

    #[test]
    fn a_name_that_is_no_name_is_not_activated() {
        assert_eq!(used(&["a"], Some("../a"), None, "ls").unwrap_err().code(), "skill_not_activated");
    }

    proptest! {
        #[test]
        fn what_is_used_was_activated_and_lies_below_the_workspace(command in "[a-c ./'\"]{0,10}(\\.skills/[a-c./]{0,6} ?){0,3}", named in "[a-c./]{0,3}") {
            let activated: BTreeSet<String> = ["a".to_owned()].into();
            if let Ok(Some(found)) = used_skill(&activated, &"/workspace".parse().unwrap(), Some(&named), None, &command) {
                prop_assert_eq!(found.path.as_str(), "/workspace/.skills/a");
            }
        }
    }
}
