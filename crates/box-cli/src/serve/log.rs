//! The server's log: one line for each thing that happened, on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use super::dropping::Dropping;
use crate::fault::Fault;

/// What speaks MCP logs whole messages, and these hold what callers and servers say to each other.
const QUIET: &str = "rmcp=warn";

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
    let log = tracing_subscriber::fmt().with_env_filter(read(filter)?).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => log.json().flatten_event(true).try_init(),
        LogFormat::Text => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    started.map_err(|error| refused(&error))
}

/// As [`start`], for a server whose standard error may be a pipe that nobody reads: rather than wait, lines are dropped. Words of
/// a panic go the same way. What is returned is asked at the end to write what it has.
pub(crate) fn start_dropping(filter: &str) -> Result<Dropping, Fault> {
    let dropping = Dropping::to(std::io::stderr()).map_err(|error| refused(&error))?;
    let log = tracing_subscriber::fmt().with_env_filter(read(filter)?).with_writer(dropping.clone());
    log.with_ansi(std::io::stderr().is_terminal()).try_init().map_err(|error| refused(&error))?;
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a thread panicked")));
    Ok(dropping)
}

fn read(filter: &str) -> Result<EnvFilter, Fault> {
    let quiet = QUIET.parse().map_err(|error| refused(&error))?;
    Ok(EnvFilter::try_new(filter).map_err(|error| refused(&error))?.add_directive(quiet))
}

fn refused(error: &dyn std::fmt::Display) -> Fault {
    Fault::new(format!("the log cannot be started: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_over_mcp_is_not_logged_whatever_the_filter_says() {
        for filter in ["debug", "rmcp=trace", "info,rmcp=debug"] {
            assert!(read(filter).unwrap().to_string().contains(QUIET), "{filter}");
        }
    }
}
