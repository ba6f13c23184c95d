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

/// Entries of what a maker writes on an E2B sandbox.
pub(crate) const E2B_METADATA_ENTRIES_MAX: usize = 256;
/// And bytes of all names and values.
pub(crate) const E2B_METADATA_BYTES_MAX: usize = 256 << 10;
/// Longest key of a call that makes one sandbox, however often it is sent.
pub(crate) const E2B_KEY_BYTES_MAX: usize = 255;
/// E2B sandboxes in one page of a list, and asked for at once.
pub(crate) const E2B_PAGE_MAX: usize = 100;
/// Sandboxes of which is remembered what was last measured.
pub(crate) const E2B_MEASURED_MAX: usize = 4096;
/// Sandboxes that come to their end at the same time; others wait.
pub(crate) const E2B_ENDINGS_MAX: usize = 16;
/// Volumes of one tenant.
pub(crate) const E2B_VOLUMES_MAX: usize = 64;
/// Volumes that one sandbox has.
pub(crate) const E2B_VOLUME_MOUNTS_MAX: usize = 8;
/// Longest name of a volume.
pub(crate) const E2B_VOLUME_NAME_BYTES_MAX: usize = 64;
/// Memory of the box through which somebody looks into a volume from outside.
pub(crate) const E2B_VOLUME_BOX_MEMORY_MB: u64 = 128;
/// Its processes.
pub(crate) const E2B_VOLUME_BOX_PIDS: u64 = 32;
/// How long it stays when nobody asks it anything.
pub(crate) const E2B_VOLUME_BOX_IDLE_SEC: u64 = 60;
/// Entries of the log of a sandbox in one answer.
pub(crate) const E2B_LOG_ENTRIES_MAX: usize = 1000;
/// Characters of a command that are shown in it.
pub(crate) const E2B_LOG_COMMAND_CHARS_MAX: usize = 500;
/// Snapshots and templates of one tenant.
pub(crate) const E2B_SAVED_MAX: usize = 64;
/// How long saving a sandbox may take.
pub(crate) const E2B_SAVE_TIME_MAX: Duration = Duration::from_mins(15);
/// Longest pause between two pieces of a sandbox that is saved.
pub(crate) const E2B_SAVE_PAUSE_MAX: Duration = Duration::from_mins(1);
/// Sandboxes that one fork makes.
pub(crate) const E2B_FORKS_MAX: usize = 20;
/// Those of them that are made at the same time.
pub(crate) const E2B_FORKS_AT_ONCE: usize = 4;
/// How long what begins with a sandbox may take to be ready.
pub(crate) const E2B_READY_TIME_MAX: Duration = Duration::from_mins(1);
/// How often it is asked whether it is.
pub(crate) const E2B_READY_EVERY: Duration = Duration::from_millis(250);
/// Templates that are built at the same time, of all tenants; others wait.
pub(crate) const E2B_BUILDS_AT_ONCE: usize = 4;
/// How long a build may take.
pub(crate) const E2B_BUILD_TIME_MAX: Duration = Duration::from_hours(1);
/// How long one step of it may take.
pub(crate) const E2B_STEP_TIME_MAX: Duration = Duration::from_mins(30);
/// How long a build is kept that nobody starts.
pub(crate) const E2B_BUILD_WAIT_MAX: Duration = Duration::from_hours(2);
/// Builds of one tenant that failed and are remembered.
pub(crate) const E2B_FAILED_MAX: usize = 16;
/// Steps of one build.
pub(crate) const E2B_STEPS_MAX: usize = 256;
/// Tags of one version of a template.
pub(crate) const E2B_TAGS_MAX: usize = 32;
/// Builds of which the log is kept.
pub(crate) const E2B_BUILD_LOGS_MAX: usize = 128;
/// Bytes of the log of one build.
pub(crate) const E2B_BUILD_LOG_BYTES_MAX: usize = 2 << 20;
/// Longest line of it.
pub(crate) const E2B_BUILD_LINE_BYTES_MAX: usize = 4 << 10;
/// Lines of it in one answer. Clients know this number.
pub(crate) const E2B_BUILD_LINES_MAX: usize = 100;
/// Archives of files for one build.
pub(crate) const E2B_UPLOADS_MAX: usize = 128;
/// Largest of them, as it was before it was compressed.
pub(crate) const E2B_UPLOAD_BYTES_MAX: u64 = 4 << 30;
/// How long it may take to send one.
pub(crate) const E2B_UPLOAD_TIME_MAX: Duration = Duration::from_hours(1);
/// How often sandboxes are looked at when none comes to its end.
pub(crate) const E2B_LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long a service in a box may take to begin its answer.
pub(crate) const PORT_ANSWER_TIME_MAX: Duration = Duration::from_mins(5);
/// Headers of its answer.
pub(crate) const PORT_ANSWER_HEADERS_MAX: usize = 128;
/// Bytes of all headers of its answer, with the first line.
pub(crate) const PORT_ANSWER_HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes that it may say before its answer has begun: interim answers, the headers, and what comes with them.
pub(crate) const PORT_ANSWER_BYTES_MAX: usize = 1 << 20;

/// Headers of one request.
pub(crate) const HEADERS_MAX: usize = 64;
/// Bytes of all headers of one request, with its first line.
pub(crate) const HEADER_BYTES_MAX: usize = 32 << 10;
/// Time for the head of a request, counted from its first byte, and for a new connection from its beginning.
pub(crate) const HEADER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a connection is kept on which nothing is asked, when a good token was shown on it before. Pools of clients keep theirs for
/// up to five minutes.
pub(crate) const IDLE_TIME_MAX: Duration = Duration::from_secs(320);
/// Time for a TLS handshake.
pub(crate) const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// The same on a connection over which no good token was shown.
pub(crate) const STRANGER_IDLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Connections at once on which a good token was shown.
pub(crate) const CONNECTIONS_MAX: usize = 1024;
/// Connections at once on which none was shown. One more takes the place of another.
pub(crate) const STRANGERS_MAX: usize = 512;
/// Connections at once by the Unix socket.
pub(crate) const LOCAL_CONNECTIONS_MAX: usize = 256;
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

/// Longest boundary between parts of a form.
pub(crate) const FORM_BOUNDARY_BYTES_MAX: usize = 200;
/// Longest head of a part of a form, in which the path of a file stands.
pub(crate) const FORM_HEAD_BYTES_MAX: usize = 16 << 10;
/// Parts of one form.
pub(crate) const FORM_PARTS_MAX: usize = 10_000;
/// How much of a compressed body is inflated at once. It can become a thousand times as much.
pub(crate) const INFLATE_BYTES: usize = 4 << 10;
/// Names and values of what a client says of a file, with the names as they are kept.
pub(crate) const METADATA_BYTES_MAX: usize = 4096;
/// Longest name of one of them.
pub(crate) const METADATA_NAME_BYTES_MAX: usize = 246;
/// Largest body with names of files of which one is made.
pub(crate) const COMPOSE_BODY_BYTES_MAX: usize = 4 << 20;
/// Watchers of one sandbox that are asked from time to time. Each is an exec of the box.
pub(crate) const WATCHERS_PER_SANDBOX_MAX: usize = 32;
/// Those of all sandboxes.
pub(crate) const WATCHERS_MAX: usize = 1024;
/// Events that one of them keeps until it is asked.
pub(crate) const WATCHER_EVENTS_BYTES_MAX: usize = 1 << 20;
/// What an event takes beside its text.
pub(crate) const WATCHER_EVENT_BYTES: usize = 256;
/// How long a watcher is kept that nobody asks.
pub(crate) const WATCHER_SILENCE_MAX: Duration = Duration::from_hours(1);

/// Contexts of one sandbox of the E2B door.
pub(crate) const CONTEXTS_MAX: usize = 32;
/// Contexts whose turns are remembered while nobody uses them.
pub(crate) const CONTEXTS_REMEMBERED_MAX: usize = 1024;
/// Output of a context that is kept until it is told, of each stream.
pub(crate) const CONTEXT_JOURNAL_BYTES: u64 = 32 << 20;
/// How long a context may take to start.
pub(crate) const CONTEXT_START_TIME_MAX: Duration = Duration::from_secs(30);
/// Cells of one context that run or wait.
pub(crate) const CELLS_WAITING_MAX: usize = 16;
/// How long a context may take to begin with a cell whose turn it is.
pub(crate) const CELL_BEGIN_TIME_MAX: Duration = Duration::from_secs(10);
/// Largest value that a cell shows, in all its forms. Programs of contexts know this number.
pub(crate) const CELL_EVENT_BYTES_MAX: usize = 8 << 20;
/// Values in one such value, counted at every depth.
pub(crate) const CELL_EVENT_VALUES_MAX: usize = 1 << 19;
/// How often a silent cell says that it lives. Clients expect it.
pub(crate) const CELL_KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
/// How long a cell may take to end after each way of asking it.
pub(crate) const CELL_INTERRUPT_TIME_MAX: Duration = Duration::from_secs(2);

/// What all skills of a tenant may take.
pub(crate) const SKILLS_MB_MAX: u64 = 4096;
