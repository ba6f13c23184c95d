//! What every handler works with.

use std::sync::Arc;

use box_core::{Service, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::Tokens;
use crate::e2b::{E2b, E2bConfig};
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::rpc::{LangBot, LangBotConfig};
use crate::skill_door::{SkillDoor, SkillsConfig};
use crate::socket::Relays;

/// What every handler works with. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct App(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    service: Service,
    tokens: Tokens,
    gate: Gate,
    metrics: Metrics,
    relays: Relays,
    langbot: LangBot,
    skills: SkillDoor,
    e2b: E2b,
    tasks: TaskTracker,
    closing: CancellationToken,
    abort: CancellationToken,
}

impl App {
    /// A door to a service.
    pub(crate) fn new(
        service: Service,
        store: Arc<dyn Store>,
        gate: Gate,
        langbot: LangBotConfig,
        skills: SkillsConfig,
        e2b: E2bConfig,
    ) -> Self {
        Self(Arc::new(Inner {
            metrics: Metrics::new(service.clone()),
            e2b: E2b::new(e2b, Arc::clone(&store)),
            tokens: Tokens::new(store).telling(service.clone()),
            gate,
            relays: Relays::default(),
            langbot: LangBot::new(langbot, service.clone()),
            skills: SkillDoor::new(skills),
            service,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
        }))
    }

    /// What callers ask.
    pub(crate) fn service(&self) -> &Service {
        &self.0.service
    }

    /// Who may come in.
    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// From where.
    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// What is counted.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Up to where the line relays have delivered.
    pub(crate) fn relays(&self) -> &Relays {
        &self.0.relays
    }

    /// The LangBot door.
    pub(crate) fn langbot(&self) -> &LangBot {
        &self.0.langbot
    }

    /// Skill packages.
    pub(crate) fn skills(&self) -> &SkillDoor {
        &self.0.skills
    }

    /// The E2B door.
    pub(crate) fn e2b(&self) -> &E2b {
        &self.0.e2b
    }

    /// Everything that runs in the background, to wait for at the end.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }

    /// Fires when the server stops: whoever streams ends its stream.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    /// Fires when nobody is waited for any more.
    pub(crate) fn abort(&self) -> &CancellationToken {
        &self.0.abort
    }
}
