//! `strongbox process stop`.

use super::OneOptions;
use crate::client::http::session_path;
use crate::client::targets::OUT_OF_MEMORY;
use crate::client::{ask, patiently};
use crate::fault::Fault;
use crate::listing;

/// Stops the process; says how it ended.
pub(crate) fn main(options: &OneOptions) -> Result<u8, Fault> {
    let path = session_path(&options.session, &["processes", &options.process]);
    let process = ask(&options.server, async |client| patiently("stopping", client.delete(&path)).await)?.json()?;
    if options.format.json {
        return listing::write_json(&process);
    }
    let code = process["exit_code"].as_i64().map(|code| format!(" with exit code {code}")).unwrap_or_default();
    let reason = if process["oom_killed"] == true { format!(": {OUT_OF_MEMORY}") } else { String::new() };
    listing::write_out(format!("{} ended{code}{reason}\n", options.process).as_bytes())
}
