//! `strongbox mcp test`.

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use super::definition::{DefinitionOptions, missing};
use super::{Runtime, server_path, show};
use crate::client::http::{Answer, Client};
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::{Table, pairs};

/// Exit code for a server that does not work.
pub(super) const EXIT_NOT_WORKING: u8 = 1;

/// Characters of a description that a table shows.
const DESCRIPTION_CHARS: usize = 60;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  One that is defined; the one that runs is left alone:
    strongbox mcp test time
  One that is not, and is not kept:
    strongbox mcp test -- uvx mcp-server-time
    strongbox mcp test --remote https://docs.example/mcp")]
pub(crate) struct TestOptions {
    /// A server that is defined
    name: Option<String>,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    definition: DefinitionOptions,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Deserialize)]
struct Report {
    ok: bool,
    server_name: Option<String>,
    server_version: Option<String>,
    protocol_version: Option<String>,
    tools: Vec<Tool>,
    prompts: u64,
    resources: u64,
    duration_ms: u64,
    #[serde(default)]
    runtime_info: Runtime,
}

#[derive(Debug, Deserialize)]
struct Tool {
    name: String,
    description: String,
}

/// Tries a server, and says what it has or why it does not work.
pub(crate) fn main(options: &TestOptions) -> Result<u8, Fault> {
    let answer = ask(&options.server, async |client| patiently("trying", options.send(client)).await)?;
    let report: Report = answer.read()?;
    if options.format.json {
        listing::write_json(&answer.json()?)?;
    } else {
        listing::write_out(as_text(&report).as_bytes())?;
    }
    Ok(if report.ok { 0 } else { EXIT_NOT_WORKING })
}

impl TestOptions {
    async fn send(&self, client: &Client) -> Result<Answer, Fault> {
        match (&self.name, self.definition.definition()?) {
            (Some(name), None) => client.post(&server_path(name, "/test"), &json!({})).await,
            (None, Some(definition)) => client.post("/v1/mcp/test", &definition).await,
            (None, None) => Err(missing()),
            (Some(name), Some(_)) => Err(Fault::new(format!("{name} and a definition cannot be tried together"))
                .hint("give the name of a server that is defined, or a command after --, or --remote URL")),
        }
    }
}

fn as_text(report: &Report) -> String {
    let mut lines = vec![("works", if report.ok { "yes" } else { "no" }.to_owned())];
    let mut put = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    put("calls itself", report.server_name.clone());
    put("version", report.server_version.clone());
    put("protocol", report.protocol_version.clone());
    put("failed in", report.runtime_info.error_phase.clone());
    put("because", report.runtime_info.error_message.clone());
    put("prompts", report.ok.then(|| report.prompts.to_string()));
    put("resources", report.ok.then(|| report.resources.to_string()));
    put("took", Some(format!("{} ms", report.duration_ms)));
    format!("{}{}{}", pairs(&lines), tools(&report.tools), show::stderr(&report.runtime_info))
}

fn tools(tools: &[Tool]) -> String {
    if tools.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["TOOL", "DESCRIPTION"]);
    for tool in tools {
        let first = tool.description.trim().lines().next().unwrap_or_default();
        let mut shown: String = first.chars().take(DESCRIPTION_CHARS).collect();
        if shown.len() < tool.description.trim().len() {
            shown.push('…');
        }
        table.row([tool.name.clone(), shown]);
    }
    format!("\n{}", table.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(fields: &serde_json::Value) -> String {
        let mut all = json!({ "ok": true, "tools": [], "prompts": 0, "resources": 1, "duration_ms": 7 });
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        anstream::adapter::strip_str(&as_text(&serde_json::from_value(all).unwrap())).to_string()
    }

    #[test]
    fn an_mcp_server_that_works_is_shown_with_its_tools() {
        let tools = json!([{ "name": "now", "description": "Tells the time.\nAnd more" }]);
        let shown = report(&json!({ "server_name": "time", "protocol_version": "2025-06-18", "tools": tools }));
        let expected = "works         yes\ncalls itself  time\nprotocol      2025-06-18\nprompts       0\nresources     1\n\
            took          7 ms\n\nTOOL  DESCRIPTION\nnow   Tells the time.…\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_mcp_server_that_does_not_work_is_shown_with_the_reason() {
        let runtime = json!({ "error_phase": "dep_install", "error_message": "no such package", "stderr_tail": ["x"] });
        let shown = report(&json!({ "ok": false, "runtime_info": runtime }));
        let expected = "works      no\nfailed in  dep_install\nbecause    no such package\ntook       7 ms\n\n\
            Its last lines of standard error:\nx\n";
        assert_eq!(shown, expected);
    }
}
