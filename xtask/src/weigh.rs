//! `cargo xtask weigh`: what a newcomer's build costs, how large the program is, and where both come from.

use crate::{cargo, own_tmp, run};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime};

/// The bounds of SPECIFICATION.md, for a quiet machine with two processors.
const PROCESSOR_MINUTES_MAX: f64 = 12.0;
const WALL_MINUTES_MAX: f64 = 6.0;
const PROGRAM_MB_MAX: f64 = 30.0;
const INCREMENTAL_SECONDS_MAX: f64 = 20.0;

/// The file of a door that is touched to measure an incremental build.
const TOUCHED: &str = "crates/doors/rest/src/routes.rs";

/// A build that takes longer hangs.
const BUILD_TIME_MAX: Duration = Duration::from_hours(1);

/// How many crates and functions are named.
const CRATES_SHOWN: usize = 20;
const FUNCTIONS_SHOWN: usize = 10;

/// What was asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Exit with 1 when something is heavier than SPECIFICATION.md allows
    #[arg(long)]
    check: bool,
}

/// One figure and its bound.
struct Figure {
    name: &'static str,
    unit: &'static str,
    measured: f64,
    bound: f64,
}

/// The verb: builds from nothing, measures, prints.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let metadata = cargo::metadata()?;
    let root = metadata.workspace_root.into_std_path_buf();
    // Not below `target`: a build there would find the agent that other profiles have built.
    let directory = tempfile::Builder::new().prefix("strongbox-weigh-").tempdir_in(own_tmp::PLACE)?;
    let directory = directory.path();
    println!("building the release profile from nothing, in {}", directory.display());
    let (wall, processor) = clean_build(&root, directory)?;
    let program = directory.join("release/strongbox");
    let size = stripped_mb(&program, directory)?;
    println!("building the dev profile twice, the second time after touching {TOUCHED}");
    let incremental = incremental_build(&root)?;
    let figures = [
        Figure { name: "clean build, processor time", unit: "min", measured: processor, bound: PROCESSOR_MINUTES_MAX },
        Figure { name: "clean build, wall time", unit: "min", measured: wall, bound: WALL_MINUTES_MAX },
        Figure { name: "stripped program", unit: "MB", measured: size, bound: PROGRAM_MB_MAX },
        Figure { name: "build after one edit", unit: "s", measured: incremental, bound: INCREMENTAL_SECONDS_MAX },
    ];
    println!("\n{:32} {:>10} {:>10}", "", "measured", "at most");
    for Figure { name, unit, measured, bound } in &figures {
        println!("{name:32} {measured:10.1} {bound:10.1} {unit}");
    }
    println!("\nseconds  crate");
    for (name, seconds) in crate_times(directory)?.into_iter().take(CRATES_SHOWN) {
        println!("{seconds:7.1}  {name}");
    }
    println!("\n  bytes  function");
    for (name, bytes) in largest_functions(&program)? {
        println!("{bytes:7}  {name}");
    }
    let is_over = figures.iter().any(|figure| figure.measured > figure.bound);
    Ok(if options.check && is_over { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Wall and processor minutes of a build into an empty directory.
fn clean_build(root: &Path, directory: &Path) -> Result<(f64, f64)> {
    let mut command = cargo::command(root, &["build", "--release", "--timings", "--quiet", "--target-dir"]);
    command.arg(directory);
    let begun = Instant::now();
    let finished = run::streamed(command, BUILD_TIME_MAX, |line| println!("{line}"))?;
    ensure!(finished.ending.is_success(), "cargo build --release: {}", finished.ending);
    Ok((minutes(begun.elapsed()), minutes(finished.processor_time)))
}

fn minutes(time: Duration) -> f64 {
    time.as_secs_f64() / 60.0
}

/// The size in MB of a copy of the program without symbols.
fn stripped_mb(program: &Path, directory: &Path) -> Result<f64> {
    let copy = directory.join("stripped");
    let status = Command::new("strip").arg("-o").arg(&copy).arg(program).status().context("starting strip")?;
    ensure!(status.success(), "strip: {status}");
    let bytes = u32::try_from(std::fs::metadata(&copy)?.len())?;
    Ok(f64::from(bytes) / 1e6)
}

/// Seconds of a dev build after one file of a door was touched.
fn incremental_build(root: &Path) -> Result<f64> {
    let build = || -> Result<f64> {
        let begun = Instant::now();
        let is_success = run::plainly(cargo::command(root, &["build", "--quiet"]))?;
        ensure!(is_success, "cargo build failed");
        Ok(begun.elapsed().as_secs_f64())
    };
    build()?;
    let path = root.join(TOUCHED);
    let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    file.set_modified(SystemTime::now())?;
    build()
}

/// Seconds per crate from cargo's report, slowest first. A crate's build script counts with it.
fn crate_times(directory: &Path) -> Result<Vec<(String, f64)>> {
    let path = directory.join("cargo-timings/cargo-timing.html");
    let page = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    times_in(&page).with_context(|| format!("{} has no table of units", path.display()))
}

fn times_in(page: &str) -> Option<Vec<(String, f64)>> {
    let (_, data) = page.split_once("const UNIT_DATA = ")?;
    let units: Value = serde_json::Deserializer::from_str(data).into_iter().next()?.ok()?;
    let mut times = std::collections::BTreeMap::<String, f64>::new();
    for unit in units.as_array()? {
        *times.entry(unit["name"].as_str()?.to_owned()).or_default() += unit["duration"].as_f64()?;
    }
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by(|a, b| b.1.total_cmp(&a.1));
    Some(times)
}

/// The largest functions of a program that still has its symbols.
fn largest_functions(program: &Path) -> Result<Vec<(String, u64)>> {
    let arguments = ["--print-size", "--size-sort", "--reverse-sort", "--demangle", "--radix=d"];
    let output = Command::new("nm").args(arguments).arg(program).output().context("starting nm")?;
    ensure!(output.status.success(), "nm: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(function).take(FUNCTIONS_SHOWN).collect())
}

/// A line of nm is `ADDRESS SIZE KIND NAME`.
fn function(line: &str) -> Option<(String, u64)> {
    let mut parts = line.splitn(4, ' ');
    let (size, kind, name) = (parts.nth(1)?, parts.next()?, parts.next()?);
    matches!(kind, "t" | "T" | "w" | "W").then_some((name.to_owned(), size.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_the_page_of_cargo() {
        let page = r#"<script>const UNIT_DATA = [{"name":"a","duration":1.5},{"name":"b","duration":4},{"name":"a","duration":0.5}];
            const X = 1;</script>"#;
        assert_eq!(times_in(page), Some(vec![("b".to_owned(), 4.0), ("a".to_owned(), 2.0)]));
        assert_eq!(times_in("<html>"), None);
    }

    #[test]
    fn functions_are_told_from_data() {
        let line = "0000000000001000 0000000000000042 t core::fmt::write<T, U>";
        assert_eq!(function(line), Some(("core::fmt::write<T, U>".to_owned(), 42)));
        assert_eq!(function("0000000000001000 0000000000000042 r TABLE"), None);
        assert_eq!(function("                 U memcpy"), None);
    }
}
