//! `strongbox mcp logs`.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;

use super::server_path;
use crate::client::http::Client;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::visible;

/// How often a log that is followed is asked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Lines that are asked for each time: more than come in between.
const FOLLOWED_LINES: usize = 1000;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox mcp logs time
  strongbox mcp logs -f time
  strongbox mcp logs time -n 1000 --json | jq -r '.lines[] | select(.source == \"install\").text'

Each line begins with who says it: the keeper, which starts and watches the server; the
installation of what it depends on; or its standard error.")]
pub(crate) struct LogsOptions {
    /// The server
    name: String,
    /// At most this many lines, the newest; up to 5000
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = box_core::limits::MCP_LOG_LINES)]
    lines: usize,
    /// Go on with what comes, until Ctrl-C
    #[arg(short, long, conflicts_with = "json")]
    follow: bool,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Deserialize)]
struct Log {
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Line {
    source: String,
    text: String,
}

/// Shows the log of a server.
pub(crate) fn main(options: &LogsOptions) -> Result<u8, Fault> {
    if options.follow {
        return ask(&options.server, async |client| follow(client, options).await);
    }
    let path = server_path(&options.name, &format!("/logs?lines={}", options.lines));
    let answer = ask(&options.server, async |client| patiently("asking", client.get(&path)).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    let log: Log = answer.read()?;
    listing::write_out(as_text(&log.lines).as_bytes())
}

/// Shows the log and what comes after it. Ends when the server cannot be asked any more, or nothing reads what is written.
async fn follow(client: &Client, options: &LogsOptions) -> Result<u8, Fault> {
    let path = server_path(&options.name, &format!("/logs?lines={}", options.lines.max(FOLLOWED_LINES)));
    let mut shown = PrintedLines::default();
    let mut skipped = None;
    loop {
        let log: Log = client.get(&path).await?.read()?;
        let new = shown.see(log.lines);
        // Of what was there at first, only as much is shown as was asked for.
        let skip = *skipped.get_or_insert_with(|| new.len().saturating_sub(options.lines));
        let ending = listing::write_out(as_text(new.get(skip..).unwrap_or_default()).as_bytes())?;
        if ending != 0 {
            return Ok(ending);
        }
        skipped = Some(0);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What was shown so far. Standard error is apart from the rest: each of the two only grows at its end.
#[derive(Debug, Default)]
struct PrintedLines {
    about: Vec<Line>,
    stderr: Vec<Line>,
}

impl PrintedLines {
    /// Takes over a log and returns the lines of it that are new.
    fn see(&mut self, lines: Vec<Line>) -> Vec<Line> {
        let (stderr, about): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line.source == "stderr");
        let mut new = Vec::new();
        for (before, now) in [(&mut self.about, about), (&mut self.stderr, stderr)] {
            if now.is_empty() {
                // There was no room for it, or a new process has not said anything yet.
                continue;
            }
            new.extend_from_slice(&now[known(before, &now)..]);
            *before = now;
        }
        new
    }
}

/// How many lines at the start of a log were there already. Old ones may be gone, and the last one may have grown.
fn known(before: &[Line], now: &[Line]) -> usize {
    let overlap = |before: &[Line]| {
        let same = (0..before.len()).find(|from| now.starts_with(&before[*from..]));
        same.map(|from| before.len() - from)
    };
    overlap(before).or_else(|| overlap(before.split_last()?.1)).unwrap_or(0)
}

fn as_text(lines: &[Line]) -> String {
    let line = |line: &Line| format!("{:7}  {}\n", visible(&line.source), visible(&line.text));
    lines.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_an_mcp_log_says_whose_it_is_and_steers_nothing() {
        let line = |source: &str, text: &str| Line { source: source.into(), text: text.into() };
        let lines = [line("install", "ready"), line("stderr", "\u{1b}[2J")];
        assert_eq!(as_text(&lines), "install  ready\nstderr   \\u{1b}[2J\n");
    }

    #[test]
    fn an_mcp_log_that_is_followed_shows_each_line_once() {
        let lines = |texts: &[(&str, &str)]| -> Vec<Line> {
            texts.iter().map(|(source, text)| Line { source: (*source).into(), text: (*text).into() }).collect()
        };
        let mut shown = PrintedLines::default();
        let mut see = |texts: &[(&str, &str)]| as_text(&shown.see(lines(texts)));
        assert_eq!(see(&[("keeper", "a"), ("stderr", "x")]), "keeper   a\nstderr   x\n");
        assert_eq!(see(&[("keeper", "a"), ("stderr", "x")]), "");
        assert_eq!(
            see(&[("keeper", "a"), ("keeper", "b"), ("stderr", "x"), ("stderr", "x")]),
            "keeper   b\nstderr   x\n"
        );
        assert_eq!(see(&[("stderr", "x"), ("stderr", "x"), ("stderr", "y")]), "stderr   y\n");
        assert_eq!(
            see(&[("keeper", "b"), ("keeper", "c"), ("stderr", "x"), ("stderr", "yz")]),
            "keeper   c\nstderr   yz\n"
        );
        assert_eq!(see(&[("stderr", "of another process")]), "stderr   of another process\n");
    }
}
