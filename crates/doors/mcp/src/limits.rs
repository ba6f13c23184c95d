//! Bounds on what a definition, a project or a server may be.

use std::time::Duration;

/// Longest URL of a remote server.
pub const URL_BYTES_MAX: usize = 2048;
/// Headers that are sent to a remote server.
pub const HEADERS_MAX: usize = 64;
/// Longest value of a header.
pub const HEADER_BYTES_MAX: usize = 8 << 10;
/// Longest name of an image as it is written.
pub const IMAGE_BYTES_MAX: usize = 512;
/// Largest text that is imported.
pub const IMPORT_BYTES_MAX: usize = 1 << 20;
/// Fields without a meaning whose names are told.
pub const IGNORED_FIELDS_SHOWN_MAX: usize = 8;
/// Characters of a stranger's word that a remark repeats.
pub const QUOTED_CHARS_MAX: usize = 64;

/// How long a server may take to start when its definition does not say: packages may have to come from far away.
pub const STARTUP_TIMEOUT_SEC_DEFAULT: u64 = 120;
/// Longest time that a server may take to start.
pub const STARTUP_TIMEOUT_SEC_MAX: u64 = 3600;
/// Longest time that a box of MCP servers goes on when no server of ours is there: nothing can reach what runs in it.
pub const UNATTENDED_SEC_MAX: u64 = box_core::limits::UNATTENDED_BOX_SEC;
/// Memory for programs that run on Node.js. With less, many of them end before they say a word.
pub const NODE_MEMORY_MB_DEFAULT: u64 = 1536;

/// Largest manifest of a project.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Largest lock file of a project. They list everything, with hashes.
pub const LOCK_FILE_BYTES_MAX: u64 = 32 << 20;

/// Lines of standard error that are told of a server.
pub const STDERR_LINES_MAX: usize = 20;
/// Characters of one such line.
pub const STDERR_LINE_CHARS_MAX: usize = 500;
/// Characters of the text that says what went wrong.
pub const ERROR_CHARS_MAX: usize = 2000;

/// Waiting times before a server is built again. There are as many retries as entries.
pub const BACK_OFF: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(8)];
/// How often one looks whether the process of a server is alive.
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
/// Looks in a row that may fail before a process counts as lost.
pub const HEALTH_FAILURES_MAX: u32 = 3;
/// Time between two attempts to reach a process that lives but does not answer.
pub const ATTACH_INTERVAL: Duration = Duration::from_secs(1);
/// Connections to one living process that may be lost in a row before it is built again.
pub const ATTACHES_MAX: u32 = 5;
/// How long a connection must hold before earlier failures are forgotten.
pub const STEADY_AFTER: Duration = Duration::from_mins(1);
/// Lines of the log of a server that are kept besides what its process says now.
pub const LOG_LINES_KEPT: usize = 1000;
/// Longest that one attempt to be answered by a process takes. Then it is looked at, and tried again if it lives.
pub const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest that the process of a server may take to end.
pub const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(30);
