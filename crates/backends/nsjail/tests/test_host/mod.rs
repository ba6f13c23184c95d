//! What tests of real jails share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use box_core::{Backend, BoxSpec, Handle, MountMode, MountSpec, Origin, Profile, Result, link};
use box_host::local::LocalConfig;
use box_nsjail::{Nsjail, NsjailConfig};
use box_wire::file_op::{Answer, FileOp, FileRequest};
use box_wire::{ExecRequest, Exit, Program, User};

/// Names the nsjail to be tested.
const VARIABLE: &str = "STRONGBOX_TEST_NSJAIL";

/// Tells a copy of this program to make a box and die.
pub(crate) const ROLE: &str = "STRONGBOX_TEST_MAKER";

/// The nsjail to be tested; without one, says that nothing was.
pub(crate) fn program() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    if named.is_none() {
        skip(&format!("{VARIABLE} names no nsjail; run `sudo cargo xtask test --only crates-engines`"));
    }
    named
}

/// Reports that the running test is skipped: what is missing, and how to get it.
#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    eprintln!("skipped: {}::{}: {reason}", env!("CARGO_PKG_NAME"), thread.name().unwrap_or("unnamed"));
}

/// Whether boxes have everything that only root can give.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A backend with a state directory of its own.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) backend: Nsjail,
    _state: tempfile::TempDir,
}

impl Stage {
    pub(crate) async fn open() -> Self {
        Self::open_with(|_| {}).await
    }

    pub(crate) async fn open_with(change: impl FnOnce(&mut NsjailConfig)) -> Self {
        Self::open_at(tempfile::tempdir().unwrap(), change).await
    }

    pub(crate) async fn open_at(state: tempfile::TempDir, change: impl FnOnce(&mut NsjailConfig)) -> Self {
        let mut config = NsjailConfig { local: LocalConfig::ephemeral(state.path().to_owned()), program: None };
        config.program = std::env::var_os(VARIABLE).map(PathBuf::from);
        change(&mut config);
        Self { backend: Nsjail::open(config).await.unwrap(), _state: state }
    }

    pub(crate) async fn create(&self, spec: &BoxSpec) -> Result<Handle> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("b{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.backend.create(&id.parse().unwrap(), spec).await
    }

    pub(crate) async fn close(self) {
        self.backend.close().await;
    }
}

/// A box as everybody gets it, but for one thing: it dies with its maker, so that a test that fails leaves none behind.
pub(crate) fn spec() -> BoxSpec {
    BoxSpec { dies_with_maker: true, ..Profile::default().spec() }
}

pub(crate) fn mount(source: &Path, target: &str, mode: MountMode) -> MountSpec {
    MountSpec { source: source.to_owned(), target: target.parse().unwrap(), mode, origin: Origin::Caller }
}

/// What became of a command.
#[derive(Debug)]
#[expect(dead_code, reason = "shown when a test fails")]
pub(crate) struct CommandResult {
    pub(crate) exit: Exit,
    pub(crate) timed_out: bool,
    pub(crate) oom_killed: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn shell(line: &str) -> ExecRequest {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = format!("e{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut request = ExecRequest::new(id.parse().unwrap(), Program::Shell(line.to_owned()));
    request.env = box_core::environment::base(User::ROOT);
    request.cwd = "/workspace".parse().unwrap();
    request.timeout_ms = Some(60_000);
    request
}

pub(crate) async fn run(backend: &Nsjail, handle: &Handle, line: &str) -> CommandResult {
    exec(backend, handle, &shell(line)).await
}

pub(crate) async fn exec(backend: &Nsjail, handle: &Handle, request: &ExecRequest) -> CommandResult {
    let stream = backend.dial(handle).await.unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let io = link::ExecIo { stdin: tokio::io::empty(), stdout: &mut stdout, stderr: &mut stderr, resizes: None };
    let outcome = link::exec(stream, request, io).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let box_wire::ExecOutcome { exit, timed_out, oom_killed, .. } = outcome;
    CommandResult { exit, timed_out, oom_killed, stdout: text(stdout), stderr: text(stderr) }
}

/// What the agent tells of a directory.
pub(crate) async fn list(backend: &Nsjail, handle: &Handle, path: &str) -> Answer {
    let op = FileOp::List { path: path.parse().unwrap(), depth: 1, entries_max: 100 };
    let mut request = shell("");
    request.program = Program::FileOp(Box::new(FileRequest { root: "/workspace".parse().unwrap(), op }));
    let stream = backend.dial(handle).await.unwrap();
    link::file_op(stream, &request, None::<tokio::io::Empty>).await.unwrap().0
}

/// Starts this program once more, to make a box below `state` and die; answers what it left to say.
pub(crate) fn make_and_die(state: &Path, kind: &str, step: Option<&str>) -> Option<String> {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "maker", "--nocapture"]).env(ROLE, format!("{kind}:{}", state.display()));
    if let Some(step) = step {
        command.env(box_nsjail::fault::VARIABLE, step);
    }
    let status = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).status().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{kind} {step:?}: {status}");
    std::fs::read_to_string(state.join("handle")).ok()
}

/// Everything on this machine that could be a trace of a box named `made`: cgroups, ranges of ids, processes, mounts of disks.
pub(crate) fn traces() -> Vec<String> {
    let is_made = |name: &String| name.rsplit('.').next() == Some("made");
    let mut found = Vec::new();
    for controller in ["memory", "pids", "cpu", "unified", "."] {
        let entries =
            std::fs::read_dir(format!("/sys/fs/cgroup/{controller}/strongbox")).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path().display().to_string()).filter(is_made));
    }
    for claim in std::fs::read_dir("/run/strongbox/ids").into_iter().flatten().flatten() {
        let owner = std::fs::read_to_string(claim.path()).unwrap_or_default();
        found.extend(Some(owner).filter(is_made));
    }
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        // Descriptors of a process are looked at only when it is an nsjail, and read only when it is one that we started: reading from
        // another's pipe takes away what was meant for it.
        if std::fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name.trim() != "nsjail") {
            continue;
        }
        let config = process.path().join("fd/0");
        let is_jail = std::fs::read_link(&config).is_ok_and(|file| file.starts_with("/memfd:nsjail-config (deleted)"));
        let text = if is_jail { std::fs::read_to_string(config).unwrap_or_default() } else { String::new() };
        found.extend(text.contains("hostname: \"made\"").then(|| format!("process {}", process.path().display())));
    }
    found.sort_unstable();
    found
}

/// The parent of a process.
pub(crate) fn parent_of(pid: u32) -> Option<rustix::process::Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let parent: i32 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()?;
    rustix::process::Pid::from_raw(parent)
}

/// Waits until something is so.
pub(crate) async fn eventually(is_so: impl Fn() -> bool) -> Option<()> {
    for _ in 0..1200 {
        if is_so() {
            return Some(());
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    None
}
