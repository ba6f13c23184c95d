//! Whose images are meant.

use std::sync::Arc;

use box_core::{BackendName, ImageStore};
use clap::Args;

use crate::config::PlaceOptions;
use crate::engines::Engines;
use crate::fault::Fault;
use crate::state::StateDir;

/// Whose images are meant.
#[derive(Debug, Args)]
pub(super) struct StoreOptions {
    /// Whose images: our own (native), or those of an engine (docker, podman)
    #[arg(long, value_name = "native|docker|podman", default_value = "native")]
    backend: BackendName,
    #[command(flatten)]
    place: PlaceOptions,
}

impl StoreOptions {
    /// Opens the store.
    pub(super) async fn open(&self) -> Result<Arc<dyn ImageStore>, Fault> {
        let config = self.place.settings(&self.place.flags())?.config()?;
        let state = StateDir::open(&config.state_dir)?;
        Ok(Engines::ephemeral(state.path().to_owned()).configured(&config).images(self.backend).await?)
    }
}
