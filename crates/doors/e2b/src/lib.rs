//! The E2B door: E2B's own SDKs, unmodified, on our boxes.
//!
//! A sandbox of theirs is a session of ours. What they ask of the service as a whole is in `control`; everything else is meant for
//! one sandbox: [`routing`] leads it to the routes of [`inside`], whose handlers take a [`sandbox_request::SandboxRequest`] first.

mod app;
mod box_files;
mod builds;
mod config;
mod connect;
mod control;
mod directory;
mod entries;
mod failure;
#[cfg(fuzzing)]
pub mod files;
#[cfg(not(fuzzing))]
mod files;
mod filesystem;
mod interpreter;
mod lifetimes;
mod limits;
mod ports;
mod process;
mod refusal;
mod routing;
mod rules;
pub(crate) mod sandbox_request;
#[cfg(test)]
pub(crate) mod testing;
mod to_the_end;
mod unread;
mod volumes;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use box_core::Store;
use door_http::ServerState;
use door_http::turns::Turns;

use app::App;

pub use config::E2bConfig;
pub(crate) use directory::Directory;
pub use rules::Rules;

/// What the door knows.
#[derive(Debug)]
pub(crate) struct E2b {
    config: E2bConfig,
    directory: Directory,
    turns: Turns,
    meter: control::Meter,
    builds: builds::Builds,
}

impl E2b {
    /// A door with a memory.
    pub(crate) fn new(config: E2bConfig, store: Arc<dyn Store>) -> Self {
        Self {
            config,
            builds: builds::Builds::default(),
            directory: Directory::new(store),
            turns: Turns::default(),
            meter: control::Meter::default(),
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

    /// The templates that are being built.
    pub(crate) fn builds(&self) -> &builds::Builds {
        &self.builds
    }
}

/// The door, before its routes are joined with those of others.
#[derive(Debug, Clone)]
pub struct Door(App);

impl Door {
    /// A door of a server. Sandboxes end at their time from now on, also where the door is closed.
    pub fn open(state: ServerState, config: E2bConfig) -> Self {
        let app = App::new(state, config);
        lifetimes::start(&app);
        Self(app)
    }

    /// Adds the routes of this door to those of the server. What is meant for a sandbox is led there before any of them
    /// is looked at.
    pub fn join(&self, routes: Router) -> Router {
        let Self(app) = self;
        if !app.e2b().config().enabled {
            return routes;
        }
        let inside = inside().with_state(app.clone());
        let control = control::routes().with_state(app.clone());
        routes.merge(control).layer(from_fn_with_state((app.clone(), inside), routing::lead))
    }
}

/// What is asked of a sandbox, whichever of its two ports of ours it is asked by. Other ports are its programs' own.
fn inside() -> Router<App> {
    Router::new()
        .merge(routing::routes())
        .merge(process::routes())
        .merge(filesystem::routes())
        .merge(files::routes())
        .merge(interpreter::routes())
}
