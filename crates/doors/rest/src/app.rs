//! What every handler of this door works with.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use door_http::ServerState;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use crate::pages::Doors;
use crate::skill_door::{SkillDoor, SkillsConfig};

/// Says whether boxes can be made, in the fields that `/readyz` shows.
pub type Readiness = Arc<dyn Fn() -> BoxFuture<'static, Map<String, Value>> + Send + Sync>;

/// What this door is made of.
pub struct RestConfig {
    /// Where skill packages are, and where new ones may come from.
    pub skills: SkillsConfig,
    /// Whether boxes can be made.
    pub readiness: Readiness,
    /// The other doors that are open, for the front page.
    pub doors: Doors,
    /// What the OpenAPI document says of other doors.
    pub documents: Vec<utoipa::openapi::OpenApi>,
}

impl fmt::Debug for RestConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestConfig").field("skills", &self.skills).field("doors", &self.doors).finish_non_exhaustive()
    }
}

/// The server's state and what this door adds to it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    state: ServerState,
    skills: SkillDoor,
    readiness: Readiness,
    doors: Doors,
    document: String,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("state", &self.0.state).finish_non_exhaustive()
    }
}

impl Deref for App {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.0.state
    }
}

impl App {
    /// This door of a server.
    pub(crate) fn new(state: ServerState, config: RestConfig) -> Self {
        let RestConfig { skills, readiness, doors, documents } = config;
        let document = crate::document_text(documents);
        Self(Arc::new(Inner { state, skills: SkillDoor::new(skills), readiness, doors, document }))
    }

    /// Skill packages.
    pub(crate) fn skills(&self) -> &SkillDoor {
        &self.0.skills
    }

    /// Whether boxes can be made.
    pub(crate) async fn ready(&self) -> Map<String, Value> {
        (self.0.readiness)().await
    }

    /// The doors of this server.
    pub(crate) fn doors(&self) -> Doors {
        self.0.doors
    }

    /// The OpenAPI document.
    pub(crate) fn document(&self) -> &str {
        &self.0.document
    }
}
