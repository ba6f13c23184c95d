//! Every bound on what may cross the boundary, in one place.

/// Largest frame that carries a structured message from the host (an exec request with its environment, a plan).
pub const HOST_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Largest frame that carries a structured message from a box. Boxes are hostile: they get little room.
pub const BOX_MESSAGE_BYTES_MAX: usize = 64 << 10;

/// Largest frame that carries a few numbers: the size of a terminal, or an output position.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 256;

/// Largest frame of raw bytes (stdin, stdout, stderr), in either direction.
pub const DATA_BYTES_MAX: usize = 256 << 10;

/// Descriptors that may travel with one plan. The kernel's own bound is 253.
pub const PLAN_DESCRIPTORS_MAX: usize = 128;

/// Longest single argument or environment entry: the kernel's `MAX_ARG_STRLEN` with its terminating NUL.
pub const ARGUMENT_BYTES_MAX: usize = (128 << 10) - 1;

/// Arguments of one command.
pub const ARGUMENTS_MAX: usize = 4096;

/// All arguments and environment entries of one command together; well below what `execve` takes.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;

/// Environment entries of one command.
pub const ENVIRONMENT_ENTRIES_MAX: usize = 1024;

/// Longest name of an environment variable.
pub const ENVIRONMENT_NAME_BYTES_MAX: usize = 256;

/// Longest deadline of one exec: a week.
pub const TIMEOUT_MS_MAX: u64 = 7 * 24 * 3600 * 1000;

/// Longest guest path, as in `PATH_MAX` without the terminating NUL.
pub const PATH_BYTES_MAX: usize = 4095;

/// Longest component of a guest path.
pub const PATH_COMPONENT_BYTES_MAX: usize = 255;

/// Longest box or exec id.
pub const ID_BYTES_MAX: usize = 63;

/// Execs that one agent serves at the same time.
pub const EXECS_PER_BOX_MAX: usize = 128;

/// Streams that may be attached to one journalled exec, the one that started it included.
pub const STREAMS_PER_EXEC_MAX: usize = 16;

/// Streams that all execs of one box may hold together. With them, and all pipes and files of [`EXECS_PER_BOX_MAX`] execs, an
/// agent stays below the 1024 descriptors that it may have; connections to ports take from what the execs leave.
pub const STREAMS_PER_BOX_MAX: usize = 160;

/// Streams that may pace one held exec.
pub const PACERS_PER_EXEC_MAX: usize = 8;

/// Connections to ports of one box that its agent carries at the same time.
pub const PORT_STREAMS_PER_BOX_MAX: usize = 64;

/// How long a port of a box may take to accept a connection.
pub const PORT_CONNECT_MS_MAX: u64 = 5_000;

/// Smallest bound of a journal: the beginning, the end, and something between.
pub const JOURNAL_BYTES_MIN: u64 = 64 << 10;

/// Default bound of a journal.
pub const JOURNAL_BYTES_DEFAULT: u64 = 16 << 20;

/// Largest bound of a journal.
pub const JOURNAL_BYTES_MAX: u64 = 1 << 30;

/// Segments that are kept of one stream, at most; each has this part of the journal's bound.
pub const JOURNAL_SEGMENTS_MAX: u64 = 16;

/// Smallest segment of a journal. A flood makes and removes one file for each.
pub const JOURNAL_SEGMENT_BYTES_MIN: u64 = 16 << 10;

/// How much of a refused value an error repeats.
pub const QUOTED_VALUE_CHARS_MAX: usize = 120;

/// Largest user or group id of a workload. The one above is the agent's.
pub const GUEST_ID_MAX: u32 = 65534;

/// Descriptors that travel with a request to a starter: the agent's socket, and the cgroup that it is born into.
pub const STARTER_DESCRIPTORS_MAX: usize = 2;

/// Terminals of one box at once. The kernel has some 3,000 for the whole machine.
pub const TERMINALS_MAX: u32 = 128;

/// Sent to a starter instead of a user id when namespaces keep the owner of the fork. No user has this id.
pub const NO_OWNER: u32 = u32::MAX;

/// Rows and columns of a terminal.
pub const WINDOW_CELLS_MAX: u16 = 4096;

/// Largest reply of a file operation.
pub const REPLY_BYTES_MAX: usize = 8 << 20;

/// Largest reason on standard error that is read of a file operation that broke off.
pub const REASON_BYTES_MAX: usize = 4 << 10;

/// Entries of a directory in one answer.
pub const ENTRIES_MAX: u32 = 10_000;

/// Levels that a listing goes down.
pub const DEPTH_MAX: u32 = 64;

/// Lines of a file in one answer.
pub const LINES_MAX: u32 = 100_000;

/// Bytes of text in one answer.
pub const TEXT_BYTES_MAX: u32 = 4 << 20;

/// Files or lines that a search finds.
pub const MATCHES_MAX: u32 = 10_000;

/// Characters of a matching line in an answer.
pub const MATCH_CHARS_MAX: usize = 500;

/// Longest pattern of a search.
pub const PATTERN_BYTES_MAX: usize = 8 << 10;

/// Old and new text of one edit together.
pub const EDIT_TEXT_BYTES_MAX: usize = 2 << 20;

/// Largest file that is edited.
pub const EDIT_FILE_BYTES_MAX: u64 = 16 << 20;

/// Files of which one is made.
pub const JOINED_MAX: usize = 1000;

/// Files that are filled at once. One reply lists all of them, each with its path and its attributes.
pub const FILLED_MAX: usize = 256;

/// Longest name of an extended attribute, as the system has it.
pub const ATTRIBUTE_NAME_BYTES_MAX: usize = 255;

/// Names and values of all extended attributes of a file in one request or answer. Small file systems have no room for
/// more.
pub const ATTRIBUTES_BYTES_MAX: usize = 8 << 10;
