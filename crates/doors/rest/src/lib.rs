//! The REST door: one file for each resource, one short handler for each thing that can be asked.

mod app;
mod code;
mod code_body;
mod events;
mod exec_body;
mod execs;
mod extract;
mod fetch;
mod files;
mod input;
mod limits;
mod managed;
mod mcp;
mod mcp_body;
mod old_form;
mod output;
mod pages;
mod ports;
mod process_body;
mod processes;
mod profiles;
mod routes;
mod service;
mod session_body;
mod sessions;
mod skill_archives;
mod skill_body;
mod skill_door;
mod skills;
mod snapshots;
mod streams;
mod templates;
#[cfg(test)]
mod testing;
mod tools;
mod views;
mod volumes;

use axum::Router;
use door_http::ServerState;

pub use app::{Readiness, RestConfig};
pub use pages::Doors;
pub use skill_door::SkillsConfig;

use routes::document_text;

/// The routes of this door.
pub fn routes(state: ServerState, config: RestConfig) -> Router {
    routes::routes(&app::App::new(state, config))
}
