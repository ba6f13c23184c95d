//! Servers that a caller asks for and that are not connected: why, and what to do.

use std::fmt;

use box_core::Caller;
use box_core::mcp::{McpServerName, McpStatus};

use super::Upstreams;

/// A server that is defined and not connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absence {
    server: McpServerName,
    status: McpStatus,
}

impl Absence {
    /// Why a server is not connected, if it is defined and the caller may use some of it.
    pub(crate) fn of(upstreams: &dyn Upstreams, caller: &Caller, name: &str) -> Option<Self> {
        if !caller.mcp.allows_some_of(name) {
            return None;
        }
        let connected = upstreams.connected(caller);
        if connected.iter().any(|server| server.name().as_str() == name && !server.is_closed()) {
            return None;
        }
        let (server, status) = upstreams.defined(caller).into_iter().find(|(server, _)| server.as_str() == name)?;
        Some(Self { server, status })
    }

    /// Whether it is worth trying again soon.
    pub(crate) fn passes(&self) -> bool {
        matches!(self.status, McpStatus::Connecting | McpStatus::Connected)
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let server = &self.server;
        match self.status {
            // The connection of one that counts as connected was lost just now.
            McpStatus::Connecting | McpStatus::Connected => {
                write!(f, "the MCP server {server} is starting; try again in a few seconds")
            }
            McpStatus::Error => {
                write!(f, "the MCP server {server} has failed; see `strongbox mcp show {server}`")
            }
            McpStatus::Disabled => {
                write!(f, "the MCP server {server} is disabled; enable it with `strongbox mcp enable {server}`")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use box_core::mcp::McpAccess;
    use rmcp::model::CallToolResponse;
    use tokio::sync::watch;

    use std::sync::Arc;

    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::gateway::shown::ClientView;
    use crate::gateway::{Around, View, failures};
    use crate::upstream::Upstream;

    /// Servers none of which is connected.
    struct Away(Vec<(McpServerName, McpStatus)>);

    impl Upstreams for Away {
        fn connected(&self, _: &Caller) -> Vec<Upstream> {
            Vec::new()
        }
        fn defined(&self, _: &Caller) -> Vec<(McpServerName, McpStatus)> {
            self.0.clone()
        }
        fn changes(&self, _: &Caller) -> watch::Receiver<u64> {
            watch::channel(0).1
        }
    }

    #[test]
    fn a_server_that_is_not_connected_says_why_to_who_may_use_it() {
        let statuses = [("new", McpStatus::Connecting), ("bad", McpStatus::Error), ("off", McpStatus::Disabled)];
        let away = Away(statuses.map(|(name, status)| (name.parse().unwrap(), status)).to_vec());
        let caller = Caller::local();
        for (name, says, passes) in [
            ("new", "is starting; try again in a few seconds", true),
            ("bad", "has failed; see `strongbox mcp show bad`", false),
            ("off", "is disabled; enable it with `strongbox mcp enable off`", false),
        ] {
            let absence = Absence::of(&away, &caller, name).unwrap();
            assert!(absence.to_string().ends_with(says), "{absence}");
            assert_eq!(absence.passes(), passes, "{name}");
            let CallToolResponse::Complete(told) = failures::no_tool("x", Some(&absence)).unwrap() else {
                panic!("it needs no input")
            };
            assert_eq!(told.is_error, Some(true));
            assert!(told.content[0].as_text().unwrap().text.ends_with(says), "{told:?}");
        }
        assert_eq!(Absence::of(&away, &caller, "none"), None);
        let mcp = McpAccess::new(None, vec!["new".parse().unwrap()]).unwrap();
        assert_eq!(Absence::of(&away, &Caller { mcp, ..Caller::local() }, "new"), None, "it is denied");
    }

    #[tokio::test]
    async fn a_resource_and_a_prompt_of_a_server_that_is_not_connected_say_why() {
        let away = Arc::new(Away(vec![("new".parse().unwrap(), McpStatus::Connecting)]));
        let around = Around::new(away, TaskTracker::new());
        let all = ClientView::new(around.clone(), Caller::local(), View::All);
        let one = ClientView::new(around, Caller::local(), View::One("new".parse().unwrap()));
        for told in [all.no_resource("mcp://new/file:///x"), one.no_resource("file:///x"), all.no_prompt("new__greet")]
        {
            assert!(told.message.ends_with("the MCP server new is starting; try again in a few seconds"), "{told:?}");
        }
        for uri in ["mcp://other/file:///x", "mcp://new", "file:///x"] {
            assert!(all.no_resource(uri).message.contains("no resource is called"), "{uri}");
        }
    }
}
