//! The `strongbox` command: what was typed becomes one call of the domain or one question to a server, and the answer becomes
//! lines and an exit code.

mod audit;
mod backends;
mod client;
mod config;
mod doctor;
mod engines;
mod exit;
mod fault;
mod help;
mod image;
mod langbot;
mod listing;
mod options;
mod profiles;
mod run;
mod serve;
mod signals;
mod state;
mod stdio;
mod table;
mod terminal;
mod token;
mod values;

use std::process::ExitCode;

use clap::FromArgMatches;

use crate::exit::EXIT_OWN_ERROR;
use crate::fault::Fault;
use crate::options::{Cli, Verb};

fn main() -> ExitCode {
    let typed = help::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match typed {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    ExitCode::from(obey(&cli.verb).unwrap_or_else(|fault| fault.report()))
}

fn obey(verb: &Verb) -> Result<u8, Fault> {
    if !matches!(verb, Verb::Serve(_) | Verb::Box(_)) {
        start_log();
    }
    match verb {
        Verb::Run(options) => Ok(run::main(options)),
        Verb::Doctor(options) => doctor::main(options),
        Verb::Backends(options) => backends::main(options),
        Verb::Image(verb) => image::main(verb),
        Verb::Profiles(options) => profiles::main(options),
        Verb::Serve(options) => serve::main(options),
        Verb::Box(options) => langbot::main(options),
        Verb::Config(verb) => config::main(verb),
        Verb::Token(verb) => token::main(verb),
        Verb::Audit(verb) => audit::main(verb),
        Verb::Exec(options) => client::exec::main(options),
        Verb::Shell(options) => client::shell::main(options),
        Verb::Session(verb) => client::session::main(verb),
        Verb::Ps(options) => client::ps::main(options),
        Verb::Process(verb) => client::process::main(verb),
        Verb::Logs(options) => client::logs::main(options),
        Verb::Attach(options) => client::attach::main(options),
        Verb::Cp(options) => client::cp::main(options),
        Verb::Ls(options) => client::ls::main(options),
        Verb::PortForward(options) => client::port_forward::main(options),
        Verb::Skill(verb) => client::skill::main(verb),
        Verb::Mcp(verb) => client::mcp::main(verb),
        Verb::Status(options) => client::status::main(options),
        Verb::Errors(options) => client::errors::main(options),
        Verb::Completions { shell } => completions(*shell),
    }
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
    clap_complete::generate(shell, &mut help::command(), "strongbox", &mut script);
    listing::write_out(&script)
}

/// A runtime without a thread pool: one command needs none, and starting one would be paid by every command.
fn runtime() -> Result<tokio::runtime::Runtime, Fault> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| Fault::new(format!("the runtime cannot be started: {error}")))
}
