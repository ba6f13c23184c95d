//! `strongbox config show`: every key, its value, and where that came from.

use clap::Args;

use super::{PlaceOptions, Setting, Settings};
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
        let value = setting.map(|setting| &setting.value);
        let from = setting.map_or_else(|| "default".to_owned(), |setting| setting.origin.to_string());
        (name.to_owned(), serde_json::json!({ "value": value, "from": from }))
    };
    serde_json::Value::Object(settings.iter().map(entry).collect())
}

fn as_text(settings: &Settings) -> String {
    let mut table = Table::new(&["KEY", "VALUE", "FROM"]);
    for (name, setting) in settings.iter() {
        let value = setting.map_or_else(|| "not set".to_owned(), |setting| setting.value.to_string());
        let from = setting.map_or_else(|| "default".to_owned(), |setting| setting.origin.to_string());
        table.row([name.to_owned(), value, from]);
    }
    let file = settings.file().map_or_else(|| "none".to_owned(), |path| path.display().to_string());
    format!("{}\nFile: {file}\n", table.render())
}
