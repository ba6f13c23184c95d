//! Lines and the chain through them: written here, and read here.

use serde::{Deserialize, Serialize};

use super::AuditEntry;
use crate::hexadecimal::{SHA256_CHARS, sha256};

/// Longest line. The bounds of an entry keep lines below this even if every character must be escaped.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;

/// What stands between the hashed part of a line and its hash.
const BEFORE_HASH: &[u8] = br#","hash":""#;

/// What stands behind the hash.
const AFTER_HASH: &[u8] = br#""}"#;

/// Where a log ends: what the next line continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    /// Number of the last entry.
    pub(super) seq: u64,
    /// Hash of the last line.
    pub(super) hash: String,
}

impl Chain {
    /// Before the first line.
    pub(super) fn start() -> Self {
        Self { seq: 0, hash: "0".repeat(SHA256_CHARS) }
    }

    /// The line of the next entry, and the chain behind it.
    pub(super) fn entry(&self, entry: &AuditEntry) -> serde_json::Result<(Vec<u8>, Self)> {
        #[derive(Serialize)]
        struct Line<'a> {
            seq: u64,
            #[serde(flatten)]
            entry: &'a AuditEntry,
            prev: &'a str,
        }
        let seq = self.next_seq();
        Ok(seal(serde_json::to_vec(&Line { seq, entry, prev: &self.hash })?, seq))
    }

    /// The number of the next entry. Numbers that were read may be anything, so this must not overflow.
    pub(super) fn next_seq(&self) -> u64 {
        self.seq.saturating_add(1)
    }

    /// The first line of a file, and the chain behind it.
    pub(super) fn anchor(&self, file_name: &str) -> serde_json::Result<(Vec<u8>, Self)> {
        #[derive(Serialize)]
        struct Line<'a> {
            anchor: &'a str,
            seq: u64,
            prev: &'a str,
        }
        Ok(seal(serde_json::to_vec(&Line { anchor: file_name, seq: self.seq, prev: &self.hash })?, self.seq))
    }
}

/// Ends a line with the hash of all that it says.
fn seal(mut object: Vec<u8>, seq: u64) -> (Vec<u8>, Chain) {
    let hash = sha256(&object);
    object.pop();
    object.extend([BEFORE_HASH, hash.as_bytes(), AFTER_HASH, b"\n"].concat());
    (object, Chain { seq, hash })
}

/// What a line says of its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The file that the line begins, if it is an anchor.
    pub(super) anchor: Option<String>,
    /// Its number; that of the entry before, if it is an anchor.
    pub(super) seq: u64,
    /// The hash of the line before.
    pub(super) prev: String,
    /// Its own hash, which fits what it says.
    pub(super) hash: String,
}

impl Place {
    /// What the next line continues.
    pub(super) fn into_chain(self) -> Chain {
        Chain { seq: self.seq, hash: self.hash }
    }
}

/// Reads a line without its end, and checks that its hash fits. The bytes are hashed as they stand: what a change of them
/// would mean to a reader of JSON does not matter.
pub(super) fn read(line: &[u8]) -> Result<Place, &'static str> {
    #[derive(Deserialize)]
    struct Fields {
        anchor: Option<String>,
        seq: u64,
        prev: String,
    }
    let not_ours = "it is not a line of an audit log: it was damaged or put there by somebody else";
    let (said, hash) = split(line).ok_or(not_ours)?;
    if sha256(&[said, b"}"].concat()) != hash {
        return Err("its hash does not fit what it says: it was changed");
    }
    let Fields { anchor, seq, prev } = serde_json::from_slice(line).map_err(|_| not_ours)?;
    Ok(Place { anchor, seq, prev, hash: hash.to_owned() })
}

/// What a line says, and its hash.
fn split(line: &[u8]) -> Option<(&[u8], &str)> {
    let (said, hash) = line.strip_suffix(AFTER_HASH)?.split_last_chunk::<SHA256_CHARS>()?;
    Some((said.strip_suffix(BEFORE_HASH)?, str::from_utf8(hash).ok()?))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::audit::{CommandText, Outcome};
    use crate::call::Receipt;

    fn entry() -> AuditEntry {
        AuditEntry::anonymous("somebody", "exec", Outcome::TimedOut, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_line_has_its_documented_form() {
        let (line, chain) = Chain::start().entry(&entry()).unwrap();
        let text = String::from_utf8(line).unwrap();
        let zeros = "0".repeat(64);
        let said = format!(
            "{{\"seq\":1,\"at\":\"1970-01-01T00:00:00Z\",\"subject\":\"somebody\",\"tenant\":null,\"session\":null,\
             \"operation\":\"exec\",\"target\":null,\"command\":null,\"verdict\":\"timed_out\",\"detail\":null,\
             \"receipt\":null,\"prev\":\"{zeros}\""
        );
        assert_eq!(text, format!("{said},\"hash\":\"{}\"}}\n", sha256(format!("{said}}}").as_bytes())));
        let place = read(text.trim_end().as_bytes()).unwrap();
        assert_eq!(place, Place { anchor: None, seq: 1, prev: zeros, hash: chain.hash });
    }

    #[test]
    fn an_anchor_says_where_the_file_before_ended() {
        let before = Chain { seq: 41, hash: "f".repeat(64) };
        let (line, chain) = before.anchor("audit-000002.jsonl").unwrap();
        let place = read(line.strip_suffix(b"\n").unwrap()).unwrap();
        assert_eq!(place.anchor.as_deref(), Some("audit-000002.jsonl"));
        assert_eq!((place.seq, place.prev), (41, before.hash));
        assert_eq!(chain, Chain { seq: 41, hash: place.hash });
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let (line, _) = Chain::start().entry(&entry()).unwrap();
        let line = line.strip_suffix(b"\n").unwrap();
        for index in 0..line.len() {
            let mut changed = line.to_vec();
            changed[index] ^= 1;
            assert!(read(&changed).is_err(), "byte {index}");
            assert!(read(&line[..index]).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn the_worst_entry_stays_below_the_longest_line() {
        let worst = "\u{1}".repeat(1 << 20);
        let entry = AuditEntry {
            subject: worst.clone(),
            tenant: Some("x".repeat(64).parse().unwrap()),
            session: Some("\"".repeat(256).parse().unwrap()),
            target: Some(worst.clone()),
            command: Some(worst.clone()),
            detail: Some(worst),
            receipt: Some(Receipt {
                cpu_ms: u64::MAX,
                memory_peak_bytes: u64::MAX,
                io_read_bytes: u64::MAX,
                io_write_bytes: u64::MAX,
                processes: Some(u64::MAX),
                denied_egress: u64::MAX,
            }),
            ..entry()
        };
        let chain = Chain { seq: u64::MAX - 1, ..Chain::start() };
        let (line, _) = chain.entry(&entry.bounded(CommandText::Text)).unwrap();
        assert!(line.len() <= LINE_BYTES_MAX, "{}", line.len());
    }
}
