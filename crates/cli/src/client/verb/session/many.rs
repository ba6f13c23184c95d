//! `strongbox session rm`, `pause` and `resume`: one thing, done to many sessions.

use box_core::mcp::is_of_servers;
use clap::Args;
use serde_json::{Value, json};

use super::ls;
use crate::client::http::{Client, session_path};
use crate::client::{ServerOptions, ask, patiently};
use crate::exit::EXIT_OWN_ERROR;
use crate::fault::{Fault, say};
use crate::listing;
use crate::table::visible;

/// What can be typed.
#[derive(Debug, Args)]
pub(crate) struct ManyOptions {
    /// The sessions
    #[arg(required_unless_present = "all", value_name = "SESSION")]
    sessions: Vec<String>,
    /// All sessions that the caller sees, also E2B sandboxes; not those of MCP servers
    #[arg(long, conflicts_with = "sessions")]
    all: bool,
    #[command(flatten)]
    server: ServerOptions,
}

/// What is done.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// They are removed.
    Remove,
    /// They are stopped where they are.
    Pause,
    /// They go on.
    Resume,
}

/// Does it to each, whatever comes of the others, and writes the ids of those where it worked.
pub(crate) fn main(options: &ManyOptions, act: Act) -> Result<u8, Fault> {
    ask(&options.server, async |client| {
        let mut exit_code = 0;
        let sessions = if options.all { all_but_servers(client).await? } else { options.sessions.clone() };
        for session in &sessions {
            match patiently(session, one(client, session, act)).await {
                Ok(()) => drop(listing::write_out(format!("{session}\n").as_bytes())?),
                Err(fault) if fault.code == "unreachable" => return Err(fault),
                Err(fault) => {
                    fault.report();
                    exit_code = EXIT_OWN_ERROR;
                }
            }
        }
        Ok(exit_code)
    })
}

/// The ids of all sessions but those of MCP servers, which are reported: their owners see servers, and not their boxes.
async fn all_but_servers(client: &Client) -> Result<Vec<String>, Fault> {
    let sessions = patiently("asking", ls::list(client, None, None)).await?;
    let ids = sessions.iter().filter_map(|session: &Value| session["session_id"].as_str().map(str::to_owned));
    let (of_servers, others): (Vec<_>, Vec<_>) = ids.partition(|id| is_of_servers(id));
    if !of_servers.is_empty() {
        let named = visible(&of_servers.join(" "));
        say(&format!("left out sessions of MCP servers, which must be named: {named}"));
    }
    Ok(others)
}

async fn one(client: &Client, session: &str, act: Act) -> Result<(), Fault> {
    match act {
        Act::Remove => client.delete(&session_path(session, &[])).await,
        Act::Pause => client.post(&session_path(session, &["pause"]), &json!({})).await,
        Act::Resume => client.post(&session_path(session, &["resume"]), &json!({})).await,
    }?;
    Ok(())
}
