//! Entries of a tar file, with their long names put together and everything checked that can be checked without a disk.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tar::{Entries, Entry, EntryType, Header};

use crate::failure::Reason;

/// Longest path of an entry and longest target of a link, as the kernel's.
const PATH_BYTES_MAX: usize = 4096;
/// Longest name of one file.
const NAME_BYTES_MAX: usize = 255;
/// Most that the extended header of one entry may hold.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;
/// Permission bits that are kept: a program of an image does not change who runs it.
const MODE_MASK: u32 = 0o1777;

/// The type of an entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
    /// With its target.
    Symlink(OsString),
    /// An earlier entry.
    HardLink(PathBuf),
    /// Devices and pipes: the box has its own or needs none.
    Skipped,
}

/// The header of an entry.
#[derive(Debug)]
pub(crate) struct Meta {
    /// Relative, without `.` and `..`; empty for the top itself.
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u64,
    pub(crate) gid: u64,
    pub(crate) modified_s: i64,
    pub(crate) size_bytes: u64,
}

/// Names and numbers that came in extra headers before an entry, because they did not fit into its own.
#[derive(Debug, Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    uid: Option<u64>,
    gid: Option<u64>,
    size_bytes: Option<u64>,
    sparse: bool,
}

/// Reads on to the next entry that is one; nothing at the end.
pub(crate) fn next<'a, R: Read>(entries: &mut Entries<'a, R>) -> Result<Option<(Meta, Entry<'a, R>)>, Reason> {
    let mut extension = Extension::default();
    for found in entries {
        let mut entry = found.map_err(|error| not_whole(&error))?;
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => extension.path = Some(long_name(&mut entry)?),
            EntryType::GNULongLink => extension.link = Some(long_name(&mut entry)?),
            EntryType::XHeader => extension.read(&extra(&mut entry)?)?,
            EntryType::XGlobalHeader => {}
            _ => return Ok(Some((meta(entry.header(), extension)?, entry))),
        }
    }
    Ok(None)
}

/// The tar reader's own text repeats the bytes that it could not read, so only failures to read the file are passed on.
fn not_whole(error: &std::io::Error) -> Reason {
    let why = match (error.raw_os_error(), error.kind()) {
        (Some(_), kind) => format!(": {kind}"),
        (None, std::io::ErrorKind::UnexpectedEof) => ": it ends too early".to_owned(),
        (None, _) => String::new(),
    };
    format!(
        "it is not a whole tar file{why}; expected an OCI layout, the output of `docker save` or a tar file of a root"
    )
}

fn meta(header: &Header, extension: Extension) -> Result<Meta, Reason> {
    let raw_path = extension.path.unwrap_or_else(|| header.path_bytes().into_owned());
    let shown = String::from_utf8_lossy(&raw_path).into_owned();
    let number =
        |found: std::io::Result<u64>| found.map_err(|error| format!("the header of {shown} is damaged: {error}"));
    let size_bytes = number(header.entry_size())?;
    if extension.sparse || header.entry_type() == EntryType::GNUSparse {
        return Err(format!("{shown} is stored as a sparse file, which is not supported; pack it without --sparse"));
    }
    if extension.size_bytes.is_some_and(|told| told != size_bytes) {
        return Err(format!("{shown} is larger than 8 GiB"));
    }
    let link = extension.link.or_else(|| header.link_name_bytes().map(std::borrow::Cow::into_owned));
    Ok(Meta {
        kind: kind(header.entry_type(), link, &shown)?,
        path: clean_path(&raw_path)?,
        mode: u32::try_from(number(header.mode().map(u64::from))?).unwrap_or(0) & MODE_MASK,
        uid: extension.uid.map_or_else(|| number(header.uid()), Ok)?,
        gid: extension.gid.map_or_else(|| number(header.gid()), Ok)?,
        modified_s: i64::try_from(header.mtime().unwrap_or(0)).unwrap_or(0),
        size_bytes,
    })
}

fn kind(kind: EntryType, link: Option<Vec<u8>>, shown: &str) -> Result<Kind, Reason> {
    let target = || {
        let target = link.filter(|target| !target.is_empty() && target.len() < PATH_BYTES_MAX && !target.contains(&0));
        target.ok_or_else(|| format!("the link {shown} says nothing, or too much"))
    };
    match kind {
        EntryType::Regular | EntryType::Continuous => Ok(Kind::File),
        EntryType::Directory => Ok(Kind::Directory),
        EntryType::Symlink => Ok(Kind::Symlink(OsString::from_vec(target()?))),
        EntryType::Link => Ok(Kind::HardLink(clean_path(&target()?)?)),
        EntryType::Char | EntryType::Block | EntryType::Fifo => Ok(Kind::Skipped),
        other => Err(format!("{shown} is of a kind that is not known: {:?}", char::from(other.as_byte()))),
    }
}

/// A path of the archive, refused if it leads out.
fn clean_path(raw: &[u8]) -> Result<PathBuf, Reason> {
    let shown = String::from_utf8_lossy(raw);
    if raw.starts_with(b"/") {
        return Err(format!("{shown} is an absolute path"));
    }
    if raw.len() >= PATH_BYTES_MAX || raw.contains(&0) {
        return Err(format!("a path is longer than {PATH_BYTES_MAX} bytes, or has a zero in it"));
    }
    let mut path = PathBuf::new();
    for part in raw.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(format!("{shown} leads upwards by `..`")),
            part if part.len() > NAME_BYTES_MAX => {
                return Err(format!("a name in {shown} is longer than {NAME_BYTES_MAX} bytes"));
            }
            part => path.push(OsString::from_vec(part.to_vec())),
        }
    }
    Ok(path)
}

fn long_name(entry: &mut impl Read) -> Result<Vec<u8>, Reason> {
    let mut name = extra(entry)?;
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// The contents of an extra header, which is read into memory and hence small.
fn extra(entry: &mut impl Read) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::new();
    let read = entry.take(EXTENSION_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("it is not a whole tar file: {error}"))?;
    if bytes.len() as u64 > EXTENSION_BYTES_MAX {
        return Err(format!("the extra header of an entry is longer than {EXTENSION_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

impl Extension {
    /// Takes records of the form `length key=value\n`, where the length counts the whole record.
    fn read(&mut self, mut records: &[u8]) -> Result<(), Reason> {
        let damaged = || "the extra header of an entry is damaged".to_owned();
        while !records.is_empty() {
            let space = records.iter().position(|&byte| byte == b' ').ok_or_else(damaged)?;
            let length: usize =
                std::str::from_utf8(&records[..space]).ok().and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
            let record = records.get(space + 1..length).ok_or_else(damaged)?.strip_suffix(b"\n").ok_or_else(damaged)?;
            let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(damaged)?;
            self.take(&record[..equals], &record[equals + 1..]).ok_or_else(damaged)?;
            records = &records[length..];
        }
        Ok(())
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let number = || std::str::from_utf8(value).ok()?.parse().ok();
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"uid" => self.uid = Some(number()?),
            b"gid" => self.gid = Some(number()?),
            b"size" => self.size_bytes = Some(number()?),
            key if key.starts_with(b"GNU.sparse.") => self.sparse = true,
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_or_refused() {
        assert_eq!(clean_path(b"./usr//bin/./sh").unwrap(), PathBuf::from("usr/bin/sh"));
        assert_eq!(clean_path(b"./").unwrap(), PathBuf::new());
        for bad in [&b"/etc/passwd"[..], b"..", b"a/../../b", b"a\0b", &[b'a'; 300], &[b'/'; 5000]] {
            assert!(clean_path(bad).is_err());
        }
    }

    #[test]
    fn extra_headers_are_read_by_length() {
        let mut extension = Extension::default();
        extension.read(b"12 path=a\nb\n12 uid=1000\n13 unknown=x\n").unwrap();
        assert_eq!((extension.path.as_deref(), extension.uid), (Some(&b"a\nb"[..]), Some(1000)));
        for bad in [&b"5"[..], b"99 path=x\n", b"0 a=b\n", b"x a=b\n", b"6 ab\n", b"10 uid=abc"] {
            assert!(Extension::default().read(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
