//! `strongbox kill`: ends a running command.

use box_core::call::{ExecInfo, ExecStatus, Target};
use clap::Args;
use serde_json::json;

use super::ps::state;
use crate::client::http::session_path;
use crate::client::{ServerOptions, ask, patiently, targets};
use crate::fault::Fault;
use crate::listing;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  End a command with all its children; `strongbox ps` lists what runs:
    strongbox kill demo 01J9ZK
  Ask it to end, or tell a managed process something:
    strongbox kill --signal TERM demo 01J9ZK
    strongbox kill --signal HUP tools web

`strongbox process stop` ends a managed process, and `strongbox session rm` a session with everything in it.")]
pub(crate) struct KillOptions {
    /// The session
    session: String,
    /// The command, or with --signal also a managed process, by its id
    #[arg(value_name = "EXEC|PROCESS")]
    name: String,
    /// Only send this signal to the main process, by name or number
    #[arg(short, long, value_name = "SIGNAL")]
    signal: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Ends the command or sends the signal.
pub(crate) fn main(options: &KillOptions) -> Result<u8, Fault> {
    let KillOptions { session, name, signal, server } = options;
    let told = ask(server, async |client| {
        let target = targets::find(client, session, Some(name)).await?;
        let path = match &target {
            Target::Exec(exec) => session_path(session, &["execs", exec.as_str()]),
            Target::Process(process) => session_path(session, &["processes", process.as_str()]),
        };
        match (signal, &target) {
            (Some(signal), _) => {
                client.post(&format!("{path}/signal"), &json!({ "signal": signal })).await?;
                Ok(format!("sent {signal} to {name}"))
            }
            (None, Target::Process(_)) => {
                let fault = Fault::new(format!("{name} is a managed process of session {session}"));
                Err(fault.hint(format!("use `strongbox process stop {session} {name}`, or name a --signal")))
            }
            (None, Target::Exec(_)) => {
                let (path, nothing) = (format!("{path}/cancel"), json!({}));
                let exec: ExecInfo = patiently("killing", client.post(&path, &nothing)).await?.read()?;
                Ok(match exec.status {
                    // It was killed; its exit has not been reported yet.
                    ExecStatus::Running => format!("{name} is being killed"),
                    _ => format!("{name} ended: {}", state(&exec)),
                })
            }
        }
    })?;
    listing::write_out(format!("{told}\n").as_bytes())
}
