//! A search through many files in a box, next to `rg` over the same files on the host.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use box_core::{BoxSpec, Handle, MountMode, MountSpec, Origin, link};
use box_wire::{Answer, FileOp, FileRequest, Program};

use super::launch::{Subject, take_turns};
use crate::boxes::{self, Boxes};
use crate::commands;
use crate::options::Options;
use crate::report::Report;

const GROUP: &str = "search";
/// Ours.
pub(crate) const GREP: &str = "grep over 100000 files, box";
/// What we are measured by.
pub(crate) const RIPGREP: &str = "grep over 100000 files, rg on the host";

const FILES: usize = 100_000;
const FILES_PER_DIRECTORY: usize = 100;
const LINES_PER_FILE: usize = 60;

/// One file in so many has a line that matches.
const MATCHING: usize = 1000;
const PATTERN: &str = r"needle_\d+ found";

/// Where the files are in the box.
const TARGET: &str = "/workspace";

/// The group. The box may use all processors, as `rg` does.
pub(crate) fn measure(boxes: &Boxes, options: &Options, directory: &Path, report: &mut Report) -> Result<()> {
    let files = tempfile::Builder::new().prefix("files-").tempdir_in(directory)?;
    make_files(files.path())?;
    let source = files.path().canonicalize()?;
    let mount = MountSpec { source, target: TARGET.parse()?, mode: MountMode::Ro, origin: Origin::Operator };
    let processors = u32::try_from(std::thread::available_parallelism()?.get())?;
    let spec = BoxSpec { cpus: processors.into(), mounts: vec![mount], ..boxes::default_spec() };
    let handle = boxes.create_as("search", &spec)?;
    let grep = || in_box(boxes, &handle).map(|took| vec![(GREP, took)]);
    // The first searches read the files from the disk.
    in_box(boxes, &handle)?;
    let mut subjects = vec![Subject { name: GREP, every: 1, round: Box::new(grep) }];
    match on_host(files.path()) {
        Ok(subject) => subjects.push(subject),
        Err(reason) => report.skip(RIPGREP, format!("{reason:#}")),
    }
    for (name, samples) in take_turns(subjects, options.slow_rounds() * 2)? {
        report.time(GROUP, name, &samples);
    }
    report.relate(GREP, RIPGREP);
    boxes.destroy(&handle)
}

/// Text files of about 3 KiB, a hundred in each directory.
fn make_files(root: &Path) -> Result<()> {
    for number in 0..FILES {
        let directory = root.join(format!("d{}", number / FILES_PER_DIRECTORY));
        if number % FILES_PER_DIRECTORY == 0 {
            fs::create_dir(&directory)?;
        }
        let mut text = String::new();
        for line in 0..LINES_PER_FILE {
            writeln!(text, "line {line} of file {number}, in which no needle_ is to be found")?;
        }
        if number % MATCHING == 0 {
            writeln!(text, "here is needle_{number} found at last")?;
        }
        fs::write(directory.join(format!("f{number}.txt")), text)?;
    }
    Ok(())
}

fn in_box(boxes: &Boxes, handle: &Handle) -> Result<Duration> {
    let (path, pattern) = (TARGET.parse()?, PATTERN.to_owned());
    let op = FileOp::Grep { path, pattern, include: None, ignore_case: false, matches_max: 10_000 };
    let request = boxes::request(Program::FileOp(Box::new(FileRequest { root: TARGET.parse()?, op })))?;
    let start = Instant::now();
    let answer = boxes.block_on(async {
        let stream = box_core::Backend::dial(&*boxes.native(), handle).await?;
        let (answer, mut output) = link::file_op(stream, &request, None::<tokio::io::Empty>).await?;
        // Nothing follows, but the end does: until then the name of the exec is taken.
        while output.next().await?.is_some() {}
        Ok::<_, anyhow::Error>(answer)
    })?;
    let took = start.elapsed();
    let Answer::Matched { matches, truncated, skipped } = answer else { anyhow::bail!("a search gave {answer:?}") };
    let whole = matches.len() == FILES / MATCHING && !truncated && skipped == 0;
    ensure!(whole, "{} lines were found, {skipped} files skipped", matches.len());
    Ok(took)
}

fn on_host(files: &Path) -> Result<Subject<'static>> {
    let mut command = commands::silent(commands::find("STRONGBOX_RG", "rg")?, &["--no-config", "-n", PATTERN]);
    command.arg(files);
    commands::time(&mut command)?;
    Ok(Subject { name: RIPGREP, every: 1, round: Box::new(move || Ok(vec![(RIPGREP, commands::time(&mut command)?)])) })
}
