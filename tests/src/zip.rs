//! Archives made byte by byte, so that anything can be wrong with them.

/// One entry, stored as it is.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its name in front of its data, if it must differ.
    pub local_name: Option<String>,
    /// Its content.
    pub content: Vec<u8>,
    /// Type and permission bits of Unix.
    pub mode: u32,
    /// The size that it says that it has.
    pub declared_bytes: Option<u32>,
    /// How it says that it was compressed.
    pub method: u16,
    /// Its flags.
    pub flags: u16,
}

impl Entry {
    /// An ordinary file.
    pub fn file(name: &str, content: impl Into<Vec<u8>>) -> Self {
        Self {
            name: name.to_owned(),
            local_name: None,
            content: content.into(),
            mode: 0o100_644,
            declared_bytes: None,
            method: 0,
            flags: 0,
        }
    }

    /// The same with other bits of Unix.
    #[must_use]
    pub fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    /// What both headers say: flags, method, time, checksum, sizes.
    fn facts(&self) -> Vec<u8> {
        let stored = u32::try_from(self.content.len()).unwrap_or(u32::MAX);
        let mut facts = Vec::new();
        facts.extend(self.flags.to_le_bytes());
        facts.extend(self.method.to_le_bytes());
        facts.extend([0, 0, 0x21, 0]);
        facts.extend(checksum(&self.content).to_le_bytes());
        facts.extend(stored.to_le_bytes());
        facts.extend(self.declared_bytes.unwrap_or(stored).to_le_bytes());
        facts
    }
}

/// An archive of these entries, in this order.
pub fn archive(entries: &[Entry]) -> Vec<u8> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let start = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let local_name = entry.local_name.as_ref().unwrap_or(&entry.name);
        bytes.extend(b"PK\x03\x04\x14\0");
        bytes.extend(entry.facts());
        bytes.extend(short(local_name.len()));
        bytes.extend([0, 0]);
        bytes.extend(local_name.as_bytes());
        bytes.extend(&entry.content);
        // Made on Unix, so that the bits above count.
        directory.extend(b"PK\x01\x02\x14\x03\x14\0");
        directory.extend(entry.facts());
        directory.extend(short(entry.name.len()));
        directory.extend([0; 8]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(start.to_le_bytes());
        directory.extend(entry.name.as_bytes());
    }
    let start = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    bytes.extend(&directory);
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend(short(entries.len()));
    bytes.extend(short(entries.len()));
    bytes.extend(u32::try_from(directory.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0, 0]);
    bytes
}

fn short(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes()
}

fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 })
    };
    !bytes.iter().fold(!0, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_zip() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
    }
}
