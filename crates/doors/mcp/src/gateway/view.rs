//! What one endpoint shows: all servers under joined names, or one of them as it is.

use box_core::mcp::McpServerName;
use rmcp::model::{ContentBlock, ResourceContents};

use crate::upstream::Upstream;

/// How addresses of resources begin when those of all servers stand side by side: `mcp://SERVER/ADDRESS`.
const SCHEME: &str = "mcp://";

/// Which servers an endpoint shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// All of them. Tools and prompts are called `server__name`, resources `mcp://server/address`.
    All,
    /// One of them, with its own names.
    One(McpServerName),
}

impl View {
    /// Whether a server is shown.
    pub(super) fn shows(&self, server: &McpServerName) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == server,
        }
    }

    /// What a tool or prompt is called here.
    pub(super) fn name(&self, server: &McpServerName, name: &str) -> String {
        match self {
            Self::All => server.qualify(name),
            Self::One(_) => name.to_owned(),
        }
    }

    /// The server and its own name of a tool or prompt.
    pub(super) fn find<'a, 'n>(&self, servers: &'a [Upstream], name: &'n str) -> Option<(&'a Upstream, &'n str)> {
        match self {
            Self::All => {
                let (server, name) = McpServerName::split(name)?;
                Some((by_name(servers, server.as_str())?, name))
            }
            Self::One(one) => Some((by_name(servers, one.as_str())?, name)),
        }
    }

    /// The address of a resource here.
    pub(super) fn uri(&self, server: &McpServerName, uri: &str) -> String {
        match self {
            Self::All => format!("{SCHEME}{server}/{uri}"),
            Self::One(_) => uri.to_owned(),
        }
    }

    /// The server and its own address of a resource.
    pub(super) fn find_uri<'a, 'u>(&self, servers: &'a [Upstream], uri: &'u str) -> Option<(&'a Upstream, &'u str)> {
        let (server, uri) = match self {
            Self::All => uri.strip_prefix(SCHEME)?.split_once('/')?,
            Self::One(one) => return Some((by_name(servers, one.as_str())?, uri)),
        };
        Some((by_name(servers, server)?, uri))
    }

    /// The name of the server that a resource is of, connected or not.
    pub(super) fn server_of_uri<'a>(&'a self, uri: &'a str) -> Option<&'a str> {
        match self {
            Self::All => uri.strip_prefix(SCHEME)?.split_once('/').map(|(server, _)| server),
            Self::One(one) => Some(one.as_str()),
        }
    }

    /// Gives resources in a result the addresses under which they are found here.
    pub(super) fn rewrite<'c>(&self, server: &McpServerName, blocks: impl IntoIterator<Item = &'c mut ContentBlock>) {
        if matches!(self, Self::One(_)) {
            return;
        }
        for block in blocks {
            match block {
                ContentBlock::ResourceLink(link) => link.uri = self.uri(server, &link.uri),
                ContentBlock::Resource(embedded) => self.rewrite_contents(server, &mut embedded.resource),
                _ => {}
            }
        }
    }

    /// The same for the contents of a resource.
    pub(super) fn rewrite_contents(&self, server: &McpServerName, contents: &mut ResourceContents) {
        match contents {
            ResourceContents::TextResourceContents { uri, .. } | ResourceContents::BlobResourceContents { uri, .. } => {
                *uri = self.uri(server, uri);
            }
            _ => {}
        }
    }
}

fn by_name<'a>(servers: &'a [Upstream], name: &str) -> Option<&'a Upstream> {
    servers.iter().find(|server| server.name().as_str() == name)
}
