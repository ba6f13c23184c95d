//! Pause, statistics, end, and being found again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use box_core::link::LeaseTerms;
use box_core::{
    BackendName, BoxSpec, Dimension, ExecIo, Floors, Handle, Journal, Level, Liveness, MountMode, Network, Profile,
    link,
};
use box_tests::ground::{fresh_id, marker, mount, private_directory, shell};
use box_tests::isolation::{RUN_DIRECTORY, network_is_isolated};
use box_tests::sinks::{Counter, Transcript};
use box_tests::suite::skip;
use box_tests::{Difference, Ground, Leaks, TestBox, eventually, host};
use box_wire::{Event, ExecOutcome, ExecRequest, Output};
use tokio::task::JoinSet;

use crate::deadlines::one_inside;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        pause_stops_progress_and_resume_continues,
        statistics_follow_the_workload,
        destroying_twice_is_no_error,
        destroying_leaves_nothing,
        a_destroyed_box_is_gone_for_everybody,
        an_id_can_be_used_again,
        an_id_is_used_once_at_a_time,
        a_box_is_adopted_after_a_restart,
        a_box_that_its_host_left_ends_itself,
        a_box_without_a_host_ends_at_its_end_whatever_runs_in_it,
        a_floor_that_cannot_be_held_refuses,
    ]
}

async fn pause_stops_progress_and_resume_continues(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::PauseEndsStreams)?;
    let (one, other) = (ground.plain().await?, ground.plain().await?);
    let (counter, witness) = (Counter::default(), Counter::default());
    let mut ticking = JoinSet::new();
    ticking.spawn(tick(one.clone(), counter.clone()));
    ticking.spawn(tick(other, witness.clone()));
    grows(&counter, 1).await.context("before the pause")?;
    if let Err(error) = one.backend.pause(&one.handle).await {
        return pause_refused(error);
    }
    // What was on its way may still come. Then nothing does, while a box that runs says much.
    eventually("silence of the paused box", || async {
        let paused = counter.bytes();
        grows(&witness, 300).await.context("in the other box")?;
        Ok((counter.bytes() == paused).then_some(()))
    })
    .await?;
    one.backend.resume(&one.handle).await?;
    grows(&counter, 1).await.context("after the resume")
}

/// Says five bytes again and again.
async fn tick(one: TestBox, counter: Counter) -> box_core::Result<ExecOutcome> {
    let io = ExecIo { stdin: tokio::io::empty(), stdout: counter, stderr: Transcript::default(), resizes: None };
    let request = ExecRequest { timeout_ms: None, ..shell("while :; do echo tick; sleep 0.01; done") };
    link::exec(one.backend.dial(&one.handle).await?, &request, io).await
}

fn pause_refused(error: box_core::Error) -> Result<()> {
    match error {
        // Without a cgroup nothing can be paused. The refusal must then name a reason and a fix.
        box_core::Error::Unavailable { reason, fix, .. } if !rustix::process::geteuid().is_root() => {
            ensure!(!reason.is_empty() && !fix.is_empty(), "pause is refused without reason or fix");
            skip(format!("boxes cannot be paused here: {reason}; {fix}"))
        }
        other => bail!("pause failed: {other}"),
    }
}

async fn grows(counter: &Counter, bytes: u64) -> Result<()> {
    let end = counter.bytes() + bytes;
    eventually("more output", || async { Ok((counter.bytes() >= end).then_some(())) }).await
}

async fn statistics_follow_the_workload(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let hard = |dimension| one.handle.guarantees.level(dimension) == Level::Hard;
    if ![Dimension::Cpu, Dimension::Memory, Dimension::Pids].into_iter().any(hard) {
        return skip("nothing counts what a box uses here; run as root, or see `strongbox doctor`");
    }
    let idle = one.backend.stats(&one.handle).await?;
    one.check("for i in $(seq 10); do (sleep 20 > /dev/null 2>&1 &) ; done; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").await?;
    let busy = one.backend.stats(&one.handle).await?;
    if hard(Dimension::Cpu) {
        ensure!(busy.cpu_us.context("cpu is hard but not measured")? > idle.cpu_us.unwrap_or(0), "{idle:?} {busy:?}");
    }
    if hard(Dimension::Memory) {
        ensure!(busy.memory_bytes.context("memory is hard but not measured")? > 0, "{busy:?}");
    }
    if hard(Dimension::Pids) {
        ensure!(busy.pids.context("pids is hard but not measured")? >= 10, "{busy:?}");
    }
    Ok(())
}

async fn destroying_twice_is_no_error(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.destroy().await?;
    one.destroy().await?;
    Ok(())
}

async fn destroying_leaves_nothing(ground: Arc<Ground>) -> Result<()> {
    let before = ground.leaks();
    let source = ground.mount_source()?;
    let mounts = vec![mount(&source, "/workspace", MountMode::Rw)?];
    let one = ground.make(&BoxSpec { mounts, ..Profile::default().spec() }).await?;
    ensure!(!ground.leaks().since(&before).is_empty(), "a live box leaves no trace: the comparison sees nothing");
    one.check("(setsid sleep 31.5 > /dev/null 2>&1 &); mkdir -p /tmp/a/b/c; chmod 000 /tmp/a").await?;
    one.destroy().await?;
    ground.settled(&before).await
}

async fn a_destroyed_box_is_gone_for_everybody(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let (runner, request) = (one.clone(), ExecRequest { timeout_ms: None, ..shell("sleep 25") });
    let exec = request.id.clone();
    let running = tokio::spawn(async move { runner.run(&request).await });
    one.wait_until_running(&exec).await?;
    one.destroy().await?;
    let error = running.await?.err().context("an exec in a destroyed box ended well")?;
    ensure!(error.code() == "box_gone", "{error:?}");
    let error = one.shell("true").await.err().context("a destroyed box runs commands")?;
    ensure!(error.code() == "box_gone", "{error:?}");
    ensure!(matches!(one.backend.adopt(&one.handle).await?, Liveness::Lost(reason) if !reason.is_empty()));
    Ok(())
}

async fn an_id_can_be_used_again(ground: Arc<Ground>) -> Result<()> {
    let id = fresh_id("again")?;
    for round in 0..3 {
        let handle = ground.backend.create(&id, &Profile::default().spec()).await?;
        let one = TestBox { backend: Arc::clone(&ground.backend), handle };
        let seen = one.shell("ls -A /workspace /tmp").await;
        one.destroy().await?;
        ensure!(!seen?.text().contains("left"), "round {round} sees files of the one before");
    }
    Ok(())
}

async fn an_id_is_used_once_at_a_time(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let second = ground.backend.create(&one.handle.id, &Profile::default().spec()).await;
    ensure!(second.is_err(), "two boxes of one id");
    ensure!(one.check("echo still there").await? == "still there", "the refusal harmed the first box");
    Ok(())
}

async fn a_box_is_adopted_after_a_restart(ground: Arc<Ground>) -> Result<()> {
    let state = private_directory()?;
    let before = Leaks::snapshot(state.path());
    let instance = format!("contract-{}", std::process::id());
    let first = ground.persistent(state.path(), &instance).await?;
    let handle = first.create(&fresh_id("adopt")?, &Profile::default().spec()).await?;
    let one = TestBox { backend: Arc::clone(&first), handle };
    let marker = marker();
    one.check(&format!("echo kept > /workspace/note; (setsid sleep {marker} > /dev/null 2>&1 &)")).await?;
    let remembered = serde_json::to_string(&one.handle)?;
    drop((one, first));
    let handle: Handle = serde_json::from_str(&remembered)?;
    let second = ground.persistent(state.path(), &instance).await?;
    let found = second.adopt(&handle).await?;
    ensure!(found == Liveness::Running, "{found:?}");
    ensure!(second.list_orphans().await?.iter().any(|orphan| orphan.id == handle.id), "it is not listed");
    let one = TestBox { backend: second, handle };
    ensure!(one.check("cat /workspace/note").await? == "kept");
    one_inside(&one, &marker).await?;
    one.destroy().await?;
    ensure!(host::processes_with(&marker).is_empty(), "a process survived");
    drop(one);
    // The instance itself goes on, and with it its directories; what the box had may not.
    let left = Leaks::snapshot(state.path()).since(&before);
    let of_box = |line: &&String| !line.starts_with("file ") || line.contains("adopt-");
    let of_box: Vec<&String> = left.iter().filter(of_box).collect();
    ensure!(of_box.is_empty(), "left behind: {of_box:?}");
    forget_instance(&instance)
}

/// A box runs while its host is there, or a command runs in it. A box that is left alone ends itself, and records that. Nothing
/// of it goes on running, and nothing keeps its network.
async fn a_box_that_its_host_left_ends_itself(ground: Arc<Ground>) -> Result<()> {
    const IDLE: Duration = Duration::from_millis(100);
    let before = ground.leaks();
    let one = with_network(&ground, BoxSpec { keeps_journal: true, ..Profile::default().spec() }).await?;
    if one.backend.ends_boxes_itself() {
        return skip("the provider ends unused boxes");
    }
    let namespace = one.check("readlink /proc/self/ns/net").await?;
    if ground.name() == BackendName::Native && rustix::process::geteuid().is_root() {
        ensure!(!holders(&namespace).is_empty(), "the box is not in its own network");
    }
    let dial = async || one.backend.dial(&one.handle).await;
    let lease = link::lease(dial().await?, LeaseTerms { idle: IDLE, left: None }).await?;
    // Many times its idle time, with nothing else to keep it.
    tokio::time::sleep(20 * IDLE).await;
    link::ping(dial().await?).await.context("it ended although its host was there")?;
    let request = ExecRequest { output: Output::JOURNAL, timeout_ms: None, ..shell("sleep 1000") };
    let (mut reader, writer) = link::start(dial().await?, &request).await?.split();
    let started = reader.next().await?;
    ensure!(matches!(started, Event::Started { .. }), "{started:?}");
    drop((reader, writer, lease));
    tokio::time::sleep(20 * IDLE).await;
    link::kill(dial().await?, request.id.clone()).await.context("it ended although a command ran in it")?;
    ended_by_itself(&one).await?;
    eventually("the end of what keeps the box's network", || async {
        Ok(holders(&namespace).is_empty().then_some(()))
    })
    .await
    .with_context(|| format!("{:?}", holders(&namespace)))?;
    // The packet rules for veth interfaces stay as long as the process that made them, unless it puts them away.
    eventually("the end of the packet rules", || async {
        box_host::network::put_away()?;
        let left = ground.leaks().since(&before);
        Ok((!left.iter().any(|left| left.starts_with("packet filter"))).then_some(()))
    })
    .await
}

/// A sandbox has an end. Without a host its box ends then, also while a command runs in it; with one, the host decides.
async fn a_box_without_a_host_ends_at_its_end_whatever_runs_in_it(ground: Arc<Ground>) -> Result<()> {
    const LEFT: Duration = Duration::from_millis(100);
    let one = ground.make(&BoxSpec { keeps_journal: true, ..Profile::default().spec() }).await?;
    if one.backend.ends_boxes_itself() {
        return skip("the provider ends unused boxes");
    }
    let dial = async || one.backend.dial(&one.handle).await;
    let terms = LeaseTerms { idle: Duration::MAX, left: Some(LEFT) };
    let lease = link::lease(dial().await?, terms).await?;
    let request = ExecRequest { output: Output::JOURNAL, timeout_ms: None, ..shell("sleep 1000") };
    let (mut reader, _writer) = link::start(dial().await?, &request).await?.split();
    let started = reader.next().await?;
    ensure!(matches!(started, Event::Started { .. }), "{started:?}");
    // Longer than an overdue box waits for its host.
    tokio::time::sleep(Duration::from_secs(10)).await;
    link::ping(dial().await?).await.context("it ended although its host was there")?;
    let renewed = link::lease(dial().await?, terms).await?;
    drop(lease);
    tokio::time::sleep(Duration::from_secs(10)).await;
    link::ping(dial().await?).await.context("it ended although its lease was renewed")?;
    drop(renewed);
    ended_by_itself(&one).await
}

/// A box with a network of this server, where it can have one without sending anything off the machine. Networks of
/// engines are the engine's to keep.
async fn with_network(ground: &Ground, spec: BoxSpec) -> Result<TestBox> {
    if network_is_isolated() && matches!(ground.name(), BackendName::Native | BackendName::Nsjail) {
        match ground.try_make(&BoxSpec { network: Network::On, ..spec.clone() }).await {
            Err(box_core::Error::Unavailable { .. }) => {}
            made => return Ok(made?),
        }
    }
    ground.make(&spec).await
}

/// Other processes of this machine that are in a network namespace or keep it open.
fn holders(namespace: &str) -> Vec<host::Process> {
    let leads_there = |path: PathBuf| fs::read_link(path).is_ok_and(|target| target == Path::new(namespace));
    let holds = |process: &host::Process| {
        let place = PathBuf::from(format!("/proc/{}", process.pid));
        let mut open = fs::read_dir(place.join("fd")).into_iter().flatten().flatten();
        leads_there(place.join("ns/net")) || open.any(|entry| leads_there(entry.path()))
    };
    host::processes().into_iter().filter(holds).collect()
}

/// Waits for the end of a box that was left alone, and checks that it recorded why.
async fn ended_by_itself(one: &TestBox) -> Result<()> {
    eventually("the end of a box that was left alone", || async {
        // To look is to dial, and an overdue box waits 5 s for a host that dials.
        tokio::time::sleep(Duration::from_secs(8)).await;
        Ok(matches!(one.backend.adopt(&one.handle).await?, Liveness::Lost(_)).then_some(()))
    })
    .await?;
    if one.backend.journal_in_box(&one.handle).is_none() {
        let journal = Journal::open(one.backend.journal(&one.handle).await?);
        ensure!(journal.says_left_alone(), "it does not say why it ended");
    }
    Ok(())
}

/// Removes the run directory of an instance that will never start again.
pub(crate) fn forget_instance(name: &str) -> Result<()> {
    for entry in fs::read_dir(RUN_DIRECTORY).into_iter().flatten().flatten() {
        if entry.path().join("instances").join(name).exists() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

async fn a_floor_that_cannot_be_held_refuses(ground: Arc<Ground>) -> Result<()> {
    let source = ground.mount_source()?;
    let mounted = BoxSpec { mounts: vec![mount(&source, "/workspace", MountMode::Rw)?], ..Profile::default().spec() };
    for spec in [Profile::default().spec(), mounted] {
        let one = ground.make(&spec).await?;
        let levels = one.handle.guarantees.clone();
        one.destroy().await?;
        let hard: Vec<Dimension> = Dimension::ALL.into_iter().filter(|&d| levels.level(d) == Level::Hard).collect();
        let held = BoxSpec { floors: Floors(hard), ..spec.clone() };
        ground.make(&held).await.context("floors that are held")?.destroy().await?;
        if let Some(weak) = Dimension::ALL.into_iter().find(|&d| levels.level(d) < Level::Hard) {
            let before = ground.leaks();
            match ground.try_make(&BoxSpec { floors: Floors(vec![weak]), ..spec }).await {
                Err(box_core::Error::FloorNotHeld { dimension, reason, .. }) => {
                    ensure!(dimension == weak && !reason.is_empty(), "{dimension}: {reason}");
                }
                other => bail!("the floor of {weak} was not refused: {other:?}"),
            }
            return ground.settled(&before).await;
        }
    }
    skip("everything is held hard on this machine")
}
