//! Commands in live containers of Docker and Podman: by our agent, by the engine's program and by its API, taking turns. And boxes that
//! are made anew, beside boxes that waited.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use box_core::{Backend, ExecIo, Handle, MountPolicy, link};
use box_docker::{Engine, EngineConfig, EngineKind, EngineSettings, PullPolicy};
use box_host::InstanceKind;
use box_wire::{Exit, Program};

use super::launch::{Subject, take_turns};
use crate::boxes::{Boxes, default_spec, request};
use crate::commands::{self, TRUE};
use crate::engine_api::EngineApi;
use crate::options::Options;
use crate::report::Report;

const GROUP: &str = "engines";

/// What is measured on one engine.
#[derive(Debug)]
pub(crate) struct Names {
    kind: EngineKind,
    /// The variable that says where it listens.
    variable: &'static str,
    /// A command by our agent.
    pub(crate) exec: &'static str,
    /// The same by the engine's program.
    pub(crate) program: &'static str,
    /// The same by its API.
    pub(crate) api: &'static str,
    /// A box that is made anew.
    pub(crate) cold: &'static str,
    /// A box that waited.
    pub(crate) warm: &'static str,
}

/// Docker.
pub(crate) const DOCKER: Names = Names {
    kind: EngineKind::Docker,
    variable: "STRONGBOX_TEST_DOCKER",
    exec: "strongbox exec on Docker",
    program: "docker exec (program)",
    api: "exec by Docker's API",
    cold: "strongbox create on Docker, cold",
    warm: "strongbox create on Docker, from the pool",
};

/// Podman.
pub(crate) const PODMAN: Names = Names {
    kind: EngineKind::Podman,
    variable: "STRONGBOX_TEST_PODMAN",
    exec: "strongbox exec on Podman",
    program: "podman exec (program)",
    api: "exec by Podman's API",
    cold: "strongbox create on Podman, cold",
    warm: "strongbox create on Podman, from the pool",
};

/// The command line that Debian's package brings. One of another origin may speak a newer protocol than the engine.
const DOCKER_PROGRAM: &str = "/usr/bin/docker";

/// Boxes that wait. One at least is ready while the last is being started.
const POOL: usize = 2;

/// Turns before anything counts.
const WARM_UP_ROUNDS: u32 = 3;

/// Subjects here take a hundred milliseconds and more: so much fewer rounds are enough.
const FEWER: u32 = 4;

const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 6000;

/// The group. An engine that is not here is told of.
pub(crate) fn measure(boxes: &Boxes, options: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    for names in [&DOCKER, &PODMAN] {
        match std::env::var(names.variable) {
            Ok(address) => on_engine(boxes, options, directory, report, names, &address)?,
            Err(_) => {
                report.skip(names.exec, format!("{} is not set; use `cargo xtask bench -- --only engines`", names.variable));
            }
        }
    }
    Ok(())
}

fn on_engine(
    boxes: &Boxes,
    options: &Options,
    directory: &Path,
    report: &mut Report,
    names: &'static Names,
    address: &str,
) -> Result<()> {
    let plain = boxes.block_on(open(directory, names, address, 0)).with_context(|| format!("opening {}", names.kind))?;
    let outcome = execs(boxes, options, report, names, address, &plain);
    let outcome = outcome.and_then(|()| creates(boxes, options, directory, report, names, address, &plain));
    boxes.block_on(close(plain));
    outcome
}

async fn open(directory: &Path, names: &Names, address: &str, pool_size: usize) -> Result<Arc<Engine>> {
    let image = std::env::var("STRONGBOX_TEST_IMAGE").context("STRONGBOX_TEST_IMAGE names no image")?;
    let address = Some(address.to_owned());
    let settings =
        EngineSettings { address, image, pull: PullPolicy::Never, pool_size, ..EngineSettings::default() };
    let (state_dir, instance) = (directory.join("state-of-engines"), InstanceKind::Ephemeral);
    let mount_policy = MountPolicy::default();
    Ok(Arc::new(Engine::open(EngineConfig { kind: names.kind, state_dir, mount_policy, instance, settings }).await?))
}

async fn close(engine: Arc<Engine>) {
    match Arc::into_inner(engine) {
        Some(engine) => engine.close().await,
        None => eprintln!("bench: some containers could not be removed; the next run removes them"),
    }
}

fn execs(
    boxes: &Boxes,
    options: &Options,
    report: &mut Report,
    names: &'static Names,
    address: &str,
    engine: &Arc<Engine>,
) -> Result<()> {
    let handle = boxes.block_on(engine.create(&format!("bench-{}", names.kind).parse()?, &default_spec()))?;
    let container = container_of(&handle)?;
    let (api, mut program) = (EngineApi::at(address)?, program(names, address)?);
    program.args(["exec", &container, "true"]);
    let exec = || timed(names.exec, || boxes.block_on(exec_true(engine, &handle)));
    let by_api = || timed(names.api, || api.exec_true(&container));
    let by_program = || Ok(vec![(names.program, commands::time(&mut program)?)]);
    let mut subjects = vec![
        Subject { name: names.exec, every: 1, round: Box::new(exec) },
        Subject { name: names.api, every: 1, round: Box::new(by_api) },
        Subject { name: names.program, every: 1, round: Box::new(by_program) },
    ];
    for subject in &mut subjects {
        for _ in 0..WARM_UP_ROUNDS {
            (subject.round)().with_context(|| subject.name)?;
        }
    }
    for (name, samples) in take_turns(subjects, (options.rounds() / FEWER).max(1))? {
        report.time(GROUP, name, &samples);
    }
    report.relate(names.api, names.exec);
    report.relate(names.program, names.exec);
    boxes.block_on(engine.destroy(&handle))?;
    Ok(())
}

fn creates(
    boxes: &Boxes,
    options: &Options,
    directory: &Path,
    report: &mut Report,
    names: &'static Names,
    address: &str,
    plain: &Arc<Engine>,
) -> Result<()> {
    let (api, pooled) = (EngineApi::at(address)?, boxes.block_on(open(directory, names, address, POOL))?);
    let mut number = 0;
    let mut round = |name: &'static str, engine: &Arc<Engine>| {
        number += 1;
        let id = format!("bench-{}-{number}", names.kind).parse()?;
        // For both: whoever comes second must not find the engine busy with what the first has set off.
        boxes.block_on(pool_is_full(&api))?;
        let start = Instant::now();
        let handle = boxes.block_on(engine.create(&id, &default_spec()))?;
        let took = start.elapsed();
        boxes.block_on(exec_true(engine, &handle))?;
        boxes.block_on(engine.destroy(&handle))?;
        Ok::<_, anyhow::Error>(vec![(name, took)])
    };
    let mut outcome = Ok(());
    let mut samples = [crate::samples::Samples::default(), crate::samples::Samples::default()];
    for _ in 0..options.slow_rounds() * 2 {
        for (index, (name, engine)) in [(names.cold, plain), (names.warm, &pooled)].into_iter().enumerate() {
            match round(name, engine) {
                Ok(times) => times.into_iter().for_each(|(_, took)| samples[index].push(took)),
                Err(error) => outcome = Err(error),
            }
        }
        if outcome.is_err() {
            break;
        }
    }
    report.time(GROUP, names.cold, &samples[0]);
    report.time(GROUP, names.warm, &samples[1]);
    report.relate(names.cold, names.warm);
    boxes.block_on(close(pooled));
    outcome
}

/// Waits until as many containers wait as are to.
async fn pool_is_full(api: &EngineApi) -> Result<()> {
    for _ in 0..LOOKS_MAX {
        let waiting = api.names()?.iter().filter(|name| name.starts_with("strongbox-pool-")).count();
        if waiting >= POOL {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    anyhow::bail!("the pool is never full")
}

fn timed(name: &'static str, run: impl FnOnce() -> Result<()>) -> Result<Vec<(&'static str, Duration)>> {
    let start = Instant::now();
    run()?;
    Ok(vec![(name, start.elapsed())])
}

async fn exec_true(engine: &Arc<Engine>, handle: &Handle) -> Result<()> {
    let request = request(Program::Argv(vec![TRUE.to_owned()]))?;
    let io = ExecIo { stdin: tokio::io::empty(), stdout: tokio::io::sink(), stderr: tokio::io::sink(), resizes: None };
    let outcome = link::exec(engine.dial(handle).await?, &request, io).await?;
    ensure!(outcome.exit == Exit::Code(0), "true ended with {:?} in a container", outcome.exit);
    Ok(())
}

/// What the engine calls the container of a box.
fn container_of(handle: &Handle) -> Result<String> {
    let locator: serde_json::Value = serde_json::from_str(&handle.locator)?;
    Ok(locator["container"].as_str().context("the handle names no container")?.to_owned())
}

/// The engine's program, as people use it: that of Docker talks to the engine, that of Podman is the engine.
fn program(names: &Names, address: &str) -> Result<Command> {
    if names.kind == EngineKind::Docker {
        return Ok(commands::silent(DOCKER_PROGRAM, &["-H", address]));
    }
    let variable = |name: &str| std::env::var_os(name).with_context(|| format!("{name} is not set"));
    let run = variable("STRONGBOX_TEST_PODMAN_RUN")?;
    let mut command = commands::silent(commands::find("STRONGBOX_PODMAN", "podman")?, &[]);
    command.env("CONTAINERS_CONF", variable("STRONGBOX_TEST_PODMAN_CONFIGURATION")?);
    command.arg("--root").arg(variable("STRONGBOX_TEST_PODMAN_ROOT")?).arg("--runroot").arg(&run);
    command.arg("--tmpdir").arg(Path::new(&run).join("tmp"));
    Ok(command)
}
