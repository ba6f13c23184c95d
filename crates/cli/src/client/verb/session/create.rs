//! `strongbox session create`: a session before its first command.

use clap::Args;
use serde_json::json;

use crate::client::http::session_path;
use crate::client::session_options::SessionOptions;
use crate::client::verb::exec;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  A session with a name of its own, for an hour without use:
    strongbox session create build --memory 2g --cpus 2 --ttl 1h
  One whose name does not matter:
    id=$(strongbox session create) && strongbox exec \"$id\" -- true
  One that is kept, with a directory to work on:
    strongbox session create site --persistent --workspace /srv/site")]
pub(crate) struct CreateOptions {
    /// Its name; one is made up when it is left out
    session: Option<String>,
    /// Set a variable for every command of the session, or pass the caller's value on. Repeatable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    session_options: SessionOptions,
    #[command(flatten)]
    server: ServerOptions,
}

/// Makes the session and writes its id.
pub(crate) fn main(options: &CreateOptions) -> Result<u8, Fault> {
    let mut fields = options.session_options.fields()?;
    if !options.env.is_empty() {
        fields.insert("env".to_owned(), exec::environment(&options.env, false)?);
    }
    let path = options.session.as_ref().map_or_else(|| "/v1/sessions".to_owned(), |id| session_path(id, &[]));
    let made =
        ask(&options.server, async |client| patiently("making the box", client.post(&path, &json!(fields))).await)?;
    let session = made.json()?;
    if options.format.json {
        return listing::write_json(&session);
    }
    listing::write_out(format!("{}\n", session["session_id"].as_str().unwrap_or_default()).as_bytes())
}
