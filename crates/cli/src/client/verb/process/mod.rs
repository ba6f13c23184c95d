//! `strongbox process`: programs that live until they are stopped.

mod show;
mod start;
mod stop;

use clap::{Args, Subcommand};

use crate::client::ServerOptions;
use crate::fault::Fault;
use crate::options::JsonOption;

/// What can be done with managed processes.
#[derive(Debug, Subcommand)]
pub(crate) enum ProcessVerb {
    /// Start a process that lives until it is stopped, and outlives client and server
    Start(Box<start::StartOptions>),
    /// Stop a process: its input ends, then it is asked, then it is forced
    #[command(after_help = "\
Examples:
  strongbox process stop tools
  strongbox process stop tools web")]
    Stop(OneOptions),
    /// Show one process
    #[command(after_help = "\
Examples:
  strongbox process show tools
  strongbox process show tools web --json | jq -r .stderr_preview")]
    Show(OneOptions),
}

/// Which process.
#[derive(Debug, Args)]
pub(crate) struct OneOptions {
    /// The session
    session: String,
    /// The process
    #[arg(value_name = "PROCESS", default_value = "default")]
    process: String,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Carries one out.
pub(crate) fn main(verb: &ProcessVerb) -> Result<u8, Fault> {
    match verb {
        ProcessVerb::Start(options) => start::main(options),
        ProcessVerb::Stop(options) => stop::main(options),
        ProcessVerb::Show(options) => show::main(options),
    }
}
