//! How large and how long anything may be.

use std::time::Duration;

/// Largest answer of the provider that is read.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Characters of a refusal that an error repeats.
pub(crate) const REASON_CHARS_MAX: usize = 300;
/// Pages of a list of sandboxes. Each has up to a hundred.
pub(crate) const PAGES_MAX: usize = 50;
/// Bytes that are sent to a process at once.
pub(crate) const INPUT_BYTES_MAX: usize = 256 << 10;
/// What a short command may say that is run while a box is made.
pub(crate) const SAID_BYTES_MAX: usize = 64 << 10;
/// How long connecting may take.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection is kept for the next request. Shorter than providers keep one: a request that is sent while they close it
/// fails, and cannot be sent again.
pub(crate) const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request may take that is not a stream.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a request is tried again and again while the provider is busy.
pub(crate) const RETRY_DEADLINE: Duration = Duration::from_secs(30);
/// First wait before a request is tried again; doubled each time.
pub(crate) const RETRY_WAIT_MIN: Duration = Duration::from_millis(200);
/// Seconds after which a stream that has nothing to say is asked to say so.
pub(crate) const KEEPALIVE_SEC: u64 = 50;
/// How long a stream may be silent before it counts as broken.
pub(crate) const SILENCE_MAX: Duration = Duration::from_mins(3);
/// How long written bytes are still sent after the writer has hung up.
pub(crate) const HANG_UP_GRACE: Duration = Duration::from_secs(5);
/// How long an agent may take to say that it is there.
pub(crate) const REPORT_WAIT: Duration = Duration::from_mins(1);
/// Shortest life that can be asked for a sandbox.
pub(crate) const LIFETIME_SEC_MIN: u64 = 60;
/// Longest life that can be asked for a sandbox: a day, the most that E2B's own plans give.
pub(crate) const LIFETIME_SEC_MAX: u64 = 24 * 60 * 60;
/// Bytes of all files of one mount together.
pub(crate) const MOUNT_BYTES_MAX: u64 = 256 << 20;
/// Entries of one mount: as many as the agent lists at once.
pub(crate) const MOUNT_ENTRIES_MAX: usize = box_wire::limits::ENTRIES_MAX as usize;
/// Levels of one mount: as many as the agent lists.
pub(crate) const MOUNT_DEPTH_MAX: u32 = box_wire::limits::DEPTH_MAX;
/// How long carrying one mount in or out may take.
pub(crate) const SYNC_TIMEOUT_MS: u64 = 10 * 60 * 1000;
