//! Each probe once without protection: one that cannot fail proves nothing.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};
use box_tests::corpus::CorpusCase;
use box_tests::ground::private_directory;
use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::expectations::{Verdict, verdict};
use crate::fixtures::World;
use crate::observation::script;

/// How long a probe may take without a box.
const LIMIT: Duration = Duration::from_mins(1);

/// An account without rights, for controls that root starts.
const UNPRIVILEGED: u32 = 65534;

/// What controls answered. A case that runs several times needs its control once.
pub(crate) type Answered = Mutex<BTreeMap<String, ControlResult>>;

/// What a control answered and what that means.
#[derive(Clone)]
pub(crate) struct ControlResult {
    pub(crate) verdict: String,
    pub(crate) found: Verdict,
}

/// The ways to run a probe without protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bypass {
    NoSandbox,
    LeakedDescriptor,
    RootInNamespaces,
}

/// What the control of a case answers, where it has one.
pub(crate) async fn control(world: &World, case: &CorpusCase) -> Result<ControlResult> {
    let known = world.controls.lock().ok().and_then(|answered| answered.get(&case.id).cloned());
    if let Some(known) = known {
        return Ok(known);
    }
    let result = run_control(world, case).await?;
    if let Ok(mut answered) = world.controls.lock() {
        answered.insert(case.id.clone(), result.clone());
    }
    Ok(result)
}

async fn run_control(world: &World, case: &CorpusCase) -> Result<ControlResult> {
    let apart = |why: &str| Ok(ControlResult { verdict: "–".to_owned(), found: Verdict::Apart(why.to_owned()) });
    if case.never_run_unsandboxed {
        return apart("too dangerous without a box");
    }
    let Some(given) = &case.control else {
        return apart("the case has no control");
    };
    let fires = |declared: &Option<String>| declared.as_deref().is_some_and(|word| word != "CONTAINED");
    let way = if fires(&given.no_sandbox) {
        Bypass::NoSandbox
    } else if fires(&given.leaked_fd) {
        Bypass::LeakedDescriptor
    } else if fires(&given.root_in_namespaces) {
        Bypass::RootInNamespaces
    } else {
        Bypass::NoSandbox
    };
    if way == Bypass::RootInNamespaces && !rustix::process::geteuid().is_root() {
        return apart("declared; its control needs root");
    }
    let answer = answer(world, case, way).await?.unwrap_or_else(|| "none".to_owned());
    let found = if given.control_fired {
        let open = answer == "ESCAPED" || answer == "EXPOSED";
        Verdict::when(open, format!("without protection ({way:?}) it answers {answer}, so it proves nothing"))
    } else {
        Verdict::Apart("not expected to fire".to_owned())
    };
    Ok(ControlResult { verdict: format!("{answer} ({way:?})"), found })
}

async fn answer(world: &World, case: &CorpusCase, way: Bypass) -> Result<Option<String>> {
    let place = private_directory()?;
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let litter = Litter::before();
    let leak = if way == Bypass::LeakedDescriptor { Some(leak_directory()?) } else { None };
    let output = run(world, case, way, place.path()).await;
    drop((leak, litter));
    Ok(verdict(&output?).map(|(word, _)| word))
}

async fn run(world: &World, case: &CorpusCase, way: Bypass, place: &Path) -> Result<Vec<u8>> {
    let script = script(world, case)?;
    let python = case.lang == "python";
    let mut command = if way == Bypass::RootInNamespaces {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts", "--"]);
        command.arg(if python { "/usr/bin/python3" } else { "/bin/sh" });
        command
    } else {
        let mut command = Command::new(if python { "/usr/bin/python3" } else { "/bin/sh" });
        if rustix::process::geteuid().is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        command
    };
    if python {
        command.arg("-").stdin(Stdio::piped());
    } else {
        command.arg("-c").arg(&script).stdin(Stdio::null());
    }
    command.env_clear().env("PATH", box_core::environment::PATH).env("HOME", place).envs(world.environment());
    command.current_dir(place).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0).kill_on_drop(true);
    let mut child = command.spawn().context("starting the control")?;
    if let Some(mut stdin) = child.stdin.take() {
        // A probe may end before it has read everything.
        let _ = stdin.write_all(script.as_bytes()).await;
    }
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await.context("the control hangs")?;
    Ok(output?.stdout)
}

/// A descriptor of a host directory that the next program inherits.
fn leak_directory() -> Result<OwnedFd> {
    let directory = rustix::fs::open("/", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    rustix::io::fcntl_setfd(&directory, FdFlags::empty())?;
    Ok(directory)
}

/// Files that probes are known to make in `/tmp`; those that were not there before are removed after a control.
struct Litter(Vec<&'static str>);

impl Litter {
    fn before() -> Self {
        let names = ["/tmp/c", "/tmp/m", "/tmp/o", "/tmp/suid", "/tmp/a", "/tmp/a.c", "/tmp/g", "/tmp/t.tar"];
        Self(names.into_iter().filter(|path| !Path::new(path).exists()).collect())
    }
}

impl Drop for Litter {
    fn drop(&mut self) {
        for path in self.0.iter().map(Path::new).filter(|path| path.exists()) {
            let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
    }
}
