//! The file of the configuration: TOML, and every problem in it told with its line.

mod mcp;
mod profiles;
mod templates;

use std::collections::BTreeMap;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{KEYS, Key};
use super::kind::Kind;
use super::nearest::nearest;
use super::value::{Table, Value};

/// Largest file that is read. A configuration with a thousand images is a tenth of this.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a file sets, with the line of each.
pub(crate) type Entries = Vec<(&'static Key, Value, usize)>;

/// Reads a file. Every problem is told, not only the first.
pub(crate) fn read(path: &Path) -> Result<Entries, Vec<String>> {
    let failed = |reason: String| vec![format!("{}: {reason}", path.display())];
    let text = load(path).map_err(|error| failed(format!("it cannot be read: {error}")))?;
    parse(&path.display().to_string(), &text)
}

fn load(path: &Path) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind, Read};
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Reads the text of a file.
pub(crate) fn parse(file: &str, text: &str) -> Result<Entries, Vec<String>> {
    let document = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        vec![format!("{file}:{line}: {}", error.message())]
    })?;
    let mut reader = Reader { file, text, entries: Vec::new(), problems: Vec::new() };
    reader.table("", document.get_ref());
    if reader.problems.is_empty() { Ok(reader.entries) } else { Err(reader.problems) }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    entries: Entries,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let full = format!("{prefix}{}", name.get_ref());
            let line = line_of(self.text, name.span().start);
            match (Key::find(&full), value.get_ref()) {
                (Some(key), DeValue::Table(inner)) if key.kind.is_table() && !matches!(key.kind, Kind::Images) => {
                    let value = match key.kind {
                        Kind::Profiles => self.profiles(key, inner, line),
                        Kind::McpServers => self.mcp_servers(key, inner, line),
                        _ => self.templates(key, inner, line),
                    };
                    self.entries.extend(value.map(|value| (key, value, line)));
                }
                (Some(key), _) => self.entry(key, value, line),
                (None, DeValue::Table(inner)) if is_table(&full) => self.table(&format!("{full}."), inner),
                (None, _) if is_table(&full) => self.refuse(line, &format!("{full} is a table; write [{full}]")),
                _ => self.unknown(&full, line),
            }
        }
    }

    fn entry(&mut self, key: &'static Key, value: &Spanned<DeValue<'_>>, line: usize) {
        if let Some(value) = self.value(&key.name, key.kind, value, line) {
            self.entries.push((key, value, line));
        }
    }

    /// A value of a kind; nothing when it is refused.
    fn value(&mut self, name: &str, kind: Kind, value: &Spanned<DeValue<'_>>, line: usize) -> Option<Value> {
        let read = convert(kind, value.get_ref());
        match read.ok_or_else(|| kind.allowed()).and_then(|value| kind.check(&value).map(|()| value)) {
            Ok(value) => Some(value),
            Err(allowed) => {
                let written = shortened(self.text.get(value.span()).unwrap_or_default());
                self.refuse(line, &format!("{name} = {written} is not allowed; use {allowed}"));
                None
            }
        }
    }

    /// Tables by their names, such as profiles. They are kept only if all are good.
    fn named_tables<T>(
        &mut self,
        key: &Key,
        table: &DeTable<'_>,
        (line, max, what): (usize, usize, &str),
        mut read: impl FnMut(&mut Self, &Named<'_>, &DeTable<'_>) -> Option<T>,
    ) -> Option<BTreeMap<String, T>> {
        let problems_before = self.problems.len();
        if table.len() > max {
            self.refuse(line, &format!("{} has {} {what}; there can be {max}", key.name, table.len()));
            return None;
        }
        let mut tables = BTreeMap::new();
        for (name, value) in table {
            let (name, line) = (name.get_ref().as_ref(), line_of(self.text, name.span().start));
            let full = format!("{}.{name}", key.name);
            match value.get_ref() {
                DeValue::Table(inner) => {
                    let one = read(self, &Named { name, full: &full, line }, inner);
                    tables.extend(one.map(|one| (name.to_owned(), one)));
                }
                _ => self.refuse(line, &format!("{full} is a table; write [{full}]")),
            }
        }
        (self.problems.len() == problems_before).then_some(tables)
    }

    /// A table of known fields.
    fn fields(&mut self, of: &Named<'_>, table: &DeTable<'_>, known: &[(&str, Kind)], what: &str) -> Table {
        let mut fields = BTreeMap::new();
        for (name, value) in table {
            let (name, line) = (name.get_ref().as_ref(), line_of(self.text, name.span().start));
            let full = format!("{}.{name}", of.full);
            if let Some((_, kind)) = known.iter().find(|(known, _)| *known == name) {
                fields.extend(self.value(&full, *kind, value, line).map(|value| (name.to_owned(), value)));
                continue;
            }
            let names = || known.iter().map(|(name, _)| *name);
            let hint = nearest(name, names()).map_or_else(
                || format!("a {what} has {}", names().collect::<Vec<_>>().join(", ")),
                |meant| format!("did you mean {meant}?"),
            );
            self.refuse(line, &format!("there is no key {full}; {hint}"));
        }
        Table { fields, line: of.line }
    }

    fn unknown(&mut self, name: &str, line: usize) {
        let meant = nearest(name, KEYS.iter().map(|key| key.name.as_str()));
        let hint = meant.map_or_else(
            || "`strongbox config show` lists the keys".to_owned(),
            |meant| match meant.split_once('.') {
                Some((table, key)) => format!("did you mean {key} in [{table}]?"),
                None => format!("did you mean {meant}?"),
            },
        );
        self.refuse(line, &format!("there is no key {name}; {hint}"));
    }

    fn refuse(&mut self, line: usize, reason: &str) {
        self.problems.push(format!("{}:{line}: {reason}", self.file));
    }
}

/// A table below another one.
struct Named<'a> {
    name: &'a str,
    /// With the tables above it.
    full: &'a str,
    line: usize,
}

/// Whether some key is in a table of that name.
fn is_table(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.split_once('.').is_some_and(|(table, _)| table == name))
}

/// The start of a value as written, on one line.
fn shortened(written: &str) -> String {
    let line = written.lines().next().unwrap_or_default();
    let cut = line.chars().take(box_wire::limits::QUOTED_VALUE_CHARS_MAX).collect::<String>();
    if cut.len() == written.len() { cut } else { format!("{cut}…") }
}

/// A value by the type that TOML gave it; nothing when no key has that type.
fn convert(kind: Kind, value: &DeValue<'_>) -> Option<Value> {
    let text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
    match value {
        DeValue::String(text) => Some(Value::text(text.as_ref())),
        DeValue::Integer(digits) => u64::from_str_radix(digits.as_str(), digits.radix()).ok().map(Value::Whole),
        DeValue::Float(digits) if matches!(kind, Kind::Number) => digits.as_str().parse().ok().map(Value::Fraction),
        DeValue::Boolean(truth) => Some(Value::Truth(*truth)),
        DeValue::Array(items) => items.iter().map(text).collect::<Option<_>>().map(Value::Texts),
        DeValue::Table(table) if matches!(kind, Kind::Images) => {
            let entry =
                |(name, value): (&Spanned<_>, _)| Some((AsRef::<str>::as_ref(name.get_ref()).to_owned(), text(value)?));
            table.iter().map(entry).collect::<Option<BTreeMap<_, _>>>().map(Value::Named)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        parse("f", text).err().unwrap_or_default()
    }

    #[test]
    fn every_type_is_read_with_its_line() {
        let text = "# words\nlisten = \"none\"\nmax_sessions = 1_0\nallowed_hosts = [\n  \"a\",\n]\n[audit]\nfiles = 0x10\n[images]\n\"a:1\" = \"dir:/x\"\n";
        let mut found: Vec<_> =
            parse("f", text).unwrap().into_iter().map(|(key, value, line)| (line, key.name.as_str(), value)).collect();
        found.sort_by_key(|(line, ..)| *line);
        let named = Value::Named([("a:1".to_owned(), "dir:/x".to_owned())].into());
        let expected = [
            (2, "listen", Value::text("none")),
            (3, "max_sessions", Value::Whole(10)),
            (4, "allowed_hosts", Value::Texts(vec!["a".into()])),
            (8, "audit.files", Value::Whole(16)),
            (9, "images", named),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn unknown_keys_are_told_with_line_and_nearest_name() {
        let table = [
            ("listn = 1", "f:1: there is no key listn; did you mean listen?"),
            ("\n\nmax_session = 1", "f:3: there is no key max_session; did you mean max_sessions?"),
            ("[tls]\ncertifcate = \"/a\"", "f:2: there is no key tls.certifcate; did you mean certificate in [tls]?"),
            ("certificate = \"/a\"", "f:1: there is no key certificate; did you mean certificate in [tls]?"),
            ("[audit]\nlisten = \"none\"", "f:2: there is no key audit.listen; did you mean listen?"),
            ("elephant = 1", "f:1: there is no key elephant; `strongbox config show` lists the keys"),
            ("tls = 1", "f:1: tls is a table; write [tls]"),
        ];
        for (text, says) in table {
            assert_eq!(problems(text), [says], "{text}");
        }
    }

    #[test]
    fn wrong_values_are_told_with_what_is_allowed() {
        let table = [
            ("max_sessions = \"5\"", "f:1: max_sessions = \"5\" is not allowed; use a whole number from 1 to"),
            ("max_sessions = -5", "max_sessions = -5 is not allowed"),
            ("max_sessions = 5.0", "max_sessions = 5.0 is not allowed"),
            ("listen = 5410", "listen = 5410 is not allowed; use an address and a port"),
            ("listen = [\"none\"]", "is not allowed"),
            ("state_dir = \"relative\"", "an absolute path"),
            ("allowed_mount_roots = \"/srv\"", "a list of"),
            ("allowed_mount_roots = [\"/srv\", 1]", "a list of"),
            ("allowed_mount_roots = [\"srv\"]", "absolute paths"),
            ("images = [\"a\"]", "a table of names"),
            ("[images]\na = \"debian\"", "dir:/PATH"),
            ("[images]\na = 5", "dir:/PATH"),
            ("on_stop = true", "keep-all"),
            ("log = 1979-05-27", "a filter"),
        ];
        for (text, says) in table {
            let found = problems(text);
            assert!(found.len() == 1 && found[0].contains(says), "{text}: {found:?}");
        }
    }

    #[test]
    fn all_problems_are_told_and_bad_syntax_has_a_line() {
        assert_eq!(problems("listn = 1\nmax_sessions = 0\n").len(), 2);
        assert!(problems("listen = \"none\"\nlog = = 1")[0].starts_with("f:2: "));
        assert!(problems("log = \"info\"\nlog = \"debug\"")[0].starts_with("f:2: "), "twice");
    }
}
