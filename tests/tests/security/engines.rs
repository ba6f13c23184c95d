//! The cases of the corpus that look at a backend from outside: what its boxes are made of, who ends whom, and who is left alone.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use box_core::{BackendName, BoxSpec, Dimension, Level, MountMode, Profile};
use box_tests::ground::{fresh_id, marker, mount, shell};
use box_tests::suite::CaseFuture;
use box_tests::{Ground, TestBox, engines, eventually, host, system};
use box_wire::ExecRequest;
use serde_json::Value;

/// One case: its id in the corpus, the backends on which it means something, and what it does.
pub(crate) struct EngineCase {
    pub(crate) id: &'static str,
    backends: &'static [BackendName],
    pub(crate) run: fn(Arc<Ground>) -> CaseFuture,
}

const ALL: &[BackendName] = &BackendName::USUAL;
const CONTAINERS: &[BackendName] = &[BackendName::Docker, BackendName::Podman];

const CASES: &[EngineCase] = &[
    EngineCase { id: "BK-02", backends: ALL, run: |ground| Box::pin(a_path_is_never_taken_apart(ground)) },
    EngineCase { id: "BK-03", backends: CONTAINERS, run: |ground| Box::pin(hardening_really_arrives(ground)) },
    EngineCase { id: "BK-04", backends: ALL, run: |ground| Box::pin(a_deadline_reaches_into_the_box(ground)) },
    EngineCase { id: "BK-05", backends: ALL, run: |ground| Box::pin(two_instances_leave_each_other_alone(ground)) },
    EngineCase { id: "BK-07", backends: ALL, run: |ground| Box::pin(a_process_of_a_box_is_nobody_outside(ground)) },
    EngineCase {
        id: "CR-04",
        backends: ALL,
        run: |ground| Box::pin(whoever_kills_the_first_process_ends_the_box(ground)),
    },
    EngineCase { id: "CR-10", backends: ALL, run: |ground| Box::pin(strangers_are_left_alone(ground)) },
];

/// The cases for this backend.
pub(crate) fn cases(backend: BackendName) -> impl Iterator<Item = &'static EngineCase> {
    CASES.iter().filter(move |case| case.backends.contains(&backend))
}

fn spec() -> BoxSpec {
    Profile::default().spec()
}

/// Names that mean something where mounts are written as text: either they are refused, or they are names and nothing else.
async fn a_path_is_never_taken_apart(ground: Arc<Ground>) -> Result<()> {
    let root = ground.mounts.path().canonicalize()?;
    for name in ["a:/etc:ro", "b,readonly=false,bind-propagation=rshared", "c,source=/", "d\"e", "f\\g", "--privileged"]
    {
        let source = root.join(name);
        fs::create_dir_all(&source)?;
        fs::write(source.join("mark"), "the right one")?;
        let spec = BoxSpec { mounts: vec![mount(&source, "/mnt/w", MountMode::Ro)?], ..spec() };
        match ground.try_make(&spec).await {
            Err(box_core::Error::MountDenied { .. } | box_core::Error::Invalid(_)) => {}
            Err(error) => bail!("{name:?}: refused as {error:?}"),
            Ok(one) => {
                ensure!(one.check("cat /mnt/w/mark").await? == "the right one", "{name:?} shows something else");
                ensure!(!one.shell("echo x > /mnt/w/new").await?.succeeded(), "{name:?} can be written");
                one.destroy().await?;
            }
        }
    }
    Ok(())
}

/// What the engine says that it was asked for.
async fn hardening_really_arrives(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&spec()).await?;
    let container = engines::inspect(ground.name(), one.handle.id.as_str())?;
    let (config, asked) = (&container["Config"], &container["HostConfig"]);
    let options = asked["SecurityOpt"].to_string();
    let number = |name: &str| asked[name].as_i64().unwrap_or(0);
    let dropped = asked["CapDrop"].as_array().map_or(0, Vec::len);
    // Docker returns the request, Podman the effect.
    let is_dropped = asked["CapDrop"].to_string().contains("ALL") || dropped > 10;
    // Podman's default is `shareable`: another container may join the namespace on request, and none does.
    let is_private = asked["IpcMode"] == "private";
    let user = config["User"].as_str().unwrap_or_default();
    let checks = [
        ("CapDrop", is_dropped && asked["CapAdd"].as_array().is_none_or(Vec::is_empty)),
        ("no-new-privileges", options.contains("no-new-privileges")),
        ("a filter of system calls", options.contains("seccomp") && !options.contains("unconfined")),
        ("ReadonlyRootfs", asked["ReadonlyRootfs"] == true),
        ("User", !user.is_empty() && user != "root" && !user.starts_with("0:") && user != "0"),
        ("NetworkMode", asked["NetworkMode"] == "none"),
        ("PidsLimit", number("PidsLimit") > 0),
        ("Memory without swap", number("Memory") > 0 && number("Memory") == number("MemorySwap")),
        ("CpuQuota", number("CpuQuota") > 0 || number("NanoCpus") > 0),
        ("Ulimits", asked["Ulimits"].to_string().to_lowercase().contains("nofile")),
        ("IpcMode", is_private || (ground.name() == BackendName::Podman && asked["IpcMode"] == "shareable")),
        ("no devices", asked["Devices"].as_array().is_none_or(Vec::is_empty)),
        ("not privileged", asked["Privileged"] == false),
        ("no socket of an engine", !mentions_engine(&container["Mounts"]) && !mentions_engine(&asked["Binds"])),
        ("nothing is logged by the engine", asked["LogConfig"]["Type"] == "none"),
    ];
    let wrong: Vec<&str> = checks.into_iter().filter(|(_, holds)| !holds).map(|(name, _)| name).collect();
    ensure!(wrong.is_empty(), "{wrong:?}: {asked}");
    Ok(())
}

fn mentions_engine(mounts: &Value) -> bool {
    let text = mounts.to_string();
    ["docker.sock", "podman.sock", "containerd.sock"].iter().any(|name| text.contains(name))
}

async fn a_deadline_reaches_into_the_box(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&spec()).await?;
    let marker = format!("box-evade-{}", marker());
    let mut request = shell(&format!("setsid sh -c 'sleep 600; :' {marker} & sh -c 'sleep 600; :' {marker}"));
    request.timeout_ms = Some(2000);
    let outcome = one.run(&request).await?.outcome;
    ensure!(outcome.timed_out && outcome.tree_gone, "{outcome:?}");
    ensure!(host::processes_with(&marker).is_empty(), "{:?}", host::processes_with(&marker));
    Ok(())
}

/// A second instance starts, works and ends on the same engine: the boxes of the first do not notice.
async fn two_instances_leave_each_other_alone(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&spec()).await?;
    one.check("echo kept > /workspace/note").await?;
    for _ in 0..2 {
        let other = Ground::open(ground.name()).await.context("a second instance")?;
        let theirs = other.make(&spec()).await?;
        let listed: BTreeSet<_> = other.backend.list_orphans().await?.into_iter().map(|found| found.id).collect();
        ensure!(!listed.contains(&one.handle.id), "it takes a box of the first for one of its own");
        let error = other.backend.adopt(&one.handle).await;
        ensure!(!matches!(error, Ok(box_core::Liveness::Running)), "it adopts a box of the first");
        theirs.destroy().await?;
        drop(theirs);
        other.end().await?;
    }
    ensure!(one.check("cat /workspace/note").await? == "kept", "the box of the first was touched");
    Ok(())
}

/// What a process of a box is, seen from the host.
async fn a_process_of_a_box_is_nobody_outside(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&spec()).await?;
    let pid = process_in(&one).await?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.map(|value| value.trim().to_owned()).with_context(|| format!("{name} is not told"))
    };
    let accounts = fs::read_to_string("/etc/passwd")?;
    let is_account = |uid: &str| accounts.lines().any(|line| line.split(':').nth(2) == Some(uid));
    // Without ids of its own, which the guarantee says, a box has the ids of its maker.
    let is_apart = one.handle.guarantees.level(Dimension::Identity) == Level::Hard;
    for id in field("Uid")?.split_whitespace() {
        ensure!(id != "0" && !(is_apart && is_account(id)), "on the host it is {id}");
    }
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        ensure!(field(set)? == "0000000000000000", "{set} is {}", field(set)?);
    }
    ensure!(field("NoNewPrivs")? == "1" && field("Seccomp")? == "2", "{status}");
    ensure!(field("Groups")?.split_whitespace().all(|group| group != "0"), "it is in a group of the host");
    for space in ["net", "mnt", "pid", "ipc", "uts"] {
        let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{space}"));
        ensure!(of(&pid.to_string())? != of("self")?, "it shares the host's {space} namespace");
    }
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    let proc = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/proc")).context("no /proc")?;
    let sys = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/proc/sys")).unwrap_or(proc);
    ensure!(
        sys.split(' ').nth(5).is_some_and(|options| options.starts_with("ro")),
        "kernel settings can be written: {sys}"
    );
    Ok(())
}

/// A process of the workload, as the host numbers it.
async fn process_in(one: &TestBox) -> Result<i32> {
    let marker = marker();
    one.check(&format!("(setsid sleep {marker} > /dev/null 2>&1 < /dev/null &)")).await?;
    eventually("a process of the box on the host", || async {
        Ok(host::processes_with(&marker).first().map(|found| found.pid))
    })
    .await
}

/// The agent is killed from outside: everything in the box is gone, and callers get an error.
async fn whoever_kills_the_first_process_ends_the_box(ground: Arc<Ground>) -> Result<()> {
    let one = ground.make(&spec()).await?;
    let pid = process_in(&one).await?;
    let agent = first_of(pid)?;
    let (runner, request) = (one.clone(), ExecRequest { timeout_ms: None, ..shell("sleep 25") });
    let exec = request.id.clone();
    let running = tokio::spawn(async move { runner.run(&request).await });
    one.wait_until_running(&exec).await?;
    system::kill(agent)?;
    let ended = running.await?;
    ensure!(ended.as_ref().is_err_and(|error| error.code() == "box_gone"), "{ended:?}");
    // Sooner than a caller gives up on an agent that says nothing.
    let next = tokio::time::timeout(Duration::from_secs(30), one.shell("true")).await.context("the next hangs")?;
    ensure!(next.as_ref().is_err_and(|error| error.code() == "box_gone"), "{next:?}");
    dies(pid).await?;
    one.destroy().await?;
    Ok(())
}

/// The first process of the innermost pid namespace that a process is in: the one that is number 1 there.
fn first_of(pid: i32) -> Result<i32> {
    let space = fs::read_link(format!("/proc/{pid}/ns/pid"))?;
    let is_first = |process: &host::Process| {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        let is_one = numbers.split_whitespace().last() == Some("1");
        is_one && fs::read_link(format!("/proc/{}/ns/pid", process.pid)).is_ok_and(|own| own == space)
    };
    host::processes().into_iter().find(is_first).map(|process| process.pid).context("no first process")
}

/// Waits until a process is dead. That the socket of the first one is closed is heard before the kernel has killed the last.
async fn dies(pid: i32) -> Result<()> {
    eventually("the end of a process that outlived the first one", || async {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        Ok(stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X'])).then_some(()))
    })
    .await
}

/// Look-alikes of Strongbox's objects: a process, and on engines a container with a similar name.
async fn strangers_are_left_alone(ground: Arc<Ground>) -> Result<()> {
    let marker = format!("strongbox-agent {}", fresh_id("stranger")?);
    let mut process = Command::new("sh").args(["-c", "sleep 300; :", &marker]).spawn()?;
    let container = match ground.name() {
        name @ (BackendName::Docker | BackendName::Podman) => Some(engines::stranger(name, "strongbox-stranger")?),
        BackendName::Native | BackendName::Nsjail | BackendName::E2b => None,
    };
    let outcome = come_and_go(&ground).await;
    let is_alive = process.try_wait()?.is_none();
    process.kill()?;
    process.wait()?;
    let container = container.map(engines::Stranger::end).transpose()?;
    outcome?;
    ensure!(is_alive, "a process of a stranger was killed");
    ensure!(container != Some(false), "a container of a stranger was ended");
    Ok(())
}

async fn come_and_go(ground: &Ground) -> Result<()> {
    for _ in 0..2 {
        let other = Ground::open(ground.name()).await?;
        other.make(&spec()).await?.destroy().await?;
        other.end().await?;
    }
    Ok(())
}
