//! Tar files, as bad as they need to be.

use tar::{Builder, EntryType, Header};

/// A tar file in the making. Names go in as they are, however bad.
pub(crate) struct Tar(pub(crate) Builder<Vec<u8>>);

impl Tar {
    /// Without anything in it.
    pub(crate) fn empty() -> Self {
        Self(Builder::new(Vec::new()))
    }

    /// With the one directory that every root file system has.
    pub(crate) fn new() -> Self {
        Self::empty().directory("./bin/", 0o755)
    }

    pub(crate) fn add(mut self, kind: EntryType, name: &str, link: &str, mode: u32, contents: &[u8]) -> Self {
        self.0.append(&header(kind, name, link, mode, contents.len() as u64), contents).unwrap();
        self
    }

    pub(crate) fn directory(self, name: &str, mode: u32) -> Self {
        self.add(EntryType::Directory, name, "", mode, b"")
    }

    pub(crate) fn file(self, name: &str, contents: &[u8]) -> Self {
        self.add(EntryType::Regular, name, "", 0o644, contents)
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Symlink, name, target, 0o777, b"")
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Link, name, target, 0o644, b"")
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// A header with these words in it, and everything else as usual.
pub(crate) fn header(kind: EntryType, name: &str, link: &str, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(1000);
    header.set_gid(70_000);
    header.set_mtime(1_600_000_000);
    header.set_size(size);
    header.set_cksum();
    header
}
