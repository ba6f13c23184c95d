//! Removes things of a server by their names, one after another.

use super::{ServerOptions, ask, patiently};
use crate::fault::Fault;
use crate::listing;

/// Deletes the path of each name, and writes each name that is gone. Stops at the first error. `action` is what a waiting user sees.
pub(crate) fn remove_each(
    server: &ServerOptions,
    names: &[String],
    action: &str,
    path_of: impl Fn(&str) -> String,
) -> Result<u8, Fault> {
    ask(server, async |client| {
        for name in names {
            patiently(action, client.delete(&path_of(name))).await?;
            listing::write_out(format!("{}\n", crate::table::visible(name)).as_bytes())?;
        }
        Ok(0)
    })
}
