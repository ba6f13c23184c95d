//! Measures boxes against the floor and the field, in one run, and holds the numbers against what is promised.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table on the terminal is what this program is for")]

mod boxes;
mod commands;
mod engine_api;
mod forwarding;
mod groups;
mod options;
mod peers;
mod plot;
mod process_memory;
mod promises;
mod report;
mod rpc;
mod samples;
mod server;
mod table;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::boxes::Boxes;
use crate::options::Options;
use crate::report::{Report, Skip};

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(report) if !report.failed.is_empty() || (options.check && !report.all_hold()) => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Report> {
    let directory = Options::directory();
    std::fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let directory = directory.canonicalize()?;
    let boxes = Boxes::open(&directory.join("state"), options.workers)?;
    let report = measure(&boxes, options, &directory);
    boxes.close();
    print!("{}", table::whole(&report));
    write(&report, &directory)?;
    Ok(report)
}

/// Runs group by group. A group that fails is reported, and the others still run; what it leaves behind is removed when
/// the backend closes.
fn measure(boxes: &Boxes, options: &Options, directory: &Path) -> Report {
    let mut report = Report::of_this_machine();
    for group in groups::ALL.iter().filter(|group| options.wants(group.name)) {
        eprintln!("bench: {} ({})", group.name, group.about);
        if let Err(error) = (group.measure)(boxes, options, directory, &mut report) {
            eprintln!("bench: {} failed: {error:#}", group.name);
            report.failed.push(Skip { name: group.name, reason: format!("{error:#}") });
        }
    }
    promises::judge(&mut report);
    report
}

fn write(report: &Report, directory: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(report)?;
    std::fs::write(directory.join("results.json"), json + "\n").context("writing results.json")?;
    std::fs::write(directory.join("results.md"), table::whole(report)).context("writing results.md")?;
    let mut written = vec!["results.json".to_owned(), "results.md".to_owned()];
    written.extend(plot::draw(report, directory)?);
    println!("\nwritten to {}: {}", directory.display(), written.join(", "));
    Ok(())
}
