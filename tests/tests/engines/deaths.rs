//! The engine is killed while boxes are used, and started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use box_core::{Backend, BackendName, Handle, Liveness};
use box_docker::Engine;
use box_host::InstanceKind;
use box_tests::TestBox;
use tokio::task::JoinSet;

use crate::site::{self, Site};

/// Boxes in which commands run all the time.
const BOXES: usize = 4;
/// How many make and end boxes all the time.
const MAKERS: usize = 2;
/// Commands that each box must run while the engine is dead.
const COMMANDS_WITHOUT_ENGINE: usize = 5;

/// Pause between checks, and their number before the test fails.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 3000;

/// An engine as it usually is: Docker ends containers that outlived it, Podman does not.
pub(crate) async fn killed_under_load(site: Arc<Site>) -> Result<()> {
    let keeps = site.daemon.backend() == BackendName::Podman;
    under_load(&site, keeps).await
}

/// Docker, configured to keep containers.
pub(crate) async fn killed_under_load_and_keeping(site: Arc<Site>) -> Result<()> {
    site.daemon.keep_containers(true);
    site.daemon.kill()?;
    site.daemon.rise()?;
    let outcome = under_load(&site, true).await;
    site.daemon.keep_containers(false);
    outcome
}

async fn under_load(site: &Arc<Site>, keeps: bool) -> Result<()> {
    let (state, instance) = (site.state()?, InstanceKind::Persistent("load".to_owned()));
    let engine = Arc::new(site.open(&state, instance.clone()).await?);
    let mut boxes = Vec::new();
    for _ in 0..BOXES {
        boxes.push(site.make(&engine).await?);
    }
    let handles: Vec<Handle> = boxes.iter().map(|one| one.handle.clone()).collect();
    let load = Load::begin(site, &engine, &boxes);
    let killed = kill_and_restart(site, &engine, &load).await;
    let broken = load.end().await;
    killed?;
    let broken = broken?;
    for (one, broken) in boxes.iter().zip(&broken) {
        judge(one, keeps, broken.as_deref()).await.with_context(|| format!("{} after the restart", one.handle.id))?;
    }
    let fresh = site.make(&engine).await.context("a box after the restart")?;
    site::is_whole(&fresh).await?;
    drop((boxes, fresh));
    site::close(engine).await?;
    found_again(site, &site.open(&state, instance.clone()).await?.into(), &handles, keeps).await?;
    let engine = site.open(&state, instance).await?;
    for orphan in engine.list_orphans().await? {
        engine.destroy(&orphan).await.with_context(|| format!("ending {}", orphan.id))?;
    }
    engine.close().await;
    Ok(())
}

/// The engine dies in the midst of it. Boxes go on without it, and only new ones cannot be had until it is back.
async fn kill_and_restart(site: &Arc<Site>, engine: &Arc<Engine>, load: &Load) -> Result<()> {
    load.goes_on(COMMANDS_WITHOUT_ENGINE).await.context("before the kill")?;
    until("the first box that was made and ended", || load.made.load(Ordering::Relaxed) > 0).await?;
    site.daemon.kill()?;
    load.goes_on(COMMANDS_WITHOUT_ENGINE).await.context("without the engine")?;
    match site.make(engine).await {
        Ok(one) => bail!("{} was made without an engine", one.handle.id),
        Err(error) => ensure!(error.code() == "unavailable", "without the engine a box is refused so: {error}"),
    }
    let daemon = Arc::clone(&site.daemon);
    tokio::task::spawn_blocking(move || daemon.rise()).await?
}

/// A box is there and whole, or lost with a reason and refuses commands. Where the engine keeps containers, it must be there.
async fn judge(one: &TestBox, keeps: bool, broken: Option<&str>) -> Result<()> {
    match one.backend.adopt(&one.handle).await? {
        Liveness::Running => {
            ensure!(broken.is_none(), "it runs, but a command in it failed: {broken:?}");
            site::is_whole(one).await
        }
        Liveness::Lost(reason) => {
            ensure!(!keeps, "it is lost: {reason}; {broken:?}");
            ensure!(!reason.is_empty(), "it is lost without a reason");
            match one.shell("true").await {
                Ok(output) => bail!("it is lost and runs commands: {output:?}"),
                Err(error) => ensure!(error.code() == "box_gone", "a command in a lost box: {error}"),
            }
            Ok(())
        }
    }
}

/// The next server finds the same boxes, and says the same of them.
async fn found_again(site: &Arc<Site>, engine: &Arc<Engine>, handles: &[Handle], keeps: bool) -> Result<()> {
    let known = engine.list_orphans().await?;
    ensure!(handles.iter().all(|handle| known.iter().any(|one| one.id == handle.id)), "a box was forgotten");
    for handle in handles {
        let one = TestBox { backend: Arc::clone(engine) as Arc<dyn Backend>, handle: handle.clone() };
        judge(&one, keeps, None).await.with_context(|| format!("{} for the next server", handle.id))?;
    }
    site.stranger_is_there()
}

/// Commands in boxes, and boxes that come and go, until it is ended.
struct Load {
    stop: Arc<AtomicBool>,
    /// Commands that succeeded, box by box.
    done: Vec<Arc<AtomicUsize>>,
    commands: Vec<tokio::task::JoinHandle<Option<String>>>,
    /// Boxes that were made and ended.
    made: Arc<AtomicUsize>,
    makers: JoinSet<()>,
}

impl Load {
    fn begin(site: &Arc<Site>, engine: &Arc<Engine>, boxes: &[TestBox]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let done: Vec<_> = boxes.iter().map(|_| Arc::new(AtomicUsize::new(0))).collect();
        let commands = boxes.iter().zip(&done);
        let commands =
            commands.map(|(one, done)| tokio::spawn(use_box(one.clone(), Arc::clone(done), Arc::clone(&stop))));
        let (commands, made, mut makers) = (commands.collect(), Arc::default(), JoinSet::new());
        for _ in 0..MAKERS {
            makers.spawn(make_and_end(Arc::clone(site), Arc::clone(engine), Arc::clone(&made), Arc::clone(&stop)));
        }
        Self { stop, done, commands, made, makers }
    }

    /// Waits until each box has run so many more commands.
    async fn goes_on(&self, count: usize) -> Result<()> {
        let counts = || self.done.iter().map(|done| done.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let before = counts();
        let has_grown = || counts().iter().zip(&before).all(|(now, before)| *now >= before + count);
        until("the next commands", has_grown).await
    }

    /// Ends it, and returns for each box what went wrong in it.
    async fn end(self) -> Result<Vec<Option<String>>> {
        self.stop.store(true, Ordering::Relaxed);
        self.makers.join_all().await;
        let mut broken = Vec::new();
        for command in self.commands {
            broken.push(command.await?);
        }
        Ok(broken)
    }
}

/// Runs commands in a box until one fails, which ends it.
async fn use_box(one: TestBox, done: Arc<AtomicUsize>, stop: Arc<AtomicBool>) -> Option<String> {
    while !stop.load(Ordering::Relaxed) {
        if let Err(error) = site::is_whole(&one).await {
            return Some(format!("{error:#}"));
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    None
}

/// Makes and ends boxes. Both fail while the engine is dead; what could not be ended then is left to the next server.
async fn make_and_end(site: Arc<Site>, engine: Arc<Engine>, made: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        match site.make(&engine).await {
            Ok(one) if one.destroy().await.is_ok() => drop(made.fetch_add(1, Ordering::Relaxed)),
            _ => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    bail!("{what} did not come")
}
