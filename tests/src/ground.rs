//! Where a case gets its boxes: one backend with a fresh state directory and a place for mount sources.

mod openers;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use box_core::environment::base;
use box_core::{
    Backend, BackendName, BoxSpec, ExecIo, Handle, MountMode, MountPolicy, MountSpec, Origin, Profile, link,
};
use box_host::InstanceKind;
use box_wire::{BoxId, ExecId, ExecOutcome, ExecRequest, Exit, Program, SignalScope, Stdin, User};
use tempfile::TempDir;
use tokio::io::AsyncRead;

use crate::sinks::Transcript;
use crate::{Difference, Leaks, engines, eventually, leaks};

/// Deadline of commands that name none: long enough for a busy machine, short enough to end a hanging case.
const DEADLINE_MS: u64 = 30_000;

/// How long what a destroyed box was made of may take to disappear from the kernel's tables.
const SETTLE: Duration = Duration::from_secs(30);

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A number that no other call of this process got.
pub fn unique() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A number of seconds for `sleep` that no other process of the machine sleeps, by which it is found. Suites run side by
/// side, so it holds our process id; all have the same length, so none is a part of another.
pub fn marker() -> String {
    format!("{}.{:05}", 10_000_000 + std::process::id(), unique())
}

/// A fresh id that no other run of the suites uses at the same time.
pub fn fresh_id(what: &str) -> Result<BoxId> {
    Ok(format!("{what}-{}-{}", std::process::id(), unique()).parse()?)
}

/// A fresh directory with the mode of a state directory, in the place for temporary files.
pub fn private_directory() -> Result<TempDir> {
    tempfile::Builder::new().prefix("sbt-").tempdir().context("making a temporary directory")
}

/// One backend, ready to make boxes.
#[derive(Debug)]
pub struct Ground {
    /// The backend under test.
    pub backend: Arc<dyn Backend>,
    /// Where it keeps its state.
    pub state: TempDir,
    /// Below here callers may mount.
    pub mounts: TempDir,
    /// What it has in the run directory, as long as it lives.
    run: Vec<PathBuf>,
    alive: Mutex<Vec<Handle>>,
}

impl Ground {
    /// A native backend of an instance that ends with this process.
    pub async fn native() -> Result<Self> {
        Self::open(BackendName::Native).await
    }

    /// A backend of an instance that ends with this process. The environment of the suite names its engine.
    pub async fn open(name: BackendName) -> Result<Self> {
        let (state, mounts, before) = (private_directory()?, private_directory()?, leaks::run_directories());
        let backend = openers::open(name, state.path(), policy(mounts.path())?, InstanceKind::Ephemeral).await?;
        let run = leaks::run_directories().difference(&before).cloned().collect();
        Ok(Self { backend, state, mounts, run, alive: Mutex::default() })
    }

    /// A backend of the same kind, of an instance that is found again under `id`.
    pub async fn persistent(&self, state: &Path, id: &str) -> Result<Arc<dyn Backend>> {
        let instance = InstanceKind::Persistent(id.to_owned());
        openers::open(self.name(), state, MountPolicy::default(), instance).await
    }

    /// Which backend it is.
    pub fn name(&self) -> BackendName {
        self.backend.name()
    }

    /// The default user of commands.
    pub fn user(&self) -> User {
        self.backend.workload(User::ROOT)
    }

    /// Whether the backend differs in this, which is known.
    pub fn differs(&self, difference: Difference) -> bool {
        difference.reason(self.name()).is_some()
    }

    /// Ends a case that makes no sense on this backend, for a reason that is known.
    pub fn unless(&self, difference: Difference) -> Result<()> {
        difference.unless(self.name())
    }

    /// Where the output of journalled execs is kept.
    pub fn journals(&self) -> PathBuf {
        openers::state_of(self.name(), self.state.path()).join("journals")
    }

    /// Where unpacked images are kept.
    pub fn images(&self) -> PathBuf {
        openers::state_of(self.name(), self.state.path()).join("images")
    }

    /// Makes a box.
    pub async fn make(&self, spec: &BoxSpec) -> Result<TestBox> {
        Ok(self.try_make(spec).await?)
    }

    /// Makes a box, or says why not in the words of the backend.
    pub async fn try_make(&self, spec: &BoxSpec) -> box_core::Result<TestBox> {
        let id = fresh_id("t")
            .map_err(|error| box_core::Error::Setup { step: "test".to_owned(), reason: error.to_string() })?;
        // A suite that is killed must not leave boxes; that a box can outlive its maker is the business of one case.
        let spec = BoxSpec { dies_with_maker: true, ..spec.clone() };
        let handle = self.backend.create(&id, &spec).await?;
        if let Ok(mut alive) = self.alive.lock() {
            alive.push(handle.clone());
        }
        Ok(TestBox { backend: Arc::clone(&self.backend), handle })
    }

    /// A box of the default profile.
    pub async fn plain(&self) -> Result<TestBox> {
        self.make(&Profile::default().spec()).await
    }

    /// A fresh directory below the allowed root.
    pub fn mount_source(&self) -> Result<PathBuf> {
        let path = self.mounts.path().canonicalize()?.join(format!("source-{}", unique()));
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// Ends what a case left alive, as it may have failed halfway.
    pub async fn clear(&self) -> Result<()> {
        let left = self.alive.lock().map(|mut alive| std::mem::take(&mut *alive)).unwrap_or_default();
        for handle in left {
            self.backend.destroy(&handle).await.with_context(|| format!("destroying {}", handle.id))?;
        }
        Ok(())
    }

    /// Ends the instance with everything that it has.
    pub async fn end(self) -> Result<()> {
        self.clear().await?;
        let Self { backend, run, .. } = self;
        drop(backend);
        run.iter().try_for_each(|path| std::fs::remove_dir_all(path).with_context(|| path.display().to_string()))
    }

    /// What exists on the machine because of this ground.
    pub fn leaks(&self) -> Leaks {
        Leaks::snapshot(self.state.path()).with(engines::contents(self.name()))
    }

    /// Waits until nothing more exists than `before`, or names what is left.
    pub async fn settled(&self, before: &Leaks) -> Result<()> {
        before.settle(|| self.leaks(), SETTLE).await
    }
}

/// Lets callers mount below `root`.
pub fn policy(root: &Path) -> Result<MountPolicy> {
    Ok(MountPolicy { allowed_roots: vec![root.canonicalize()?], denied: Vec::new() })
}

/// A mount as a caller would ask for it.
pub fn mount(source: &Path, target: &str, mode: MountMode) -> Result<MountSpec> {
    Ok(MountSpec { source: source.to_owned(), target: target.parse()?, mode, origin: Origin::Caller })
}

/// A live box and the backend that it lives on.
#[derive(Debug, Clone)]
pub struct TestBox {
    /// Where it lives.
    pub backend: Arc<dyn Backend>,
    /// What finds it.
    pub handle: Handle,
}

/// What a command wrote and how it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// How it ended.
    pub outcome: ExecOutcome,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
}

impl Output {
    /// Standard output without the white space around it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }

    /// Standard error without the white space around it.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).trim().to_owned()
    }

    /// Whether the command returned 0.
    pub fn succeeded(&self) -> bool {
        self.outcome.exit == Exit::Code(0)
    }
}

impl TestBox {
    /// Runs a shell line that must succeed, and returns what it wrote.
    pub async fn check(&self, line: &str) -> Result<String> {
        let output = self.shell(line).await?;
        ensure!(output.succeeded(), "{line:?} ended with {:?}: {} {}", output.outcome, output.text(), output.errors());
        Ok(output.text())
    }

    /// Runs a shell line.
    pub async fn shell(&self, line: &str) -> box_core::Result<Output> {
        self.run(&request(Program::Shell(line.to_owned()))).await
    }

    /// Runs a program with its arguments.
    pub async fn argv(&self, argv: &[&str]) -> box_core::Result<Output> {
        self.run(&request(Program::Argv(argv.iter().map(|&part| part.to_owned()).collect()))).await
    }

    /// Runs a request without input.
    pub async fn run(&self, request: &ExecRequest) -> box_core::Result<Output> {
        self.run_with(request, tokio::io::empty()).await
    }

    /// Runs a request and feeds its standard input.
    pub async fn run_with(&self, request: &ExecRequest, stdin: impl AsyncRead + Unpin) -> box_core::Result<Output> {
        let request = &self.at_home(request);
        let stream = self.backend.dial(&self.handle).await?;
        let (stdout, stderr) = (Transcript::default(), Transcript::default());
        let io = ExecIo { stdin, stdout: stdout.clone(), stderr: stderr.clone(), resizes: None };
        let outcome = link::exec(stream, request, io).await?;
        Ok(Output { outcome, stdout: stdout.bytes(), stderr: stderr.bytes() })
    }

    /// A request without an environment of its own gets that of the default user of this box.
    fn at_home(&self, request: &ExecRequest) -> ExecRequest {
        let mut request = request.clone();
        if request.env == base(User::ROOT) {
            request.env = base(self.backend.workload(User::ROOT));
        }
        request
    }

    /// Asks the agent whether it is there.
    pub async fn ping(&self) -> box_core::Result<()> {
        link::ping(self.backend.dial(&self.handle).await?).await
    }

    /// Waits until the agent runs an exec.
    pub async fn wait_until_running(&self, exec: &ExecId) -> Result<()> {
        eventually(&format!("exec {exec}"), || async {
            let running = link::list(self.backend.dial(&self.handle).await?).await?;
            Ok(running.iter().any(|one| one.id == *exec).then_some(()))
        })
        .await
    }

    /// Waits until a file exists in the box.
    pub async fn wait_for_file(&self, path: &str) -> Result<()> {
        self.check(&format!("while [ ! -e {path} ]; do sleep 0.02; done")).await.map(drop)
    }

    /// Kills the process tree of an exec.
    pub async fn kill(&self, exec: &ExecId) -> box_core::Result<()> {
        link::kill(self.backend.dial(&self.handle).await?, exec.clone()).await
    }

    /// Signals the main process of an exec.
    pub async fn signal(&self, exec: &ExecId, signal: i32) -> box_core::Result<()> {
        link::signal(self.backend.dial(&self.handle).await?, exec.clone(), signal, SignalScope::Main).await
    }

    /// Ends the box.
    pub async fn destroy(&self) -> box_core::Result<()> {
        self.backend.destroy(&self.handle).await
    }
}

/// A request with the default environment, a fresh id and the usual deadline.
pub fn request(program: Program) -> ExecRequest {
    let id = format!("e{}", unique()).parse();
    // The name is made of a letter and digits, so it follows the grammar.
    let id = id.unwrap_or_else(|_| unreachable!("an exec id of one letter and digits"));
    let mut request = ExecRequest::new(id, program);
    request.env = base(User::ROOT);
    request.timeout_ms = Some(DEADLINE_MS);
    request
}

/// A shell line as a request.
pub fn shell(line: &str) -> ExecRequest {
    request(Program::Shell(line.to_owned()))
}

/// The same request with streamed standard input.
pub fn with_stdin(mut request: ExecRequest) -> ExecRequest {
    request.stdin = Stdin::Stream;
    request
}
