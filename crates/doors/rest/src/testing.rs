//! What tests of several modules of this door need.

use std::sync::Arc;

use axum::Router;
use door_http::ServerState;
use futures_util::FutureExt;
use serde_json::{Map, json};

use crate::{Doors, RestConfig, SkillsConfig};

/// A door on a machine that can make no box.
pub(crate) fn config(skills: SkillsConfig) -> RestConfig {
    let ready = || {
        let checks = json!({ "backend_available": false });
        Map::from_iter([("ready".to_owned(), false.into()), ("checks".to_owned(), checks)])
    };
    RestConfig {
        skills,
        readiness: Arc::new(move || std::future::ready(ready()).boxed()),
        doors: Doors { mcp: true, e2b: true },
        documents: Vec::new(),
    }
}

/// The routes of this door with what surrounds every request.
pub(crate) fn door(state: &ServerState, config: RestConfig) -> Router {
    door_http::surround(state, crate::routes(state.clone(), config))
}
