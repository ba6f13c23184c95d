//! Templates of E2B's sandboxes in the file: a table for each, and every problem in it told with its line.

use std::collections::BTreeMap;

use box_core::limits;
use toml::de::{DeTable, DeValue};

use super::{Reader, line_of};
use crate::config::key::{Key, Kind};
use crate::config::nearest::nearest;
use crate::config::value::{Table, Value};

/// What a template can say. What it does not say is as its profile has it.
const FIELDS: [(&str, Kind); 5] = [
    ("profile", Kind::Profile),
    ("image", Kind::Words),
    ("cpus", Kind::Number),
    ("memory_mb", Kind::Whole(limits::MEMORY_MB_MIN, limits::MEMORY_MB_MAX)),
    ("disk_mb", Kind::Whole(1, limits::DISK_MB_MAX)),
];

/// Most templates.
const TEMPLATES_MAX: usize = 1000;

impl Reader<'_> {
    /// Reads all templates. They are kept only if all are good.
    pub(super) fn templates(&mut self, key: &'static Key, table: &DeTable<'_>, line: usize) {
        let problems_before = self.problems.len();
        let mut tables = BTreeMap::new();
        if table.len() > TEMPLATES_MAX {
            return self
                .refuse(line, &format!("{} has {} templates; there can be {TEMPLATES_MAX}", key.name, table.len()));
        }
        for (name, value) in table {
            let (name, line) = (name.get_ref().to_string(), line_of(self.text, name.span().start));
            let full = format!("{}.{name}", key.name);
            match value.get_ref() {
                DeValue::Table(inner) => {
                    let fields = self.template(&full, inner);
                    tables.insert(name, Table { fields, line });
                }
                _ => self.refuse(line, &format!("{full} is a table; write [{full}]")),
            }
        }
        if self.problems.len() == problems_before {
            self.entries.push((key, Value::Tables(tables), line));
        }
    }

    fn template(&mut self, template: &str, table: &DeTable<'_>) -> BTreeMap<String, Value> {
        let mut fields = BTreeMap::new();
        for (name, value) in table {
            let (name, line) = (name.get_ref().to_string(), line_of(self.text, name.span().start));
            let full = format!("{template}.{name}");
            if let Some((_, kind)) = FIELDS.iter().find(|(known, _)| *known == name) {
                fields.extend(self.value(&full, *kind, value, line).map(|value| (name, value)));
                continue;
            }
            let names = || FIELDS.iter().map(|(name, _)| *name);
            let hint = nearest(&name, names()).map_or_else(
                || format!("a template has {}", names().collect::<Vec<_>>().join(", ")),
                |meant| format!("did you mean {meant}?"),
            );
            self.refuse(line, &format!("there is no key {full}; {hint}"));
        }
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn problems_of_templates_are_told_with_their_lines() {
        let good = "[e2b_door.templates.mine]\nprofile = \"e2b\"\nimage = \"host\"\ncpus = 0.5\nmemory_mb = 64\ndisk_mb = 10\n";
        assert_eq!(parse("f", good).unwrap().len(), 1);
        let table = [
            ("[e2b_door.templates.a]\ncpu = 1", "f:2: there is no key e2b_door.templates.a.cpu; did you mean cpus?"),
            ("[e2b_door.templates.a]\nelephant = 1", "a template has profile, image"),
            ("[e2b_door.templates.a]\nmemory_mb = 1", "f:2: e2b_door.templates.a.memory_mb = 1 is not allowed"),
            ("[e2b_door.templates]\na = 1", "f:2: e2b_door.templates.a is a table; write [e2b_door.templates.a]"),
            ("[e2b_door]\ntemplates = 1", "use a table for each template"),
        ];
        for (text, says) in table {
            let found = parse("f", text).err().unwrap_or_default();
            assert!(found.len() == 1 && found[0].contains(says), "{text}: {found:?}");
        }
    }
}
