//! `strongbox session ls`: the sessions there are.

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::client::http::{Client, encoded};
use crate::client::verb::{ago, span};
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox session ls
  strongbox session ls --state lost --json | jq -r '.[].lost_reason'")]
pub(crate) struct LsOptions {
    /// Only those in this state: creating, running, paused, destroying or lost
    #[arg(long, value_parser = ["creating", "running", "paused", "destroying", "lost"], hide_possible_values = true)]
    state: Option<String>,
    /// Only those whose name starts like this
    #[arg(long)]
    prefix: Option<String>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Deserialize)]
struct Session {
    #[serde(rename = "session_id")]
    id: String,
    state: String,
    image: String,
    network: String,
    execs_running: usize,
    processes_running: usize,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
}

/// Lists sessions.
pub(crate) fn main(options: &LsOptions) -> Result<u8, Fault> {
    let (state, prefix) = (options.state.as_deref(), options.prefix.as_deref());
    let sessions = ask(&options.server, async |client| patiently("asking", list(client, state, prefix)).await)?;
    if options.format.json {
        return listing::write_json(&sessions.into());
    }
    listing::write_out(as_text(sessions)?.as_bytes())
}

/// All sessions, page by page.
pub(in crate::client::verb) async fn list(
    client: &Client,
    state: Option<&str>,
    prefix: Option<&str>,
) -> Result<Vec<Value>, Fault> {
    let mut path = format!("/v1/sessions?limit={}", box_core::limits::PAGE_MAX);
    for (name, value) in [("state", state), ("prefix", prefix)] {
        if let Some(value) = value {
            path = format!("{path}&{name}={}", encoded(value));
        }
    }
    let mut sessions: Vec<Value> = Vec::new();
    let mut after = None;
    loop {
        let page = after.as_ref().map_or_else(|| path.clone(), |after| format!("{path}&after={after}"));
        let answer = client.get(&page).await?;
        sessions.extend(answer.read::<Vec<Value>>()?);
        let next = answer.header("strongbox-next").map(str::to_owned);
        // A server that names the same page again would be asked for ever.
        if next.is_none() || next == after {
            return Ok(sessions);
        }
        after = next;
    }
}

fn as_text(sessions: Vec<Value>) -> Result<String, Fault> {
    let now = Timestamp::now();
    let mut table =
        Table::new(&["SESSION", "STATE", "IMAGE", "NETWORK", "COMMANDS", "PROCESSES", "CREATED", "EXPIRES"]);
    for value in sessions {
        let session: Session = serde_json::from_value(value)
            .map_err(|error| Fault::new(format!("the server's answer cannot be understood: {error}")))?;
        let expires = session.expires_at.map_or_else(|| "never".to_owned(), |at| in_time(at, now));
        table.row([
            session.id,
            session.state,
            session.image,
            session.network,
            session.execs_running.to_string(),
            session.processes_running.to_string(),
            ago(session.created_at, now),
            expires,
        ]);
    }
    Ok(table.render())
}

fn in_time(at: Timestamp, now: Timestamp) -> String {
    format!("in {}", span(at.as_second().saturating_sub(now.as_second())))
}
