//! `strongbox shell`: a terminal in a session.

use clap::Args;
use serde_json::json;

use super::exec;
use crate::client::session_options::SessionOptions;
use crate::client::{ServerOptions, ending};
use crate::fault::Fault;
use crate::values;

/// Runs the better shell of those that a box usually has.
const BEST_SHELL: &str = "if command -v bash >/dev/null; then exec bash; fi; exec sh";

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Look around in a session; it is made if there is none of that name:
    strongbox shell demo
  Another program on a terminal:
    strongbox shell demo -- python3

A shell has no deadline unless --timeout is given or the profile locks timeout_sec. When its
client is gone, it ends after 10 minutes (terminal_unattended_sec).
Exit codes: those of `run`; `strongbox --help` lists them.")]
pub(crate) struct ShellOptions {
    /// The session; it is made if there is none of that name
    session: String,
    /// End the shell after this time
    #[arg(long, value_name = "SECONDS", value_parser = values::timeout_ms, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// Set a variable, or pass the caller's value on. Repeatable
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Where to start; else the session's workspace
    #[arg(short, long, value_name = "PATH")]
    workdir: Option<String>,
    /// The program; else bash where there is one, or sh
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<std::ffi::OsString>,
    #[command(flatten)]
    session_options: SessionOptions,
    #[command(flatten)]
    server: ServerOptions,
}

/// Runs the shell and gives its exit code.
pub(crate) fn main(options: &ShellOptions) -> Result<u8, Fault> {
    if !rustix::termios::isatty(rustix::stdio::stdin()) {
        let fault = Fault::new("standard input is not a terminal");
        return Err(fault.hint(format!("use `strongbox exec {} -- CMD` for commands without one", options.session)));
    }
    let mut body = options.session_options.fields()?;
    let command = if options.program.is_empty() {
        vec!["sh".to_owned(), "-c".to_owned(), BEST_SHELL.to_owned()]
    } else {
        values::argv(&options.program)?
    };
    body.insert("command".to_owned(), json!(command));
    body.insert("env".to_owned(), exec::environment(&options.env, true)?);
    if let Some(ms) = options.timeout {
        body.insert("timeout_sec".to_owned(), exec::seconds(ms));
    }
    if let Some(workdir) = &options.workdir {
        body.insert("workdir".to_owned(), json!(workdir));
    }
    let finish = exec::run(&options.server, &options.session, body, true, true)?;
    Ok(ending::report(&finish))
}
