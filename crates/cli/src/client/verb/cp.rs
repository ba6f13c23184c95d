//! `strongbox cp`: files into a session and out of it.

mod download;
mod partial;
mod upload;

use clap::Args;

use crate::client::copy_endpoint::CopyEndpoint;
use crate::client::{ServerOptions, ask};
use crate::fault::Fault;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  A file into the workspace of a session, and back under another name:
    strongbox cp data.csv demo:
    strongbox cp demo:data.csv copy.csv
  Directories are copied with everything in them; /. at the end means what is in them:
    strongbox cp src demo:/workspace/project
    strongbox cp demo:/workspace/project/. .
  By way of a pipe; a directory comes as a tar archive:
    strongbox cp demo:/workspace - | tar t
  Go on with a download that broke off:
    strongbox cp --continue demo:/workspace/large.bin .

A path without a slash at its start is below the session's workspace. A copy into a directory that
exists gets the name of its source. What starts with / or . is always a path of this machine.
A box can put anything into an archive: only files and directories are made of it, below the
target; links and special files are left out and counted. Files that are there are replaced.
A file arrives as NAME.part, and becomes NAME when all of it is there. With --continue an upload
goes on behind what is in the session, and is no longer all or nothing.")]
pub(crate) struct CpOptions {
    /// From where: a path, SESSION:PATH, or - for standard input
    #[arg(value_name = "SRC")]
    source: CopyEndpoint,
    /// To where: a path, SESSION:PATH, or - for standard output
    #[arg(value_name = "DST")]
    target: CopyEndpoint,
    /// Go on with a file of which a part is there already
    #[arg(long = "continue")]
    go_on: bool,
    #[command(flatten)]
    server: ServerOptions,
}

/// Copies and gives the exit code.
pub(crate) fn main(options: &CpOptions) -> Result<u8, Fault> {
    let go_on = options.go_on;
    match (&options.source, &options.target) {
        (CopyEndpoint::Stream, _) | (_, CopyEndpoint::Stream) if go_on => {
            Err(Fault::new("--continue needs a file on both sides, and - is none"))
        }
        (CopyEndpoint::Boxed(from), CopyEndpoint::Local(to)) => {
            ask(&options.server, async |client| download::to_path(client, from, to, go_on).await)
        }
        (CopyEndpoint::Boxed(from), CopyEndpoint::Stream) => {
            ask(&options.server, async |client| download::to_stream(client, from).await)
        }
        (CopyEndpoint::Local(from), CopyEndpoint::Boxed(to)) => {
            ask(&options.server, async |client| upload::of_path(client, from, to, go_on).await)
        }
        (CopyEndpoint::Stream, CopyEndpoint::Boxed(to)) => {
            ask(&options.server, async |client| upload::of_stream(client, to).await)
        }
        _ => Err(Fault::new("one side must be SESSION:PATH, and the other a path of this machine or -")
            .hint("to copy between sessions, use a pipe: strongbox cp one:/a - | strongbox cp - two:/a")),
    }
}
