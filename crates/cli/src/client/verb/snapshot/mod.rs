//! `strongbox snapshot`: sessions that were saved, for others to begin with.

mod create;
mod ls;
mod rm;
mod show;

use clap::Subcommand;

use crate::client::http::encoded;
use crate::fault::Fault;

pub(super) use ls::size;

/// What can be done with snapshots.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotVerb {
    /// List snapshots
    Ls(ls::LsOptions),
    /// Save the files of a running session; writes the id of the snapshot
    Create(create::CreateOptions),
    /// Show one snapshot
    Show(show::ShowOptions),
    /// Delete snapshots
    Rm(rm::RmOptions),
}

/// Carries one out.
pub(crate) fn main(verb: &SnapshotVerb) -> Result<u8, Fault> {
    match verb {
        SnapshotVerb::Ls(options) => ls::main(options),
        SnapshotVerb::Create(options) => create::main(options),
        SnapshotVerb::Show(options) => show::main(options),
        SnapshotVerb::Rm(options) => rm::main(options),
    }
}

/// The path of a snapshot.
fn snapshot_path(name: &str) -> String {
    format!("/v1/snapshots/{}", encoded(name))
}
