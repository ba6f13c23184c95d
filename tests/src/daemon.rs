//! An engine of a suite's own, which may be killed: with its own files and its own socket, beside those that the suite was given.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use box_core::BackendName;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use crate::engines;
use crate::ground::private_directory;

/// How long an engine may take to answer after its start, or to end after it was asked to. Only a guard against hanging.
const LIMIT: Duration = Duration::from_mins(2);

/// How often it is looked whether it does.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An engine that was started by this suite, and ends with it.
#[derive(Debug)]
pub struct Daemon {
    backend: BackendName,
    place: TempDir,
    running: Mutex<Option<Child>>,
    keeps: AtomicBool,
}

impl Daemon {
    /// Starts an engine and gives it the image of the tests.
    pub fn start(backend: BackendName) -> Result<Self> {
        let archive = engines::image_archive().context("the test run provides no image")?;
        let daemon =
            Self { backend, place: private_directory()?, running: Mutex::default(), keeps: AtomicBool::default() };
        daemon.rise()?;
        let archive = archive.to_str().context("a path that is not UTF-8")?;
        engines::client(&daemon.address(), &["import", archive, &engines::image()]).context("importing the image")?;
        Ok(daemon)
    }

    /// Which engine it is.
    pub fn backend(&self) -> BackendName {
        self.backend
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.place.path().join("engine.sock")
    }

    /// Every container of the engine, as JSON.
    pub fn containers(&self) -> Result<Vec<Value>> {
        engines::list(&self.socket())
    }

    /// Removes a container, running or not.
    pub fn remove(&self, container: &str) -> Result<()> {
        engines::client(&self.address(), &["rm", "--force", container]).map(drop)
    }

    /// From its next start on, it lets containers that outlived it go on, or ends them. Podman always lets them.
    pub fn keep_containers(&self, keeps: bool) {
        self.keeps.store(keeps, Ordering::Relaxed);
    }

    /// Starts it again after it was killed, and returns when it answers.
    pub fn rise(&self) -> Result<()> {
        let mut running = self.running();
        ensure!(running.is_none(), "it runs already");
        // A stale socket keeps Podman from starting.
        let _ = std::fs::remove_file(self.socket());
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = if self.backend == BackendName::Docker { self.docker() } else { self.podman()? };
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        *running = Some(command.spawn().with_context(|| format!("starting {}", command.get_program().display()))?);
        self.answered(running.as_mut().context("it was not started")?)
    }

    /// Starts it again if a case that failed has left it dead.
    pub fn revive(&self) -> Result<()> {
        let is_dead = self.running().is_none();
        if is_dead { self.rise() } else { Ok(()) }
    }

    /// `kill -9`, and returns when the kernel has done it. What the engine has started is not touched.
    pub fn kill(&self) -> Result<()> {
        let mut child = self.running().take().context("it does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Without networks: those belong to the engine that the suite was given.
    fn docker(&self) -> Command {
        let mut command = Command::new("dockerd");
        command.arg("--data-root").arg(self.place.path().join("data"));
        command.arg("--exec-root").arg(self.place.path().join("exec"));
        command.args(["--host", &self.address()]).arg("--pidfile").arg(self.place.path().join("pid"));
        command.args(["--exec-opt", "native.cgroupdriver=cgroupfs", "--bridge=none", "--iptables=false"]);
        command.args(["--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]);
        command.arg(format!("--live-restore={}", self.keeps.load(Ordering::Relaxed)));
        command
    }

    fn podman(&self) -> Result<Command> {
        let configuration =
            engines::podman_configuration().context("the test run provides no configuration of Podman")?;
        let mut command = Command::new("podman");
        command.env("CONTAINERS_CONF", configuration);
        for (option, name) in [("--root", "data"), ("--runroot", "exec"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(self.place.path().join(name));
        }
        command.args(["system", "service", "--time", "0", &self.address()]);
        Ok(command)
    }

    fn answered(&self, child: &mut Child) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while engines::ask(&self.socket(), "/version").is_err() {
            let ended = child.try_wait()?;
            if ended.is_some() || Instant::now() >= deadline {
                bail!("the engine does not answer ({ended:?}): {}", last_lines(&self.log()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.place.path().join("log")
    }

    fn running(&self) -> MutexGuard<'_, Option<Child>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let Some(mut child) = self.running().take() else { return };
        // A child that was reaped is left alone: its pid may belong to another process.
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        let _ = rustix::process::kill_process(Pid::from_child(&child), Signal::TERM);
        let deadline = Instant::now() + LIMIT;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = child.kill();
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn last_lines(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
