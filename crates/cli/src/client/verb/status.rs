//! `strongbox status`: how the server stands.

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;

use super::span;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::pairs;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Is it there, and how busy is it?
    strongbox status
  A server elsewhere:
    STRONGBOX_TOKEN=… strongbox status --url https://box.example")]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default = "yes")]
    enabled: bool,
    #[serde(default = "yes")]
    available: bool,
    reason: Option<String>,
    fix: Option<String>,
    backend: String,
    active_sessions: usize,
    managed_processes: usize,
    execs_running: usize,
    max_sessions: usize,
    max_managed_processes: usize,
    session_ttl_sec: i64,
    version: String,
    started_at: Timestamp,
}

/// A server that does not tell is one that always had boxes.
fn yes() -> bool {
    true
}

/// Whether boxes can be made, and what would change that.
fn boxes(status: &Status) -> String {
    if status.enabled && status.available {
        return "available".to_owned();
    }
    // That they are disabled is the reason itself.
    let stands = status.enabled.then(|| "not available".to_owned());
    let words = [stands, status.reason.clone(), status.fix.clone()];
    words.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Shows how the server stands.
pub(crate) fn main(options: &StatusOptions) -> Result<u8, Fault> {
    let client = options.server.client()?;
    let answer = ask(&options.server, async |client| patiently("asking", client.get("/v1/status")).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    let status: Status = answer.read()?;
    let up = Timestamp::now().as_second().saturating_sub(status.started_at.as_second());
    let lines = pairs(&[
        ("server", format!("strongbox {} at {}", status.version, client.address)),
        ("up", span(up)),
        ("backend", status.backend.clone()),
        ("boxes", boxes(&status)),
        ("sessions", format!("{} (at most {} in all)", status.active_sessions, status.max_sessions)),
        ("processes", format!("{} (at most {} in all)", status.managed_processes, status.max_managed_processes)),
        ("commands", format!("{} running", status.execs_running)),
        ("idle time", format!("{} until a session is removed", span(status.session_ttl_sec))),
    ]);
    listing::write_out(lines.as_bytes())
}
