//! `strongbox token revoke`.

use box_core::store::{Change, LastToken, Wait};
use clap::Args;

use super::{await_server, config};
use crate::config::PlaceOptions;
use crate::fault::{self, Fault};
use crate::listing;
use crate::state::StateDir;

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
    let state = StateDir::open(&config(&options.place)?.state_dir)?;
    let store = state.store()?;
    crate::runtime()?.block_on(async {
        let rows = store.tokens().await?;
        if let Some(unknown) = options.ids.iter().find(|id| !rows.iter().any(|row| row.id == **id)) {
            return Err(Fault::new(format!("there is no token {unknown}")).hint("`strongbox token list` shows the ids"));
        }
        // The store decides whether one is the last: another process may revoke the others now.
        let last = if options.reopen { LastToken::Deleted } else { LastToken::Kept };
        store.write(Change::DeleteTokens(options.ids.clone(), last), Wait::Committed).await?;
        let rows = store.tokens().await?;
        if rows.iter().any(|row| options.ids.contains(&row.id)) {
            let what = "revoking the last token would open TCP to every user of this machine";
            return Err(Fault::new(what).hint("make another token first, or say --reopen if that is meant"));
        }
        if rows.is_empty() {
            fault::say("no token is left: every user of this machine now comes in over TCP without one");
        }
        Ok::<_, Fault>(())
    })?;
    await_server(state.path());
    listing::write_out(format!("{}\n", options.ids.join("\n")).as_bytes())
}
