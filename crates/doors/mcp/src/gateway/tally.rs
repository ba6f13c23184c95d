//! Counts tool calls, in bounded space: callers choose the names of servers.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use box_core::TenantId;
use box_core::mcp::{CALL_BOUNDS_SEC, McpCalls, McpNumbers};
use rmcp::model::ServerResult;

use super::forward::Ended;
use crate::upstream::Failure;

/// Most servers that are counted separately. Calls of all others are counted together.
const SERVERS_MAX: usize = 256;
/// The name for all other servers. An empty tenant distinguishes it from a server of that name.
const OTHERS: &str = "other";

/// Call counters.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    servers: BTreeMap<(String, String), BTreeMap<&'static str, u64>>,
    durations: [u64; CALL_BOUNDS_SEC.len() + 1],
    duration_sec: f64,
}

impl Tally {
    /// Counts a finished tool call. The server is a name, or `box` for the built-in tools.
    pub(crate) fn count(&self, tenant: &TenantId, server: &str, outcome: &'static str, took: Duration) {
        let mut counts = self.lock();
        let own = (tenant.as_str().to_owned(), server.to_owned());
        let has_room = counts.servers.len() < SERVERS_MAX || counts.servers.contains_key(&own);
        let key = if has_room { own } else { (String::new(), OTHERS.to_owned()) };
        *counts.servers.entry(key).or_default().entry(outcome).or_default() += 1;
        let took = took.as_secs_f64();
        let at = CALL_BOUNDS_SEC.iter().position(|bound| took <= *bound).unwrap_or(CALL_BOUNDS_SEC.len());
        counts.durations[at] += 1;
        counts.duration_sec += took;
    }

    /// All counters, without server status.
    pub(crate) fn numbers(&self) -> McpNumbers {
        let counts = self.lock();
        let of_server = |((tenant, server), outcomes): (&(String, String), &BTreeMap<&'static str, u64>)| {
            let (tenant, server) = (tenant.clone(), server.clone());
            let calls = outcomes.iter().map(move |(outcome, count)| McpCalls {
                tenant: tenant.clone(),
                server: server.clone(),
                outcome,
                count: *count,
            });
            calls.collect::<Vec<_>>()
        };
        let calls = counts.servers.iter().flat_map(of_server).collect();
        McpNumbers { servers: Vec::new(), calls, durations: counts.durations, duration_sec: counts.duration_sec }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome label of a call.
pub(super) fn outcome(ended: &Result<Ended, Failure>) -> &'static str {
    match ended {
        Ok(Ended::Input(_)) => "input_required",
        Ok(Ended::Answer(ServerResult::CallToolResult(result))) if result.is_error == Some(true) => "tool_error",
        Ok(Ended::Answer(_)) => "ok",
        Err(Failure::Refused(_)) => "refused",
        Err(Failure::Cancelled) => "cancelled",
        Err(Failure::TimedOut) => "timed_out",
        Err(Failure::Busy) => "busy",
        Err(Failure::Closed | Failure::Unexpected) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_server_and_end_and_take_bounded_space() {
        let tally = Tally::default();
        let tenant = TenantId::default();
        for number in 0..SERVERS_MAX + 50 {
            tally.count(&tenant, &format!("s{number}"), "ok", Duration::from_millis(10));
        }
        tally.count(&tenant, "s0", "tool_error", Duration::from_mins(1));
        tally.count(&tenant, "s0", "ok", Duration::from_hours(1));
        let numbers = tally.numbers();
        let of = |tenant: &str, server: &str, outcome: &str| {
            let is = |calls: &&McpCalls| calls.tenant == tenant && calls.server == server && calls.outcome == outcome;
            numbers.calls.iter().find(is).map(|calls| calls.count)
        };
        assert_eq!((of("default", "s0", "ok"), of("default", "s0", "tool_error")), (Some(2), Some(1)));
        assert_eq!((of("", OTHERS, "ok"), of("default", OTHERS, "ok")), (Some(50), None));
        assert_eq!(numbers.calls.len(), SERVERS_MAX + 2);
        let calls = u64::try_from(SERVERS_MAX + 50).unwrap();
        assert_eq!(numbers.durations, [0, calls, 0, 0, 0, 0, 0, 0, 1, 0, 1]);
    }
}
