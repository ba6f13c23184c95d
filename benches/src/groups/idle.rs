//! Boxes that do nothing: what each takes, and whether many of them can be there at once.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use box_core::Handle;

use crate::boxes::{self, Boxes};
use crate::options::Options;
use crate::process_memory::{available_bytes, proportional_bytes, resident_bytes, tree};
use crate::report::Report;
use crate::samples::{Samples, mib};

/// Memory of all processes that exist because of a box, and what the host process grew by for it.
pub(crate) const EACH: &str = "memory of an idle box";
/// How many boxes there were.
pub(crate) const AT_ONCE: &str = "boxes at once";
/// Boxes that could not be made or did not answer.
pub(crate) const FAILED: &str = "boxes that failed";

/// Enough for an average.
const FEW: u32 = 50;

/// The group of a few boxes. Each has run a command before, because what that leaves in memory counts, too.
pub(crate) fn measure_few(boxes: &Boxes, _: &Options, _: &Path, report: &mut Report) -> Result<()> {
    let host_before = host_bytes()?;
    let mut handles = Vec::new();
    for number in 0..FEW {
        let handle = boxes.create(&format!("idle-{number}"))?;
        boxes.exec_true(&handle)?;
        handles.push(handle);
    }
    let host = host_bytes()?.saturating_sub(host_before) / u64::from(FEW);
    let mut processes = 0;
    let mut proportional = 0;
    for handle in &handles {
        let found = tree(boxes::agent_pid(handle)?);
        processes += found.len() as u64;
        proportional += found.iter().map(|pid| proportional_bytes(*pid)).sum::<Result<u64>>()?;
    }
    let charged: Option<u64> = handles.iter().map(|handle| boxes.charged_bytes(handle)).sum();
    destroy(boxes, &handles)?;
    let each = proportional / u64::from(FEW);
    report.figure("idle", "processes of an idle box", mib(processes << 20) / f64::from(FEW), "processes");
    report.figure("idle", "their proportional memory", mib(each), "MiB");
    report.figure("idle", "growth of the host process", mib(host), "MiB per box");
    report.figure("idle", EACH, mib(each + host), "MiB");
    match charged {
        Some(bytes) => report.figure("idle", "charged to its cgroup", mib(bytes / u64::from(FEW)), "MiB"),
        None => report.skip("memory charged to a cgroup", "the memory controller is not at hand"),
    }
    Ok(())
}

/// The group of many boxes.
pub(crate) fn measure_crowd(boxes: &Boxes, options: &Options, _: &Path, report: &mut Report) -> Result<()> {
    let (available_before, host_before) = (available_bytes()?, host_bytes()?);
    let mut creates = Samples::default();
    let mut handles = Vec::new();
    let start = Instant::now();
    let mut failures = Vec::new();
    for number in 0..options.boxes {
        let one = Instant::now();
        match boxes.create(&format!("crowd-{number}")) {
            Ok(handle) => handles.push(handle),
            Err(error) => failures.push(error),
        }
        creates.push(one.elapsed());
    }
    let all_created = start.elapsed();
    let taken = available_before.saturating_sub(available_bytes()?) / u64::from(options.boxes);
    let host = host_bytes()?.saturating_sub(host_before) / u64::from(options.boxes);
    let mut proportional = 0;
    for handle in &handles {
        match boxes.ping(handle) {
            Ok(()) => proportional += proportional_bytes(boxes::agent_pid(handle)?)?,
            Err(error) => failures.push(error),
        }
    }
    let start = Instant::now();
    destroy(boxes, &handles)?;
    report.figure("crowd", AT_ONCE, f64::from(options.boxes), "boxes");
    report.figure("crowd", FAILED, f64::from(u32::try_from(failures.len())?), "boxes");
    report.figure("crowd", "making all, one by one", all_created.as_secs_f64(), "s");
    report.figure("crowd", "removing all, one by one", start.elapsed().as_secs_f64(), "s");
    report.figure("crowd", "proportional memory", mib(proportional / u64::from(options.boxes)), "MiB per box");
    report.figure("crowd", "growth of the host process", mib(host), "MiB per box");
    report.figure("crowd", "taken of the machine, kernel included", mib(taken), "MiB per box");
    report.time("crowd", "create, one of a crowd", &creates);
    if let Some(first) = failures.first() {
        eprintln!("bench: the first of {} failures: {first:#}", failures.len());
    }
    Ok(())
}

fn destroy(boxes: &Boxes, handles: &[Handle]) -> Result<()> {
    let pids = handles.iter().map(boxes::agent_pid).collect::<Result<Vec<_>>>()?;
    for handle in handles {
        boxes.destroy(handle).with_context(|| format!("destroying {}", handle.id))?;
    }
    let left: Vec<_> = pids.into_iter().filter(|pid| is_alive(*pid)).collect();
    ensure!(left.is_empty(), "agents are left after their boxes were destroyed: {left:?}");
    Ok(())
}

/// Whether the process is there, by its memory: one that has died but not been waited for has none.
fn is_alive(pid: u32) -> bool {
    proportional_bytes(pid).is_ok_and(|bytes| bytes > 0)
}

fn host_bytes() -> Result<u64> {
    resident_bytes(std::process::id())
}
