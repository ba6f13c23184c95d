//! `strongbox profiles`: the presets and what they set.

use box_core::{LockedField, Profile, Profiles};
use clap::Args;

use crate::config::PlaceOptions;
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  The built-in profiles, and those of the configuration:
    strongbox profiles
  What a profile locks:
    strongbox profiles --json | jq '.[] | select(.name == \"offline_readonly\").locked'")]
pub(crate) struct ProfilesOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Lists the profiles: the built-in ones, and those of the configuration.
pub(crate) fn main(options: &ProfilesOptions) -> Result<u8, Fault> {
    let profiles = options.place.settings(&options.place.flags())?.config()?.profiles;
    if options.format.json {
        return listing::write_json(&profiles.iter().map(|profile| serde_json::json!(profile)).collect());
    }
    listing::write_out(table(&profiles).as_bytes())
}

fn table(profiles: &Profiles) -> String {
    let mut table =
        Table::new(&["NAME", "USER", "NETWORK", "CPUS", "MEMORY", "PIDS", "ROOT", "DEADLINE", "LOCKED", "ABOUT"]);
    for profile in profiles.iter() {
        table.row(row(profile));
    }
    table.render()
}

fn row(profile: &Profile) -> [String; 10] {
    let root = match (profile.read_only_rootfs, profile.root_capabilities) {
        (true, false) => "read-only",
        (false, false) => "writable",
        (true, true) => "read-only, capable",
        (false, true) => "writable, capable",
    };
    let locked: Vec<&str> = profile.locked.iter().map(|field: &LockedField| field.as_str()).collect();
    [
        profile.name.clone(),
        profile.user.to_string(),
        profile.network.to_string(),
        profile.cpus.to_string(),
        format!("{} MiB", profile.memory_mb),
        profile.pids_limit.to_string(),
        root.to_owned(),
        format!("{} s, at most {}", profile.timeout_sec, profile.timeout_sec_max),
        if locked.is_empty() { "-".to_owned() } else { locked.join(",") },
        profile.about.clone(),
    ]
}
