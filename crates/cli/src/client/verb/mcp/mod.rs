//! `strongbox mcp`: MCP servers that a server runs in boxes, or reaches elsewhere.

mod add;
mod approve;
mod call;
mod definition;
mod import;
mod logs;
mod ls;
mod many;
mod show;
mod test;

use clap::Subcommand;
use serde::Deserialize;

use self::many::{Act, ManyOptions};
use crate::client::http::encoded;
use crate::fault::Fault;

/// What can be done with MCP servers.
#[derive(Debug, Subcommand)]
pub(crate) enum McpVerb {
    /// Define a server, or define one anew: a program for a box, or a remote one
    #[command(override_usage = "strongbox mcp add [OPTIONS] NAME -- CMD [ARGS]...\n       \
            strongbox mcp add [OPTIONS] NAME --remote URL")]
    Add(Box<add::AddOptions>),
    /// Let clients see tools of a server that are held, because they are new or have changed
    Approve(approve::ApproveOptions),
    /// Call a tool of a server and write its result; exits with 1 when the tool says that it failed
    Call(call::CallOptions),
    /// List servers
    Ls(ls::LsOptions),
    /// Show one server: how it stands, what went wrong, and its definition without secrets
    Show(show::ShowOptions),
    /// Try a server in a box of its own, and say what it has; exits with 1 when it does not work
    #[command(override_usage = "strongbox mcp test [OPTIONS] NAME\n       \
            strongbox mcp test [OPTIONS] -- CMD [ARGS]...\n       \
            strongbox mcp test [OPTIONS] --remote URL")]
    Test(Box<test::TestOptions>),
    /// Show what a server said, and what was said about it
    Logs(logs::LogsOptions),
    /// End servers and start them anew
    #[command(after_help = "\
Examples:
  strongbox mcp restart time")]
    Restart(ManyOptions),
    /// Let servers run that were disabled
    #[command(after_help = "\
Examples:
  strongbox mcp enable time")]
    Enable(ManyOptions),
    /// End servers and keep their definitions
    #[command(after_help = "\
Examples:
  strongbox mcp disable time")]
    Disable(ManyOptions),
    /// End servers and forget them
    #[command(after_help = "\
Examples:
  strongbox mcp rm time
  strongbox mcp ls --json | jq -r '.[] | select(.source == \"stored\").name' | xargs -r strongbox mcp rm")]
    Rm(ManyOptions),
    /// Give a desktop client a computer in a box, over standard input and output; needs no server and no configuration
    Serve(crate::serve::desktop::DesktopOptions),
    /// Define all servers of a desktop client's configuration
    Import(import::ImportOptions),
}

/// Carries one out.
pub(crate) fn main(verb: &McpVerb) -> Result<u8, Fault> {
    match verb {
        McpVerb::Add(options) => add::main(options),
        McpVerb::Approve(options) => approve::main(options),
        McpVerb::Call(options) => call::main(options),
        McpVerb::Ls(options) => ls::main(options),
        McpVerb::Show(options) => show::main(options),
        McpVerb::Test(options) => test::main(options),
        McpVerb::Logs(options) => logs::main(options),
        McpVerb::Restart(options) => many::main(options, Act::Restart),
        McpVerb::Enable(options) => many::main(options, Act::Enable),
        McpVerb::Disable(options) => many::main(options, Act::Disable),
        McpVerb::Rm(options) => many::main(options, Act::Remove),
        McpVerb::Serve(options) => crate::serve::desktop::main(options),
        McpVerb::Import(options) => import::main(options),
    }
}

/// What is read of the life of a server.
#[derive(Debug, Default, Deserialize)]
struct Runtime {
    error_phase: Option<String>,
    error_message: Option<String>,
    #[serde(default)]
    stderr_tail: Vec<String>,
    #[serde(default)]
    held_tools: Vec<HeldTool>,
}

/// A tool that waits for approval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct HeldTool {
    name: String,
    change: String,
    description: String,
    fingerprint: String,
}

impl Runtime {
    /// Where it went wrong and what happened; blank where nothing did.
    fn problem(&self) -> String {
        match (&self.error_phase, &self.error_message) {
            (Some(phase), Some(message)) => format!("{phase}: {message}"),
            (Some(text), None) | (None, Some(text)) => text.clone(),
            (None, None) => String::new(),
        }
    }
}

/// The path of a server, or of something of it.
fn server_path(name: &str, rest: &str) -> String {
    format!("/v1/mcp/servers/{}{rest}", encoded(name))
}
