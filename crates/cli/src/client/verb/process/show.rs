//! `strongbox process show`.

use jiff::Timestamp;

use super::OneOptions;
use crate::client::http::session_path;
use crate::client::targets::Process;
use crate::client::verb::ago;
use crate::client::{ask, patiently};
use crate::fault::Fault;
use crate::listing;
use crate::table::pairs;

/// Shows one process.
pub(crate) fn main(options: &OneOptions) -> Result<u8, Fault> {
    let path = session_path(&options.session, &["processes", &options.process]);
    let answer = ask(&options.server, async |client| patiently("asking", client.get(&path)).await)?;
    if options.format.json {
        return listing::write_json(&answer.json()?);
    }
    let process: Process = answer.read()?;
    let lines = pairs(&[
        ("session", options.session.clone()),
        ("process", process.id.clone()),
        ("status", process.state()),
        ("command", process.command_line()),
        ("started", ago(process.started_at, Timestamp::now())),
        ("restarts", process.restarts.to_string()),
        ("attached", if process.attached { "yes" } else { "no" }.to_owned()),
        ("cursor", process.cursor.unwrap_or_default()),
    ]);
    listing::write_out(lines.as_bytes())
}
