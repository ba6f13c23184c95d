//! `strongbox volume ls`.

use clap::Args;
use jiff::Timestamp;

use super::Volume;
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
  strongbox volume ls
  Volumes that no session mounts:
    strongbox volume ls --json | jq -r '.[] | select(.sessions == []).name'")]
pub(crate) struct LsOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Lists volumes.
pub(crate) fn main(options: &LsOptions) -> Result<u8, Fault> {
    let answer = ask(&options.server, async |client| patiently("asking", client.get("/v1/volumes")).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    let volumes: Vec<Volume> = answer.read()?;
    listing::write_out(table(&volumes, Timestamp::now()).as_bytes())
}

fn table(volumes: &[Volume], now: Timestamp) -> String {
    let mut table = Table::new(&["NAME", "QUOTA MIB", "CREATED", "SESSIONS"]);
    for volume in volumes {
        let quota = volume.quota_mb.to_string();
        table.row([volume.name.clone(), quota, ago(volume.created_at, now), volume.sessions.join(" ")]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_a_row() {
        let created_at = Timestamp::from_second(100).unwrap();
        let sessions = vec!["a".to_owned(), "b".to_owned()];
        let volume = Volume { name: "data".into(), quota_mb: 1024, created_at, sessions };
        let shown = table(&[volume], Timestamp::from_second(160).unwrap());
        let shown = anstream::adapter::strip_str(&shown).to_string();
        assert!(shown.ends_with("data  1024       60s ago  a b\n"), "{shown}");
    }
}
