//! `strongbox session rm`, `pause` and `resume`: one thing, done to many sessions.

use clap::Args;
use serde_json::{Value, json};

use super::ls;
use crate::client::http::{Client, session_path};
use crate::client::{ServerOptions, ask, patiently};
use crate::exit::EXIT_OWN_ERROR;
use crate::fault::Fault;
use crate::listing;

/// What can be typed.
#[derive(Debug, Args)]
pub(crate) struct ManyOptions {
    /// The sessions
    #[arg(required_unless_present = "all", value_name = "SESSION")]
    sessions: Vec<String>,
    /// All sessions that the caller sees
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
        let sessions = if options.all { every(client).await? } else { options.sessions.clone() };
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

/// The ids of all sessions.
async fn every(client: &Client) -> Result<Vec<String>, Fault> {
    let sessions = patiently("asking", ls::list(client, None, None)).await?;
    let id = |session: &Value| session["session_id"].as_str().map(str::to_owned);
    Ok(sessions.iter().filter_map(id).collect())
}

async fn one(client: &Client, session: &str, act: Act) -> Result<(), Fault> {
    match act {
        Act::Remove => client.delete(&session_path(session, &[])).await,
        Act::Pause => client.post(&session_path(session, &["pause"]), &json!({})).await,
        Act::Resume => client.post(&session_path(session, &["resume"]), &json!({})).await,
    }?;
    Ok(())
}
