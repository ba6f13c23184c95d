//! `strongbox mcp add`.

use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::definition::{DefinitionOptions, missing};
use super::test::EXIT_NOT_WORKING;
use super::{Runtime, server_path};
use crate::client::http::Client;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::visible;

/// How often a server that is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

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

  Wait until it answers:
    strongbox mcp add time --wait -- uvx mcp-server-time

It is started at once. With --wait, the exit code is 1 when it does not work; it stays defined then,
and standard error says why. Without, `strongbox mcp show NAME` says how it stands.")]
pub(crate) struct AddOptions {
    /// What to call it: up to 64 letters, digits, - and _, without __
    name: String,
    /// Define it without letting it run
    #[arg(long)]
    disabled: bool,
    /// Wait until it answers, or has failed for good
    #[arg(long, conflicts_with = "disabled")]
    wait: bool,
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
    let server = ask(&options.server, async |client| {
        let server = patiently("adding", client.put(&path, &definition)).await?.json()?;
        if options.wait { patiently("starting", settled(client, &path, server)).await } else { Ok(server) }
    })?;
    if options.wait {
        works(&server)?;
    }
    if options.format.json {
        return listing::write_json(&server);
    }
    listing::write_out(format!("{}\n", visible(&options.name)).as_bytes())
}

/// Waits until a server answers or has failed for good. How long it may take is in its definition.
async fn settled(client: &Client, path: &str, mut server: Value) -> Result<Value, Fault> {
    while server["status"] == "connecting" {
        tokio::time::sleep(LOOK_EVERY).await;
        server = client.get(path).await?.json()?;
    }
    Ok(server)
}

/// Refuses a server that does not answer.
fn works(server: &Value) -> Result<(), Fault> {
    if server["status"] == "connected" {
        return Ok(());
    }
    let runtime: Runtime = serde_json::from_value(server["runtime_info"].clone()).unwrap_or_default();
    let name = visible(server["name"].as_str().unwrap_or_default());
    let mut fault = Fault::new(format!("the MCP server {name} does not work: {}", visible(&runtime.problem())));
    fault.exit_code = EXIT_NOT_WORKING;
    Err(fault.hint(format!("`strongbox mcp logs {name}` has more; it stays defined")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_mcp_server_that_is_waited_for_and_fails_says_why() {
        assert!(works(&json!({ "name": "time", "status": "connected", "runtime_info": {} })).is_ok());
        let runtime = json!({ "error_phase": "dep_install", "error_message": "no such package" });
        let fault = works(&json!({ "name": "time", "status": "error", "runtime_info": runtime })).unwrap_err();
        assert_eq!(fault.message, "the MCP server time does not work: dep_install: no such package");
        assert_eq!(fault.exit_code, EXIT_NOT_WORKING);
    }
}
