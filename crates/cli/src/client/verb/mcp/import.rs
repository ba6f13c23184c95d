//! `strongbox mcp import`.

use std::io::Read;

use clap::Args;
use serde::Deserialize;

use super::show;
use crate::client::{ServerOptions, ask, patiently};
use crate::exit::EXIT_OWN_ERROR;
use crate::fault::{self, Fault};
use crate::listing;
use crate::options::JsonOption;
use crate::table::visible;

/// Largest document that is sent: what servers take, and a little more, so that they can say so.
const DOCUMENT_BYTES_MAX: u64 = (1 << 20) + 1;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox mcp import ~/.config/Claude/claude_desktop_config.json
  strongbox mcp import .cursor/mcp.json
  jq '{mcpServers: {time: .mcpServers.time}}' config.json | strongbox mcp import -

Whatever else is in the file is left alone. A server of the same name is defined anew. Exits with
125 when an entry could not be taken, which standard error then says.")]
pub(crate) struct ImportOptions {
    /// A file with mcpServers, as desktop clients have it, or - for standard input
    #[arg(value_name = "FILE|-")]
    file: String,
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Deserialize)]
struct Imported {
    servers: Vec<Server>,
    renamed: Vec<Renamed>,
    skipped: Vec<Skipped>,
    #[serde(default)]
    remarks: Vec<Remark>,
}

#[derive(Debug, Deserialize)]
struct Remark {
    name: String,
    text: String,
}

#[derive(Debug, Deserialize)]
struct Server {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Renamed {
    from: String,
    to: String,
}

#[derive(Debug, Deserialize)]
struct Skipped {
    name: String,
    reason: String,
}

/// Defines the servers of a file, and writes the name of each.
pub(crate) fn main(options: &ImportOptions) -> Result<u8, Fault> {
    let bytes = read(&options.file)?;
    // As it is: the server refuses what can be read in two ways.
    let answer = ask(&options.server, async |client| {
        patiently("importing", client.post_bytes("/v1/mcp/import", "application/json", bytes)).await
    })?;
    let imported: Imported = answer.read()?;
    for remark in remarks(&imported) {
        fault::say(&remark);
    }
    if options.format.json {
        listing::write_json(&answer.json()?)?;
    } else {
        let names = show::each_line(imported.servers.iter().map(|server| server.name.as_str()));
        listing::write_out(names.as_bytes())?;
    }
    Ok(if imported.skipped.is_empty() { 0 } else { EXIT_OWN_ERROR })
}

fn read(file: &str) -> Result<Vec<u8>, Fault> {
    let unreadable = |error| Fault::new(format!("{file} cannot be read: {error}"));
    let source: Box<dyn Read> = match file {
        "-" => Box::new(std::io::stdin().lock()),
        path => Box::new(std::fs::File::open(path).map_err(unreadable)?),
    };
    let mut bytes = Vec::new();
    source.take(DOCUMENT_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// What is worth knowing besides the names.
fn remarks(imported: &Imported) -> Vec<String> {
    let renamed =
        imported.renamed.iter().map(|one| format!("{} is called {} here", visible(&one.from), visible(&one.to)));
    let skipped =
        imported.skipped.iter().map(|one| format!("{} was not taken: {}", visible(&one.name), visible(&one.reason)));
    let said = imported.remarks.iter().map(|one| format!("{}: {}", visible(&one.name), visible(&one.text)));
    renamed.chain(said).chain(skipped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_mcp_import_changed_or_left_out_is_said() {
        let answer = r#"{"servers": [{"name": "a-b"}], "renamed": [{"from": "a b", "to": "a-b"}],
            "skipped": [{"name": "c", "reason": "no command\u001b"}],
            "remarks": [{"name": "a b", "text": "/srv is mounted read-only"}]}"#;
        let imported: Imported = serde_json::from_str(answer).unwrap();
        assert_eq!(
            remarks(&imported),
            ["a b is called a-b here", "a b: /srv is mounted read-only", "c was not taken: no command\\u{1b}"]
        );
    }

    #[test]
    fn an_mcp_document_is_read_as_it_is_and_not_without_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![b' '; 2 << 20]).unwrap();
        assert_eq!(read(file.path().to_str().unwrap()).unwrap().len() as u64, DOCUMENT_BYTES_MAX);
        let error = read("/no/such/file").unwrap_err();
        assert!(error.message.contains("/no/such/file cannot be read"), "{error:?}");
    }
}
