//! An engine of the test machine, and a state directory for one case.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bollard::Docker;
use bollard::models::{ContainerCreateBody, ContainerSummary, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, ListContainersOptions, RemoveContainerOptions};
use box_core::{Backend, ExecIo, Handle, MountPolicy, link};
use box_docker::{Engine, EngineConfig, EngineKind, EngineSettings, PullPolicy};
use box_host::InstanceKind;
use box_wire::{BoxId, ExecOutcome, ExecRequest, Program};
use tempfile::TempDir;

/// A case that runs on each engine that there is.
macro_rules! case {
    ($name:ident, $body:expr) => {
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn docker() -> Result<()> {
                match Ground::of(box_docker::EngineKind::Docker).await? {
                    Some(ground) => ($body)(ground).await,
                    None => Ok(()),
                }
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn podman() -> Result<()> {
                match Ground::of(box_docker::EngineKind::Podman).await? {
                    Some(ground) => ($body)(ground).await,
                    None => Ok(()),
                }
            }
        }
    };
}
pub(crate) use case;

/// How long what an engine does in the background may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// An engine and a fresh state directory.
pub(crate) struct Ground {
    pub(crate) kind: EngineKind,
    address: String,
    docker: Docker,
    pub(crate) state: TempDir,
    mounts: TempDir,
}

/// An engine with a state directory that goes with it.
pub(crate) struct Elsewhere {
    pub(crate) engine: Engine,
    _state: TempDir,
}

pub(crate) fn persistent(name: &str) -> InstanceKind {
    InstanceKind::Persistent(name.to_owned())
}

pub(crate) fn settings() -> EngineSettings {
    let image = std::env::var("STRONGBOX_TEST_IMAGE").unwrap_or_else(|_| "bb:1".to_owned());
    EngineSettings { image, pull: PullPolicy::Never, ..EngineSettings::default() }
}

impl Ground {
    /// The ground of an engine. Where there is none, the test is skipped.
    pub(crate) async fn of(kind: EngineKind) -> Result<Option<Self>> {
        let variable = format!("STRONGBOX_TEST_{}", kind.to_string().to_uppercase());
        let Ok(address) = std::env::var(&variable) else {
            skip(&format!("{variable} is not set; run `sudo cargo xtask test --only crates-engines`"));
            return Ok(None);
        };
        let docker = Docker::connect_with_host(&address)?.negotiate_version().await?;
        let directory = || tempfile::Builder::new().prefix("sbd-").tempdir();
        Ok(Some(Self { kind, address, docker, state: directory()?, mounts: directory()? }))
    }

    pub(crate) async fn open(&self) -> box_core::Result<Engine> {
        self.open_as(InstanceKind::Ephemeral, settings()).await
    }

    pub(crate) async fn open_as(&self, instance: InstanceKind, settings: EngineSettings) -> box_core::Result<Engine> {
        self.open_in(self.state.path().to_owned(), instance, settings).await
    }

    /// An instance of another state directory.
    pub(crate) async fn open_elsewhere(&self) -> Result<Elsewhere> {
        let state = tempfile::Builder::new().prefix("sbd-").tempdir()?;
        let engine = self.open_in(state.path().to_owned(), InstanceKind::Ephemeral, settings()).await?;
        Ok(Elsewhere { engine, _state: state })
    }

    /// A TCP address that leads to the engine, as one of another machine would.
    pub(crate) async fn forward(&self) -> Result<String> {
        let socket = self.address.strip_prefix("unix://").context("the engine listens at a socket")?.to_owned();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = format!("tcp://{}", listener.local_addr()?);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let socket = socket.clone();
                tokio::spawn(async move {
                    let mut to = tokio::net::UnixStream::connect(socket).await?;
                    tokio::io::copy_bidirectional(&mut from, &mut to).await
                });
            }
        });
        Ok(address)
    }

    /// An engine of another address.
    pub(crate) async fn open_far(&self, settings: EngineSettings) -> box_core::Result<Engine> {
        self.open_without_address(InstanceKind::Ephemeral, settings).await
    }

    /// An engine that is found, or started, by itself.
    pub(crate) async fn open_without_address(
        &self,
        instance: InstanceKind,
        settings: EngineSettings,
    ) -> box_core::Result<Engine> {
        let (kind, mount_policy) = (self.kind, MountPolicy::default());
        let state_dir = self.state.path().to_owned();
        Engine::open(EngineConfig { kind, state_dir, mount_policy, instance, settings }).await
    }

    pub(crate) async fn open_in(
        &self,
        state_dir: PathBuf,
        instance: InstanceKind,
        settings: EngineSettings,
    ) -> box_core::Result<Engine> {
        let settings = EngineSettings { address: Some(self.address.clone()), ..settings };
        let roots = self.mounts.path().canonicalize().into_iter().collect();
        let mount_policy = MountPolicy { allowed_roots: roots, denied: Vec::new() };
        Engine::open(EngineConfig { kind: self.kind, state_dir, mount_policy, instance, settings }).await
    }

    /// Opens instances until the container of a box that a dead one left is gone. A fork of a test beside this one may hold the
    /// lease for a moment longer.
    pub(crate) async fn open_until(&self, id: &BoxId) -> Result<Engine> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let engine = self.open().await?;
            if self.containers(id).await? == 0 {
                return Ok(engine);
            }
            engine.close().await;
            ensure!(tokio::time::Instant::now() < deadline, "the container of {id} is still there");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    #[expect(clippy::unwrap_used, reason = "a name that stands in a test")]
    pub(crate) fn id(&self, what: &str) -> BoxId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        format!("{what}-{}-{}-{number}", self.kind, std::process::id()).parse().unwrap()
    }

    /// A fresh directory that may be mounted.
    pub(crate) fn source(&self, name: &str) -> Result<PathBuf> {
        let path = self.mounts.path().canonicalize()?.join(name);
        std::fs::create_dir(&path)?;
        Ok(path)
    }

    /// Whether the engine can hold boxes to limits here. Where it cannot, the test is skipped.
    pub(crate) fn has_cgroups(&self) -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            skip(&format!("{} of an ordinary user has no cgroups here; run as root", self.kind));
        }
        is_root
    }

    pub(crate) async fn shell(&self, engine: &Engine, handle: &Handle, line: &str) -> Result<String> {
        let stream = engine.dial(handle).await?;
        let mut stdout = Vec::new();
        let io = ExecIo { stdin: tokio::io::empty(), stdout: &mut stdout, stderr: tokio::io::sink(), resizes: None };
        link::exec(stream, &request(line, 30_000)?, io).await?;
        Ok(String::from_utf8(stdout)?)
    }

    pub(crate) async fn outcome(
        &self,
        engine: &Engine,
        handle: &Handle,
        line: &str,
        timeout_ms: u64,
    ) -> Result<ExecOutcome> {
        let stream = engine.dial(handle).await?;
        let io =
            ExecIo { stdin: tokio::io::empty(), stdout: tokio::io::sink(), stderr: tokio::io::sink(), resizes: None };
        Ok(link::exec(stream, &request(line, timeout_ms)?, io).await?)
    }

    async fn list(&self, label: &str) -> Result<Vec<ContainerSummary>> {
        let filters = HashMap::from([("label".to_owned(), vec![label.to_owned()])]);
        let options = ListContainersOptions { all: true, filters: Some(filters), ..ListContainersOptions::default() };
        Ok(self.docker.list_containers(Some(options)).await?)
    }

    /// How many containers say that they are this box.
    pub(crate) async fn containers(&self, id: &BoxId) -> Result<usize> {
        Ok(self.list(&format!("strongbox.box={id}")).await?.len())
    }

    /// Whether the container of this name was started before it was asked for.
    pub(crate) async fn was_pooled(&self, id: &BoxId) -> Result<bool> {
        let name = format!("strongbox-{id}");
        let found = self.docker.inspect_container(&name, None).await.context(name)?;
        Ok(found.config.and_then(|config| config.labels).unwrap_or_default().contains_key("strongbox.pool"))
    }

    /// Waits until so many containers of our state directory wait.
    pub(crate) async fn pooled(&self, count: usize) -> Result<()> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let boxes = |container: &ContainerSummary| {
            let labels = container.labels.clone().unwrap_or_default();
            let names = container.names.clone().unwrap_or_default();
            labels.contains_key("strongbox.lease") && names.iter().any(|name| name.contains("strongbox-pool-"))
        };
        loop {
            let waiting = self.list("strongbox.pool=1").await?.iter().filter(|one| boxes(one)).count();
            if waiting == count {
                return Ok(());
            }
            ensure!(tokio::time::Instant::now() < deadline, "{waiting} containers wait");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Kills the container of a box behind our back, and waits until that is so.
    pub(crate) async fn stop(&self, id: &BoxId) -> Result<()> {
        let name = format!("strongbox-{id}");
        self.docker.kill_container(&name, None).await?;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while self.docker.inspect_container(&name, None).await?.state.and_then(|state| state.running) == Some(true) {
            ensure!(tokio::time::Instant::now() < deadline, "{name} still runs");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// A container of another program, with these labels.
    pub(crate) async fn bystander(&self, labels: HashMap<&str, &str>) -> Result<String> {
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let body = ContainerCreateBody {
            image: Some(settings().image),
            cmd: Some(vec!["sh".to_owned()]),
            labels: Some(labels),
            host_config: Some(HostConfig { network_mode: Some("none".to_owned()), ..HostConfig::default() }),
            ..ContainerCreateBody::default()
        };
        Ok(self.docker.create_container(None::<CreateContainerOptions>, body).await?.id)
    }

    pub(crate) async fn exists(&self, container: &str) -> Result<bool> {
        Ok(self.docker.inspect_container(container, None).await.is_ok())
    }

    pub(crate) async fn remove(&self, container: &str) -> Result<()> {
        let options = RemoveContainerOptions { force: true, ..RemoveContainerOptions::default() };
        Ok(self.docker.remove_container(container, Some(options)).await?)
    }
}

/// Reports that the running test is skipped: what is missing, and how to get it.
#[expect(clippy::print_stderr, reason = "a skipped test must be visible")]
fn skip(reason: &str) {
    let thread = std::thread::current();
    eprintln!("skipped: {}::{}: {reason}", env!("CARGO_PKG_NAME"), thread.name().unwrap_or("unnamed"));
}

/// A tar file of a root file system that holds nothing but a shell.
pub(crate) fn busybox(place: &std::path::Path) -> Result<PathBuf> {
    let path = place.join("root.tar");
    let mut archive = tar::Builder::new(std::fs::File::create(&path)?);
    archive.append_path_with_name("/bin/busybox", "bin/sh").context("busybox-static is installed")?;
    archive.finish()?;
    Ok(path)
}

fn request(line: &str, timeout_ms: u64) -> Result<ExecRequest> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = format!("e{}", NEXT.fetch_add(1, Ordering::Relaxed)).parse()?;
    let (cwd, program) = ("/workspace".parse()?, Program::Shell(line.to_owned()));
    let env = box_core::environment::base(box_wire::User { uid: 1, gid: 1 });
    Ok(ExecRequest { cwd, timeout_ms: Some(timeout_ms), env, ..ExecRequest::new(id, program) })
}

/// Ignores the progress of an import.
pub(crate) fn silent() -> box_core::Progress {
    std::sync::Arc::new(|_| {})
}
