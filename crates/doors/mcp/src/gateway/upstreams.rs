//! Who is connected: what the gateway must know of the rest of the house.

use box_core::Caller;
use box_core::mcp::{McpServerName, McpStatus};
use tokio::sync::watch;

use super::Tally;
use crate::upstream::Upstream;

/// The connected servers.
pub trait Upstreams: Send + Sync + 'static {
    /// Servers of the caller's tenant, sorted by name. Those whose connection is over may still be among them.
    fn connected(&self, caller: &Caller) -> Vec<Upstream>;

    /// Servers of the caller's tenant that are defined, sorted by name, connected or not.
    fn defined(&self, caller: &Caller) -> Vec<(McpServerName, McpStatus)>;

    /// Where calls are counted, if enabled.
    fn tally(&self) -> Option<&Tally> {
        None
    }

    /// Ticks whenever servers came or went, or their tools or prompts changed.
    fn changes(&self, caller: &Caller) -> watch::Receiver<u64>;
}
