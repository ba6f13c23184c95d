//! Starts a command: what the parent prepares, and what the child does between fork and exec.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;

use box_wire::limits::QUOTED_VALUE_CHARS_MAX;
use box_wire::{ExecRequest, FileOp, FileRequest, Program, Refusal, RefusalCode, Stdin, User, WindowSize};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::DumpableBehavior;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::tree::Tree;
use crate::file_op;
use crate::setup::{self, Callers, MemoryTold, Prepared};
use crate::snapshot::Storage;
use crate::sudo::Request;
use crate::sys::{self, Block};

/// Room in an output pipe. More room means fewer turns between writer and agent; the kernel may grant less.
const PIPE_BYTES: usize = 256 << 10;

/// The default `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The agent's ends of a started command.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// The command, or its reaper on a host without cgroups.
    pub(crate) pid: i32,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    /// The terminal instead of the three, when one was asked for.
    pub(crate) terminal: Option<OwnedFd>,
    /// Ends without a byte when the program was started; else says what went wrong. Gone when it was heard.
    pub(crate) verdict: Option<OwnedFd>,
    /// Tells of the command's end where a reaper stands between.
    pub(crate) status: Option<OwnedFd>,
}

/// The child's ends.
struct ChildEnds {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    controlling: bool,
    verdict: OwnedFd,
    status: Option<OwnedFd>,
}

/// Everything the child needs, computed before the fork.
struct Image<'a> {
    arguments: Vec<CString>,
    environment: Vec<CString>,
    candidates: Vec<CString>,
    /// A file operation to do instead of executing a program.
    request: Option<&'a FileRequest>,
    cwd: CString,
    user: User,
}

/// A command that was started in the exec of the process that asked for it.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) pid: i32,
    /// As of [`Spawned`].
    pub(crate) verdict: OwnedFd,
}

/// Starts a command in its tree. `verdict` reports later whether it could be executed.
pub(crate) fn spawn(request: &ExecRequest, tree: &Tree, prepared: &Prepared) -> io::Result<Spawned> {
    let image = Image::new(request, prepared.workload)?;
    let (mut ours, theirs) = open_streams(request, tree.cgroup().is_none())?;
    let Some(pid) = sys::fork(tree.cgroup())? else {
        drop(ours);
        run_child(&image, theirs, prepared)
    };
    ours.pid = pid;
    Ok(ours)
}

/// Starts a command in the cgroup of this process, confined like every command. The streams are the workload's own.
pub(crate) fn start_beside(request: &Request, streams: &[OwnedFd; 3], prepared: &Prepared) -> io::Result<Beside> {
    let image = Image::beside(request)?;
    let (verdict, verdict_in) = pipe()?;
    let [stdin, stdout, stderr] = streams;
    let theirs = ChildEnds {
        stdin: stdin.try_clone()?,
        stdout: stdout.try_clone()?,
        stderr: stderr.try_clone()?,
        controlling: request.controlling,
        verdict: verdict_in,
        status: None,
    };
    match sys::fork(None)? {
        Some(pid) => Ok(Beside { pid, verdict }),
        None => run_child(&image, theirs, prepared),
    }
}

/// Explains a verdict in the words of `sudo`.
pub(crate) fn explain_beside(bytes: [u8; 8], request: &Request) -> String {
    let (stage, errno) = stage_and_errno(bytes);
    let quoted = |text: &CStr| text.to_string_lossy().chars().take(QUOTED_VALUE_CHARS_MAX).collect::<String>();
    match (stage, errno) {
        (STAGE_EXEC, Errno::NOENT | Errno::NOTDIR) => format!("{}: command not found", quoted(&request.program)),
        (STAGE_EXEC, _) => format!("{}: {}", quoted(&request.program), describe(errno)),
        (STAGE_WORKDIR, _) => format!("working directory {}: {}", quoted(&request.cwd), describe(errno)),
        (STAGE_CONFINE, Errno::INVAL) => {
            format!("user {} and group {}: the box has no such ids", request.user.uid, request.user.gid)
        }
        _ => format!("the command could not be confined: {}", describe(errno)),
    }
}

fn stage_and_errno(bytes: [u8; 8]) -> (i32, Errno) {
    let [a, b, c, d, errno @ ..] = bytes;
    (i32::from_ne_bytes([a, b, c, d]), Errno::from_raw_os_error(i32::from_ne_bytes(errno)))
}

/// Explains the bytes of a verdict. An empty verdict means that the program was started.
pub(crate) fn read_verdict(bytes: [u8; 8], request: &ExecRequest) -> Refusal {
    let (stage, errno) = stage_and_errno(bytes);
    let program = request.program.argv().first().copied().unwrap_or_default();
    // A name can be longer than what a box may say.
    let program: String = program.chars().take(QUOTED_VALUE_CHARS_MAX).collect();
    let (code, message) = match (stage, errno) {
        (STAGE_WORKDIR, _) => {
            (RefusalCode::BadWorkdir, format!("working directory {}: {}", request.cwd, describe(errno)))
        }
        (STAGE_EXEC, Errno::NOENT | Errno::NOTDIR) => {
            (RefusalCode::NotFound, format!("{program}: not found in the box"))
        }
        (STAGE_EXEC, _) => (RefusalCode::NotExecutable, format!("{program}: {}", describe(errno))),
        (STAGE_CONFINE, Errno::PERM) if request.user.is_some() => {
            (RefusalCode::BadRequest, "user: every command of this box has the user of the box".to_owned())
        }
        (STAGE_CONFINE, Errno::INVAL) if request.user.is_some() => {
            (RefusalCode::BadRequest, "user: this box does not map that id; use 0 or leave the field out".to_owned())
        }
        (STAGE_FORK, _) => (RefusalCode::OutOfProcesses, format!("no process could be started: {}", describe(errno))),
        _ => (RefusalCode::Internal, format!("the command could not be confined: {}", describe(errno))),
    };
    Refusal { code, message }
}

const STAGE_STREAMS: i32 = 1;
const STAGE_CONFINE: i32 = 2;
const STAGE_WORKDIR: i32 = 3;
const STAGE_EXEC: i32 = 4;
const STAGE_FORK: i32 = 5;

fn describe(errno: Errno) -> String {
    io::Error::from(errno).to_string()
}

impl<'a> Image<'a> {
    fn new(request: &'a ExecRequest, workload: User) -> io::Result<Self> {
        let string = |text: &str| CString::new(text).map_err(io::Error::other);
        let argv = request.program.argv();
        let arguments = argv.iter().map(|argument| string(argument)).collect::<io::Result<Vec<_>>>()?;
        let entry = |(name, value): &(String, String)| string(&format!("{name}={value}"));
        let environment = request.env.iter().map(entry).collect::<io::Result<Vec<_>>>()?;
        let program = argv.first().copied().unwrap_or_default();
        let candidates = candidates(program.as_bytes(), &environment)?;
        let (cwd, user) = (string(request.cwd.as_str())?, request.user.unwrap_or(workload));
        let request = match &request.program {
            Program::FileOp(request) => Some(&**request),
            Program::Argv(_) | Program::Shell(_) => None,
        };
        Ok(Self { arguments, environment, candidates, request, cwd, user })
    }

    fn beside(request: &Request) -> io::Result<Self> {
        let Request { user, cwd, program, arguments, environment, .. } = request.clone();
        let candidates = candidates(program.as_bytes(), &environment)?;
        Ok(Self { arguments, environment, candidates, request: None, cwd, user })
    }
}

/// The paths to try for a program: its own, or those below each entry of the last `PATH`.
fn candidates(program: &[u8], environment: &[CString]) -> io::Result<Vec<CString>> {
    let string = |bytes: Vec<u8>| CString::new(bytes).map_err(io::Error::other);
    if program.contains(&b'/') {
        return Ok(vec![string(program.to_vec())?]);
    }
    let named = environment.iter().rev().find_map(|entry| entry.as_bytes().strip_prefix(b"PATH="));
    let places = named.unwrap_or(DEFAULT_PATH.as_bytes()).split(|byte| *byte == b':');
    let absolute = places.filter(|place| place.starts_with(b"/"));
    absolute.map(|place| string([place, b"/", program].concat())).collect()
}

fn open_streams(request: &ExecRequest, with_status: bool) -> io::Result<(Spawned, ChildEnds)> {
    let (verdict, verdict_in) = pipe()?;
    let (status, status_in) =
        if with_status { pipe().map(|(read, write)| (Some(read), Some(write)))? } else { (None, None) };
    nonblocking(&verdict)?;
    let verdict = Some(verdict);
    let mut ours = Spawned { pid: 0, stdin: None, stdout: None, stderr: None, terminal: None, verdict, status };
    ours.status.as_ref().map(nonblocking).transpose()?;
    if let Some(size) = request.terminal {
        let (master, slave) = open_terminal(size)?;
        nonblocking(&master)?;
        ours.terminal = Some(master);
        let (stdin, stdout) = (slave.try_clone()?, slave.try_clone()?);
        let theirs =
            ChildEnds { stdin, stdout, stderr: slave, controlling: true, verdict: verdict_in, status: status_in };
        return Ok((ours, theirs));
    }
    let stdin = match request.stdin {
        Stdin::Null => rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?,
        Stdin::Stream => {
            let (read, write) = pipe()?;
            nonblocking(&write)?;
            ours.stdin = Some(write);
            read
        }
    };
    let (stdout, stdout_in) = pipe()?;
    let (stderr, stderr_in) = pipe()?;
    nonblocking(&stdout)?;
    nonblocking(&stderr)?;
    let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);
    (ours.stdout, ours.stderr) = (Some(stdout), Some(stderr));
    let theirs = ChildEnds {
        stdin,
        stdout: stdout_in,
        stderr: stderr_in,
        controlling: false,
        verdict: verdict_in,
        status: status_in,
    };
    Ok((ours, theirs))
}

pub(crate) fn open_terminal(size: WindowSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::unlockpt(&master)?;
    set_window_size(&master, size)?;
    let slave =
        rustix::pty::ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    Ok((master, slave))
}

/// Tells the terminal, and through it the programs on it, how large it is.
pub(crate) fn set_window_size(master: &OwnedFd, size: WindowSize) -> io::Result<()> {
    let cells = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    Ok(rustix::termios::tcsetwinsize(master, cells)?)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

fn nonblocking(descriptor: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(descriptor, flags | OFlags::NONBLOCK)?)
}

/// Runs in the child until it executes the program. Every failure is reported and ends the child.
fn run_child(image: &Image<'_>, mut ends: ChildEnds, prepared: &Prepared) -> ! {
    sys::unblock_signals();
    match ends.status.take() {
        Some(status) => reap_above(image, ends, prepared, &status),
        None => start_program(image, &ends, prepared),
    }
}

/// Without a cgroup: stays above the command as the reaper of everything below, so that no descendant can leave the tree.
fn reap_above(image: &Image<'_>, ends: ChildEnds, prepared: &Prepared, status: &OwnedFd) -> ! {
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let command = match sys::fork(None) {
        Ok(None) => start_program(image, &ends, prepared),
        Ok(Some(pid)) => pid,
        Err(error) => fail(&ends.verdict, STAGE_FORK, Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    };
    drop(ends);
    // This process is a copy of the agent that executes nothing, so close-on-exec does not help: a stream that stayed open
    // here would never end for the host.
    let Ok(status) = sys::close_all_but(status) else { sys::exit_now(126) };
    loop {
        match sys::reap(Block::Yes) {
            Ok(Some(reaped)) if reaped.pid == command => {
                let mut told = Vec::with_capacity(STATUS_BYTES);
                told.extend_from_slice(&reaped.status.to_ne_bytes());
                for number in [
                    reaped.user_us,
                    reaped.system_us,
                    reaped.resident_bytes_max,
                    reaped.read_bytes,
                    reaped.written_bytes,
                ] {
                    told.extend_from_slice(&number.to_ne_bytes());
                }
                let _ = rustix::io::write(&status, &told);
            }
            Ok(_) => {}
            Err(_) => sys::exit_now(0),
        }
    }
}

/// Size of the message in which a reaper reports how its command ended.
pub(crate) const STATUS_BYTES: usize = 4 + 5 * 8;

fn start_program(image: &Image<'_>, ends: &ChildEnds, prepared: &Prepared) -> ! {
    if let MemoryTold::Counted(_) = &prepared.memory {
        die_before_the_agent();
    }
    if let MemoryTold::PerBox { entrance, .. } = &prepared.memory
        && let Err(error) = rustix::io::write(entrance, b"0")
    {
        fail(&ends.verdict, STAGE_CONFINE, error);
    }
    if let Err(error) = take_streams(ends) {
        fail(&ends.verdict, STAGE_STREAMS, error);
    }
    if let Err(error) = setup::confine_workload(image.user, prepared) {
        fail(&ends.verdict, STAGE_CONFINE, error);
    }
    if let Err(error) = enter(&image.cwd) {
        fail(&ends.verdict, STAGE_WORKDIR, error);
    }
    if let Some(request) = image.request {
        if prepared.callers == Callers::Root {
            // A container may hide this process from the one that kills its tree; then the kernel ends it with its
            // parent.
            let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        }
        if let Err(error) = setup::install(&prepared.mode_guard.file_ops) {
            fail(&ends.verdict, STAGE_CONFINE, error);
        }
        // Nothing is executed, so nothing is closed by that; and the news that the work has begun is that the verdict is closed.
        sys::exit_now(match &prepared.storage {
            Some(storage) if request.op == FileOp::Save => save(request, storage),
            _ => sys::close_all_but_standard_streams().map_or(126, |()| file_op::run(request, None)),
        });
    }
    if let Err(error) = setup::install(&prepared.mode_guard.commands) {
        fail(&ends.verdict, STAGE_CONFINE, error);
    }
    // As execvp does: a candidate that exists but cannot be executed is remembered, a missing one is not.
    let mut verdict = Errno::NOENT;
    for candidate in &image.candidates {
        match sys::execve(candidate, &image.arguments, &image.environment) {
            Errno::NOENT | Errno::NOTDIR => {}
            error => verdict = error,
        }
    }
    fail(&ends.verdict, STAGE_EXEC, verdict)
}

/// Does the one file operation that has more than the three streams: a look at everything that the box owns, also where its user may not go.
/// Such a process may not be inspected, not even by one with the same rights.
fn save(request: &FileRequest, storage: &Storage) -> i32 {
    if rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).is_err() {
        return 126;
    }
    match sys::close_all_but_standard_streams_and(&storage.view) {
        Ok(view) => file_op::run(request, Some(&Storage { view, overlays: storage.overlays.clone() })),
        Err(_) => 126,
    }
}

/// If command and agent share a memory limit, the OOM killer must choose the command. Raising the score needs no right;
/// a command that lowers it again risks only its own box.
fn die_before_the_agent() {
    let file = rustix::fs::open("/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let _ = file.map(|file| rustix::io::write(file, b"1000"));
}

fn take_streams(ends: &ChildEnds) -> rustix::io::Result<()> {
    rustix::process::setsid()?;
    rustix::stdio::dup2_stdin(&ends.stdin)?;
    rustix::stdio::dup2_stdout(&ends.stdout)?;
    rustix::stdio::dup2_stderr(&ends.stderr)?;
    if ends.controlling {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
    }
    sys::keep_standard_streams_only().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Enters the working directory as the workload, through no magic link, so that a directory of the host cannot be meant.
fn enter(cwd: &CStr) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat2(CWD, cwd, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
    rustix::process::fchdir(directory)
}

fn fail(verdict: &OwnedFd, stage: i32, errno: Errno) -> ! {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&stage.to_ne_bytes());
    bytes[4..].copy_from_slice(&errno.raw_os_error().to_ne_bytes());
    let _ = rustix::io::write(verdict, &bytes);
    sys::exit_now(127)
}
