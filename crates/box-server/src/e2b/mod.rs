//! The E2B door: E2B's own SDKs, unmodified, on our boxes.
//!
//! A sandbox of theirs is a session of ours. What they ask of the service as a whole is in `control`; everything else is meant for
//! one sandbox: [`routing`] leads it to the routes of [`inside`], whose handlers take a [`directed::Directed`] first.

mod box_files;
mod builds;
mod config;
mod connect;
mod control;
pub(crate) mod directed;
mod directory;
mod entries;
mod failure;
pub(crate) mod files;
mod filesystem;
mod interpreter;
pub(crate) mod lifetimes;
mod ports;
mod process;
mod refusal;
mod routing;
mod saved;
#[cfg(test)]
pub(crate) mod testing;
mod to_the_end;
mod unread;
pub(crate) mod volumes;

use std::sync::Arc;

use axum::Router;
use box_core::Store;

use crate::app::App;
use crate::turns::Turns;

pub use config::E2bConfig;
pub(crate) use control::routes as control_routes;
pub(crate) use directory::Directory;
pub(crate) use routing::{is_for_server, is_meant_for, lead};
pub(crate) use saved::Saved;

/// What the door knows.
#[derive(Debug)]
pub(crate) struct E2b {
    config: E2bConfig,
    directory: Directory,
    turns: Turns,
    meter: control::Meter,
    cell_turns: Arc<interpreter::CellTurns>,
    volumes: volumes::Volumes,
    saved: Saved,
    builds: builds::Builds,
}

impl E2b {
    /// A door with a memory.
    pub(crate) fn new(config: E2bConfig, store: Arc<dyn Store>) -> Self {
        let saved = Saved::new(Arc::clone(&store), config.saved.clone(), config.saved_mb_max << 20);
        Self {
            volumes: volumes::Volumes::new(&config, Arc::clone(&store)),
            config,
            saved,
            builds: builds::Builds::default(),
            directory: Directory::new(store),
            turns: Turns::default(),
            meter: control::Meter::default(),
            cell_turns: Arc::default(),
        }
    }

    /// What the operator says.
    pub(crate) fn config(&self) -> &E2bConfig {
        &self.config
    }

    /// What is done about one sandbox is done one after another.
    pub(crate) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// What sandboxes consumed when somebody last asked.
    pub(crate) fn meter(&self) -> &control::Meter {
        &self.meter
    }

    /// The sandboxes that there are.
    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The directories that outlive sandboxes.
    pub(crate) fn volumes(&self) -> &volumes::Volumes {
        &self.volumes
    }

    /// The saved boxes that there are.
    pub(crate) fn saved(&self) -> &Saved {
        &self.saved
    }

    /// The templates that are being built.
    pub(crate) fn builds(&self) -> &builds::Builds {
        &self.builds
    }

    /// Whose turn it is in the contexts of sandboxes.
    pub(crate) fn cell_turns(&self) -> &Arc<interpreter::CellTurns> {
        &self.cell_turns
    }
}

/// What is asked of a sandbox, whichever of its two ports of ours it is asked by. Other ports are its programs' own.
pub(crate) fn inside() -> Router<App> {
    Router::new()
        .merge(routing::routes())
        .merge(process::routes())
        .merge(filesystem::routes())
        .merge(files::routes())
        .merge(interpreter::routes())
}
