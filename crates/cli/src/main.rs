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

use clap::{Args, FromArgMatches};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use crate::exit::EXIT_OWN_ERROR;
use crate::fault::Fault;
use crate::options::{Cli, RunOptions, Verb};

fn main() -> ExitCode {
    match typed() {
        Ok(verb) => ExitCode::from(obey(&verb).unwrap_or_else(|fault| fault.report())),
        Err(error) => usage(&error),
    }
}

fn typed() -> Result<Verb, clap::Error> {
    if let Some(options) = typed_run() {
        return Ok(Verb::Run(Box::new(options)));
    }
    let matches = help::command().try_get_matches()?;
    Cli::from_arg_matches(&matches).map(|cli| cli.verb)
}

/// The options of `strongbox run`, read without building the parser of all other commands, which takes longer than the reading. What
/// cannot be read this way is read, and explained, by the whole parser.
fn typed_run() -> Option<RunOptions> {
    let typed: Vec<_> = std::env::args_os().skip(1).collect();
    typed.first().filter(|verb| *verb == "run")?;
    let matches = RunOptions::augment_args(clap::Command::new("run")).try_get_matches_from(typed).ok()?;
    RunOptions::from_arg_matches(&matches).ok()
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
        Verb::Code(options) => client::code::main(options),
        Verb::Shell(options) => client::shell::main(options),
        Verb::Session(verb) => client::session::main(verb),
        Verb::Snapshot(verb) => client::snapshot::main(verb),
        Verb::Fork(options) => client::fork::main(options),
        Verb::Template(verb) => client::template::main(verb),
        Verb::Ps(options) => client::ps::main(options),
        Verb::Process(verb) => client::process::main(verb),
        Verb::Logs(options) => client::logs::main(options),
        Verb::Kill(options) => client::kill::main(options),
        Verb::Attach(options) => client::attach::main(options),
        Verb::Cp(options) => client::cp::main(options),
        Verb::Ls(options) => client::ls::main(options),
        Verb::PortForward(options) => client::port_forward::main(options),
        Verb::Skill(verb) => client::skill::main(verb),
        Verb::Volume(verb) => client::volume::main(verb),
        Verb::E2b(verb) => client::e2b::main(verb),
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
        let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        let hint = docker_habit(error).map(|hint| format!("\n\nhint: {hint}")).unwrap_or_default();
        fault::say(&format!("{text}{hint}"));
        return ExitCode::from(EXIT_OWN_ERROR);
    }
    // A reader that has gone away has no use for the text either.
    drop(error.print());
    ExitCode::SUCCESS
}

/// What stands here for an option that Docker has and we have not.
fn docker_habit(error: &clap::Error) -> Option<&'static str> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    Some(match option.as_str() {
        "-v" | "--volume" => {
            "use --mount SRC:DST[:ro|rw], or --workspace DIR to work on a directory; sessions of a server also take --volume NAME:PATH"
        }
        "-p" | "--publish" => "no port needs to be published: `strongbox port-forward SESSION PORT` reaches one",
        "--rm" => "leave it out: `strongbox run` always removes its box, and `strongbox exec` keeps it",
        _ => return None,
    })
}

/// Logs only when asked: a command's own standard error must stay its own.
fn start_log() {
    if let Ok(filter) = std::env::var("STRONGBOX_LOG") {
        // What cannot be read lets errors through, and a command goes on.
        let filter = filter.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::ERROR));
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(filter);
        tracing_subscriber::registry().with(lines).init();
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
