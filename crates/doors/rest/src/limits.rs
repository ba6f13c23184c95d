//! Every bound of the REST door, in one place.

use std::time::Duration;

pub(crate) use door_http::limits::{FILE_BYTES_MAX, SOCKET_MESSAGE_BYTES_MAX};

/// Largest definition of an MCP server, and largest document with many of them.
pub(crate) const MCP_BODY_BYTES_MAX: usize = 1 << 20;
/// Longest time to fetch an archive from an address.
pub(crate) const FETCH_TIME_MAX: Duration = Duration::from_mins(1);
/// How often an address may lead on to another.
pub(crate) const FETCH_REDIRECTS_MAX: usize = 5;
/// Archives of skills that are held at once, of all callers: each takes memory.
pub(crate) const ARCHIVES_MAX: usize = 4;
/// Entries of a listing, when nobody says how many.
pub(crate) const LISTED_ENTRIES: u32 = 1000;

/// Most output that is read at once for an answer with raw bytes. A caller who does not read holds a few of these.
pub(crate) const OUTPUT_PIECE_BYTES_MAX: usize = 256 << 10;

/// Time for the first message of a client that opened a WebSocket to start a command.
pub(crate) const SOCKET_FIRST_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a silent stream of events says that it lives.
pub(crate) const EVENTS_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// What all skills of a tenant may take.
pub(crate) const SKILLS_MB_MAX: u64 = 4096;
