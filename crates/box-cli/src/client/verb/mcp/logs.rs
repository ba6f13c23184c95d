//! `strongbox mcp logs`.

use clap::Args;
use serde::Deserialize;

use super::server_path;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::visible;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox mcp logs time
  strongbox mcp logs time -n 1000 --json | jq -r '.lines[] | select(.source == \"install\").text'

Each line begins with who says it: the keeper, which starts and watches the server; the
installation of what it depends on; or its standard error.")]
pub(crate) struct LogsOptions {
    /// The server
    name: String,
    /// At most this many lines, the newest; up to 5000
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = box_core::limits::MCP_LOG_LINES)]
    lines: usize,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Deserialize)]
struct Log {
    lines: Vec<Line>,
}

#[derive(Debug, Deserialize)]
struct Line {
    source: String,
    text: String,
}

/// Shows the log of a server.
pub(crate) fn main(options: &LogsOptions) -> Result<u8, Fault> {
    let path = server_path(&options.name, &format!("/logs?lines={}", options.lines));
    let answer = ask(&options.server, async |client| patiently("asking", client.get(&path)).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    let log: Log = answer.read()?;
    listing::write_out(as_text(&log).as_bytes())
}

fn as_text(log: &Log) -> String {
    let line = |line: &Line| format!("{:7}  {}\n", visible(&line.source), visible(&line.text));
    log.lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_an_mcp_log_says_whose_it_is_and_steers_nothing() {
        let line = |source: &str, text: &str| Line { source: source.into(), text: text.into() };
        let log = Log { lines: vec![line("install", "ready"), line("stderr", "\u{1b}[2J")] };
        assert_eq!(as_text(&log), "install  ready\nstderr   \\u{1b}[2J\n");
    }
}
