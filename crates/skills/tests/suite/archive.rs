//! Archives made by hand, so that every field can be wrong.

/// An entry, valid unless a test changes it.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    /// The name in the entry itself, where it differs from that in the directory.
    pub(crate) local_name: Option<Vec<u8>>,
    /// Packed.
    pub(crate) data: Vec<u8>,
    pub(crate) size: u32,
    pub(crate) checksum: u32,
    pub(crate) method: u16,
    pub(crate) flags: u16,
    pub(crate) mode: u32,
    /// What follows the data.
    pub(crate) behind: Vec<u8>,
    /// Where the directory says that the entry is, where it lies.
    pub(crate) offset: Option<u32>,
}

impl Entry {
    pub(crate) fn stored(name: &str, text: impl AsRef<[u8]>) -> Self {
        let data = text.as_ref().to_vec();
        let mut checksum = flate2::Crc::new();
        checksum.update(&data);
        Self {
            name: name.into(),
            local_name: None,
            size: u32::try_from(data.len()).unwrap(),
            checksum: checksum.sum(),
            data,
            method: 0,
            flags: 0,
            mode: 0o100_644,
            behind: Vec::new(),
            offset: None,
        }
    }

    pub(crate) fn deflated(name: &str, text: impl AsRef<[u8]>) -> Self {
        use std::io::Write;
        let plain = Self::stored(name, text);
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&plain.data).unwrap();
        Self { data: encoder.finish().unwrap(), method: 8, ..plain }
    }

    pub(crate) fn directory(name: &str) -> Self {
        Self { mode: 0o040_755, ..Self::stored(name, "") }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The sizes follow the data, as in archives that are written to a pipe.
    pub(crate) fn streamed(mut self) -> Self {
        self.flags |= 1 << 3;
        self.behind = [
            b"PK\x07\x08".as_slice(),
            &self.checksum.to_le_bytes(),
            &u32::try_from(self.data.len()).unwrap().to_le_bytes(),
            &self.size.to_le_bytes(),
        ]
        .concat();
        self
    }

    fn local(&self) -> Vec<u8> {
        let name = self.local_name.as_ref().unwrap_or(&self.name);
        let mut bytes = b"PK\x03\x04\x14\x00".to_vec();
        self.write_facts(&mut bytes, self.flags & 8 != 0);
        bytes.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend(name);
        bytes.extend(&self.data);
        bytes.extend(&self.behind);
        bytes
    }

    fn central(&self, offset: usize) -> Vec<u8> {
        let mut bytes = b"PK\x01\x02\x14\x03\x14\x00".to_vec();
        self.write_facts(&mut bytes, false);
        bytes.extend(u16::try_from(self.name.len()).unwrap().to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend((self.mode << 16).to_le_bytes());
        bytes.extend(self.offset.unwrap_or(u32::try_from(offset).unwrap()).to_le_bytes());
        bytes.extend(&self.name);
        bytes
    }

    fn write_facts(&self, bytes: &mut Vec<u8>, later: bool) {
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(self.method.to_le_bytes());
        bytes.extend([0, 0, 0x21, 0x58]);
        let packed = u32::try_from(self.data.len()).unwrap();
        for fact in [self.checksum, packed, self.size] {
            bytes.extend(if later { 0_u32 } else { fact }.to_le_bytes());
        }
    }
}

/// An archive of entries.
pub(crate) fn archive(entries: &[Entry]) -> Vec<u8> {
    archive_with(entries, &[], b"")
}

/// An archive with something between entries and directory, and with a comment.
pub(crate) fn archive_with(entries: &[Entry], between: &[u8], comment: &[u8]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        directory.extend(entry.central(bytes.len()));
        bytes.extend(entry.local());
    }
    bytes.extend(between);
    let start = u32::try_from(bytes.len()).unwrap();
    let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(count);
    bytes.extend(count);
    bytes.extend(u32::try_from(directory.len()).unwrap().to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend(u16::try_from(comment.len()).unwrap().to_le_bytes());
    bytes.extend(comment);
    bytes
}

/// The text of an entry file.
pub(crate) fn skill(name: &str) -> String {
    format!("---\nname: {name}\ndescription: About {name}\n---\n\nDo {name}.\n")
}

/// An archive with one skill and a few files.
pub(crate) fn plain(name: &str) -> Vec<u8> {
    archive(&[
        Entry::directory("top/"),
        Entry::deflated("top/SKILL.md", skill(name)),
        Entry::stored("top/scripts/run.sh", "#!/bin/sh\n").with(|entry| entry.mode = 0o100_777),
        Entry::stored("top/data/empty", "").streamed(),
        Entry::deflated("top/requirements.txt", "requests\n").streamed(),
    ])
}
