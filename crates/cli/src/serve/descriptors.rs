//! Room for descriptors: every session holds a few, and the usual limit is that of a single user's programs.

use rustix::process::{Resource, Rlimit};

/// File descriptors of one session: its process, its directory, its journal and its lease stream.
const PER_SESSION: u64 = 4;

/// What everything else needs: connections, commands that run, files.
const BESIDES: u64 = 2048;

/// Raises the limit of open files as far as it may be raised. Boxes have a limit of their own and do not inherit it.
pub(super) fn make_room(max_sessions: usize) {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    let raised = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let open_max = if raised.is_ok() { maximum } else { current };
    let needed = PER_SESSION * max_sessions as u64 + BESIDES;
    if let Some(open_max) = open_max.filter(|open_max| *open_max < needed) {
        tracing::warn!(
            open_max,
            needed,
            "too few open files are allowed for max_sessions; raise the limit (ulimit -Hn)"
        );
    }
}
