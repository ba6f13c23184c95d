//! `strongbox token revoke`.

use box_core::store::{Change, Wait};
use clap::Args;

use super::store;
use crate::config::PlaceOptions;
use crate::fault::Fault;
use crate::listing;

/// What can be typed.
#[derive(Debug, Args)]
pub(crate) struct RevokeOptions {
    /// The tokens, by the ids that `strongbox token list` shows
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Revoke the last token too: without any, every user of this machine comes in over TCP without one
    #[arg(long)]
    reopen: bool,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Forgets tokens: all of those that were named, or none.
pub(crate) fn main(options: &RevokeOptions) -> Result<u8, Fault> {
    let store = store(&options.place)?;
    crate::runtime()?.block_on(async {
        let rows = store.tokens().await?;
        if let Some(unknown) = options.ids.iter().find(|id| !rows.iter().any(|row| row.id == **id)) {
            return Err(Fault::new(format!("there is no token {unknown}")).hint("`strongbox token list` shows the ids"));
        }
        if !options.reopen && rows.iter().all(|row| options.ids.contains(&row.id)) {
            let what = "revoking the last token would open TCP to every user of this machine";
            return Err(Fault::new(what).hint("make another token first, or say --reopen if that is meant"));
        }
        for id in &options.ids {
            store.write(Change::DeleteToken(id.clone()), Wait::Committed).await?;
            listing::write_out(format!("{id}\n").as_bytes())?;
        }
        Ok(0)
    })
}
