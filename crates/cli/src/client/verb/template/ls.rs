//! `strongbox template ls`.

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;

use crate::client::verb::ago;
use crate::client::verb::snapshot::size;
use crate::client::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;
use crate::table::Table;

/// What can be typed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  strongbox template ls
  strongbox exec demo --snapshot mine:v1 -- true")]
pub(crate) struct LsOptions {
    #[command(flatten)]
    format: JsonOption,
    #[command(flatten)]
    server: ServerOptions,
}

#[derive(Debug, Deserialize)]
struct Template {
    #[serde(rename = "template_id")]
    id: String,
    name: Option<String>,
    versions: Vec<Version>,
}

#[derive(Debug, Deserialize)]
struct Version {
    tags: Vec<String>,
    status: String,
    image: Option<String>,
    bytes: u64,
    created_at: Timestamp,
}

/// Lists templates, a line for each version.
pub(crate) fn main(options: &LsOptions) -> Result<u8, Fault> {
    let answer = ask(&options.server, async |client| patiently("asking", client.get("/v1/templates")).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    let (templates, now): (Vec<Template>, _) = (answer.read()?, Timestamp::now());
    let mut table = Table::new(&["TEMPLATE", "NAME", "TAGS", "STATUS", "IMAGE", "SIZE", "CREATED"]);
    for Template { id, name, versions } in templates {
        for version in versions {
            table.row([
                id.clone(),
                name.clone().unwrap_or_default(),
                version.tags.join(","),
                version.status,
                version.image.unwrap_or_default(),
                size(version.bytes),
                ago(version.created_at, now),
            ]);
        }
    }
    listing::write_out(table.render().as_bytes())
}
