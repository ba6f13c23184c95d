//! Lines and the chain through them: written here, and read here.

use serde::{Deserialize, Serialize};

use super::AuditEntry;
use super::key::Key;
use crate::hexadecimal::{SHA256_CHARS, sha256};

/// Longest line. The bounds of an entry keep lines below this even if every character must be escaped.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;

/// What stands between what a line says and its seal, an HMAC.
const BEFORE_SEAL: &[u8] = br#","hmac":""#;

/// The same in lines that were written before there was a key. A SHA-256 follows.
const BEFORE_HASH: &[u8] = br#","hash":""#;

/// What stands behind either.
const AFTER_HASH: &[u8] = br#""}"#;

/// Where a log ends: what the next line continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    /// Number of the last entry.
    pub(super) seq: u64,
    /// Seal or hash of the last line.
    pub(super) hash: String,
}

impl Chain {
    /// Before the first line.
    pub(super) fn start() -> Self {
        Self { seq: 0, hash: "0".repeat(SHA256_CHARS) }
    }

    /// The line of the next entry, and the chain behind it.
    pub(super) fn entry(&self, entry: &AuditEntry, key: &Key) -> serde_json::Result<(Vec<u8>, Self)> {
        #[derive(Serialize)]
        struct Line<'a> {
            seq: u64,
            #[serde(flatten)]
            entry: &'a AuditEntry,
            prev: &'a str,
            key: &'a str,
        }
        let seq = self.next_seq();
        Ok(seal(serde_json::to_vec(&Line { seq, entry, prev: &self.hash, key: key.id() })?, seq, key))
    }

    /// The number of the next entry. Numbers that were read may be anything, so this must not overflow.
    pub(super) fn next_seq(&self) -> u64 {
        self.seq.saturating_add(1)
    }

    /// The first line of a file, and the chain behind it.
    pub(super) fn anchor(&self, file_name: &str, key: &Key) -> serde_json::Result<(Vec<u8>, Self)> {
        #[derive(Serialize)]
        struct Line<'a> {
            anchor: &'a str,
            seq: u64,
            prev: &'a str,
            key: &'a str,
        }
        let line = Line { anchor: file_name, seq: self.seq, prev: &self.hash, key: key.id() };
        Ok(seal(serde_json::to_vec(&line)?, self.seq, key))
    }
}

/// Ends a line with a seal of all that it says.
fn seal(mut object: Vec<u8>, seq: u64, key: &Key) -> (Vec<u8>, Chain) {
    let hash = key.seal(&object);
    object.pop();
    object.extend([BEFORE_SEAL, hash.as_bytes(), AFTER_HASH, b"\n"].concat());
    (object, Chain { seq, hash })
}

/// What a line says of its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LinePosition {
    /// The file that the line begins, if it is an anchor.
    pub(super) anchor: Option<String>,
    /// Its number; that of the entry before, if it is an anchor.
    pub(super) seq: u64,
    /// The seal or hash of the line before.
    pub(super) prev: String,
    /// Its own seal or hash, which fits what it says.
    pub(super) hash: String,
    /// Whether it is sealed with the key.
    pub(super) is_sealed: bool,
}

impl LinePosition {
    /// What the next line continues.
    pub(super) fn into_chain(self) -> Chain {
        Chain { seq: self.seq, hash: self.hash }
    }
}

/// Reads a line without its end, and checks that its seal or hash fits. The bytes are hashed as they stand: what a change of them
/// would mean to a reader of JSON does not matter.
pub(super) fn read(line: &[u8], key: Option<&Key>) -> Result<LinePosition, String> {
    #[derive(Deserialize)]
    struct Fields {
        anchor: Option<String>,
        seq: u64,
        prev: String,
        key: Option<String>,
    }
    let not_ours = "it is not a line of an audit log: it was damaged or put there by somebody else";
    let (said, hash, is_sealed) = split(line).ok_or(not_ours)?;
    let object = [said, b"}"].concat();
    let Fields { anchor, seq, prev, key: named } = serde_json::from_slice(line).map_err(|_| not_ours)?;
    let expected = match key {
        _ if !is_sealed => sha256(&object),
        None => return Err("it is sealed with a key, and the key file is missing".to_owned()),
        Some(key) => key.seal(&object),
    };
    if expected == hash {
        return Ok(LinePosition { anchor, seq, prev, hash: hash.to_owned(), is_sealed });
    }
    match key {
        Some(key) if is_sealed && named.as_ref().is_some_and(|named| named != key.id()) => {
            Err(format!("it names another key than {}, which is in the key file", key.id()))
        }
        _ => Err("its hash does not fit what it says: it was changed".to_owned()),
    }
}

/// What a line says, its seal or hash, and whether it is a seal.
fn split(line: &[u8]) -> Option<(&[u8], &str, bool)> {
    let (said, hash) = line.strip_suffix(AFTER_HASH)?.split_last_chunk::<SHA256_CHARS>()?;
    let hash = str::from_utf8(hash).ok()?;
    match said.strip_suffix(BEFORE_SEAL) {
        Some(said) => Some((said, hash, true)),
        None => Some((said.strip_suffix(BEFORE_HASH)?, hash, false)),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::audit::{CommandText, Outcome};
    use crate::call::Receipt;

    fn key() -> Key {
        Key::of([7; 32])
    }

    fn entry() -> AuditEntry {
        AuditEntry::anonymous("somebody", "exec", Outcome::TimedOut, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_line_has_its_documented_form() {
        let (line, chain) = Chain::start().entry(&entry(), &key()).unwrap();
        let text = String::from_utf8(line).unwrap();
        let zeros = "0".repeat(64);
        let said = format!(
            "{{\"seq\":1,\"at\":\"1970-01-01T00:00:00Z\",\"subject\":\"somebody\",\"tenant\":null,\"session\":null,\
             \"operation\":\"exec\",\"target\":null,\"command\":null,\"verdict\":\"timed_out\",\"detail\":null,\
             \"receipt\":null,\"prev\":\"{zeros}\",\"key\":\"{}\"",
            key().id()
        );
        assert_eq!(text, format!("{said},\"hmac\":\"{}\"}}\n", key().seal(format!("{said}}}").as_bytes())));
        let place = read(text.trim_end().as_bytes(), Some(&key())).unwrap();
        assert_eq!(place, LinePosition { anchor: None, seq: 1, prev: zeros, hash: chain.hash, is_sealed: true });
    }

    #[test]
    fn an_anchor_says_where_the_file_before_ended() {
        let before = Chain { seq: 41, hash: "f".repeat(64) };
        let (line, chain) = before.anchor("audit-000002.jsonl", &key()).unwrap();
        let place = read(line.strip_suffix(b"\n").unwrap(), Some(&key())).unwrap();
        assert_eq!(place.anchor.as_deref(), Some("audit-000002.jsonl"));
        assert_eq!((place.seq, place.prev), (41, before.hash));
        assert_eq!(chain, Chain { seq: 41, hash: place.hash });
    }

    #[test]
    fn every_changed_byte_is_noticed() {
        let (line, _) = Chain::start().entry(&entry(), &key()).unwrap();
        let line = line.strip_suffix(b"\n").unwrap();
        for index in 0..line.len() {
            let mut changed = line.to_vec();
            changed[index] ^= 1;
            assert!(read(&changed, Some(&key())).is_err(), "byte {index}");
            assert!(read(&line[..index], Some(&key())).is_err(), "cut at {index}");
        }
    }

    #[test]
    fn a_line_needs_the_key_that_sealed_it() {
        let (line, _) = Chain::start().entry(&entry(), &key()).unwrap();
        let line = line.strip_suffix(b"\n").unwrap();
        assert!(read(line, None).unwrap_err().contains("the key file is missing"));
        assert!(read(line, Some(&Key::of([8; 32]))).unwrap_err().contains("another key"));
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
            }),
            ..entry()
        };
        let chain = Chain { seq: u64::MAX - 1, ..Chain::start() };
        let (line, _) = chain.entry(&entry.bounded(CommandText::Text), &key()).unwrap();
        assert!(line.len() <= LINE_BYTES_MAX, "{}", line.len());
    }
}
