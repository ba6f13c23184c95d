//! `strongbox image`: the images that boxes can stand on. Works on the store itself, also while a server runs.

mod gc;
mod import;
mod ls;
mod place;
mod progress;
mod pull;
mod rm;

use clap::Subcommand;

use crate::fault::Fault;

/// What can be done with images.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageVerb {
    /// List the images that are here
    Ls(ls::LsOptions),
    /// Fetch images from their registries
    Pull(pull::PullOptions),
    /// Take images from a file or directory: an OCI layout, what `docker save` wrote, or a tar file of a root file system
    Import(import::ImportOptions),
    /// Forget images; what no box stands on goes with them
    Rm(rm::RmOptions),
    /// Remove what no name refers to and no box stands on
    Gc(gc::GcOptions),
}

/// Carries one out.
pub(crate) fn main(verb: &ImageVerb) -> Result<u8, Fault> {
    let runtime = crate::runtime()?;
    let done = runtime.block_on(async {
        match verb {
            ImageVerb::Ls(options) => ls::main(options).await,
            ImageVerb::Pull(options) => pull::main(options).await,
            ImageVerb::Import(options) => import::main(options).await,
            ImageVerb::Rm(options) => rm::main(options).await,
            ImageVerb::Gc(options) => gc::main(options).await,
        }
    });
    // Unpacking that was given up must not keep the program from ending.
    runtime.shutdown_background();
    done
}
