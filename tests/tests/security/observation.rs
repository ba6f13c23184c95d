//! One run of one probe in a fresh box, with eyes on the host before, during and after.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use box_core::{BoxSpec, Error, Network, Profile};
use box_tests::corpus::CorpusCase;
use box_tests::ground::{request, with_stdin};
use box_tests::{Leaks, Output, TestBox, host, leaks};
use box_wire::{ExecRequest, Program};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::checks::{self, Moment};
use crate::expectations::{self, Verdict};
use crate::fixtures::World;
use crate::special;

/// Deadline of probes that name none.
const DEADLINE_S: u64 = 60;

/// What a run showed.
pub(crate) struct Observation {
    pub(crate) verdict: String,
    /// The end of what the probe wrote, for the failure line.
    pub(crate) detail: String,
    pub(crate) found: Vec<(String, Verdict)>,
}

/// The host before a case.
pub(crate) struct Baseline {
    pub(crate) leaks: Leaks,
    pub(crate) mounts: Vec<String>,
    pub(crate) system: u64,
    pub(crate) core_pattern: Option<String>,
    pub(crate) ipc_objects: usize,
    pub(crate) start: Extremes,
}

/// The worst readings of the host during a case.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extremes {
    /// Kernel objects of the whole machine.
    pub(crate) kernel_memory_mb: u64,
    /// What the kernel charges to the box.
    pub(crate) box_memory_mb: u64,
    pub(crate) disk_free_mb: u64,
    pub(crate) open_files: u64,
    pub(crate) connections: u64,
    pub(crate) pids: u64,
    pub(crate) cpu_us: u64,
}

/// Everything that a check of the host may look at.
pub(crate) struct Scene<'a> {
    pub(crate) world: &'a World,
    pub(crate) one: &'a TestBox,
    pub(crate) baseline: &'a Baseline,
    pub(crate) worst: Extremes,
    pub(crate) probe_took: Duration,
    pub(crate) destroy_took: Option<Duration>,
}

impl Baseline {
    fn take(world: &World) -> Self {
        Self {
            leaks: world.ground.leaks(),
            mounts: leaks::mounts(),
            system: host::system_digest(),
            core_pattern: host::sysctl("kernel.core_pattern"),
            ipc_objects: host::ipc_objects(),
            start: Extremes::now(world),
        }
    }
}

impl Extremes {
    fn now(world: &World) -> Self {
        Self {
            kernel_memory_mb: host::kernel_memory_mb().unwrap_or(0),
            disk_free_mb: host::disk_free_mb(world.ground.state.path()).unwrap_or(0),
            open_files: host::open_files().unwrap_or(0),
            connections: host::tracked_connections(),
            box_memory_mb: 0,
            pids: 0,
            cpu_us: 0,
        }
    }

    fn worse(self, other: Self) -> Self {
        Self {
            kernel_memory_mb: self.kernel_memory_mb.max(other.kernel_memory_mb),
            box_memory_mb: self.box_memory_mb.max(other.box_memory_mb),
            disk_free_mb: self.disk_free_mb.min(other.disk_free_mb),
            open_files: self.open_files.max(other.open_files),
            connections: self.connections.max(other.connections),
            pids: self.pids.max(other.pids),
            cpu_us: self.cpu_us.max(other.cpu_us),
        }
    }
}

/// Makes a fresh box, attacks it, looks, destroys it, and looks again.
pub(crate) async fn observe(world: &World, case: &CorpusCase, network: Network) -> Result<Observation> {
    let _setup = special::prepare(world, case).await.context("preparing the case")?;
    let baseline = Baseline::take(world);
    let spec = spec(world, case, network)?;
    let one = match world.ground.try_make(&spec).await {
        Ok(one) => one,
        Err(error) => return special::refused_at_creation(case, error),
    };
    let outcome = observe_in(world, case, &one, &baseline).await;
    one.destroy().await.context("destroying the box")?;
    outcome
}

async fn observe_in(world: &World, case: &CorpusCase, one: &TestBox, baseline: &Baseline) -> Result<Observation> {
    let late = special::after_start(world, case)?;
    let sampler = Sampler::start(world, one);
    let start = Instant::now();
    let (result, mut found) = run_guarded(world, case, one).await;
    let probe_took = start.elapsed();
    let worst = sampler.stop().await;
    let reference = special::reference(world, case).await?;
    for (key, value) in &case.expect {
        if !matches!(key.as_str(), "host" | "then" | "within_s") {
            found.push((key.clone(), expectations::judge(key, value, &result, reference.as_deref())));
        }
    }
    found.extend(special::follow_up(world, case, one).await?);
    let mut scene = Scene { world, one, baseline, worst, probe_took, destroy_took: None };
    checks::run(case, &scene, Moment::Alive, &mut found).await;
    drop(late);
    let start = Instant::now();
    one.destroy().await.context("destroying the box")?;
    scene.destroy_took = Some(start.elapsed());
    checks::run(case, &scene, Moment::Destroyed, &mut found).await;
    no_secret(world, &result, &mut found);
    Ok(Observation { verdict: describe(&result), detail: tail(&result), found })
}

/// Runs the probe, and gives up on it only long after it should have ended.
async fn run_guarded(
    world: &World,
    case: &CorpusCase,
    one: &TestBox,
) -> (Result<Output, Error>, Vec<(String, Verdict)>) {
    let within_s = case.expect.get("within_s").and_then(Value::as_u64).unwrap_or_else(|| deadline_s(case));
    let guard = Duration::from_secs(within_s * 3 + 20);
    if let Ok(result) = tokio::time::timeout(guard, special::execute(world, case, one)).await {
        return (result, Vec::new());
    }
    let reason = format!("not finished after {} s", guard.as_secs());
    (Err(Error::Gone { reason: reason.clone() }), vec![("within_s".to_owned(), Verdict::Broken(reason))])
}

/// Whatever else was asked: the secret of the host is in no output.
fn no_secret(world: &World, result: &Result<Output, Error>, found: &mut Vec<(String, Verdict)>) {
    if let Ok(output) = result {
        let seen = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&world.secret);
        if seen(&output.stdout) || seen(&output.stderr) {
            found.push(("secret".to_owned(), Verdict::Broken("the canary of the host is in the output".to_owned())));
        }
    }
}

fn describe(result: &Result<Output, Error>) -> String {
    match result {
        Ok(output) => expectations::verdict(&output.stdout)
            .map_or_else(|| format!("{:?}", output.outcome.exit), |(word, rest)| format!("{word} {rest}")),
        Err(error) => error.to_string(),
    }
}

fn tail(result: &Result<Output, Error>) -> String {
    let Ok(output) = result else {
        return describe(result);
    };
    let text = format!("{} {}", output.text(), output.errors()).replace('\n', " ");
    let skip = text.chars().count().saturating_sub(300);
    let outcome = &output.outcome;
    let flags = format!("timed out: {}, out of memory: {}", outcome.timed_out, outcome.oom_killed);
    format!("{:?}, {flags} {}", outcome.exit, text.chars().skip(skip).collect::<String>())
}

/// The box of a case: the default profile, the two mounts and the limits that it names.
pub(crate) fn spec(world: &World, case: &CorpusCase, network: Network) -> Result<BoxSpec> {
    let mut spec = BoxSpec { network, mounts: world.mounts()?, ..Profile::default().spec() };
    for (key, value) in &case.profile {
        let number = || value.as_u64().with_context(|| format!("{}: {key} is not a number", case.id));
        match key.as_str() {
            "memory_mb" => spec.memory_mb = number()?,
            "pids_limit" => spec.pids_limit = number()?,
            "cpus" => spec.cpus = value.as_f64().context("cpus is not a number")?,
            "workspace_quota_mb" => spec.disk_mb = number()?,
            "root_capabilities" => {
                spec.root_capabilities = value.as_bool().context("root_capabilities is not a boolean")?;
            }
            "timeout_sec" | "network" => {}
            unknown => anyhow::bail!("{}: unknown profile field {unknown}", case.id),
        }
    }
    Ok(spec)
}

fn deadline_s(case: &CorpusCase) -> u64 {
    case.timeout_s.or_else(|| case.profile.get("timeout_sec").and_then(Value::as_u64)).unwrap_or(DEADLINE_S)
}

/// The text that is really run: the prelude of its language and the probe.
pub(crate) fn script(world: &World, case: &CorpusCase) -> Result<String> {
    let prelude =
        world.preludes.get(&case.lang).with_context(|| format!("{}: no prelude for {}", case.id, case.lang))?;
    Ok(format!("{prelude}{}\n", world.fill(case.probe()?)))
}

/// The probe as an exec, and what goes to its standard input.
pub(crate) fn probe(world: &World, case: &CorpusCase) -> Result<(ExecRequest, Vec<u8>)> {
    let script = script(world, case)?;
    let (mut exec, input) = match case.lang.as_str() {
        "python" => {
            let argv = ["python3", "-"].map(str::to_owned).to_vec();
            (with_stdin(request(Program::Argv(argv))), script.into_bytes())
        }
        _ => (request(Program::Shell(script)), Vec::new()),
    };
    exec.env.extend(world.environment());
    exec.cwd = "/workspace".parse()?;
    exec.timeout_ms = Some(deadline_s(case) * 1000);
    Ok((exec, input))
}

/// Reads the host again and again while a probe runs.
struct Sampler {
    worst: Arc<Mutex<Extremes>>,
    task: JoinHandle<()>,
    one: TestBox,
}

impl Sampler {
    fn start(world: &World, one: &TestBox) -> Self {
        let worst = Arc::new(Mutex::new(Extremes::now(world)));
        let (shared, sampled) = (Arc::clone(&worst), one.clone());
        let state = world.ground.state.path().to_owned();
        let task = tokio::spawn(async move {
            loop {
                let usage = sampled.backend.stats(&sampled.handle).await.unwrap_or_default();
                let reading = Extremes {
                    kernel_memory_mb: host::kernel_memory_mb().unwrap_or(u64::MAX),
                    box_memory_mb: usage.memory_bytes.unwrap_or(0) >> 20,
                    disk_free_mb: host::disk_free_mb(&state).unwrap_or(u64::MAX),
                    open_files: host::open_files().unwrap_or(0),
                    connections: host::tracked_connections(),
                    pids: usage.pids.unwrap_or(0),
                    cpu_us: usage.cpu_us.unwrap_or(0),
                };
                if let Ok(mut worst) = shared.lock() {
                    *worst = worst.worse(reading);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self { worst, task, one: one.clone() }
    }

    async fn stop(self) -> Extremes {
        self.task.abort();
        let mut worst = self.worst.lock().map(|worst| *worst).unwrap_or_default();
        let last = self.one.backend.stats(&self.one.handle).await.unwrap_or_default();
        worst.cpu_us = worst.cpu_us.max(last.cpu_us.unwrap_or(0));
        worst
    }
}
