//! Our boxes, as the benchmarks use them.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use box_core::{Backend, BoxSpec, ExecIo, Handle, Profile, environment, link};
use box_native::{Native, NativeConfig};
use box_wire::{ExecOutcome, ExecRequest, Exit, Program, User};
use tokio::io::AsyncWrite;
use tokio::runtime::{Builder, Runtime};

use crate::commands::TRUE;

/// How long closing waits for tasks that an error left behind.
const CLOSE_TRIES_MAX: u32 = 100;
const CLOSE_PAUSE: Duration = Duration::from_millis(50);

/// The native backend and a runtime to drive it from ordinary code.
#[derive(Debug)]
pub(crate) struct Boxes {
    runtime: Runtime,
    native: Arc<Native>,
}

/// Counts output and drops it.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    pub(crate) bytes: u64,
    /// What came first, to recognize it by.
    pub(crate) head: Vec<u8>,
}

impl Boxes {
    /// Opens the backend. Whatever an earlier run that was killed has left in the same place is removed by that.
    pub(crate) fn open(state: &Path, workers: usize) -> Result<Self> {
        let mut builder = if workers == 0 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
        let runtime = builder.worker_threads(workers.max(1)).enable_all().build().context("starting the runtime")?;
        let native = runtime.block_on(Native::open(NativeConfig::ephemeral(state.to_owned())))?;
        Ok(Self { runtime, native: Arc::new(native) })
    }

    /// Destroys every box that is left.
    pub(crate) fn close(self) {
        let Self { runtime, mut native } = self;
        for _ in 0..CLOSE_TRIES_MAX {
            native = match Arc::try_unwrap(native) {
                Ok(native) => return runtime.block_on(native.close()),
                Err(shared) => shared,
            };
            runtime.block_on(tokio::time::sleep(CLOSE_PAUSE));
        }
        eprintln!("bench: some boxes could not be removed; the next run removes them");
    }

    /// Runs a future to its end.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The backend, for tasks that run side by side.
    pub(crate) fn native(&self) -> Arc<Native> {
        Arc::clone(&self.native)
    }

    /// Makes a box of the default profile.
    pub(crate) fn create(&self, id: &str) -> Result<Handle> {
        self.create_as(id, &default_spec())
    }

    /// Makes a box.
    pub(crate) fn create_as(&self, id: &str, spec: &BoxSpec) -> Result<Handle> {
        Ok(self.block_on(self.native.create(&id.parse()?, spec))?)
    }

    /// Removes a box.
    pub(crate) fn destroy(&self, handle: &Handle) -> Result<()> {
        Ok(self.block_on(self.native.destroy(handle))?)
    }

    /// Memory that the box's cgroup is charged with, the kernel's own for it included.
    pub(crate) fn charged_bytes(&self, handle: &Handle) -> Option<u64> {
        self.block_on(self.native.stats(handle)).ok()?.memory_bytes
    }

    /// Asks an agent whether it is there.
    pub(crate) fn ping(&self, handle: &Handle) -> Result<()> {
        self.block_on(async { Ok(link::ping(self.native.dial(handle).await?).await?) })
    }

    /// Runs `true` and expects it to succeed.
    pub(crate) fn exec_true(&self, handle: &Handle) -> Result<()> {
        let (outcome, _) = self.exec(handle, &request(Program::Argv(vec![TRUE.to_owned()]))?)?;
        ensure!(outcome.exit == Exit::Code(0), "true ended with {:?} in a box", outcome.exit);
        Ok(())
    }

    /// Runs a command and counts its output.
    pub(crate) fn exec(&self, handle: &Handle, request: &ExecRequest) -> Result<(ExecOutcome, Counter)> {
        self.block_on(async {
            let mut counter = Counter::default();
            let io =
                ExecIo { stdin: tokio::io::empty(), stdout: &mut counter, stderr: tokio::io::sink(), resizes: None };
            let outcome = link::exec(self.native.dial(handle).await?, request, io).await?;
            Ok((outcome, counter))
        })
    }
}

/// A box of the default profile that does not outlive the benchmark, however that ends.
pub(crate) fn default_spec() -> BoxSpec {
    BoxSpec { dies_with_maker: true, ..Profile::default().spec() }
}

/// A command with the environment that every door gives.
pub(crate) fn request(program: Program) -> Result<ExecRequest> {
    let mut request = ExecRequest::new("bench".parse()?, program);
    request.env = environment::base(User::ROOT);
    Ok(request)
}

/// The agent's process, as the host numbers it.
pub(crate) fn agent_pid(handle: &Handle) -> Result<u32> {
    let locator: serde_json::Value = serde_json::from_str(&handle.locator)?;
    let pid = locator.get("pid").and_then(serde_json::Value::as_u64).context("the handle names no process")?;
    Ok(u32::try_from(pid)?)
}

impl AsyncWrite for Counter {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.head.is_empty() {
            self.head.extend_from_slice(&bytes[..bytes.len().min(64)]);
        }
        self.bytes += bytes.len() as u64;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
