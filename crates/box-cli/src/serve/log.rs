//! The server's log: one line for each thing that happened, on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::fault::Fault;

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people; in colour on a terminal.
    Text,
    /// For programs.
    Json,
}

/// Starts to log what the filter lets through.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<(), Fault> {
    let refused = |error: &dyn std::fmt::Display| Fault::new(format!("the log cannot be started: {error}"));
    let filter = EnvFilter::try_new(filter).map_err(|error| refused(&error))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => log.json().flatten_event(true).try_init(),
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    started.map_err(|error| refused(&error))
}
