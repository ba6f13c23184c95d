//! Every bound of the LangBot door, in one place.

use std::time::Duration;

/// Largest request and largest reply of the LangBot door.
pub(crate) const RPC_MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Largest message to the oldest LangBot clients: they close the connection at 1 MiB, and join messages.
pub(crate) const RPC_LEGACY_MESSAGE_BYTES_MAX: usize = (1 << 20) - 1;
/// How long a client may take to read the probe before its first long answer; it must send at most one pong.
pub(crate) const RPC_PONG_TIME_MAX: Duration = Duration::from_secs(20);
/// How long a client may then take to answer the probe. Newer clients never do, which costs this delay once per connection.
pub(crate) const RPC_CLIENT_ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Requests of one connection that are carried out at once. Clients know this number.
pub(crate) const RPC_REQUESTS_MAX: usize = 128;
/// Bytes of all long requests of one connection that are carried out at once. Reading waits when there are more.
pub(crate) const RPC_REQUEST_BYTES_MAX: usize = 64 << 20;
/// From where on a request is long. All short ones together are not much.
pub(crate) const RPC_LONG_REQUEST_BYTES: usize = 64 << 10;
/// Replies that wait to be sent. Further requests wait with theirs, and still count as in progress.
pub(crate) const RPC_REPLIES_WAITING_MAX: usize = 8;
/// How long replies may still be written when a client on standard input has said everything.
pub(crate) const RPC_FAREWELL_TIME_MAX: Duration = Duration::from_millis(500);
/// Lines of one message that comes in parts.
pub(crate) const STDIO_LINES_MAX: usize = 4096;
/// Longest part of a message on standard output, before it is escaped; and longest message that is not cut. Escaped, it stays below
/// the 64 KiB that clients take as one line.
pub(crate) const STDIO_PART_BYTES_MAX: usize = 16 << 10;

/// Largest message of a client on the line relay: a whole JSON-RPC message.
pub(crate) const RELAY_MESSAGE_BYTES_MAX: usize = 16 << 20;
