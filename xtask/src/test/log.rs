//! What the programs of a stage print: kept whole in a file, shown when the stage has failed.

use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

/// How much of a failed stage is shown.
const SHOWN_LINES_MAX: usize = 60;

/// Lines that tell of a success, which nobody looks for in a stage that failed.
const SUCCESS_MARKS: [&str; 5] = ["ok ", "PASS [", "Compiling ", "Downloaded ", "Checking "];

/// The log of the stage that runs now.
pub(crate) struct Log {
    directory: PathBuf,
    verbose: bool,
    file: Option<File>,
    end: VecDeque<String>,
}

impl Log {
    /// Logs will be `<directory>/<stage>.log`.
    pub(crate) fn new(directory: PathBuf, verbose: bool) -> Result<Self> {
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(Self { directory, verbose, file: None, end: VecDeque::new() })
    }

    /// Begins the log of a stage; that of an earlier run is overwritten.
    pub(crate) fn begin(&mut self, stage: &str) -> Result<()> {
        let path = self.directory.join(format!("{stage}.log"));
        self.end.clear();
        self.file = Some(File::create(&path).with_context(|| format!("cannot write {}", path.display()))?);
        Ok(())
    }

    /// Keeps one line. A log that cannot be written any more fails no test.
    pub(crate) fn write(&mut self, line: &str) {
        if let Some(file) = &mut self.file
            && writeln!(file, "{line}").is_err()
        {
            self.file = None;
        }
        if self.verbose {
            println!("{line}");
        } else if !SUCCESS_MARKS.iter().any(|mark| line.trim_start().starts_with(mark)) {
            if self.end.len() == SHOWN_LINES_MAX {
                self.end.pop_front();
            }
            self.end.push_back(line.to_owned());
        }
    }

    /// Shows the end of the stage's log, without the successes in it.
    pub(crate) fn print_end(&mut self) {
        for line in self.end.drain(..) {
            println!("{line}");
        }
    }
}
