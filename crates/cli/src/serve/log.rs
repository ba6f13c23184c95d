//! The server's log: one line for each thing that happened, on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use super::dropping::Dropping;
use crate::config::{Origin, Settings};
use crate::fault::Fault;

/// What speaks MCP logs whole messages, and these hold what callers and servers say to each other.
const QUIET: &str = "rmcp";

/// What is logged to a terminal where the operator set nothing: a line per request would bury the banner.
const ON_TERMINAL: &str = "warn,strongbox=info";

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people; in colour on a terminal.
    Text,
    /// For programs.
    Json,
}

/// The filter of a server's log. What the operator set holds everywhere.
fn filter_for<'a>(settings: &Settings, configured: &'a str, is_terminal: bool) -> &'a str {
    let is_default = settings.get("log").is_none_or(|setting| setting.origin == Origin::Default);
    if is_terminal && is_default { ON_TERMINAL } else { configured }
}

/// Starts to log what the settings let through.
pub(super) fn start(settings: &Settings, configured: &str, format: LogFormat) -> Result<(), Fault> {
    let filter = filter_for(settings, configured, std::io::stderr().is_terminal());
    let (filter, lines) = (read(filter)?, tracing_subscriber::fmt::layer().with_writer(std::io::stderr));
    let lines = match format {
        LogFormat::Json => lines.json().flatten_event(true).with_filter(filter).boxed(),
        LogFormat::Text => lines.with_ansi(std::io::stderr().is_terminal()).with_filter(filter).boxed(),
    };
    tracing_subscriber::registry().with(lines).try_init().map_err(|error| refused(&error))
}

/// As [`start`], for a server whose standard error may be a pipe that nobody reads: rather than wait, lines are dropped. Words of
/// a panic go the same way. What is returned is asked at the end to write what it has.
pub(crate) fn start_dropping(settings: &Settings, configured: &str) -> Result<Dropping, Fault> {
    let is_terminal = std::io::stderr().is_terminal();
    let filter = filter_for(settings, configured, is_terminal);
    let dropping = Dropping::to(std::io::stderr()).map_err(|error| refused(&error))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(dropping.clone());
    let lines = lines.with_ansi(is_terminal).with_filter(read(filter)?);
    tracing_subscriber::registry().with(lines).try_init().map_err(|error| refused(&error))?;
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a thread panicked")));
    Ok(dropping)
}

fn read(filter: &str) -> Result<Targets, Fault> {
    let asked: Targets = filter.parse().map_err(|error| refused(&error))?;
    let loud = asked.iter().filter(|(target, _)| !target.starts_with(QUIET));
    let loud: Vec<_> = loud.map(|(target, level)| (target.to_owned(), level)).collect();
    let default = asked.default_level().unwrap_or(LevelFilter::OFF);
    Ok(Targets::new().with_default(default).with_targets(loud).with_target(QUIET, LevelFilter::WARN))
}

fn refused(error: &dyn std::fmt::Display) -> Fault {
    Fault::new(format!("the log cannot be started: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    #[test]
    fn a_terminal_gets_no_line_per_request_unless_the_operator_asks() {
        let chosen = |variables: &[(&str, &str)], is_terminal| {
            let settings = Settings::load(None, &Environment::of(variables), &[]).unwrap();
            let configured = settings.config().unwrap().log;
            read(filter_for(&settings, &configured, is_terminal)).unwrap()
        };
        let shows_requests = |filter: &Targets| filter.would_enable("door_http::observe", &tracing::Level::INFO);
        let quiet = chosen(&[], true);
        assert!(!shows_requests(&quiet));
        assert!(quiet.would_enable("door_http::observe", &tracing::Level::WARN));
        assert!(quiet.would_enable("strongbox::serve::server", &tracing::Level::INFO), "how it stops is shown");
        assert!(shows_requests(&chosen(&[], false)), "a file or a supervisor gets everything");
        assert!(shows_requests(&chosen(&[("STRONGBOX_LOG", "info")], true)));
    }

    #[test]
    fn what_is_said_over_mcp_is_not_logged_whatever_the_filter_says() {
        for filter in ["debug", "rmcp=trace", "info,rmcp=debug,rmcp::service=trace"] {
            let read = read(filter).unwrap();
            assert!(!read.would_enable("rmcp::service", &tracing::Level::INFO), "{filter}");
            assert!(read.would_enable("rmcp::service", &tracing::Level::WARN), "{filter}");
        }
        assert!(read("info,box_native=debug").unwrap().would_enable("box_native::spawn", &tracing::Level::DEBUG));
    }
}
