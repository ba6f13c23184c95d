//! Servers on the host, without a box: only where there is none, only the operator's, and only if the operator says so.

use std::process::Stdio as Pipe;

use box_core::environment;
use box_core::tasks::Start as _;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::task::TaskTracker;

use super::seen::Seen;
use crate::definition::Stdio;
use crate::upstream::Upstream;

/// Environment variables that a program inherits besides those of its definition. None of them is secret.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "USER"];

/// A server that was started on the host.
pub(super) struct Started {
    /// What it says.
    pub(super) reader: ChildStdout,
    /// Its standard input.
    pub(super) writer: ChildStdin,
    /// Its life.
    pub(super) life: Life,
}

/// The life of a program, with everything that it started. It ends when this is dropped.
pub(super) struct Life {
    child: Child,
    group: Option<Pid>,
}

/// Starts a server as its definition says, in a process group of its own.
pub(super) fn start(stdio: &Stdio, seen: &Seen, tasks: &TaskTracker) -> std::io::Result<Started> {
    let inherited = INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut command = Command::new(&stdio.command);
    command
        .args(&stdio.args)
        .env_clear()
        .env("PATH", environment::PATH)
        .envs(inherited)
        .envs(stdio.env.iter().map(|(name, value)| (name, value.expose())))
        .stdin(Pipe::piped())
        .stdout(Pipe::piped())
        .stderr(Pipe::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(cwd) = &stdio.cwd {
        command.current_dir(cwd);
    }
    let mut child = command.spawn()?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let (Some(reader), Some(writer)) = (child.stdout.take(), child.stdin.take()) else {
        return Err(std::io::ErrorKind::BrokenPipe.into());
    };
    if let Some(stderr) = child.stderr.take() {
        tasks.start(listen(stderr, seen.clone()));
    }
    Ok(Started { reader, writer, life: Life { child, group } })
}

async fn listen(mut stderr: ChildStderr, seen: Seen) {
    let mut buffer = vec![0; 8 << 10];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        seen.stderr(&buffer[..count]);
    }
}

impl Life {
    /// Ends it when the connection does.
    pub(super) fn lasts_as_long_as(mut self, upstream: Upstream, tasks: &TaskTracker) {
        tasks.start(async move {
            // A program that ends closes its streams, and that is seen. It is waited for last: then its number is still its own.
            upstream.closed().await;
            self.end();
            // So that it leaves no zombie.
            drop(self.child.wait().await);
        });
    }

    fn end(&self) {
        if let Some(group) = self.group {
            // Those that have ended cannot be killed, and need not be.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // After it was reaped, its pid may belong to another process.
        if self.child.id().is_some() {
            self.end();
        }
    }
}
