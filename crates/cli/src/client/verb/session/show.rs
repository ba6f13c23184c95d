//! `strongbox session show`: one session.

use box_core::Guarantees;
use clap::Args;
use serde_json::Value;

use crate::client::http::session_path;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::pairs;

/// What is shown, in this order, when the session has it.
const FIELDS: [(&str, &str); 24] = [
    ("session", "session_id"),
    ("state", "state"),
    ("lost because", "lost_reason"),
    ("profile", "profile"),
    ("image", "image"),
    ("made from", "from_snapshot"),
    ("network", "network"),
    ("workspace", "host_path"),
    ("seen at", "mount_path"),
    ("volumes", "volumes"),
    ("cpus", "cpus"),
    ("memory MiB", "memory_mb"),
    ("processes at most", "pids_limit"),
    ("read-only root", "read_only_rootfs"),
    ("user", "user"),
    ("capable root", "root_capabilities"),
    ("persistent", "persistent"),
    ("deadline sec", "timeout_sec"),
    ("deadline at most", "timeout_sec_max"),
    ("created", "created_at"),
    ("last used", "last_used_at"),
    ("expires", "expires_at"),
    ("commands running", "execs_running"),
    ("processes running", "processes_running"),
];

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox session show demo
  strongbox session show demo --json | jq .guarantees")]
pub(crate) struct ShowOptions {
    /// The session
    session: String,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Shows one session.
pub(crate) fn main(options: &ShowOptions) -> Result<u8, Fault> {
    let path = session_path(&options.session, &[]);
    let session = ask(&options.server, async |client| patiently("asking", client.get(&path)).await)?.json()?;
    if options.format.json {
        return listing::write_json(&session);
    }
    listing::write_out(as_text(&session).as_bytes())
}

/// A volume as it is typed.
fn volume(volume: &Value) -> String {
    let text = |field: &str| volume[field].as_str().unwrap_or_default().to_owned();
    format!("{}:{}:{}", text("name"), text("path"), text("mode"))
}

fn as_text(session: &Value) -> String {
    let line = |(name, field): &(&'static str, &str)| match &session[field] {
        Value::Null => None,
        Value::String(text) => Some((*name, text.clone())),
        Value::Array(volumes) => Some((*name, volumes.iter().map(volume).collect::<Vec<_>>().join(" "))),
        other => Some((*name, other.to_string())),
    };
    let lines: Vec<(&str, String)> = FIELDS.iter().filter_map(line).collect();
    let guarantees: Guarantees = serde_json::from_value(session["guarantees"].clone()).unwrap_or_default();
    let table = listing::guarantee_table(&guarantees, listing::columns(rustix::stdio::stdout()));
    format!("{}\n{table}", pairs(&lines))
}
