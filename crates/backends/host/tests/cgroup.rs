//! Cgroups that really limit, stop and kill. Needs root, or a user for whom root prepared them.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod skip;

use std::fmt::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use box_host::cgroup::{BoxCgroup, Cgroups, DriverKind, Limits, Memory};
use rustix::fs::{Mode, OFlags};
use skip::skip;

const LIMITS: Limits = Limits { cpus: 0.5, memory_bytes_max: 64 << 20, pids_max: 20 };
const PYTHON: &str = "/usr/bin/python3";

/// The machine's cgroups when all of them can be used: by root always, by a user where root prepared them. Else checks that
/// the answer is honest.
fn cgroups() -> Option<Cgroups> {
    let cgroups = Cgroups::detect();
    if rustix::process::geteuid().is_root() {
        assert_ne!(cgroups.kind(), DriverKind::Absent, "{:?}", cgroups.absence());
    }
    let Some((reason, fix)) = cgroups.absence() else { return Some(cgroups) };
    assert!(!reason.is_empty() && !fix.is_empty());
    skip(&format!("{reason}; {fix}"));
    None
}

/// Whom the agent's part is given to.
fn agent_ids() -> (u32, u32) {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() { (1_234_567, 1_234_567) } else { (uid.as_raw(), gid.as_raw()) }
}

fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A box that is killed and removed whatever becomes of the test.
struct Guarded {
    name: String,
    cgroup: BoxCgroup,
}

impl Guarded {
    fn new(cgroups: &Cgroups, limits: &Limits) -> Self {
        let name = unique_name();
        let cgroup = cgroups.create(&name, limits, agent_ids()).unwrap();
        Self { name, cgroup }
    }

    /// Starts a program inside: by v1's entrances, and on v2 in an exec's directory as the agent would make it.
    fn start(&self, exec: &str, program: &str, arguments: &[&str]) -> Child {
        let tracking = self.cgroup.tracking().unwrap().unwrap();
        let path = format!("/proc/self/fd/{}/{exec}", tracking.as_raw_fd());
        std::fs::create_dir(&path).unwrap();
        let mut entrances = self.cgroup.entrances().unwrap();
        if let Memory::PerBox(directory) = self.cgroup.memory().unwrap() {
            let tasks = rustix::fs::openat(directory, "tasks", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
            entrances.push(tasks.unwrap());
        }
        enter_and_run(entrances, &format!("{path}/cgroup.procs"), program, arguments)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.cgroup.kill();
        let _ = self.cgroup.remove();
    }
}

fn enter_and_run(mut entrances: Vec<OwnedFd>, procs: &str, program: &str, arguments: &[&str]) -> Child {
    entrances.push(std::fs::File::options().write(true).open(procs).unwrap().into());
    entering(entrances, program, arguments).spawn().unwrap()
}

/// A program whose process moves itself before it starts.
fn entering(entrances: Vec<OwnedFd>, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped());
    let enter = move || {
        for file in &entrances {
            rustix::io::write(file, b"0")?;
        }
        Ok(())
    };
    #[expect(unsafe_code, reason = "a test child has to move itself before it becomes the program")]
    // SAFETY: the closure makes write system calls and nothing else.
    unsafe {
        command.pre_exec(enter);
    }
    command
}

fn wait_at_most(child: &mut Child, seconds: u64) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

#[test]
fn memory_beyond_the_limit_kills_and_is_told() {
    let Some(cgroups) = cgroups() else { return };
    let guarded = Guarded::new(&cgroups, &LIMITS);
    let mut modest = guarded.start("modest", PYTHON, &["-c", "x = bytearray(16 << 20)"]);
    assert!(wait_at_most(&mut modest, 30).unwrap().success(), "the control must live");
    let mut hog = guarded.start("hog", PYTHON, &["-c", "x = bytearray(256 << 20); print('alive')"]);
    assert_eq!(wait_at_most(&mut hog, 30).unwrap().signal(), Some(9));
    if let Memory::PerBox(directory) = guarded.cgroup.memory().unwrap() {
        let read = |name| std::fs::read_to_string(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd())).unwrap();
        let control = read("memory.oom_control");
        assert!(control.contains("oom_kill 1"), "{control}");
        let peak: u64 = read("memory.max_usage_in_bytes").trim().parse().unwrap();
        assert!((32 << 20..=64 << 20).contains(&peak), "{peak}");
    }
}

#[test]
fn processes_beyond_the_limit_are_refused() {
    let Some(cgroups) = cgroups() else { return };
    let guarded = Guarded::new(&cgroups, &LIMITS);
    let script = "import os, signal, errno
pids = []
try:
    while len(pids) < 100:
        pid = os.fork()
        if pid == 0: signal.pause()
        pids.append(pid)
except OSError as error: print(len(pids), errno.errorcode[error.errno])
for pid in pids: os.kill(pid, 9)";
    let output = guarded.start("forks", PYTHON, &["-c", script]).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (count, error) = text.trim().split_once(' ').unwrap();
    assert_eq!(error, "EAGAIN");
    assert!((19..=20).contains(&count.parse::<u64>().unwrap()), "{text}");
}

#[test]
fn processor_time_is_rationed() {
    let Some(cgroups) = cgroups() else { return };
    let guarded = Guarded::new(&cgroups, &Limits { cpus: 0.2, ..LIMITS });
    let script = "import time
end = time.monotonic() + 1.5
while time.monotonic() < end: pass
print(time.process_time())";
    let output = guarded.start("spin", PYTHON, &["-c", script]).wait_with_output().unwrap();
    let used: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert!(used < 0.7, "{used} s of 1.5 s at 0.2 processors");
    assert!(guarded.cgroup.stats().cpu_us.unwrap() > 50_000);
}

#[test]
fn verify_tells_what_holds_and_notices_what_does_not() {
    let Some(cgroups) = cgroups() else { return };
    let guarded = Guarded::new(&cgroups, &LIMITS);
    let mut stranger = Command::new("/bin/sleep").arg("60").spawn().unwrap();
    let enforced = guarded.cgroup.verify(stranger.id()).unwrap();
    assert!(!enforced.kill && !enforced.freeze, "a process outside: {enforced:?}");
    assert!(!enforced.cpu && !enforced.memory && !enforced.pids, "a process outside: {enforced:?}");
    stranger.kill().unwrap();
    stranger.wait().unwrap();

    let agent = format!("/proc/self/fd/{}/cgroup.procs", guarded.cgroup.agent_directory().unwrap().as_raw_fd());
    let mut child = enter_and_run(guarded.cgroup.entrances().unwrap(), &agent, "/bin/sleep", &["60"]);
    let enforced = guarded.cgroup.verify(child.id()).unwrap();
    assert!(enforced.cpu && enforced.memory && enforced.pids && enforced.kill && enforced.freeze, "{enforced:?}");
    guarded.cgroup.kill().unwrap();
    assert_eq!(wait_at_most(&mut child, 30).unwrap().signal(), Some(9));
}

/// Does what the agent does for an exec, as the agent's id, and then what it must not be able to do.
const AGENT_SCRIPT: &str = "import os, sys
load, agent = sys.argv[1:]
box = os.path.dirname(load)
def attempt(what, path, value):
    try:
        with open(path, 'w') as file: file.write(value)
        print(what, 'done')
    except OSError as error: print(what, 'refused')
os.mkdir(load + '/exec')
attempt('move', load + '/exec/cgroup.procs', '0')
attempt('back', agent + '/cgroup.procs', '0')
attempt('leave', os.path.dirname(box) + '/cgroup.procs', '0')
attempt('freeze the box', box + '/cgroup.freeze', '1')
attempt('limit the load', load + '/cgroup.max.depth', '5')";

#[test]
fn the_agents_id_can_make_execs_and_nothing_else() {
    let Some(cgroups) = cgroups() else { return };
    if !rustix::process::geteuid().is_root() {
        return skip("only root can start a process as another user; run as root");
    }
    let guarded = Guarded::new(&cgroups, &LIMITS);
    let directory = guarded.cgroup.tracking().unwrap().unwrap();
    let load = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap();
    let agent = guarded.cgroup.agent_directory().unwrap().try_clone_to_owned().unwrap();
    let agent_path = std::fs::read_link(format!("/proc/self/fd/{}", agent.as_raw_fd())).unwrap();
    let procs = std::fs::File::options().write(true).open(format!("/proc/self/fd/{}/cgroup.procs", agent.as_raw_fd()));
    let mut enter = guarded.cgroup.entrances().unwrap();
    enter.push(procs.unwrap().into());
    let arguments = ["-c", AGENT_SCRIPT, load.to_str().unwrap(), agent_path.to_str().unwrap()];
    let mut command = entering(enter, PYTHON, &arguments);
    let output = command.uid(agent_ids().0).gid(agent_ids().1).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = "move done\nback done\nleave refused\nfreeze the box refused\nlimit the load refused\n";
    assert_eq!(told, expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn admit_moves_a_running_process() {
    let Some(cgroups) = cgroups() else { return };
    let guarded = Guarded::new(&cgroups, &LIMITS);
    let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
    let admitted = guarded.cgroup.admit(child.id());
    let told = std::fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    admitted.unwrap();
    let expected = if cgroups.kind() == DriverKind::Hybrid { 3 } else { 0 };
    let ours = told.lines().filter(|line| line.ends_with(&guarded.name)).count();
    assert_eq!(ours, expected, "memory, pids and cpu where they are on v1: {told}");
}

#[test]
fn a_frozen_box_makes_no_progress_and_a_thawed_one_does() {
    let Some(cgroups) = cgroups() else { return };
    let guarded = Guarded::new(&cgroups, &LIMITS);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ticks");
    let script = format!("while :; do echo x >> {}; sleep 0.005; done", path.display());
    let mut child = guarded.start("ticks", "/bin/sh", &["-c", &script]);
    let length = || std::fs::metadata(&path).map_or(0, |data| data.len());
    let grows_within = |time: Duration| {
        let (before, deadline) = (length(), Instant::now() + time);
        while length() == before && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        length() > before
    };
    assert!(grows_within(Duration::from_secs(30)));
    guarded.cgroup.freeze().unwrap();
    // Freezing sends no sign of its own, so only a wait shows that the process stands still.
    assert!(!grows_within(Duration::from_millis(300)));
    guarded.cgroup.thaw().unwrap();
    assert!(grows_within(Duration::from_secs(30)));
    guarded.cgroup.freeze().unwrap();
    guarded.cgroup.kill().unwrap();
    assert_eq!(wait_at_most(&mut child, 30).unwrap().signal(), Some(9), "a frozen box can be killed");
}

#[test]
fn kill_reaches_helpers_and_those_who_fled_and_remove_leaves_nothing() {
    let Some(cgroups) = cgroups() else { return };
    let guarded = Guarded::new(&cgroups, &LIMITS);
    let helper = guarded.cgroup.helper_directory().unwrap().unwrap();
    let procs = format!("/proc/self/fd/{}/cgroup.procs", helper.as_raw_fd());
    let mut helper = enter_and_run(Vec::new(), &procs, "/bin/sleep", &["60"]);
    let script = "trap '' TERM; setsid sh -c 'echo $$; exec sleep 60' & wait";
    let mut child = guarded.start("flight", "/bin/sh", &["-c", script]);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let fled = format!("/proc/{}/stat", line.trim());
    let alive = || std::fs::read_to_string(&fled).is_ok_and(|stat| !stat.contains(") Z") && !stat.contains(") X"));
    assert!(alive());
    guarded.cgroup.kill().unwrap();
    guarded.cgroup.remove().unwrap();
    assert!(!alive());
    assert_eq!(wait_at_most(&mut helper, 30).unwrap().signal(), Some(9));
    assert_eq!(wait_at_most(&mut child, 30).unwrap().signal(), Some(9));
    guarded.cgroup.remove().unwrap();
    assert!(!cgroups.list().unwrap().contains(&guarded.name));
}

#[test]
fn a_deep_tree_below_an_exec_is_removed() {
    let Some(cgroups) = cgroups() else { return };
    let guarded = Guarded::new(&cgroups, &LIMITS);
    let directory = guarded.cgroup.tracking().unwrap().unwrap();
    let mut path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    for depth in 0..60 {
        write!(path, "/{depth}").unwrap();
        std::fs::create_dir(&path).unwrap();
        std::fs::create_dir(format!("{path}/side")).unwrap();
    }
    guarded.cgroup.remove().unwrap();
    assert!(cgroups.open(&guarded.name).unwrap().is_none());
}

#[test]
fn a_box_that_still_has_processes_is_not_removed() {
    let Some(cgroups) = cgroups() else { return };
    let guarded = Guarded::new(&cgroups, &LIMITS);
    let mut child = guarded.start("sleep", "/bin/sleep", &["60"]);
    assert!(guarded.cgroup.remove().is_err());
    assert!(child.try_wait().unwrap().is_none());
    guarded.cgroup.kill().unwrap();
    guarded.cgroup.remove().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_box_is_found_again_and_a_second_of_its_name_is_refused() {
    let Some(cgroups) = cgroups() else { return };
    let guarded = Guarded::new(&cgroups, &LIMITS);
    let name = &guarded.name;
    assert!(cgroups.list().unwrap().contains(name));
    assert_eq!(cgroups.create(name, &LIMITS, agent_ids()).unwrap_err().code(), "setup_failed");
    let found = Cgroups::detect().open(name).unwrap().unwrap();
    assert!(found.agent_directory().is_some(), "the refused second did not harm the first");
    found.remove().unwrap();
    assert!(cgroups.open(name).unwrap().is_none());
    assert!(!cgroups.list().unwrap().contains(name));
}

#[test]
fn names_that_are_not_plain_are_refused() {
    let cgroups = Cgroups::detect();
    for bad in ["", ".", "..", "a/b", "A", "a\n", &"a".repeat(200)] {
        assert_eq!(cgroups.create(bad, &LIMITS, agent_ids()).unwrap_err().code(), "invalid", "{bad:?}");
    }
}

#[test]
fn boxes_made_and_removed_at_once_do_not_disturb_each_other() {
    let Some(cgroups) = cgroups() else { return };
    let (cgroups, other) = (Arc::new(cgroups), Arc::new(Cgroups::detect()));
    let work = |cgroups: &Arc<Cgroups>| {
        let cgroups = Arc::clone(cgroups);
        std::thread::spawn(move || {
            for _ in 0..50 {
                let made = cgroups.create(&unique_name(), &LIMITS, agent_ids()).unwrap();
                assert!(made.tracking().unwrap().is_some());
                made.remove().unwrap();
            }
        })
    };
    let threads = [work(&cgroups), work(&cgroups), work(&other), work(&other)];
    for thread in threads {
        thread.join().unwrap();
    }
}
