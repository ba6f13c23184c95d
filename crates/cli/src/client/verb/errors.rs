//! `strongbox errors`: what went wrong lately.

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;

use super::ago;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Why did that session not start?
    strongbox errors
    strongbox errors --json | jq '.[0]'")]
pub(crate) struct ErrorsOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Deserialize)]
struct Recent {
    at: Timestamp,
    operation: String,
    session_id: Option<String>,
    code: String,
    message: String,
}

/// Shows what went wrong lately, newest first.
pub(crate) fn main(options: &ErrorsOptions) -> Result<u8, Fault> {
    let answer = ask(&options.server, async |client| patiently("asking", client.get("/v1/errors")).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    let errors: Vec<Recent> = answer.read()?;
    let now = Timestamp::now();
    let mut table = Table::new(&["WHEN", "SESSION", "OPERATION", "CODE", "MESSAGE"]);
    for Recent { at, operation, session_id, code, message } in errors {
        table.row([ago(at, now), session_id.unwrap_or_else(|| "-".to_owned()), operation, code, message]);
    }
    listing::write_out(table.render().as_bytes())
}
