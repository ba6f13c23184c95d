//! The setting of a case: a private engine, a state directory, a foreign container, and checks for leftovers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use box_core::{Backend, BackendName, BoxSpec, Handle, MountPolicy, Profile};
use box_docker::{Engine, EngineConfig, EngineKind, EngineSettings, PullPolicy};
use box_host::InstanceKind;
use box_tests::daemon::Daemon;
use box_tests::engines::{self, Stranger};
use box_tests::ground::{fresh_id, private_directory, unique};
use box_tests::{TestBox, leaks};
use serde_json::Value;
use tempfile::TempDir;

/// How long what is going away may take to be gone.
const SETTLE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How deep cgroups are searched for containers.
const CGROUP_DEPTH_MAX: usize = 6;

/// Where one case is.
pub(crate) struct Site {
    pub(crate) daemon: Arc<Daemon>,
    stranger: Mutex<Option<Stranger>>,
    stranger_name: String,
    states: Mutex<Vec<TempDir>>,
    /// What the engine called the containers of all boxes that were made here.
    made: Mutex<BTreeSet<String>>,
}

impl Site {
    /// A case on an engine, with a foreign container whose name begins like those of Strongbox.
    pub(crate) fn new(daemon: Arc<Daemon>) -> Result<Self> {
        let stranger_name = format!("strongbox-stranger-{}", unique());
        let stranger = Stranger::start(daemon.address(), &stranger_name)?;
        let (states, made) = (Mutex::default(), Mutex::default());
        Ok(Self { daemon, stranger: Mutex::new(Some(stranger)), stranger_name, states, made })
    }

    /// A fresh state directory, which is looked at in the end.
    pub(crate) fn state(&self) -> Result<PathBuf> {
        let state = private_directory()?;
        let path = state.path().to_owned();
        self.states.lock().unwrap_or_else(PoisonError::into_inner).push(state);
        Ok(path)
    }

    /// Opens a backend on the engine.
    pub(crate) async fn open(&self, state: &Path, instance: InstanceKind) -> box_core::Result<Engine> {
        open(self.daemon.backend(), self.daemon.address(), state, instance).await
    }

    /// Makes a box that outlives its maker, and that knows its own name.
    pub(crate) async fn make(&self, engine: &Arc<Engine>) -> box_core::Result<TestBox> {
        let one = make(engine).await?;
        self.note(&one.handle);
        Ok(one)
    }

    /// Remembers the container of a box, to look for it in the end.
    pub(crate) fn note(&self, handle: &Handle) {
        if let Some(container) = container_of(handle) {
            self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(container);
        }
    }

    /// Which of these boxes the engine has a container for.
    pub(crate) fn has(&self, handles: &[Handle]) -> Result<Vec<bool>> {
        let all = self.daemon.containers()?;
        let has = |handle: &Handle| {
            let id = container_of(handle).unwrap_or_default();
            all.iter().any(|one| one["Id"] == id.as_str())
        };
        Ok(handles.iter().map(has).collect())
    }

    /// Holds that the foreign container was not removed.
    pub(crate) fn stranger_is_there(&self) -> Result<()> {
        let stranger = self.stranger.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(stranger.as_ref().is_some_and(Stranger::exists), "a foreign container was removed");
        Ok(())
    }

    /// Holds that no container, cgroup, mount or file is there because of boxes of this case.
    pub(crate) async fn nothing_is_left(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            let left = self.left()?;
            if left.is_empty() {
                return Ok(());
            }
            if start.elapsed() > SETTLE {
                bail!("left behind: {}", left.join("; "));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn left(&self) -> Result<Vec<String>> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_ours = |one: &&Value| !one["Names"].to_string().contains(&self.stranger_name);
        let containers = self.daemon.containers()?;
        let mut left: Vec<String> = containers
            .iter()
            .filter(is_ours)
            .map(|one| format!("container {} {}", one["Names"], one["State"]))
            .collect();
        left.extend(cgroups_of(&made));
        let is_of_box = |line: &String| made.iter().any(|container| line.contains(container));
        left.extend(leaks::mounts().into_iter().filter(is_of_box).map(|line| format!("mount {line}")));
        for state in self.states.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            left.extend(boxes_of(state.path()));
        }
        Ok(left)
    }

    /// Removes the stranger, and whatever a case that failed has left, so that the next one finds an empty engine.
    pub(crate) fn clear(&self) -> Result<()> {
        if let Some(stranger) = self.stranger.lock().unwrap_or_else(PoisonError::into_inner).take() {
            stranger.end()?;
        }
        for one in self.daemon.containers()? {
            self.daemon.remove(one["Id"].as_str().context("a container without an id")?)?;
        }
        Ok(())
    }
}

/// Opens a backend on the engine at an address.
pub(crate) async fn open(
    backend: BackendName,
    address: String,
    state: &Path,
    instance: InstanceKind,
) -> box_core::Result<Engine> {
    let kind = if backend == BackendName::Docker { EngineKind::Docker } else { EngineKind::Podman };
    let settings = EngineSettings {
        address: Some(address),
        image: engines::image(),
        pull: PullPolicy::Never,
        ..EngineSettings::default()
    };
    let (state_dir, mount_policy) = (state.to_owned(), MountPolicy::default());
    Engine::open(EngineConfig { kind, state_dir, mount_policy, instance, settings }).await
}

/// Makes a box that outlives its maker, and that knows its own name.
pub(crate) async fn make(engine: &Arc<Engine>) -> box_core::Result<TestBox> {
    let id = fresh_id("e").map_err(|error| box_core::Error::io("naming a box", std::io::Error::other(error)))?;
    let spec = BoxSpec { dies_with_maker: false, keeps_journal: true, ..Profile::default().spec() };
    let handle = engine.create(&id, &spec).await?;
    let one = TestBox { backend: Arc::clone(engine) as Arc<dyn Backend>, handle };
    one.shell(&format!("echo {id} > /workspace/name")).await?;
    Ok(one)
}

/// Holds that a box answers, and has the files that it was given.
pub(crate) async fn is_whole(one: &TestBox) -> Result<()> {
    let said = one.check("cat /workspace/name").await.with_context(|| format!("in {}", one.handle.id))?;
    ensure!(said == one.handle.id.as_str(), "{} has other files: {said:?}", one.handle.id);
    Ok(())
}

/// Ends a backend whose boxes are all dropped.
pub(crate) async fn close(engine: Arc<Engine>) -> Result<()> {
    Arc::into_inner(engine).context("the backend is still in use")?.close().await;
    Ok(())
}

/// What the engine calls the container of a box.
fn container_of(handle: &Handle) -> Option<String> {
    let locator: Value = serde_json::from_str(&handle.locator).ok()?;
    locator["container"].as_str().map(str::to_owned)
}

/// What is on file about boxes of a state directory, and what they have written.
fn boxes_of(state: &Path) -> Vec<String> {
    let is_of_box = |path: &String| {
        ["/boxes/", "journals/", "disks/"].iter().any(|place| path.split_once(place).is_some_and(|it| !it.1.is_empty()))
    };
    let all = leaks::places(state).into_iter().flat_map(|place| leaks::files(&place));
    all.filter(is_of_box).map(|path| format!("file {path}")).collect()
}

/// Cgroups of these containers in every hierarchy.
fn cgroups_of(containers: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut ahead = vec![(PathBuf::from("/sys/fs/cgroup"), 0)];
    while let Some((directory, depth)) = ahead.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if containers.iter().any(|container| name.contains(container)) {
                found.push(format!("cgroup {}", path.display()));
            } else if depth < CGROUP_DEPTH_MAX {
                ahead.push((path, depth + 1));
            }
        }
    }
    found
}
