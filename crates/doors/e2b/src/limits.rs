//! Every bound of the E2B door, in one place.

use std::time::Duration;

pub(crate) use box_core::limits::UPLOAD_BUFFER_BYTES;
pub(crate) use door_http::limits::{BODY_BYTES_MAX, BODY_TIME_MAX, FILE_BYTES_MAX};

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
/// Entries of the log of a sandbox in one answer.
pub(crate) const E2B_LOG_ENTRIES_MAX: usize = 1000;
/// Characters of a command that are shown in it.
pub(crate) const E2B_LOG_COMMAND_CHARS_MAX: usize = 500;
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
/// How long it may take to send one.
pub(crate) const E2B_UPLOAD_TIME_MAX: Duration = Duration::from_hours(1);
/// How often sandboxes are looked at when none comes to its end.
pub(crate) const E2B_LOOK_EVERY: Duration = Duration::from_secs(5);

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

/// How often a silent cell says that it lives. Clients expect it.
pub(crate) const CELL_KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
