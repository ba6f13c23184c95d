//! `strongbox attach`: our streams become those of a managed process that runs.

use box_core::call::{Cursor, Target};
use clap::Args;

use crate::client::http::session_path;
use crate::client::live::{self, Manner, Meant, ShownStreams, Start};
use crate::client::targets::Process;
use crate::client::{ServerOptions, ask, ending};
use crate::fault::{self, Fault};
use crate::stdio::Input;
use crate::terminal::LineKey;

/// Ctrl-].
const DETACH_KEY: u8 = 0x1d;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  Talk to a server that speaks on its standard streams:
    strongbox process start tools -- my-mcp-server; strongbox attach tools
  Only watch, from the start:
    strongbox attach tools --no-stdin --since-cursor 0.0.0

Ctrl-] detaches on a terminal, Ctrl-C everywhere; the process goes on. The end of the input (Ctrl-D)
is passed on as the end of its input.
Exit codes: 0 after detaching, else those of `run`; `strongbox --help` lists them.")]
pub(crate) struct AttachOptions {
    /// The session
    session: String,
    /// The managed process
    #[arg(default_value = "default")]
    process: String,
    /// Only show its output
    #[arg(long)]
    no_stdin: bool,
    /// Show what came after this place, as `strongbox process show` tells it; else only what is new
    #[arg(long, value_name = "CURSOR")]
    since_cursor: Option<Cursor>,
    #[command(flatten)]
    server: ServerOptions,
}

/// Attaches until the process ends or the caller has enough.
pub(crate) fn main(options: &AttachOptions) -> Result<u8, Fault> {
    let target = Target::Process(options.process.parse()?);
    let finish = ask(&options.server, async |client| {
        let process: Process =
            client.get(&session_path(&options.session, &["processes", &options.process])).await?.read()?;
        let now = process.cursor.as_deref().map(str::parse).transpose()?;
        let cursor = options.since_cursor.or(now).unwrap_or_default();
        // The terminal keeps editing lines, because the process has none of its own; only one more key ends a line.
        let key = if options.no_stdin { None } else { LineKey::enter(DETACH_KEY) };
        if key.is_some() {
            fault::say(&format!("attached to {}; Ctrl-] detaches", options.process));
        }
        let manner = Manner {
            stdin: if options.no_stdin { Input::Silent } else { Input::stdin() },
            shown: ShownStreams::Both,
            tells_size: false,
            detach_key: key.is_some().then_some(DETACH_KEY),
            signals: Meant::Us,
        };
        live::converse(client, &options.session, Start::Attach(target, cursor), manner).await
    })?;
    Ok(ending::report(&finish))
}
