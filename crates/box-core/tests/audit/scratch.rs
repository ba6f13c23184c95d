//! A directory with a log, and what tests do with it.

use std::fs;
use std::path::{Path, PathBuf};

use box_core::Caller;
use box_core::audit::{AuditEntry, AuditLog, AuditOptions, CommandText, Outcome, Verdict, verify};
use jiff::Timestamp;
use serde_json::Value;

/// Files so small that four entries fill one.
pub(crate) const SMALL: AuditOptions =
    AuditOptions { file_bytes_max: 1900, files_max: 1000, commands: CommandText::Text };

pub(crate) fn entry(command: &str) -> AuditEntry {
    let entry = AuditEntry::new(&Caller::local(), "exec", Outcome::Completed, Timestamp::UNIX_EPOCH);
    AuditEntry { session: Some("s".parse().unwrap()), command: Some(command.into()), ..entry }
}

pub(crate) struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// A log of some entries in files of [`SMALL`].
    pub(crate) async fn with_entries(count: usize) -> Self {
        let scratch = Self::new();
        scratch.append(SMALL, 0..count).await;
        scratch
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.directory.path().join("audit")
    }

    pub(crate) fn open(&self, options: AuditOptions) -> AuditLog {
        AuditLog::open(&self.dir(), options).unwrap()
    }

    /// Opens the log, appends an entry for each number, and closes it.
    pub(crate) async fn append(&self, options: AuditOptions, numbers: impl IntoIterator<Item = usize>) {
        let log = self.open(options);
        for number in numbers {
            log.append(entry(&format!("command {number}"))).await.unwrap();
        }
    }

    pub(crate) fn verify(&self) -> Verdict {
        verify(&self.dir()).unwrap()
    }

    /// Names of the files, oldest first.
    pub(crate) fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.dir()).unwrap().map(|found| found.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> =
            names.filter(|name| Path::new(name).extension().is_some_and(|it| it == "jsonl")).collect();
        names.sort();
        names
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.dir().join(file)).unwrap()
    }

    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        self.read(file).lines().map(str::to_owned).collect()
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.dir().join(file), text).unwrap();
    }

    pub(crate) fn write_lines(&self, file: &str, lines: &[String]) {
        self.write(file, &lines.iter().flat_map(|line| [line, "\n"]).collect::<String>());
    }

    /// Every line that is no anchor, through all files.
    pub(crate) fn entries(&self) -> Vec<Value> {
        let lines = self.files().into_iter().flat_map(|file| self.lines(&file));
        let lines = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
        lines.filter(|line| line.get("anchor").is_none()).collect()
    }
}
