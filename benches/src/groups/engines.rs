//! Commands in live containers of Docker and Podman: by the agent, by the engine's program and by its API, taking
//! turns. And boxes that are created cold, beside boxes from the pool.

use std::cell::Cell;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use box_core::{Backend, ExecIo, Handle, MountPolicy, link};
use box_docker::{Engine, EngineConfig, EngineKind, EngineSettings, PullPolicy};
use box_host::InstanceKind;
use box_wire::{Exit, Program};

use super::launch::{Subject, Times, take_turns};
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
    /// A box that is created cold.
    pub(crate) cold: &'static str,
    /// A box from the pool.
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

/// The group. A missing engine is reported.
pub(crate) fn measure(boxes: &Boxes, options: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    for names in [&DOCKER, &PODMAN] {
        if let Ok(address) = std::env::var(names.variable) {
            EngineBench { boxes, options, directory, names, address }.measure(report)?;
        } else {
            let reason = format!("{} is not set; use `cargo xtask bench -- --only engines`", names.variable);
            report.skip(names.exec, reason);
        }
    }
    Ok(())
}

/// One engine, and what is measured on it.
struct EngineBench<'a> {
    boxes: &'a Boxes,
    options: &'a Options,
    directory: &'a Path,
    names: &'static Names,
    address: String,
}

impl EngineBench<'_> {
    fn measure(&self, report: &mut Report) -> Result<()> {
        let plain = self.open(0).with_context(|| format!("opening {}", self.names.kind))?;
        let outcome = self.execs(report, &plain).and_then(|()| {
            let pooled = self.open(POOL)?;
            let outcome = self.creates(report, &plain, &pooled);
            self.close(pooled);
            outcome
        });
        self.close(plain);
        outcome
    }

    fn open(&self, pool_size: usize) -> Result<Arc<Engine>> {
        let image = std::env::var("STRONGBOX_TEST_IMAGE").context("STRONGBOX_TEST_IMAGE names no image")?;
        let address = Some(self.address.clone());
        let settings =
            EngineSettings { address, image, pull: PullPolicy::Never, pool_size, ..EngineSettings::default() };
        let (state_dir, instance) = (self.directory.join("state-of-engines"), InstanceKind::Ephemeral);
        let (kind, mount_policy) = (self.names.kind, MountPolicy::default());
        let config = EngineConfig { kind, state_dir, mount_policy, instance, settings };
        Ok(Arc::new(self.boxes.block_on(Engine::open(config))?))
    }

    fn close(&self, engine: Arc<Engine>) {
        match Arc::into_inner(engine) {
            Some(engine) => self.boxes.block_on(engine.close()),
            None => eprintln!("bench: some containers could not be removed; the next run removes them"),
        }
    }

    /// The same command in the same container by three ways.
    fn execs(&self, report: &mut Report, engine: &Arc<Engine>) -> Result<()> {
        let (boxes, names) = (self.boxes, self.names);
        let handle = boxes.block_on(engine.create(&format!("bench-{}", names.kind).parse()?, &default_spec()))?;
        let container = container_of(&handle)?;
        let (api, mut program) = (EngineApi::at(&self.address)?, program(names, &self.address)?);
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
        for (name, samples) in take_turns(subjects, (self.options.rounds() / FEWER).max(1))? {
            report.time(GROUP, name, &samples);
        }
        report.relate(names.api, names.exec);
        report.relate(names.program, names.exec);
        Ok(boxes.block_on(engine.destroy(&handle))?)
    }

    /// Boxes that are created cold, and boxes from the pool.
    fn creates(&self, report: &mut Report, plain: &Arc<Engine>, pooled: &Arc<Engine>) -> Result<()> {
        let (names, api, number) = (self.names, EngineApi::at(&self.address)?, Cell::new(0));
        let subject = |name, engine| {
            let (api, number) = (&api, &number);
            let round = move || {
                number.set(number.get() + 1);
                self.create(api, engine, number.get()).map(|took| vec![(name, took)])
            };
            Subject { name, every: 1, round: Box::new(round) }
        };
        let subjects = vec![subject(names.cold, plain), subject(names.warm, pooled)];
        for (name, samples) in take_turns(subjects, self.options.slow_rounds() * 2)? {
            report.time(GROUP, name, &samples);
        }
        report.relate(names.cold, names.warm);
        Ok(())
    }

    /// Makes a box, which must work, and says how long it took to make.
    fn create(&self, api: &EngineApi, engine: &Arc<Engine>, number: u32) -> Result<Duration> {
        let id = format!("bench-{}-{number}", self.names.kind).parse()?;
        // Also before a cold start: the engine must not be busy with refilling the pool.
        self.boxes.block_on(pool_is_full(api))?;
        let start = Instant::now();
        let handle = self.boxes.block_on(engine.create(&id, &default_spec()))?;
        let took = start.elapsed();
        self.boxes.block_on(exec_true(engine, &handle))?;
        self.boxes.block_on(engine.destroy(&handle))?;
        Ok(took)
    }
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
    bail!("the pool is never full")
}

fn timed(name: &'static str, run: impl FnOnce() -> Result<()>) -> Result<Times> {
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
