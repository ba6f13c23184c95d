//! Standard output: how fast it comes out of a box, and what a flood of it does to our memory.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use box_core::{BoxSpec, Handle};
use box_wire::{Program, limits};

use crate::boxes::{self, Boxes};
use crate::options::Options;
use crate::process_memory::resident_bytes;
use crate::report::Report;
use crate::samples::{Samples, mib};

/// Throughput of a box over that of a plain pipe.
pub(crate) const SHARE: &str = "box over pipe";
/// How much our processes grow while a box floods them.
pub(crate) const GROWTH: &str = "growth of host and agent";

/// How often memory is looked at during a flood.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// The throughput group. The box of the default profile may use one processor for the command and the agent together; a
/// second box without that bound shows what the bound costs.
pub(crate) fn measure_throughput(boxes: &Boxes, options: &Options, _: &Path, report: &mut Report) -> Result<()> {
    let bytes = options.output_bytes();
    let one = boxes.create("throughput")?;
    let two = boxes.create_as("throughput-2", &BoxSpec { cpus: 2.0, ..boxes::default_spec() })?;
    let [mut pipe, mut in_one, mut in_two] = <[Samples; 3]>::default();
    for round in 0..=options.slow_rounds() {
        let took = [through_pipe(bytes)?, through_box(boxes, &one, bytes)?, through_box(boxes, &two, bytes)?];
        // The first round warms up.
        if round > 0 {
            for (samples, took) in [&mut pipe, &mut in_one, &mut in_two].into_iter().zip(took) {
                samples.push(took);
            }
        }
    }
    boxes.destroy(&one)?;
    boxes.destroy(&two)?;
    let speed = |samples: &Samples| samples.summary().map_or(0.0, |it| mib(bytes) / 1024.0 / (it.p50_ms / 1e3));
    report.figure("throughput", "plain pipe", speed(&pipe), "GiB/s");
    report.figure("throughput", "box", speed(&in_one), "GiB/s");
    report.figure("throughput", "box of 2 processors", speed(&in_two), "GiB/s");
    report.figure("throughput", SHARE, speed(&in_one) / speed(&pipe), "×");
    report.figure("throughput", "box of 2 processors over pipe", speed(&in_two) / speed(&pipe), "×");
    Ok(())
}

/// The flood group.
pub(crate) fn measure_flood(boxes: &Boxes, options: &Options, _: &Path, report: &mut Report) -> Result<()> {
    let bytes = options.flood_bytes();
    let handle = boxes.create("flood")?;
    boxes.exec_true(&handle)?;
    let processes = [std::process::id(), boxes::agent_pid(&handle)?];
    let before = resident(&processes)?;
    let done = AtomicBool::new(false);
    let (took, peak) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| peak_until(&done, &processes));
        let took = through_box(boxes, &handle, bytes);
        done.store(true, Ordering::Release);
        let peak = watcher.join().map_err(|_| anyhow::anyhow!("watching the memory failed"))?;
        Ok::<_, anyhow::Error>((took?, peak))
    })?;
    boxes.destroy(&handle)?;
    report.figure("flood", "output", mib(bytes) / 1024.0, "GiB");
    report.figure("flood", "time", took.as_secs_f64(), "s");
    report.figure("flood", GROWTH, mib(peak.saturating_sub(before)), "MiB");
    Ok(())
}

fn resident(processes: &[u32]) -> Result<u64> {
    processes.iter().map(|pid| resident_bytes(*pid)).sum()
}

fn peak_until(done: &AtomicBool, processes: &[u32]) -> u64 {
    let mut peak = 0;
    while !done.load(Ordering::Acquire) {
        peak = peak.max(resident(processes).unwrap_or(0));
        std::thread::sleep(LOOK_PAUSE);
    }
    peak
}

fn through_box(boxes: &Boxes, handle: &Handle, bytes: u64) -> Result<Duration> {
    let argv = ["head", "-c", &bytes.to_string(), "/dev/zero"].map(str::to_owned).to_vec();
    let request = boxes::request(Program::Argv(argv))?;
    let start = Instant::now();
    let (_, counter) = boxes.exec(handle, &request)?;
    let took = start.elapsed();
    ensure!(counter.bytes == bytes, "{} of {bytes} bytes came out of the box", counter.bytes);
    Ok(took)
}

/// The same command and a reader with a buffer of the same size.
fn through_pipe(bytes: u64) -> Result<Duration> {
    let mut buffer = vec![0; limits::DATA_BYTES_MAX];
    let start = Instant::now();
    let mut head = Command::new("head");
    head.args(["-c", &bytes.to_string(), "/dev/zero"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = head.spawn().context("head cannot be started")?;
    let mut pipe = child.stdout.take().context("head has no output")?;
    let mut read = 0;
    loop {
        match pipe.read(&mut buffer)? {
            0 => break,
            count => read += count as u64,
        }
    }
    child.wait()?;
    let took = start.elapsed();
    ensure!(read == bytes, "{read} of {bytes} bytes came through the pipe");
    Ok(took)
}
