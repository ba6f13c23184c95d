//! Every bound on what a stranger may send us, keep open or keep waiting, in one place.

use std::time::Duration;

/// Largest body of a request.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Longest pause between two pieces of a body.
pub const BODY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Longest time for a whole body, which also ends a client that sends a byte now and then.
pub const BODY_TIME_MAX: Duration = Duration::from_mins(2);
/// How much of a body that is too large is thrown away before the connection is closed. A client that still writes when we close
/// would see a broken connection instead of our answer.
pub const BODY_DISCARD_BYTES_MAX: usize = 128 << 20;
/// How long that may take.
pub const BODY_DISCARD_TIME_MAX: Duration = Duration::from_secs(5);
/// Values in one JSON body, counted at every depth. The largest honest body has 4096 arguments and 1024 variables.
pub const JSON_VALUES_MAX: usize = 16 << 10;

/// Largest file that is uploaded, and most bytes of all files of an archive. The disk of the box may hold less.
pub const FILE_BYTES_MAX: u64 = 4 << 30;
/// How long a service in a box may take to begin its answer.
pub const PORT_ANSWER_TIME_MAX: Duration = Duration::from_mins(5);
/// Headers of its answer.
pub const PORT_ANSWER_HEADERS_MAX: usize = 128;
/// Bytes of all headers of its answer, with the first line.
pub const PORT_ANSWER_HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes that it may say before its answer has begun: interim answers, the headers, and what comes with them.
pub const PORT_ANSWER_BYTES_MAX: usize = 1 << 20;

/// Headers of one request.
pub const HEADERS_MAX: usize = 64;
/// Bytes of all headers of one request, with its first line.
pub const HEADER_BYTES_MAX: usize = 32 << 10;
/// Time for the head of a request, counted from its first byte, and for a new connection from its beginning.
pub const HEADER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long an idle connection is kept if an earlier request on it had a valid token. Pools of clients keep theirs for
/// up to five minutes.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(320);
/// Time for a TLS handshake.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// The same on a connection over which no good token was shown.
pub const STRANGER_IDLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Connections at once on which a good token was shown.
pub const CONNECTIONS_MAX: usize = 1024;
/// Connections at once on which none was shown. One more takes the place of another.
pub const STRANGERS_MAX: usize = 512;
/// Connections at once by the Unix socket.
pub const LOCAL_CONNECTIONS_MAX: usize = 256;
/// How long a peer may read nothing before its connection is closed.
pub const WRITE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long running requests may go on after the server was asked to stop.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// How old what we know of tokens may be.
pub const TOKENS_AGE_MAX: Duration = Duration::from_secs(1);

/// Largest message of a client on a WebSocket.
pub const SOCKET_MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Clients that wait until another one leaves the line relay of one process.
pub const RELAY_WAITING_MAX: usize = 16;
/// Messages that are kept of each of them until it is its turn.
pub const RELAY_QUEUED_MAX: usize = 64;
/// And bytes of them.
pub const RELAY_QUEUED_BYTES_MAX: usize = 1 << 20;
/// Longest line that the relay keeps together. A longer one is cut.
pub const RELAY_LINE_BYTES_MAX: usize = 16 << 20;
/// Managed processes whose relay position is remembered.
pub const RELAY_POSITIONS_MAX: usize = 1024;
/// Largest message with output that we send: some clients take no more than 1 MiB, stream number included.
pub const SOCKET_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// How often a WebSocket is pinged.
pub const PING_EVERY: Duration = Duration::from_secs(30);
/// How long the answer to a ping may take.
pub const PONG_TIME_MAX: Duration = Duration::from_secs(15);
/// How long we wait for the peer's half of a closing handshake.
pub const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Complaints to a client that wait to be sent.
pub const SOCKET_NOTES_MAX: usize = 16;
