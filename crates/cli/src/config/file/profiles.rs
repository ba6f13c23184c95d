//! Profiles in the file: a table for each, and every problem in it told with its line.

use std::collections::BTreeMap;

use box_core::limits;
use box_core::profile::{ProfileDraft, Profiles, TIMEOUT_SEC_MAX};
use toml::de::DeTable;

use super::{Reader, line_of};
use crate::config::key::Key;
use crate::config::kind::{BACKEND, ENTRIES_MAX, Kind};
use crate::config::value::{Table, Value};

/// What a profile can say. Bounds that need more than one value are held where profiles are completed.
const FIELDS: [(&str, Kind); 18] = [
    ("inherits", Kind::Profile),
    ("about", Kind::Words),
    ("network", Kind::Choice(&["off", "on"])),
    ("image", Kind::Words),
    ("host_path_mode", Kind::Choice(&["none", "ro", "rw"])),
    ("cpus", Kind::Number),
    ("memory_mb", Kind::Whole(limits::MEMORY_MB_MIN, limits::MEMORY_MB_MAX)),
    ("pids_limit", Kind::Whole(1, limits::PIDS_MAX)),
    ("read_only_rootfs", Kind::Truth),
    ("user", Kind::Choice(&["root", "user"])),
    ("root_capabilities", Kind::Truth),
    ("workspace_quota_mb", Kind::Whole(0, limits::DISK_MB_MAX)),
    ("skills_mode", Kind::Choice(&["ro", "rw"])),
    ("timeout_sec", Kind::Whole(1, TIMEOUT_SEC_MAX)),
    ("timeout_sec_max", Kind::Whole(1, TIMEOUT_SEC_MAX)),
    ("ptrace", Kind::Truth),
    ("backend", BACKEND),
    ("locked", Kind::Locks),
];

/// Lines by profile and key; the line of a table by its profile and no key.
type Lines = BTreeMap<(String, Option<String>), usize>;

impl Reader<'_> {
    /// Reads all profiles. One may inherit from another.
    pub(super) fn profiles(&mut self, key: &Key, table: &DeTable<'_>, line: usize) -> Option<Value> {
        let mut lines = Lines::new();
        let bounds = (line, ENTRIES_MAX, "profiles");
        let tables = self.named_tables(key, table, bounds, |reader, of, inner| {
            lines.insert((of.name.to_owned(), None), of.line);
            for name in inner.keys() {
                let line = line_of(reader.text, name.span().start);
                lines.insert((of.name.to_owned(), Some(name.get_ref().to_string())), line);
            }
            Some(reader.fields(of, inner, &FIELDS, "profile"))
        })?;
        self.check_profiles(&tables, &lines);
        Some(Value::Tables(tables))
    }

    /// What is wrong with profiles only together, or only with the values that they inherit.
    fn check_profiles(&mut self, tables: &BTreeMap<String, Table>, lines: &Lines) {
        let drafts = serde_json::from_value::<BTreeMap<String, ProfileDraft>>(serde_json::json!(tables));
        let problems = match drafts.map(|drafts| Profiles::with_drafts(&drafts)) {
            Ok(Ok(_)) => return,
            Ok(Err(problems)) => problems,
            Err(error) => return self.refuse(1, &format!("profiles cannot be read: {error}")),
        };
        for problem in problems {
            let place = |field: Option<&str>| lines.get(&(problem.profile.clone(), field.map(str::to_owned)));
            let line = place(problem.field).or_else(|| place(None)).copied().unwrap_or(1);
            self.refuse(line, &format!("profiles.{}: {}", problem.profile, problem.reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        parse("f", text).err().unwrap_or_default()
    }

    #[test]
    fn a_profile_is_read_with_all_that_it_can_say() {
        let text = "[profiles.strict]\ninherits = \"offline_readonly\"\nabout = \"words\"\nnetwork = \"off\"\nimage = \"host\"\n\
            host_path_mode = \"ro\"\ncpus = 0.25\nmemory_mb = 64\npids_limit = 32\nread_only_rootfs = true\nuser = \"user\"\nroot_capabilities = true\n\
            workspace_quota_mb = 10\nskills_mode = \"ro\"\ntimeout_sec = 5\ntimeout_sec_max = 10\nptrace = false\nbackend = \"docker\"\n\
            locked = [\"cpus\", \"extra_mounts\"]\n[profiles.wide]\ncpus = 2\n";
        let entries = parse("f", text).unwrap();
        let [(key, Value::Tables(tables), 1)] = entries.as_slice() else { panic!("{entries:?}") };
        assert_eq!((key.name.as_str(), tables["strict"].fields.len()), ("profiles", FIELDS.len()));
        assert_eq!((&tables["wide"].fields["cpus"], tables["wide"].line), (&Value::Whole(2), 20));
    }

    #[test]
    fn problems_of_profiles_are_told_with_their_lines() {
        let table = [
            ("[profiles.a]\ncpu = 1", "f:2: there is no key profiles.a.cpu; did you mean cpus?"),
            ("[profiles.a]\nelephant = 1", "f:2: there is no key profiles.a.elephant; a profile has inherits, about"),
            ("[profiles.a]\n\ncpus = \"1\"", "f:3: profiles.a.cpus = \"1\" is not allowed; use a number"),
            ("[profiles.a]\ncpus = 0.001", "f:2: profiles.a: invalid cpus: 0.001 (a number from 0.01 to"),
            ("[profiles.a]\ncpus = nan", "f:2: profiles.a.cpus = nan is not allowed"),
            ("[profiles.a]\nmemory_mb = 1", "f:2: profiles.a.memory_mb = 1 is not allowed; use a whole number from 32"),
            (
                "[profiles.a]\nnetwork = \"maybe\"",
                "f:2: profiles.a.network = \"maybe\" is not allowed; use \"off\", \"on\"",
            ),
            (
                "[profiles.a]\nbackend = \"gvisor\"",
                "f:2: profiles.a.backend = \"gvisor\" is not allowed; use \"native\", \"podman\", \"docker\", \"nsjail\"",
            ),
            ("[profiles.a]\nskills_mode = \"none\"", "use \"ro\", \"rw\""),
            ("[profiles.a]\nlocked = [\"colour\"]", "use a list of \"network\", \"image\""),
            ("[profiles.a]\ntimeout_sec = 200", "f:2: profiles.a: invalid timeout_sec: 200"),
            (
                "[profiles.a]\n[profiles.b]\ninherits = \"c\"",
                "f:3: profiles.b: inherits = \"c\" is not known; use one of default",
            ),
            (
                "[profiles.a]\ninherits = \"b\"\n[profiles.b]\ninherits = \"a\"",
                "f:2: profiles.a: it inherits from itself: a → b → a",
            ),
            ("[profiles.default]\ncpus = 2", "f:1: profiles.default: default is built in"),
            ("[profiles.\"a b\"]\ncpus = 2", "f:1: profiles.a b: the name of a profile"),
            ("[profiles]\na = 1", "f:2: profiles.a is a table; write [profiles.a]"),
            ("profiles = 1", "f:1: profiles = 1 is not allowed; use a table for each profile"),
        ];
        for (text, says) in table {
            let found = problems(text);
            assert!(found.len() == 1 && found[0].contains(says), "{text}: {found:?}");
        }
        assert_eq!(problems("[profiles.a]\ncpu = 1\nmemory = 2\n[profiles.b]\nx = 1").len(), 3, "all are told");
    }
}
