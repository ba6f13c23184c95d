//! Bounds on what a caller may ask of a box.

/// Smallest memory limit that a box can start in.
pub const MEMORY_MB_MIN: u64 = 32;
/// Largest memory limit: 1 TiB.
pub const MEMORY_MB_MAX: u64 = 1 << 20;
/// Smallest share of a processor. The kernel's own floor is a quota of 1 ms in 100.
pub const CPUS_MIN: f64 = 0.01;
/// Most processors.
pub const CPUS_MAX: f64 = 1024.0;
/// Most processes, as the kernel's `PID_MAX_LIMIT`.
pub const PIDS_MAX: u64 = 1 << 22;
/// Largest disk limit: 16 TiB.
pub const DISK_MB_MAX: u64 = 1 << 24;
/// What a box may store when its spec says 0: a quarter of what it may keep in memory would be too little to work with, so
/// this is a flat figure.
pub const DISK_MB_DEFAULT: u64 = 512;
/// Files that a box may own for each MiB of its disk limit.
pub const INODES_PER_DISK_MB: u64 = 256;
/// Fewest files that a box may own, whatever its disk limit.
pub const INODES_MIN: u64 = 4096;
/// Names that are looked at in a workspace that has a quota, and most files that such a one may hold: a million takes seconds.
pub const QUOTA_NAMES_MAX: u64 = 1_000_000;
/// Deepest directory that is looked at in a workspace that has a quota.
pub const QUOTA_DEPTH_MAX: u32 = 1000;
/// Workspaces of all sessions that are measured at the same time.
pub const QUOTA_WALKS_MAX: usize = 4;
/// Mounts of the host in one box, the primary one included.
pub const MOUNTS_MAX: usize = 32;
/// Names that are looked at when a tree is searched for sockets, and for files that lend rights.
pub const MOUNT_ENTRIES_MAX: usize = 50_000;
/// The same for files that lend rights in a directory of root: one that has more names is not mounted `rw`.
pub const ROOTS_MOUNT_ENTRIES_MAX: usize = 1_000_000;
/// Memory for the paths of directories that such a search still has to look at. A box can make many long ones.
pub const MOUNT_SEARCH_BYTES_MAX: usize = 64 << 20;
/// Most that one read of a journal returns.
pub const JOURNAL_READ_BYTES_MAX: usize = 1 << 20;
/// Names that are looked at in a journal. Whoever keeps the journals of more execs than that in one box removes some.
pub const JOURNAL_ENTRIES_MAX: usize = 100_000;
pub use box_wire::limits::GUEST_ID_MAX;

/// Longest name of a session, in bytes.
pub const SESSION_ID_BYTES_MAX: usize = 256;
/// Longest name of a tenant.
pub const TENANT_BYTES_MAX: usize = 64;
/// Longest name of a profile.
pub const PROFILE_NAME_BYTES_MAX: usize = 64;
/// Most profiles that an operator can add.
pub const PROFILES_MAX: usize = 100;
/// Longest name of a managed process.
pub const PROCESS_ID_BYTES_MAX: usize = 64;
/// Longest idempotency key.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
/// Longest idle time of a session: thirty days.
pub const TTL_SEC_MAX: u64 = 30 * 24 * 3600;
/// Longest deadline that a caller may give a command with a terminal. Without one it has none.
pub const TERMINAL_TIMEOUT_SEC_MAX: u64 = 24 * 3600;
/// Usual time after which a terminal without a deadline ends when no client is attached. Enough for a client that lost its
/// network to come back.
pub const TERMINAL_UNATTENDED_SEC: u64 = 600;
/// Longest that it may be set to: a week.
pub const TERMINAL_UNATTENDED_SEC_MAX: u64 = 7 * 24 * 3600;
/// How long a box in which something runs waits for a server, unless its session is persistent or has an end of its own.
pub const UNATTENDED_BOX_SEC: u64 = 24 * 3600;
/// Where commands work unless they say otherwise.
pub const WORKSPACE: &str = "/workspace";
/// Most entries on one page of a list.
pub const PAGE_MAX: usize = 1000;
/// Most characters of one stream that a result can carry.
pub const OUTPUT_LIMIT_CHARS_MAX: usize = 1 << 20;
/// Characters of standard error that the info of a process carries.
pub const STDERR_PREVIEW_CHARS: usize = 4000;
/// Most that one read of a journal returns.
pub const READ_BYTES_MAX: usize = 1 << 20;
/// Most output that one event carries to whoever follows. Each follower that does not read holds a few of these, encoded, so it
/// is small.
pub const FOLLOW_BYTES_MAX: usize = 64 << 10;
/// Most standard input that travels with one call.
pub const STDIN_BYTES_MAX: usize = 8 << 20;
/// Finished execs that a session remembers.
pub const FINISHED_EXECS_MAX: usize = 128;
/// Longest note of a door on a command. A session remembers many.
pub const NOTE_BYTES_MAX: usize = 256 << 10;
/// Characters of a command that are shown in lists.
pub const COMMAND_SHOWN_CHARS: usize = 200;
/// Characters of an error that are remembered.
pub const ERROR_CHARS_MAX: usize = 1000;
/// Runs of a managed process whose output is kept.
pub const PROCESS_RUNS_MAX: usize = 5;
/// Exited managed processes that a session remembers.
pub const EXITED_PROCESSES_MAX: usize = 256;
/// Errors of one tenant that are remembered for whoever asks what went wrong lately.
pub const RECENT_ERRORS_MAX: usize = 50;
/// Tenants whose errors are remembered; whoever had none for longest is forgotten.
pub const RECENT_ERRORS_TENANTS_MAX: usize = 1000;
/// Characters of the id of a query that are remembered with an error.
pub const QUERY_ID_CHARS_MAX: usize = 128;
/// How old what the backend said of itself may be. Looking at it costs processes, and anybody may ask whether we are ready.
pub const CAPABILITIES_AGE_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// Longest that a readiness check waits for the backend before it answers with the last known state.
pub const LOOK_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(1);
/// The same while nothing is known of the backend yet: on a busy machine the first look takes longer.
pub const FIRST_LOOK_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// Skills that one box shows. Others want to mount too.
pub const SKILLS_MOUNTED_MAX: usize = 24;
/// Skills that can be activated in one session.
pub const SKILLS_ACTIVATED_MAX: usize = SKILLS_MOUNTED_MAX;
/// Skills that an error names.
pub const SKILLS_NAMED_MAX: usize = 50;
/// Characters of a stranger's name of a skill that an error repeats.
pub const SKILL_NAME_CHARS_SHOWN: usize = 64;
/// Longest time for the Python environment of a skill. Packages may have to come from far away.
pub const SKILL_ENVIRONMENT_SEC_MAX: u64 = 300;
/// Most that is read of what the preparation of an environment says.
pub const SKILL_ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Characters of its output that an error carries: the end.
pub const SKILL_OUTPUT_CHARS_MAX: usize = 2000;

/// Volumes of one tenant.
pub const VOLUMES_MAX: usize = 64;
/// Volumes that one session mounts.
pub const VOLUME_MOUNTS_MAX: usize = 8;
/// Longest name of a volume.
pub const VOLUME_NAME_BYTES_MAX: usize = 64;
/// Sessions that an error names of those that mount a volume.
pub const VOLUME_SESSIONS_NAMED_MAX: usize = 5;
/// Memory of the box through which the files of a volume are reached.
pub const VOLUME_BOX_MEMORY_MB: u64 = 128;
/// Its processes.
pub const VOLUME_BOX_PIDS: u64 = 32;
/// How long it stays when it is idle.
pub const VOLUME_BOX_IDLE_SEC: u64 = 60;

/// Longest name of an MCP server.
pub const MCP_SERVER_NAME_BYTES_MAX: usize = 64;
/// MCP servers of one tenant.
pub const MCP_SERVERS_MAX: usize = 256;
/// MCP servers that an error names.
pub const MCP_SERVERS_NAMED_MAX: usize = 50;
/// Lines of the log of an MCP server, when nobody says how many.
pub const MCP_LOG_LINES: usize = 200;
/// Most lines of it at once.
pub const MCP_LOG_LINES_MAX: usize = 5000;

/// Deadline of a file operation, unless it moves the bytes of files.
pub const FILE_OP_TIMEOUT_MS: u64 = 60_000;

/// Bytes of an upload that are held on their way into a box.
pub const UPLOAD_BUFFER_BYTES: usize = 256 << 10;

/// Attempts at reading a part of a file that changes meanwhile.
pub const READ_ATTEMPTS_MAX: usize = 4;

/// Deadline of a transfer: an hour, as the other side may be slow.
pub const TRANSFER_TIMEOUT_MS: u64 = 3_600_000;

/// Connections to ports of one session at the same time, by all doors together.
pub const PORT_STREAMS_PER_SESSION_MAX: usize = box_wire::limits::PORT_STREAMS_PER_BOX_MAX;

/// Longest template of session ids.
pub const TEMPLATE_BYTES_MAX: usize = 512;
/// Names in braces of one template.
pub const TEMPLATE_NAMES_MAX: usize = 16;
/// Lines that the tool `read` returns at once.
pub const TOOL_LINES_MAX: u32 = 2000;
/// Bytes of text that the tool `read` returns at once.
pub const TOOL_TEXT_BYTES_MAX: u32 = 256 << 10;
/// Bytes that the tool `write` takes. A body of JSON has room for them, escaped.
pub const TOOL_WRITE_BYTES_MAX: usize = 4 << 20;
/// Files that the tool `glob` returns.
pub const TOOL_GLOB_MAX: u32 = 100;
/// Lines that the tool `grep` returns.
pub const TOOL_GREP_MAX: u32 = 200;
/// Parameters without a meaning whose names are told.
pub const TOOL_IGNORED_MAX: usize = 8;
/// Characters of the name of a tool or parameter that are repeated.
pub const TOOL_NAME_CHARS_MAX: usize = 64;

/// Commands that run at once, of all tenants together.
pub const EXECS_RUNNING_MAX: u64 = 8192;
/// Followers of output and connections to ports at once, of all tenants together.
pub const STREAMS_MAX: u64 = 8192;
/// Bytes of requests and messages that are held until they are whole, of all tenants together.
pub const BUFFERED_BYTES_MAX: u64 = 256 << 20;
/// How long the agent may take to make a command wait for a late follower. Without that the follower may miss output.
pub const HOLD_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(2);
/// A command may keep at most this part of what its tenant has left for output.
pub const JOURNAL_PART: u64 = 32;
/// A command may always keep so much of each stream.
pub const JOURNAL_BYTES_MIN: u64 = 64 << 10;

/// Images that the answer of a tool carries.
pub const TOOL_IMAGES_MAX: usize = 8;
/// Bytes of these images, in base64.
pub const TOOL_IMAGES_BYTES_MAX: usize = 4 << 20;

/// Longest code of one call.
pub const CODE_BYTES_MAX: usize = 8 << 20;
/// Code contexts of one session.
pub const CODE_CONTEXTS_MAX: usize = 32;
/// Queues of contexts that are kept while nothing waits in them.
pub const CODE_QUEUES_MAX: usize = 1024;
/// Bytes of each stream of a context that are kept until they are read.
pub const CODE_JOURNAL_BYTES_MAX: u64 = 32 << 20;
/// How long a context may take to start.
pub const CODE_START_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(30);
/// Cells of one context that run or wait.
pub const CODE_CELLS_WAITING_MAX: usize = 16;
/// How long a context may take to begin a cell that it was given.
pub const CODE_BEGIN_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(10);
/// Largest value that code displays, in all its forms. Programs of contexts know this number.
pub const CODE_EVENT_BYTES_MAX: usize = 8 << 20;
/// Values in one displayed value, counted at every depth.
pub const CODE_EVENT_VALUES_MAX: usize = 1 << 19;
/// Events of a call that wait for a caller who does not read.
pub const CODE_EVENTS_WAITING_MAX: usize = 16;
/// How long a cell may take to end after each way of interrupting it.
pub const CODE_INTERRUPT_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(2);
/// Bytes of all displayed values that one result carries.
pub const CODE_RESULTS_BYTES_MAX: usize = 16 << 20;
/// Displayed values that one result carries.
pub const CODE_RESULTS_MAX: usize = 256;
/// Snapshots and templates of one tenant.
pub const SNAPSHOTS_MAX: usize = 64;
/// Tags of one version of a template.
pub const SNAPSHOT_TAGS_MAX: usize = 32;
/// How long saving a box may take.
pub const SAVE_TIME_MAX: std::time::Duration = std::time::Duration::from_mins(15);
/// Longest pause between two pieces of a box that is saved.
pub const SAVE_PAUSE_MAX: std::time::Duration = std::time::Duration::from_mins(1);
/// Largest file for a build, uncompressed.
pub const UPLOAD_BYTES_MAX: u64 = 4 << 30;
