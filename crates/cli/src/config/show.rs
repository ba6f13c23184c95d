//! `strongbox config show`: every key, its value, and where that came from.

use std::borrow::Cow;

use clap::Args;

use super::{Key, Origin, PlaceOptions, Setting, Settings, Value};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  See what a server would use, and why:
    strongbox config show
  One value, for a script:
    strongbox config show --json | jq -r .listen.value")]
pub(crate) struct ShowOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Shows the configuration that a server started here would use.
pub(crate) fn main(options: &ShowOptions) -> Result<u8, Fault> {
    let settings = options.place.settings(&options.place.flags())?;
    if options.format.json {
        return listing::write_json(&as_json(&settings));
    }
    listing::write_out(as_text(&settings).as_bytes())
}

fn as_json(settings: &Settings) -> serde_json::Value {
    let entry = |(name, setting): (&'static str, Option<&Setting>)| {
        let value = setting.map(|setting| shown(name, &setting.value));
        let from = setting.map_or_else(|| "default".to_owned(), |setting| setting.origin.to_string());
        (name.to_owned(), serde_json::json!({ "value": value, "from": from }))
    };
    serde_json::Value::Object(settings.iter().map(entry).collect())
}

/// What may be shown of a value.
fn shown<'a>(name: &str, value: &'a Value) -> Cow<'a, Value> {
    match Key::find(name) {
        Some(key) if key.is_secret() => Cow::Owned(Value::text("…")),
        _ => Cow::Borrowed(value),
    }
}

fn as_text(settings: &Settings) -> String {
    let mut table = Table::new(&["KEY", "VALUE", "FROM"]);
    for (name, setting) in settings.iter() {
        let value = setting.map_or_else(|| "not set".to_owned(), |setting| shown(name, &setting.value).to_string());
        let from = setting.map_or_else(|| "default".to_owned(), |setting| setting.origin.to_string());
        let tables = match setting {
            // One line for each, which is what the file has.
            Some(Setting { value, origin: Origin::File(path, _) }) => {
                let row = |(inner, fields, line)| {
                    [format!("{name}.{inner}"), fields, Origin::File(path.clone(), line).to_string()]
                };
                value.tables().into_iter().map(row).collect()
            }
            _ => Vec::new(),
        };
        if tables.is_empty() {
            table.row([name.to_owned(), value, from]);
        }
        for row in tables {
            table.row(row);
        }
    }
    let file = settings.file().map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    format!("{}\nFile: {file}\n", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    #[test]
    fn profiles_are_shown_one_by_one_with_their_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[profiles.b]\ncpus = 2\n[profiles.a]\ninherits = \"b\"\nlocked = [\"cpus\"]\n";
        std::fs::write(file.path(), text).unwrap();
        let settings = Settings::load(Some(file.path()), &Environment::default(), &[]).unwrap();
        let shown = as_text(&settings);
        let line = |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
        assert!(line("profiles.a ").contains("{inherits = \"b\", locked = [\"cpus\"]}"), "{shown}");
        assert!(line("profiles.a ").ends_with(":3") && line("profiles.b ").ends_with(":1"), "{shown}");
        assert_eq!(as_json(&settings)["profiles"]["value"]["b"]["cpus"], 2);
    }

    #[test]
    fn mcp_servers_are_shown_one_by_one_without_their_secrets() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[mcp.servers.time]\ncommand = \"uvx\"\nenv = { KEY = \"sesame\" }\n";
        std::fs::write(file.path(), text).unwrap();
        let settings = Settings::load(Some(file.path()), &Environment::default(), &[]).unwrap();
        let (shown, json) = (as_text(&settings), as_json(&settings));
        let line = shown.lines().find(|line| line.starts_with("mcp.servers.time ")).unwrap_or_default();
        assert!(line.contains("{command = \"uvx\", env = {KEY = \"…\"}}") && line.ends_with(":1"), "{shown}");
        assert_eq!(json["mcp.servers"]["value"]["time"]["env"]["KEY"], "…");
        assert!(!shown.contains("sesame") && !json.to_string().contains("sesame"));
        assert!(!format!("{settings:?}").contains("sesame"));
    }

    #[test]
    fn a_key_of_e2b_is_shown_to_nobody() {
        let environment = Environment::of(&[("E2B_API_KEY", "e2b_sesame"), ("STRONGBOX_E2B_API_KEY", "e2b_other")]);
        let settings = Settings::load(None, &environment, &[]).unwrap();
        let shown = as_text(&settings) + &as_json(&settings).to_string();
        assert!(shown.contains("E2B_API_KEY") && !shown.contains("sesame") && !shown.contains("e2b_other"), "{shown}");
        let bad = Environment::of(&[("E2B_API_KEY", "sesame with blanks")]);
        let refused = Settings::load(None, &bad, &[]).unwrap_err().message;
        assert!(refused.contains("e2b.api_key") && !refused.contains("sesame"), "{refused}");
    }
}
