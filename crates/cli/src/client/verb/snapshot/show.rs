//! `strongbox snapshot show`.

use clap::Args;
use serde_json::Value;

use super::snapshot_path;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::pairs;

/// What is shown, in this order, when the snapshot has it.
const FIELDS: [(&str, &str); 11] = [
    ("snapshot", "snapshot_id"),
    ("name", "name"),
    ("tags", "tags"),
    ("session", "session_id"),
    ("profile", "profile"),
    ("image", "image"),
    ("cpus", "cpus"),
    ("memory MiB", "memory_mb"),
    ("disk MiB", "workspace_quota_mb"),
    ("bytes", "bytes"),
    ("created", "created_at"),
];

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox snapshot show deps
  strongbox snapshot show deps:v1 --json | jq .bytes")]
pub(crate) struct ShowOptions {
    /// The snapshot
    #[arg(value_name = "NAME[:TAG]")]
    name: String,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Shows one snapshot.
pub(crate) fn main(options: &ShowOptions) -> Result<u8, Fault> {
    let path = snapshot_path(&options.name);
    let snapshot = ask(&options.server, async |client| patiently("asking", client.get(&path)).await)?.json()?;
    if options.format.json {
        return listing::write_json(&snapshot);
    }
    listing::write_out(as_text(&snapshot).as_bytes())
}

fn as_text(snapshot: &Value) -> String {
    let line = |(name, field): &(&'static str, &str)| match &snapshot[field] {
        Value::Null => None,
        Value::String(text) => Some((*name, text.clone())),
        Value::Array(all) => Some((*name, all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","))),
        other => Some((*name, other.to_string())),
    };
    pairs(&FIELDS.iter().filter_map(line).collect::<Vec<_>>())
}
