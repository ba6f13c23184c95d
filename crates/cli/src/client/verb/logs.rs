//! `strongbox logs`: what a command or managed process wrote.

use box_core::call::{Cursor, StreamName, Target};
use bytes::Bytes;
use clap::Args;
use tokio::io::AsyncWriteExt;

use crate::client::http::{Client, session_path};
use crate::client::live::{self, Finish, Manner, Meant, ShownStreams, Start};
use crate::client::{ServerOptions, ask, ending, tail, targets};
use crate::exit::EXIT_OUTPUT_CLOSED;
use crate::fault::{self, Fault};
use crate::stdio::{Input, Output};

/// Bytes that are asked for at once.
const PAGE_BYTES: usize = 1 << 20;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  What the last command wrote, all of it, and its last lines only:
    strongbox logs demo
    strongbox logs --tail 20 demo
  Follow a managed process, and go on where you were after an interruption:
    strongbox logs -f tools web
    strongbox logs -f --since-cursor 0.5120.0 tools web

Standard output and standard error of the command come out on the same streams of ours. Following
ends when the command does, with its exit code, or with Ctrl-C.")]
pub(crate) struct LogsOptions {
    /// The session
    session: String,
    /// A managed process or a command, by its id; else what was started last
    #[arg(value_name = "EXEC|PROCESS")]
    name: Option<String>,
    /// Go on with what comes until it ends
    #[arg(short, long)]
    follow: bool,
    /// Only standard error, on our standard output
    #[arg(long)]
    stderr: bool,
    /// Only the last lines of each stream, and with -f what comes after them
    #[arg(short = 'n', long, value_name = "LINES", conflicts_with = "since_cursor")]
    tail: Option<u64>,
    /// Only what came after this place: run.stdout.stderr, in bytes
    #[arg(long, value_name = "CURSOR")]
    since_cursor: Option<Cursor>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Shows the output and gives the exit code.
pub(crate) fn main(options: &LogsOptions) -> Result<u8, Fault> {
    ask(&options.server, async |client| {
        let target = targets::find(client, &options.session, options.name.as_deref()).await?;
        let from = match options.tail {
            Some(lines) => from_tail(client, options, &target, lines).await?,
            None => options.since_cursor.unwrap_or_default(),
        };
        if options.follow {
            follow(client, options, target, from).await
        } else {
            read(client, options, &target, from).await
        }
    })
}

/// Where the last lines of both streams begin.
async fn from_tail(client: &Client, options: &LogsOptions, target: &Target, lines: u64) -> Result<Cursor, Fault> {
    let run = match target {
        Target::Exec(_) => 0,
        // Positions count within one run of a process; the cursor names that run.
        Target::Process(id) => {
            let processes = targets::processes(client, &options.session).await?;
            let process = processes.into_iter().find(|process| process.id == id.as_str());
            let cursor = process.and_then(|process| process.cursor).and_then(|cursor| cursor.parse::<Cursor>().ok());
            cursor.unwrap_or_default().run
        }
    };
    let of = async |stream| tail::start(client, &path(&options.session, target, stream), lines).await;
    Ok(Cursor { run, stdout: of(StreamName::Stdout).await?, stderr: of(StreamName::Stderr).await? })
}

async fn follow(client: &Client, options: &LogsOptions, target: Target, from: Cursor) -> Result<u8, Fault> {
    let manner = Manner {
        stdin: Input::Silent,
        shown: if options.stderr { ShownStreams::OnlyError } else { ShownStreams::Both },
        tells_size: false,
        detach_key: None,
        signals: Meant::Us,
    };
    let start = Start::Attach(target, from);
    let finish = live::converse(client, &options.session, start, manner).await?;
    Ok(match finish {
        Finish::Ended(info) => ending::exit_code(&info),
        other => ending::report(&other),
    })
}

/// Everything that is kept, one stream after the other.
async fn read(client: &Client, options: &LogsOptions, target: &Target, from: Cursor) -> Result<u8, Fault> {
    let mut streams =
        vec![(StreamName::Stderr, from.stderr, if options.stderr { Output::stdout() } else { Output::stderr() })];
    if !options.stderr {
        streams.insert(0, (StreamName::Stdout, from.stdout, Output::stdout()));
    }
    for (stream, from, mut output) in streams {
        if !copy(client, &path(&options.session, target, stream), from, &mut output).await? {
            return Ok(EXIT_OUTPUT_CLOSED);
        }
    }
    Ok(0)
}

fn path(session: &str, target: &Target, stream: StreamName) -> String {
    let path = match target {
        Target::Exec(exec) => session_path(session, &["execs", exec.as_str(), "output"]),
        Target::Process(process) => session_path(session, &["processes", process.as_str(), "output"]),
    };
    let stream = match stream {
        StreamName::Stdout => "stdout",
        StreamName::Stderr => "stderr",
    };
    format!("{path}?stream={stream}")
}

/// Copies a stream page by page; false when whoever reads us has gone away.
async fn copy(client: &Client, path: &str, mut from: u64, output: &mut Output) -> Result<bool, Fault> {
    loop {
        let answer = client.get(&format!("{path}&max={PAGE_BYTES}&from={from}")).await?;
        let number = |name: &str| answer.header(name).and_then(|value| value.parse::<u64>().ok());
        if let Some(missing) = number("strongbox-gap") {
            fault::say(&format!("{missing} bytes are not kept any more and were left out"));
        }
        if answer.body.is_empty() {
            return Ok(true);
        }
        from = number("strongbox-offset").unwrap_or(from) + answer.body.len() as u64;
        if write(output, &answer.body).await.is_err() {
            return Ok(false);
        }
    }
}

async fn write(output: &mut Output, bytes: &Bytes) -> std::io::Result<()> {
    output.write_all(bytes).await?;
    output.flush().await
}
