//! `strongbox mcp approve`.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use super::{HeldTool, Runtime, server_path};
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::{Table, visible};

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox mcp show time
  strongbox mcp approve time get_current_time
  strongbox mcp approve time

A server with pin_tools shows the tools that it had when it was first connected. Those that are new
or described differently are held until they are approved here. What is approved is written, with
what the server says of it; a tool that changes in between stays held.")]
pub(crate) struct ApproveOptions {
    /// The server
    name: String,
    /// Tools that are held; all of them, unless some are named
    #[arg(value_name = "TOOL")]
    tools: Vec<String>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

/// Approves tools as they are described now, and prints their names.
pub(crate) fn main(options: &ApproveOptions) -> Result<u8, Fault> {
    let path = server_path(&options.name, "");
    let (approved, server) = ask(&options.server, async |client| {
        let shown = patiently("asking", client.get(&path)).await?.json()?;
        let runtime: Runtime = serde_json::from_value(shown["runtime_info"].clone()).unwrap_or_default();
        let chosen = choose(&runtime.held_tools, &options.tools)?;
        let prints: BTreeMap<&str, &str> = chosen.iter().map(|tool| (&*tool.name, &*tool.fingerprint)).collect();
        let approve = server_path(&options.name, "/approve");
        let server: Value = patiently("approving", client.post(&approve, &json!({ "tools": prints }))).await?.json()?;
        Ok((chosen, server))
    })?;
    if options.format.json {
        return listing::write_json(&server);
    }
    let mut table = Table::new(&["TOOL", "WAS", "DESCRIPTION"]);
    for tool in approved {
        table.row([tool.name, tool.change, tool.description]);
    }
    listing::write_out(table.render().as_bytes())
}

/// The held tools of these names, or all. A name that is not held is refused: it may be misspelled.
fn choose(held: &[HeldTool], names: &[String]) -> Result<Vec<HeldTool>, Fault> {
    let find = |name: &String| {
        let found = held.iter().find(|tool| tool.name == *name).cloned();
        found.ok_or_else(|| {
            let known: Vec<_> = held.iter().map(|tool| visible(&tool.name).clone()).collect();
            let known = if known.is_empty() { "none is".to_owned() } else { known.join(", ") };
            Fault::new(format!("the tool {} is not held; held: {known}", visible(name)))
        })
    };
    if names.is_empty() { Ok(held.to_vec()) } else { names.iter().map(find).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tools_that_are_held_are_approved() {
        let held = |name: &str| HeldTool { name: name.to_owned(), ..HeldTool::default() };
        let all = [held("a"), held("b")];
        assert_eq!(choose(&all, &[]).unwrap(), all);
        assert_eq!(choose(&all, &["b".to_owned()]).unwrap(), [held("b")]);
        let refused = choose(&all, &["c".to_owned()]).unwrap_err();
        assert_eq!(refused.message, "the tool c is not held; held: a, b");
    }
}
