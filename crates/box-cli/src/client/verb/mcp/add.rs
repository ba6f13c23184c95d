//! `strongbox mcp add`.

use clap::Args;

use super::definition::{DefinitionOptions, missing};
use super::server_path;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  A server from a package registry, with its dependencies, in a box:
    strongbox mcp add time -- uvx mcp-server-time
    strongbox mcp add everything -- npx -y @modelcontextprotocol/server-everything
  One that sees a directory:
    strongbox mcp add notes --host-path ~/notes --host-path-mode rw -- uvx my-notes /workspace
  A project of this machine; its directory is found by its interpreter:
    strongbox mcp add own -- /srv/own/.venv/bin/python /srv/own/server.py
  With a secret that is in no list of processes:
    API_KEY=… strongbox mcp add search -e API_KEY -- uvx mcp-server-search
  A remote one:
    export MCP_AUTH='Bearer …'
    strongbox mcp add docs --remote https://a.example/mcp --header-from Authorization=MCP_AUTH

It is started at once and not waited for; `strongbox mcp show NAME` says how it stands.")]
pub(crate) struct AddOptions {
    /// What to call it: up to 64 letters, digits, - and _, without __
    name: String,
    /// Define it without letting it run
    #[arg(long)]
    disabled: bool,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    definition: DefinitionOptions,
    #[command(flatten)]
    server: ServerOptions,
}

/// Defines a server, and writes its name.
pub(crate) fn main(options: &AddOptions) -> Result<u8, Fault> {
    let mut definition = options.definition.definition()?.ok_or_else(missing)?;
    if options.disabled {
        definition["enabled"] = false.into();
    }
    let path = server_path(&options.name, "");
    let server = ask(&options.server, async |client| patiently("adding", client.put(&path, &definition)).await)?;
    if options.format.json {
        return listing::write_json(&server.json()?);
    }
    listing::write_out(format!("{}\n", crate::table::visible(&options.name)).as_bytes())
}
