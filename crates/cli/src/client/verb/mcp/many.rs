//! `strongbox mcp rm`, `restart`, `enable` and `disable`: one thing, done to many servers.

use clap::Args;
use serde_json::json;

use super::server_path;
use crate::client::http::Client;
use crate::client::{ServerOptions, ask, patiently};
use crate::exit::EXIT_OWN_ERROR;
use crate::fault::Fault;
use crate::listing;
use crate::table::visible;

/// What can be typed.
#[derive(Debug, Args)]
pub(crate) struct ManyOptions {
    /// The servers
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    server: ServerOptions,
}

/// What is done.
#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    /// They are forgotten.
    Remove,
    /// They are started anew.
    Restart,
    /// They may run.
    Enable,
    /// They may not.
    Disable,
}

/// Does it to each, whatever comes of the others, and writes the names of those where it worked.
pub(super) fn main(options: &ManyOptions, act: Act) -> Result<u8, Fault> {
    ask(&options.server, async |client| {
        let mut exit_code = 0;
        for name in &options.names {
            match patiently(name, one(client, name, act)).await {
                Ok(()) => drop(listing::write_out(format!("{}\n", visible(name)).as_bytes())?),
                Err(fault) if fault.code == "unreachable" => return Err(fault),
                Err(fault) => {
                    fault.report();
                    exit_code = EXIT_OWN_ERROR;
                }
            }
        }
        Ok(exit_code)
    })
}

async fn one(client: &Client, name: &str, act: Act) -> Result<(), Fault> {
    match act {
        Act::Remove => client.delete(&server_path(name, "")).await,
        Act::Restart => client.post(&server_path(name, "/restart"), &json!({})).await,
        Act::Enable => client.post(&server_path(name, "/enable"), &json!({})).await,
        Act::Disable => client.post(&server_path(name, "/disable"), &json!({})).await,
    }?;
    Ok(())
}
