//! `strongbox exec`: one command in a session.

use std::ffi::OsString;
use std::io::Write;

use box_wire::User;
use clap::Args;
use serde_json::{Map, Value, json};

use crate::client::http::session_path;
use crate::client::live::{self, Finish, Manner, Meant, ShownStreams, Start};
use crate::client::session_options::SessionOptions;
use crate::client::{ServerOptions, ask, ending, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::stdio::{self, Input};
use crate::terminal::{self, RawMode};
use crate::values;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Run a command in a session; the first one makes it:
    strongbox exec demo -- python3 -c 'print(6 * 7)'
  Files stay until the session goes:
    strongbox exec demo -- sh -c 'echo words > note'; strongbox exec demo -- cat note
  Give it input, network and more time:
    echo 2+2 | strongbox exec calc --network on --timeout 60 -- bc
  Start it and come back later:
    strongbox exec demo --detach -- make test; strongbox logs -f demo

Signals: the first SIGINT, SIGTERM, SIGHUP or SIGQUIT is passed to the command, the second kills it
with all its children.
When the connection breaks, the command goes on, and its output is shown from where it was.
Exit codes: those of `run`; `strongbox --help` lists them.")]
pub(crate) struct ExecOptions {
    /// The session; it is made if there is none of that name
    session: String,
    #[command(flatten)]
    command: CommandOptions,
    /// The program and its arguments. For a command line: -- sh -c '…'
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    argv: Vec<OsString>,
    #[command(flatten)]
    session_options: SessionOptions,
    #[command(flatten)]
    server: ServerOptions,
}

/// How a command is run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Command")]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that can be typed")]
struct CommandOptions {
    /// Pass standard input on even from a terminal; a pipe or file is always passed on
    #[arg(short, long)]
    interactive: bool,
    /// Give the command a terminal
    #[arg(short, long)]
    tty: bool,
    /// Kill everything after this time; fractions count. Without it the profile decides, and it is never more than the
    /// profile allows. With --tty there is none; --interactive alone does not change it
    #[arg(long, value_name = "SECONDS", value_parser = values::timeout_ms, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// Destroy the session, too, when the time is over
    #[arg(long)]
    destroy_on_timeout: bool,
    /// Set a variable, or pass the caller's value on. Nothing else is inherited. Repeatable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Where to run it; else the session's workspace
    #[arg(short, long, value_name = "PATH")]
    workdir: Option<String>,
    /// Who runs it, inside the box
    #[arg(short, long, value_name = "UID[:GID]", value_parser = values::user)]
    user: Option<User>,
    /// Only start it, and write its id; `strongbox logs` shows its output
    #[arg(short, long, conflicts_with_all = ["interactive", "tty"])]
    detach: bool,
    /// Last write one line of JSON to standard error: how it ended and what it used
    #[arg(long)]
    json: bool,
}

/// Runs the command and gives its exit code.
pub(crate) fn main(options: &ExecOptions) -> Result<u8, Fault> {
    let body = body(options)?;
    if options.command.detach {
        return detach(options, &body.into());
    }
    let CommandOptions { interactive, tty, json, .. } = options.command;
    let stdin = stdio::takes_input(interactive);
    let finish = run(&options.server, &options.session, body, tty, stdin)?;
    if let Finish::Ended(info) = &finish
        && json
    {
        // Nobody can be told when standard error is gone.
        drop(writeln!(std::io::stderr(), "{}", json!(info)));
    }
    Ok(ending::report(&finish))
}

/// Runs a command with our streams as its streams.
pub(super) fn run(
    server: &ServerOptions,
    session: &str,
    mut body: Map<String, Value>,
    tty: bool,
    takes_input: bool,
) -> Result<Finish, Fault> {
    if tty {
        let size = terminal::size();
        body.insert("tty".to_owned(), json!({ "rows": size.rows, "columns": size.columns }));
    }
    if !takes_input {
        body.insert("stdin".to_owned(), json!(""));
    }
    ask(server, async |client| {
        let stdin = if takes_input { Input::stdin() } else { Input::Silent };
        // Held until the command has ended: its drop gives the terminal back on every way out of here, a panic included.
        let _raw_mode = if tty && takes_input { RawMode::enter() } else { None };
        let manner =
            Manner { stdin, shown: ShownStreams::Both, tells_size: tty, detach_key: None, signals: Meant::Command };
        live::converse(client, session, Start::Exec(body.into()), manner).await
    })
}

fn detach(options: &ExecOptions, body: &Value) -> Result<u8, Fault> {
    let path = format!("{}?wait=false", session_path(&options.session, &["exec"]));
    let info =
        ask(&options.server, async |client| patiently("making the box", client.post(&path, body)).await)?.json()?;
    if options.command.json {
        return listing::write_json(&info);
    }
    listing::write_out(format!("{}\n", info["exec_id"].as_str().unwrap_or_default()).as_bytes())
}

fn body(options: &ExecOptions) -> Result<Map<String, Value>, Fault> {
    let command = &options.command;
    let mut body = options.session_options.fields()?;
    body.insert("command".to_owned(), json!(values::argv(&options.argv)?));
    body.insert("env".to_owned(), environment(&command.env, command.tty)?);
    if let Some(ms) = command.timeout {
        body.insert("timeout_sec".to_owned(), seconds(ms));
    }
    if command.destroy_on_timeout {
        body.insert("on_timeout".to_owned(), json!("destroy"));
    }
    if let Some(workdir) = &command.workdir {
        body.insert("workdir".to_owned(), json!(workdir));
    }
    if let Some(user) = command.user {
        body.insert("user".to_owned(), json!({ "uid": user.uid, "gid": user.gid }));
    }
    Ok(body)
}

/// Milliseconds as the seconds of a request. Whole ones stay whole.
#[expect(clippy::cast_precision_loss, reason = "a week of milliseconds fits into the 53 bits of a double")]
pub(super) fn seconds(ms: u64) -> Value {
    if ms.is_multiple_of(1000) { json!(ms / 1000) } else { json!(ms as f64 / 1000.0) }
}

/// The variables of a request. What has a terminal is told which.
pub(super) fn environment(typed: &[String], tty: bool) -> Result<Value, Fault> {
    let mut variables = Map::new();
    if tty {
        let term = std::env::var("TERM").unwrap_or_else(|_| "xterm-256color".to_owned());
        variables.insert("TERM".to_owned(), json!(term));
    }
    for text in typed {
        let (name, value) = values::env_entry(text, |name| std::env::var(name).ok())?;
        variables.insert(name, json!(value));
    }
    Ok(variables.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        exec: ExecOptions,
    }

    fn typed(arguments: &[&str]) -> Result<Value, String> {
        let typed = Typed::try_parse_from([&["exec"], arguments].concat()).map_err(|error| error.to_string())?;
        let mut body = body(&typed.exec).map_err(|fault| fault.message)?;
        body.insert("session".to_owned(), json!(typed.exec.session));
        Ok(body.into())
    }

    #[test]
    fn what_is_typed_becomes_a_request() {
        let table: [(&[&str], Value); 6] = [
            (&["s", "--", "true"], json!({ "session": "s", "command": ["true"], "env": {} })),
            (&["s", "ls", "-la", "--", "x"], json!({ "session": "s", "command": ["ls", "-la", "--", "x"], "env": {} })),
            (
                &["s", "--network=on", "--timeout=1.5", "--", "true"],
                json!({ "session": "s", "command": ["true"], "env": {}, "network": "on", "timeout_sec": 1.5 }),
            ),
            (
                &["--timeout=60", "--destroy-on-timeout", "s", "true"],
                json!({ "session": "s", "command": ["true"], "env": {}, "timeout_sec": 60, "on_timeout": "destroy" }),
            ),
            (
                &["s", "-e", "A=b=c", "-w", "/tmp", "-u", "1000", "--", "true"],
                json!({
                    "session": "s", "command": ["true"], "env": { "A": "b=c" }, "workdir": "/tmp",
                    "user": { "uid": 1000, "gid": 1000 },
                }),
            ),
            (&["a/b c", "--", "--network"], json!({ "session": "a/b c", "command": ["--network"], "env": {} })),
        ];
        for (arguments, expected) in table {
            assert_eq!(typed(arguments).unwrap(), expected, "{arguments:?}");
        }
    }

    #[test]
    fn a_command_and_a_session_are_needed() {
        for wrong in [&[][..], &["s"], &["s", "--"], &["s", "-d", "-t", "--", "true"], &["s", "--timeout=0", "true"]] {
            assert!(typed(wrong).is_err(), "{wrong:?}");
        }
    }
}
