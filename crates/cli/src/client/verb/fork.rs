//! `strongbox fork`: a session that begins with the files of another one.

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
Memory and processes are not copied. Limits, mounts and variables are those of the session.

Examples:
  Try something without touching the session:
    strongbox fork demo trial && strongbox exec trial -- rm -rf /workspace/build
  A copy whose name does not matter:
    id=$(strongbox fork demo)")]
pub(crate) struct ForkOptions {
    /// The session to copy
    session: String,
    /// The name of the copy; one is made up when it is left out
    new: Option<String>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Makes the copy and writes its id.
pub(crate) fn main(options: &ForkOptions) -> Result<u8, Fault> {
    let mut fields = Map::new();
    if let Some(new) = &options.new {
        fields.insert("session_id".to_owned(), json!(new));
    }
    let path = session_path(&options.session, &["fork"]);
    let made =
        ask(&options.server, async |client| patiently("copying", client.post(&path, &json!(fields))).await)?.json()?;
    if options.format.json {
        return listing::write_json(&made);
    }
    listing::write_out(format!("{}\n", made["session_id"].as_str().unwrap_or_default()).as_bytes())
}
