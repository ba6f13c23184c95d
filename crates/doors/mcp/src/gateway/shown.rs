//! What one client sees: who it is, which servers it may use, and how they are called.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use box_core::Caller;
use box_core::mcp::McpServerName;
use rmcp::ErrorData;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam, Prompt, Tool};

use super::absent::Absence;
use super::failures;
use super::parking::Parking;
use super::{Around, Upstreams, View};
use crate::text::{TITLE_CHARS_MAX, clean};
use crate::upstream::{ClientId, Upstream};

/// What one client sees.
pub(super) struct ClientView {
    pub(super) upstreams: Arc<dyn Upstreams>,
    pub(super) caller: Caller,
    pub(super) view: View,
    pub(super) parking: Parking,
    pub(super) client: ClientId,
    /// The least severe message that it wants, by [`severity`]. None until it asks.
    level: AtomicU8,
    /// Whether servers know of it, and must be notified when it goes.
    known: AtomicBool,
}

/// No message is that severe.
const NO_LOG: u8 = u8::MAX;

impl ClientView {
    pub(super) fn new(around: Around, caller: Caller, view: View) -> Self {
        let Around { upstreams, parking, .. } = around;
        Self {
            upstreams,
            caller,
            view,
            parking,
            client: ClientId::next(),
            level: AtomicU8::new(NO_LOG),
            known: AtomicBool::new(false),
        }
    }

    /// Servers get to know of the client.
    pub(super) fn make_known(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// Whether servers know of the client.
    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// All servers of the tenant, whatever the client may use of them.
    pub(super) fn connected(&self) -> Vec<Upstream> {
        self.upstreams.connected(&self.caller)
    }

    /// Servers of which the client may use something.
    pub(super) fn servers(&self) -> Vec<Upstream> {
        let access = &self.caller.mcp;
        let mut servers = self.upstreams.connected(&self.caller);
        servers.retain(|server| {
            !server.is_closed() && self.view.shows(server.name()) && access.allows_some_of(server.name().as_str())
        });
        servers
    }

    /// Servers whose resources the client may use.
    pub(super) fn servers_with_resources(&self) -> Vec<Upstream> {
        let access = &self.caller.mcp;
        let mut servers = self.servers();
        servers
            .retain(|server| server.capabilities().resources.is_some() && access.allows_all_of(server.name().as_str()));
        servers
    }

    /// The tools of these servers that the client may use, by the names that they have here.
    pub(super) fn tools(&self, servers: &[Upstream]) -> Vec<Tool> {
        let access = &self.caller.mcp;
        let mut tools = Vec::new();
        for server in servers {
            let name = server.name();
            for tool in server.lists().tools.iter().filter(|tool| access.allows(name.as_str(), &tool.name)) {
                let mut tool = tool.clone();
                tool.name = self.view.name(name, &tool.name).into();
                tools.push(tool);
            }
        }
        tools
    }

    /// The same for prompts.
    pub(super) fn prompts(&self, servers: &[Upstream]) -> Vec<Prompt> {
        let access = &self.caller.mcp;
        let mut prompts = Vec::new();
        for server in servers {
            let name = server.name();
            for prompt in server.lists().prompts.iter().filter(|prompt| access.allows(name.as_str(), &prompt.name)) {
                let mut prompt = prompt.clone();
                prompt.name = self.view.name(name, &prompt.name);
                prompts.push(prompt);
            }
        }
        prompts
    }

    /// The server of a tool and its own name there, if the client is shown it. What a server does not list is not called, even
    /// if the server would answer.
    pub(super) fn find_tool(&self, name: &str) -> Option<(Upstream, String)> {
        self.find(name, |server, name| server.lists().tools.iter().any(|tool| tool.name == name))
    }

    /// The server of a held tool that the client may use, and the tool's name on that server.
    pub(super) fn find_held(&self, name: &str) -> Option<(Upstream, String)> {
        self.find(name, |server, name| server.lists().held.iter().any(|tool| tool.name == name))
    }

    /// The same for a prompt.
    pub(super) fn find_prompt(&self, name: &str) -> Option<(Upstream, String)> {
        self.find(name, |server, name| server.lists().prompts.iter().any(|prompt| prompt.name == name))
    }

    /// Why the server of a tool or prompt is not connected, if it is defined.
    pub(super) fn absence_of(&self, name: &str) -> Option<Absence> {
        let server = match &self.view {
            View::All => McpServerName::split(name)?.0,
            View::One(one) => one.clone(),
        };
        Absence::of(&*self.upstreams, &self.caller, server.as_str())
    }

    /// What is answered for a prompt that cannot be found.
    pub(super) fn no_prompt(&self, name: &str) -> ErrorData {
        missing("prompt", name, self.absence_of(name).as_ref())
    }

    /// What is answered for a resource that cannot be found.
    pub(super) fn no_resource(&self, uri: &str) -> ErrorData {
        let server = self.view.server_of_uri(uri);
        let absence = server.and_then(|server| Absence::of(&*self.upstreams, &self.caller, server));
        missing("resource", uri, absence.as_ref())
    }

    fn find(&self, name: &str, is_listed: impl Fn(&Upstream, &str) -> bool) -> Option<(Upstream, String)> {
        let servers = self.servers();
        let (server, name) = self.view.find(&servers, name)?;
        let allowed = self.caller.mcp.allows(server.name().as_str(), name) && is_listed(server, name);
        allowed.then(|| (server.clone(), name.to_owned()))
    }

    /// The server of a resource and its own address there, if the client may use all of the server. It need not be listed:
    /// templates and results name resources that no list has.
    pub(super) fn find_uri(&self, uri: &str) -> Option<(Upstream, String)> {
        let servers = self.servers_with_resources();
        let (server, uri) = self.view.find_uri(&servers, uri)?;
        Some((server.clone(), uri.to_owned()))
    }

    /// The client wants messages of this severity and above.
    pub(super) fn set_level(&self, level: LoggingLevel) {
        self.level.store(severity(level), Ordering::Relaxed);
    }

    /// Whether it wants a message.
    pub(super) fn wants_log(&self, level: LoggingLevel) -> bool {
        severity(level) >= self.level.load(Ordering::Relaxed)
    }

    /// A log message for the client, with the name of its server.
    pub(super) fn log_of(
        &self,
        server: &McpServerName,
        mut message: LoggingMessageNotificationParam,
    ) -> LoggingMessageNotificationParam {
        let logger = message.logger.take().map(|logger| clean(&logger, TITLE_CHARS_MAX));
        message.logger = match self.view {
            View::All => Some(logger.map_or_else(|| server.to_string(), |logger| format!("{server}/{logger}"))),
            View::One(_) => logger,
        };
        message
    }
}

fn missing(what: &str, name: &str, absence: Option<&Absence>) -> ErrorData {
    match absence {
        Some(absence) => ErrorData::internal_error(absence.to_string(), None),
        None => failures::unknown(what, name),
    }
}

/// The protocol's order.
fn severity(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
        LoggingLevel::Debug => 0,
    }
}
