//! What has changed on the host, as an archive.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use box_core::{Error, Result, SafeRoot};
use tar::{Builder, EntryType, Header};

use super::host::{Tree, file_stamp};
use super::known::{HostStamp, Known, Pair};
use crate::limits::MOUNT_BYTES_MAX;

/// What has changed on the host.
#[derive(Debug)]
pub(super) struct Change {
    /// Removed paths; of a removed tree only the top.
    pub(super) removed: Vec<String>,
    /// What is new or different, if anything is.
    pub(super) archive: Option<File>,
    /// What both sides have once that was carried.
    pub(super) carried: BTreeMap<String, Pair>,
}

/// What has changed since both sides were the same.
pub(super) fn changes(tree: &Tree, inner: &[String], known: &Known, staging: &SafeRoot) -> Result<Change> {
    let found = tree.scan(inner)?;
    let kind_changed = |path: &String| {
        let (before, now) = (known.0.get(path).map(|pair| &pair.host), found.get(path));
        // A directory is not replaced by something else, nor the other way round, by putting it there.
        before.zip(now).is_some_and(|(before, now)| (before == &HostStamp::Directory) != (now == &HostStamp::Directory))
    };
    let gone = known.0.keys().filter(|path| !found.contains_key(*path) || kind_changed(path));
    let removed = topmost(gone.cloned());
    let is_under = |path: &str| removed.iter().any(|top| is_within(path, top));
    let new = found
        .iter()
        .filter(|(path, stamp)| known.0.get(*path).is_none_or(|pair| pair.host != **stamp) || is_under(path));
    let new: Vec<(&String, &HostStamp)> = new.collect();
    if new.is_empty() {
        return Ok(Change { removed, archive: None, carried: BTreeMap::new() });
    }
    let mut packed = Builder::new(staged(staging)?);
    let mut carried = BTreeMap::new();
    let mut bytes = 0;
    for (path, stamp) in new {
        if let Some(stamp) = add(&mut packed, tree, path, stamp, &mut bytes)? {
            carried.insert(path.clone(), Pair { boxed: stamp.in_box(), host: stamp });
        }
    }
    let finished = packed.into_inner().and_then(|mut file| file.rewind().map(|()| file));
    Ok(Change { removed, archive: Some(finished.map_err(failed)?), carried })
}

/// Adds an entry as it is now, which may not be how it was found.
fn add(
    packed: &mut Builder<File>,
    tree: &Tree,
    path: &str,
    stamp: &HostStamp,
    bytes: &mut u64,
) -> Result<Option<HostStamp>> {
    match stamp {
        HostStamp::Directory => {
            let name = format!("{path}/");
            packed.append_data(&mut header(EntryType::Directory, 0, 0o755, 0), name, io::empty()).map_err(failed)?;
            Ok(Some(HostStamp::Directory))
        }
        HostStamp::Link(target) => {
            let target = Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(target));
            let mut header = header(EntryType::Symlink, 0, 0o777, 0);
            packed.append_link(&mut header, path, target).map_err(failed)?;
            Ok(Some(stamp.clone()))
        }
        HostStamp::File { .. } => {
            // It was there a moment ago; if it is gone, the next synchronization finds out.
            let Ok(file) = tree.root.open(path) else { return Ok(None) };
            let stat = rustix::fs::fstat(&file).map_err(|error| Error::io(format!("reading {path}"), error))?;
            let now = file_stamp(&stat);
            let HostStamp::File { size, mode, modified: (seconds, _), .. } = &now else { return Ok(None) };
            if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
                return Ok(None);
            }
            *bytes += size;
            if *bytes > MOUNT_BYTES_MAX {
                return Err(super::host::too_large(Path::new(path)));
            }
            let mut header = header(EntryType::Regular, *size, *mode, u64::try_from(*seconds).unwrap_or(0));
            let content = file.take(*size).chain(io::repeat(0)).take(*size);
            packed.append_data(&mut header, path, content).map_err(failed)?;
            Ok(Some(now))
        }
    }
}

fn header(kind: EntryType, size: u64, mode: u32, modified: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(modified);
    header
}

/// An unnamed file in the staging directory.
pub(super) fn staged(staging: &SafeRoot) -> Result<File> {
    let name =
        format!("carried-{}", box_core::hexadecimal::hexadecimal(&box_core::random::bytes::<8>().map_err(failed)?));
    let file = staging.create_new_file(&name, 0o600)?;
    staging.remove_file(&name)?;
    Ok(file)
}

/// Those of these paths that lie below no other.
fn topmost(paths: impl Iterator<Item = String>) -> Vec<String> {
    let mut top: Vec<String> = Vec::new();
    // Sorted, whatever lies below something comes after it.
    for path in paths {
        if !top.iter().rev().any(|above| is_within(&path, above)) {
            top.push(path);
        }
    }
    top
}

fn is_within(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where errors are mapped")]
fn failed(error: io::Error) -> Error {
    Error::io("packing a mount", io::Error::new(error.kind(), error.to_string()))
}
