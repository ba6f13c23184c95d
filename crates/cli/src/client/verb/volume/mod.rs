//! `strongbox volume`: directories that outlive the sessions that mount them.

mod create;
mod ls;
mod rm;
mod show;

use clap::Subcommand;
use jiff::Timestamp;
use serde::Deserialize;

use crate::client::http::encoded;
use crate::fault::Fault;

/// What can be done with volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeVerb {
    /// Create volumes
    Create(create::CreateOptions),
    /// List volumes
    Ls(ls::LsOptions),
    /// Show one volume, with the sessions that mount it
    Show(show::ShowOptions),
    /// Remove volumes with their content
    Rm(rm::RmOptions),
}

/// Carries one out.
pub(crate) fn main(verb: &VolumeVerb) -> Result<u8, Fault> {
    match verb {
        VolumeVerb::Create(options) => create::main(options),
        VolumeVerb::Ls(options) => ls::main(options),
        VolumeVerb::Show(options) => show::main(options),
        VolumeVerb::Rm(options) => rm::main(options),
    }
}

/// A volume, as the server shows it.
#[derive(Debug, Deserialize)]
struct Volume {
    name: String,
    quota_mb: u64,
    created_at: Timestamp,
    sessions: Vec<String>,
}

/// The path of a volume.
fn volume_path(name: &str) -> String {
    format!("/v1/volumes/{}", encoded(name))
}
