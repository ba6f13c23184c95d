//! What the programs of a stage print: kept whole in a file, shown when the stage has failed.

use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// How much of a failed stage is shown.
const SHOWN_LINES_MAX: usize = 60;

/// Lines about successes, which only hide the cause in the log of a failed stage.
const SUCCESS_MARKS: [&str; 6] = ["ok ", "PASS [", "Compiling ", "Downloaded ", "Checking ", "{\"reason\""];

/// The log of one stage.
pub(crate) struct Log {
    is_verbose: bool,
    file: Option<File>,
    end: VecDeque<String>,
}

impl Log {
    /// A log in `<directory>/<stage>.log`; that of an earlier run is overwritten.
    pub(crate) fn new(directory: &Path, stage: &str, is_verbose: bool) -> Result<Self> {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let path = directory.join(format!("{stage}.log"));
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { is_verbose, file: Some(file), end: VecDeque::new() })
    }

    /// Keeps one line. A log that cannot be written any more fails no test.
    pub(crate) fn write(&mut self, line: &str) {
        if let Some(file) = &mut self.file
            && writeln!(file, "{line}").is_err()
        {
            self.file = None;
        }
        if self.is_verbose {
            println!("{line}");
        } else if !SUCCESS_MARKS.iter().any(|mark| line.trim_start().starts_with(mark)) {
            if self.end.len() == SHOWN_LINES_MAX {
                self.end.pop_front();
            }
            self.end.push_back(line.to_owned());
        }
    }

    /// The end of the log, without the successes in it. One text, because other stages print at the same time.
    pub(crate) fn end(&self) -> String {
        self.end.iter().fold(String::new(), |text, line| text + line + "\n")
    }
}
