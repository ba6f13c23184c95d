//! `strongbox ps`: managed processes and commands.

use box_core::call::{ExecInfo, ExecStatus};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::ago;
use super::session::ls;
use crate::client::http::{Client, session_path};
use crate::client::targets::Process;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Everything that runs, in all sessions:
    strongbox ps
  What ran in one session, too:
    strongbox ps --all demo")]
pub(crate) struct PsOptions {
    /// Only of this session
    session: Option<String>,
    /// Also what has ended and is remembered
    #[arg(short, long)]
    all: bool,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// What there is in one session, as it was told.
struct SessionProcesses {
    session: String,
    processes: Vec<Value>,
    execs: Vec<Value>,
}

/// Lists processes and commands.
pub(crate) fn main(options: &PsOptions) -> Result<u8, Fault> {
    let found = ask(&options.server, async |client| patiently("asking", collect(client, options)).await)?;
    if options.format.json {
        return listing::write_json(&as_json(&found));
    }
    listing::write_out(as_text(&found)?.as_bytes())
}

async fn collect(client: &Client, options: &PsOptions) -> Result<Vec<SessionProcesses>, Fault> {
    let sessions = match &options.session {
        Some(session) => vec![session.clone()],
        None => busy_sessions(client, options.all).await?,
    };
    let runs = |value: &Value| options.all || value["status"] == "running";
    let mut found = Vec::new();
    for session in sessions {
        let list = async |part: &str| -> Result<Vec<Value>, Fault> {
            let all: Vec<Value> = client.get(&session_path(&session, &[part])).await?.read()?;
            Ok(all.into_iter().filter(runs).collect())
        };
        let listed = match (list("processes").await, list("execs").await) {
            (Ok(processes), Ok(execs)) => SessionProcesses { session, processes, execs },
            // A session of a list may be gone by the time that it is asked about.
            (Err(fault), _) | (_, Err(fault)) if fault.code == "session_not_found" && options.session.is_none() => {
                continue;
            }
            (Err(fault), _) | (_, Err(fault)) => return Err(fault),
        };
        found.push(listed);
    }
    Ok(found)
}

async fn busy_sessions(client: &Client, all: bool) -> Result<Vec<String>, Fault> {
    let sessions = ls::list(client, None, None).await?;
    let is_busy = |session: &&Value| {
        all || ["execs_running", "processes_running"].iter().any(|field| session[field].as_u64() != Some(0))
    };
    let id = |session: &Value| session["session_id"].as_str().map(str::to_owned);
    Ok(sessions.iter().filter(is_busy).filter_map(id).collect())
}

fn as_json(found: &[SessionProcesses]) -> Value {
    let one = |found: &SessionProcesses| json!({ "session_id": found.session, "processes": found.processes, "execs": found.execs });
    found.iter().map(one).collect()
}

fn as_text(found: &[SessionProcesses]) -> Result<String, Fault> {
    let now = Timestamp::now();
    let mut table = Table::new(&["SESSION", "KIND", "ID", "STATUS", "STARTED", "COMMAND"]);
    let unreadable = |error| Fault::new(format!("the server's answer cannot be understood: {error}"));
    for SessionProcesses { session, processes, execs } in found {
        for value in processes {
            let process: Process = serde_json::from_value(value.clone()).map_err(unreadable)?;
            let (started, words) = (ago(process.started_at, now), process.command_line());
            table.row([session.clone(), "process".into(), process.id.clone(), process.state(), started, words]);
        }
        for value in execs {
            let exec: ExecInfo = serde_json::from_value(value.clone()).map_err(unreadable)?;
            let (id, started) = (exec.exec_id.to_string(), ago(exec.started_at, now));
            table.row([session.clone(), "exec".into(), id, state(&exec), started, exec.command]);
        }
    }
    Ok(table.render())
}

pub(super) fn state(exec: &ExecInfo) -> String {
    match (exec.status, exec.exit_code, exec.signal) {
        (ExecStatus::Running, ..) => "running".to_owned(),
        (ExecStatus::TimedOut, ..) => "timed out".to_owned(),
        (ExecStatus::Lost, ..) => "lost".to_owned(),
        (_, Some(code), _) => format!("exited {code}"),
        (_, _, Some(signal)) => format!("signal {signal}"),
        _ => "exited".to_owned(),
    }
}
