//! The doors of a server, put together. No door knows another; they meet here.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use box_core::{Scope, Service, Store};
use door_e2b::E2bConfig;
use door_http::{Gate, ListenConfig, Listeners, ServerState};
use door_langbot::{LangBot, LangBotConfig};
use door_rest::{RestConfig, SkillsConfig};
use futures_util::FutureExt;

/// What the operator says of all doors.
#[derive(Debug, Clone)]
pub(crate) struct DoorsConfig {
    /// What is listened on.
    pub(crate) listen: ListenConfig,
    /// Names under which the server may be addressed, besides its own addresses and `localhost`.
    pub(crate) allowed_hosts: Vec<String>,
    /// Web pages that may use it from a browser, besides its own.
    pub(crate) allowed_origins: Vec<String>,
    /// The LangBot door.
    pub(crate) langbot: LangBotConfig,
    /// Where skill packages are, and where new ones may come from.
    pub(crate) skills: SkillsConfig,
    /// The E2B door.
    pub(crate) e2b: E2bConfig,
    /// The routes of the MCP door, if it is open. They are for callers with the scope exec.
    pub(crate) mcp: Option<Router>,
}

impl DoorsConfig {
    /// Starts to listen, after everything that can be refused was refused.
    pub(crate) async fn bind(&mut self, store: &dyn Store) -> Result<Listeners, door_http::Error> {
        self.langbot.check().map_err(door_http::Error::new)?;
        self.e2b.check().map_err(door_http::Error::new)?;
        self.gate()?;
        if let Some(address) = self.listen.listen {
            warn_of_strangers(&self.langbot, address);
        }
        self.listen.serves_strangers = self.langbot.is_open();
        let listeners = door_http::bind(self.listen.clone(), store).await?;
        // The port is known only now: the configuration may leave its choice to the kernel.
        self.e2b.name_sandboxes(listeners.tcp_address());
        Ok(listeners)
    }

    /// What all doors work with.
    pub(crate) fn state(&self, service: Service, store: Arc<dyn Store>) -> Result<ServerState, door_http::Error> {
        Ok(ServerState::new(service, store, self.gate()?))
    }

    fn gate(&self) -> Result<Gate, door_http::Error> {
        let gate = Gate::new(&self.allowed_hosts, &self.allowed_origins).map_err(door_http::Error::new)?;
        Ok(gate.with_rules(Arc::new(door_langbot::Rules)).with_rules(Arc::new(door_e2b::Rules::new(&self.e2b))))
    }
}

/// The routes of all doors.
pub(crate) fn routes(config: DoorsConfig, state: &ServerState, langbot: &LangBot) -> Router {
    let doors = door_rest::Doors { mcp: config.mcp.is_some(), e2b: config.e2b.enabled };
    let asked = langbot.clone();
    let readiness = Arc::new(move || {
        let asked = asked.clone();
        async move { asked.ready().await }.boxed()
    });
    let rest = RestConfig { skills: config.skills, readiness, doors, documents: vec![door_langbot::document()] };
    let mcp = config.mcp.map(|door| door_http::guard_foreign(state, Scope::Exec, door)).unwrap_or_default();
    let routes = door_rest::routes(state.clone(), rest).merge(langbot.routes()).merge(mcp);
    door_e2b::Door::open(state.clone(), config.e2b).join(routes)
}

fn warn_of_strangers(langbot: &LangBotConfig, address: SocketAddr) {
    let LangBotConfig { legacy, control_token, .. } = langbot;
    if *legacy && control_token.is_none() && !address.ip().to_canonical().is_loopback() {
        tracing::warn!(%address, "langbot.legacy is set: anyone who reaches this address can run commands in boxes here, without a token");
    }
}

#[cfg(test)]
mod tests;
