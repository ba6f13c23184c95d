//! Templates of E2B's sandboxes in the file: a table for each, and every problem in it told with its line.

use box_core::limits;
use toml::de::DeTable;

use super::Reader;
use crate::config::key::Key;
use crate::config::kind::{ENTRIES_MAX, Kind};
use crate::config::value::Value;

/// What a template can say. What it does not say is as its profile has it.
const FIELDS: [(&str, Kind); 5] = [
    ("profile", Kind::Profile),
    ("image", Kind::Words),
    ("cpus", Kind::Number),
    ("memory_mb", Kind::Whole(limits::MEMORY_MB_MIN, limits::MEMORY_MB_MAX)),
    ("disk_mb", Kind::Whole(1, limits::DISK_MB_MAX)),
];

impl Reader<'_> {
    /// Reads all templates.
    pub(super) fn templates(&mut self, key: &Key, table: &DeTable<'_>, line: usize) -> Option<Value> {
        let bounds = (line, ENTRIES_MAX, "templates");
        let tables = self
            .named_tables(key, table, bounds, |reader, of, inner| Some(reader.fields(of, inner, &FIELDS, "template")));
        tables.map(Value::Tables)
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
