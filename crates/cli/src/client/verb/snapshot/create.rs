//! `strongbox snapshot create`.

use clap::Args;
use serde_json::{Map, json};

use crate::client::http::session_path;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
The session runs on. Memory and processes are not saved. A snapshot of the same name and tag is replaced.

Examples:
  Install once, begin there often:
    strongbox exec setup -- pip install --target /workspace/lib requests
    strongbox snapshot create setup deps
    strongbox exec job-1 --snapshot deps -- python3 job.py
  One that is known by its id only:
    id=$(strongbox snapshot create demo)")]
pub(crate) struct CreateOptions {
    /// The session to save
    session: String,
    /// What to call the snapshot; it has an id only when this is left out
    #[arg(value_name = "NAME[:TAG]")]
    name: Option<String>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Saves the session and writes the id of the snapshot.
pub(crate) fn main(options: &CreateOptions) -> Result<u8, Fault> {
    let mut fields = Map::new();
    if let Some(name) = &options.name {
        fields.insert("name".to_owned(), json!(name));
    }
    let path = session_path(&options.session, &["snapshots"]);
    let saved =
        ask(&options.server, async |client| patiently("saving", client.post(&path, &json!(fields))).await)?.json()?;
    if options.format.json {
        return listing::write_json(&saved);
    }
    listing::write_out(format!("{}\n", saved["snapshot_id"].as_str().unwrap_or_default()).as_bytes())
}
