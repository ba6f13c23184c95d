//! `strongbox snapshot ls`.

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;

use crate::client::http::session_path;
use crate::client::verb::ago;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox snapshot ls
  strongbox snapshot ls --session demo --json | jq -r '.[].snapshot_id'")]
pub(crate) struct LsOptions {
    /// Only those of this session
    #[arg(long)]
    session: Option<String>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// What is read of a snapshot.
#[derive(Debug, Deserialize)]
struct Snapshot {
    #[serde(rename = "snapshot_id")]
    id: String,
    name: Option<String>,
    tags: Vec<String>,
    session_id: String,
    image: Option<String>,
    bytes: u64,
    created_at: Timestamp,
}

/// Lists snapshots.
pub(crate) fn main(options: &LsOptions) -> Result<u8, Fault> {
    let path = match &options.session {
        Some(session) => session_path(session, &["snapshots"]),
        None => "/v1/snapshots".to_owned(),
    };
    let answer = ask(&options.server, async |client| patiently("asking", client.get(&path)).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    listing::write_out(table(answer.read()?, Timestamp::now()).as_bytes())
}

fn table(snapshots: Vec<Snapshot>, now: Timestamp) -> String {
    let mut table = Table::new(&["SNAPSHOT", "NAME", "TAGS", "SESSION", "IMAGE", "SIZE", "CREATED"]);
    for snapshot in snapshots {
        table.row([
            snapshot.id,
            snapshot.name.unwrap_or_default(),
            snapshot.tags.join(","),
            snapshot.session_id,
            snapshot.image.unwrap_or_default(),
            size(snapshot.bytes),
            ago(snapshot.created_at, now),
        ]);
    }
    table.render()
}

/// Bytes in the largest unit that leaves a whole number.
pub(in crate::client::verb) fn size(bytes: u64) -> String {
    match bytes {
        0..0x2800 => format!("{bytes} B"),
        0x2800..0xa0_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_one_line_that_cannot_steer_the_terminal() {
        let snapshot = Snapshot {
            id: "0a1b:default".into(),
            name: Some("deps".into()),
            tags: vec!["default".into(), "v1".into()],
            session_id: "\u{1b}[2J".into(),
            image: Some("host".into()),
            bytes: 3 << 20,
            created_at: Timestamp::from_second(100).unwrap(),
        };
        let shown = table(vec![snapshot], Timestamp::from_second(160).unwrap());
        let shown = anstream::adapter::strip_str(&shown).to_string();
        assert!(shown.contains("0a1b:default  deps  default,v1  \\u{1b}[2J"), "{shown}");
        assert!(shown.contains("3072 KiB  60s ago"), "{shown}");
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in
            [(0, "0 B"), (10_239, "10239 B"), (10_240, "10 KiB"), (10 << 20, "10 MiB"), (5 << 30, "5120 MiB")]
        {
            assert_eq!(size(bytes), text);
        }
    }
}
