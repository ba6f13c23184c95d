//! The files of an audit log, for whoever only looks at them.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::fault::Fault;

/// Bytes that are read first, from the end of a file backwards; then as many as there are already.
const PAGE_BYTES: u64 = 64 << 10;

/// The last entries of a log, oldest first. The line that starts each file is not one.
pub(crate) fn tail(directory: &Path, count: usize) -> Result<Vec<String>, Fault> {
    let failed =
        |error: io::Error| Fault::new(format!("the audit log in {} cannot be read: {error}", directory.display()));
    let mut newest_first = Vec::new();
    for file in files(directory).map_err(failed)?.iter().rev() {
        let wanted = count - newest_first.len();
        if wanted == 0 {
            break;
        }
        // One more, because the first line of the file may be among them.
        let mut lines = last_lines(file, wanted.saturating_add(1)).map_err(failed)?;
        lines.retain(|line| !is_anchor(line));
        newest_first.extend(lines.into_iter().rev().take(wanted));
    }
    newest_first.reverse();
    Ok(newest_first)
}

/// The files of a log, oldest first.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.strip_prefix("audit-").is_some_and(|rest| rest.strip_suffix(".jsonl").is_some()) {
            found.push(path);
        }
    }
    // Their numbers have leading zeros, but may outgrow them.
    found.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    Ok(found)
}

/// The last whole lines of a file. Only as much of it is read as they need.
fn last_lines(path: &Path, count: usize) -> io::Result<Vec<String>> {
    let file = std::fs::File::open(path)?;
    let mut start = file.metadata()?.len();
    let mut bytes: Vec<u8> = Vec::new();
    while start > 0 && line_ends(&bytes) <= count {
        let page = start.min(PAGE_BYTES.max(bytes.len() as u64));
        start -= page;
        let mut earlier = vec![0; usize::try_from(page).unwrap_or(0)];
        file.read_exact_at(&mut earlier, start)?;
        earlier.append(&mut bytes);
        bytes = earlier;
    }
    // What is behind the last line end is still being written.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let text = String::from_utf8_lossy(&bytes[..whole]);
    let lines: Vec<&str> = text.lines().collect();
    Ok(lines[lines.len().saturating_sub(count)..].iter().map(ToString::to_string).collect())
}

fn line_ends(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').count() - 1
}

fn is_anchor(line: &str) -> bool {
    line.starts_with("{\"anchor\":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::audit::{AuditEntry, AuditLog, AuditOptions, Outcome};
    use jiff::Timestamp;

    fn written(directory: &Path, entries: u32, file_bytes_max: u64) {
        let options = AuditOptions { file_bytes_max, ..AuditOptions::default() };
        let log = AuditLog::open(directory, &directory.with_extension("key"), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for number in 0..entries {
            let mut entry = AuditEntry::anonymous("somebody", "exec", Outcome::Completed, Timestamp::UNIX_EPOCH);
            entry.target = Some(format!("e{number}"));
            entry.detail = Some("x".repeat(300));
            runtime.block_on(log.append(entry)).unwrap();
        }
    }

    fn targets(directory: &Path, count: usize) -> Vec<String> {
        let target = |line: &String| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["target"].as_str().unwrap().to_owned()
        };
        tail(directory, count).unwrap().iter().map(target).collect()
    }

    #[test]
    fn the_last_entries_are_found_across_files_and_pages() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("audit");
        written(&directory, 1000, 100 << 10);
        assert!(files(&directory).unwrap().len() > 3);
        let expected = |count: usize| (1000 - count..1000).map(|number| format!("e{number}")).collect::<Vec<_>>();
        for count in [0, 1, 10, 150, 300, 999, 1000] {
            assert_eq!(targets(&directory, count), expected(count), "{count}");
        }
        assert_eq!(targets(&directory, 5000), expected(1000), "no more than there are");
    }

    #[test]
    fn a_line_that_is_being_written_is_not_shown() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("audit");
        written(&directory, 3, 1 << 20);
        let file = files(&directory).unwrap().pop().unwrap();
        let mut text = std::fs::read_to_string(&file).unwrap();
        text.push_str("{\"seq\":4,\"at");
        std::fs::write(&file, text).unwrap();
        assert_eq!(targets(&directory, 2), ["e1", "e2"]);
    }
}
