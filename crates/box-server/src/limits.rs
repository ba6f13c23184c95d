//! Every bound on what a stranger may send us, keep open or keep waiting, in one place.

use std::time::Duration;

/// Largest body of a request.
pub(crate) const BODY_BYTES_MAX: usize = 8 << 20;
/// Largest definition of an MCP server, and largest document with many of them.
pub(crate) const MCP_BODY_BYTES_MAX: usize = 1 << 20;
/// Longest time to fetch an archive from an address.
pub(crate) const FETCH_TIME_MAX: Duration = Duration::from_mins(1);
/// How often an address may lead on to another.
pub(crate) const FETCH_REDIRECTS_MAX: usize = 5;
/// Archives of skills that are held at once, of all callers: each takes memory.
pub(crate) const ARCHIVES_MAX: usize = 4;
/// Longest pause between two pieces of a body.
pub(crate) const BODY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Longest time for a whole body: whoever sends a byte now and then is not waited for.
pub(crate) const BODY_TIME_MAX: Duration = Duration::from_mins(2);
/// How much of a body that is too large is thrown away before the connection is closed. A client that still writes when we close
/// would see a broken connection instead of our answer.
pub(crate) const BODY_DISCARD_BYTES_MAX: usize = 128 << 20;
/// How long that may take.
pub(crate) const BODY_DISCARD_TIME_MAX: Duration = Duration::from_secs(5);
/// Values in one JSON body, counted at every depth. The largest honest body has 4096 arguments and 1024 variables.
pub(crate) const JSON_VALUES_MAX: usize = 16 << 10;

/// Largest file that is uploaded, and most bytes of all files of an archive. The disk of the box may hold less.
pub(crate) const FILE_BYTES_MAX: u64 = 4 << 30;
/// How much of an upload is held between the connection and the box.
pub(crate) const UPLOAD_BUFFER_BYTES: usize = 256 << 10;
/// How often a file may change between looking at it and reading it before a download is refused.
pub(crate) const DOWNLOAD_ATTEMPTS_MAX: usize = 4;
/// Entries of a listing, when nobody says how many.
pub(crate) const LISTED_ENTRIES: u32 = 1000;

/// Headers of one request.
pub(crate) const HEADERS_MAX: usize = 64;
/// Bytes of all headers of one request, with its first line.
pub(crate) const HEADER_BYTES_MAX: usize = 32 << 10;
/// Time for the head of a request, counted from when the connection waits for one. So it also ends idle connections.
pub(crate) const HEADER_TIME_MAX: Duration = Duration::from_secs(10);
/// Time for a TLS handshake.
pub(crate) const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Connections at once, of all listeners together.
pub(crate) const CONNECTIONS_MAX: usize = 1024;
/// How long a peer may take nothing of what we write before it is given up.
pub(crate) const WRITE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long running requests may go on after the server was asked to stop.
pub(crate) const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// How old what we know of tokens may be.
pub(crate) const TOKENS_AGE_MAX: Duration = Duration::from_secs(1);

/// Most output that is read at once for an answer with raw bytes. A caller who does not read holds a few of these.
pub(crate) const OUTPUT_PIECE_BYTES_MAX: usize = 256 << 10;

/// Largest message of a client on a WebSocket.
pub(crate) const SOCKET_MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Largest message of a client on the line relay: a whole JSON-RPC message.
pub(crate) const RELAY_MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Clients that wait until another one leaves the line relay of one process.
pub(crate) const RELAY_WAITING_MAX: usize = 16;
/// Messages that are kept of each of them until it is its turn.
pub(crate) const RELAY_QUEUED_MAX: usize = 64;
/// And bytes of them.
pub(crate) const RELAY_QUEUED_BYTES_MAX: usize = 1 << 20;
/// Longest line that the relay keeps together. A longer one is cut.
pub(crate) const RELAY_LINE_BYTES_MAX: usize = 16 << 20;
/// Managed processes whose relay position is remembered.
pub(crate) const RELAY_POSITIONS_MAX: usize = 1024;
/// Largest message with output that we send: some clients take no more than 1 MiB, stream number included.
pub(crate) const SOCKET_OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Time for the first message of a client that opened a WebSocket to start a command.
pub(crate) const SOCKET_FIRST_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a WebSocket is pinged.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(30);
/// How long the answer to a ping may take.
pub(crate) const PONG_TIME_MAX: Duration = Duration::from_secs(15);
/// How long we wait for the peer's half of a closing handshake.
pub(crate) const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Complaints to a client that wait to be sent.
pub(crate) const SOCKET_NOTES_MAX: usize = 16;
/// How often a silent stream of events says that it lives.
pub(crate) const EVENTS_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Largest request and largest reply of the LangBot door.
pub(crate) const RPC_MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Largest reply to a client of the LangBot door that names nothing: the oldest close the connection at 1 MiB.
pub(crate) const RPC_LEGACY_REPLY_BYTES_MAX: usize = (1 << 20) - 1;
/// Requests of one connection that are carried out at once. Clients know this number.
pub(crate) const RPC_REQUESTS_MAX: usize = 128;
/// Bytes of all long requests of one connection that are carried out at once. Reading waits when there are more.
pub(crate) const RPC_REQUEST_BYTES_MAX: usize = 64 << 20;
/// From where on a request is long. All short ones together are not much.
pub(crate) const RPC_LONG_REQUEST_BYTES: usize = 64 << 10;
/// Replies that wait to be sent. Whoever has a further one waits with it, and is still one of the requests at once.
pub(crate) const RPC_REPLIES_WAITING_MAX: usize = 8;
/// How long replies may still be written when a client on standard input has said everything.
pub(crate) const RPC_FAREWELL_TIME_MAX: Duration = Duration::from_millis(500);
/// Lines of one message that comes in parts.
pub(crate) const STDIO_LINES_MAX: usize = 4096;
/// Longest part of a message on standard output, before it is escaped; and longest message that is not cut. Escaped, it stays below
/// the 64 KiB that clients take as one line.
pub(crate) const STDIO_PART_BYTES_MAX: usize = 16 << 10;
