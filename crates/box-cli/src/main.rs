//! The `strongbox` command: what was typed becomes one call of the domain, and its answer becomes lines and an exit code.

mod doctor;
mod fault;
mod listing;
mod options;
mod profiles;
mod run;
mod values;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::fault::Fault;
use crate::options::{Cli, Verb};

/// The exit code of everything that went wrong before a command of the caller's could speak for itself.
const EXIT_OWN_ERROR: u8 = 125;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    start_log();
    let code = match cli.verb {
        Verb::Run(options) => run::main(&options),
        Verb::Doctor(options) => doctor::main(&options).unwrap_or_else(|fault| fault.report()),
        Verb::Profiles(options) => profiles::main(&options).unwrap_or_else(|fault| fault.report()),
        Verb::Completions { shell } => completions(shell).unwrap_or_else(|fault| fault.report()),
    };
    ExitCode::from(code)
}

/// Help and version are answers; everything else that the parser says is an error of ours, not of a command in a box.
fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let text = error.to_string();
        fault::say(text.strip_prefix("error: ").unwrap_or(&text).trim_end());
        return ExitCode::from(EXIT_OWN_ERROR);
    }
    // A reader that has gone away has no use for the text either.
    drop(error.print());
    ExitCode::SUCCESS
}

/// Logs only when asked: a command's own standard error must stay its own.
fn start_log() {
    if let Ok(filter) = std::env::var("STRONGBOX_LOG") {
        let filter = tracing_subscriber::EnvFilter::new(filter);
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}

fn completions(shell: clap_complete::Shell) -> Result<u8, Fault> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "strongbox", &mut script);
    listing::write_out(&script)
}

/// A runtime without a thread pool: one command needs none, and starting one would be paid by every command.
fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Fault::new(format!("the runtime cannot be started: {error}")))
}
