//! A directory with a log, and what tests do with it.

use std::fs;
use std::path::{Path, PathBuf};

use box_core::Caller;
use box_core::audit::{AuditEntry, AuditLog, AuditOptions, CommandText, Outcome, Verdict, verify};
use jiff::Timestamp;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Files so small that four entries fill one.
pub(crate) const SMALL: AuditOptions =
    AuditOptions { file_bytes_max: 2050, files_max: 1000, commands: CommandText::Text };

pub(crate) fn entry(command: &str) -> AuditEntry {
    let entry = AuditEntry::new(&Caller::local(), "exec", Outcome::Completed, Timestamp::UNIX_EPOCH);
    AuditEntry { session: Some("s".parse().unwrap()), command: Some(command.into()), ..entry }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
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

    pub(crate) fn key(&self) -> PathBuf {
        self.directory.path().join("audit.key")
    }

    pub(crate) fn try_open(&self, options: AuditOptions) -> box_core::Result<AuditLog> {
        AuditLog::open(&self.dir(), &self.key(), options)
    }

    pub(crate) fn open(&self, options: AuditOptions) -> AuditLog {
        self.try_open(options).unwrap()
    }

    /// Opens the log, appends an entry for each number, and closes it.
    pub(crate) async fn append(&self, options: AuditOptions, numbers: impl IntoIterator<Item = usize>) {
        let log = self.open(options);
        for number in numbers {
            log.append(entry(&format!("command {number}"))).await.unwrap();
        }
    }

    pub(crate) fn verify(&self) -> Verdict {
        verify(&self.dir(), &self.key()).unwrap()
    }

    /// The HMAC-SHA-256 of a text with the key of the log.
    pub(crate) fn seal(&self, text: &str) -> String {
        let digits = fs::read_to_string(self.key()).unwrap();
        let mut secret: Vec<u8> =
            (0..32).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
        secret.resize(64, 0);
        let padded = |pad: u8| secret.iter().map(|byte| byte ^ pad).collect::<Vec<u8>>();
        let inner = Sha256::digest([padded(0x36), text.as_bytes().to_vec()].concat());
        hexadecimal(&Sha256::digest([padded(0x5c), inner.to_vec()].concat()))
    }

    /// Rewrites the whole log in the form without keys.
    pub(crate) fn rewrite_without_key(&self) {
        let mut before = "0".repeat(64);
        for file in self.files() {
            let mut lines = self.lines(&file);
            for line in &mut lines {
                let said = line.split_once(",\"prev\":\"").unwrap().0;
                let said = format!("{said},\"prev\":\"{before}\"");
                before = hexadecimal(&Sha256::digest(format!("{said}}}")));
                *line = format!("{said},\"hash\":\"{before}\"}}");
            }
            self.write_lines(&file, &lines);
        }
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
