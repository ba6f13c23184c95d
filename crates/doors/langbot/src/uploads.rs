//! Files that came by a connection in pieces, and wait for the action that uses them.
//!
//! They belong to one connection, are used once, and are dropped with the connection. They stay in memory, so their
//! total size per connection is bounded.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::fault::{Class, Fault};

/// Longest piece, which is what clients send.
const CHUNK_BYTES_MAX: usize = 16_384;
/// Most files at once.
const FILES_MAX: usize = 128;
/// Most bytes of all files of a connection, unless one alone may have more.
const BYTES_MAX: usize = 64 << 20;
/// Longest name.
const KEY_BYTES_MAX: usize = 255;

/// The files of one connection.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<HashMap<String, Upload>>);

#[derive(Debug, Default)]
struct Upload {
    bytes: Vec<u8>,
    length: usize,
    received: u64,
    amount: u64,
}

/// One piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    key: String,
    length: usize,
    bytes: Vec<u8>,
    index: u64,
    amount: u64,
}

impl Chunk {
    /// Reads a piece of a file of at most `length_max` bytes.
    pub(crate) fn read(data: &Map<String, Value>, length_max: usize) -> Result<Self, Fault> {
        let key = data.get("file_key").and_then(Value::as_str).filter(|key| is_key(key));
        let key = key.ok_or_else(|| refused("file_key must be a plain name"))?.to_owned();
        let length = whole(data, "file_length")?;
        let length = usize::try_from(length).ok().filter(|length| *length <= length_max);
        let length = length.ok_or_else(|| refused(format!("file_length must be at most {length_max}")))?;
        let (index, amount) = (whole(data, "chunk_index")?, whole(data, "chunk_amount")?);
        if amount == 0 || index >= amount || amount > length.max(1) as u64 {
            return Err(refused("chunk_index and chunk_amount do not fit together"));
        }
        let text = data.get("chunk_base64").and_then(Value::as_str);
        let fits = |text: &&str| text.len() <= CHUNK_BYTES_MAX.div_ceil(3) * 4;
        let text = text.filter(fits).ok_or_else(|| refused(format!("a chunk has at most {CHUNK_BYTES_MAX} bytes")))?;
        let bytes = STANDARD.decode(text).map_err(|_| refused("chunk_base64 must be base64"))?;
        if bytes.len() > CHUNK_BYTES_MAX || whole(data, "chunk_size")? != bytes.len() as u64 {
            return Err(refused("chunk_size must be the number of bytes of the chunk"));
        }
        Ok(Self { key, length, bytes, index, amount })
    }
}

impl Uploads {
    /// Adds a piece. Pieces come in order; the first one starts the upload over.
    pub(crate) fn add(&self, chunk: &Chunk, length_max: usize) -> Result<(), Fault> {
        let mut files = self.lock();
        let held: usize = files.iter().filter(|(key, _)| **key != chunk.key).map(|(_, file)| file.bytes.len()).sum();
        if !files.contains_key(&chunk.key) && files.len() >= FILES_MAX {
            return Err(refused(format!("at most {FILES_MAX} files can wait on one connection; use them first")));
        }
        if held + chunk.length > BYTES_MAX.max(length_max) {
            return Err(refused("too much waits on this connection already; use the files that were sent first"));
        }
        if chunk.index == 0 {
            let begun = Upload { length: chunk.length, amount: chunk.amount, ..Upload::default() };
            files.insert(chunk.key.clone(), begun);
        }
        let file = files.get_mut(&chunk.key).ok_or_else(|| refused("a file begins with chunk 0"))?;
        let added = file.add(chunk);
        if added.is_err() {
            files.remove(&chunk.key);
        }
        added
    }

    /// Takes a file that is whole. It cannot be taken again.
    pub(crate) fn take(&self, key: &str) -> Result<Vec<u8>, Fault> {
        let missing = || refused("Uploaded file was not found; send it again on this connection");
        let file = self.lock().remove(key).ok_or_else(missing)?;
        if file.received < file.amount {
            return Err(refused("Uploaded file is not complete; send it again on this connection"));
        }
        Ok(file.bytes)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Upload>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upload {
    fn add(&mut self, chunk: &Chunk) -> Result<(), Fault> {
        let same = (chunk.length, chunk.amount) == (self.length, self.amount);
        if !same || chunk.index != self.received {
            return Err(refused("the chunk does not follow the one before"));
        }
        if self.bytes.len() + chunk.bytes.len() > self.length {
            return Err(refused("there are more bytes than file_length says"));
        }
        self.bytes.extend_from_slice(&chunk.bytes);
        self.received += 1;
        if self.received == self.amount && self.bytes.len() != self.length {
            return Err(refused("there are fewer bytes than file_length says"));
        }
        Ok(())
    }
}

/// Whether a text is a name and could never be a path.
fn is_key(key: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    key.len() <= KEY_BYTES_MAX
        && key.starts_with(|first: char| first.is_ascii_alphanumeric())
        && key.bytes().all(is_good)
        && !key.contains("..")
}

fn whole(data: &Map<String, Value>, name: &str) -> Result<u64, Fault> {
    data.get(name).and_then(Value::as_u64).ok_or_else(|| refused(format!("{name} must be a whole number")))
}

fn refused(text: impl Into<String>) -> Fault {
    Fault::new(Class::Validation, text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "2dcc55803336f4cb-555765feecae40afbfa753f3c4d2f816.zip";

    fn chunk(index: u64, amount: u64, length: usize, bytes: &[u8]) -> Value {
        json!({
            "file_key": KEY, "file_length": length, "chunk_base64": STANDARD.encode(bytes), "chunk_index": index,
            "chunk_amount": amount, "chunk_size": bytes.len(),
        })
    }

    fn add(uploads: &Uploads, value: &Value) -> Result<(), Fault> {
        uploads.add(&Chunk::read(value.as_object().unwrap(), 20 << 20)?, 20 << 20)
    }

    #[test]
    fn pieces_become_a_file_that_is_taken_once() {
        let uploads = Uploads::default();
        let bytes: Vec<u8> = (0..20_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        add(&uploads, &chunk(0, 2, 20_000, &bytes[..16_384])).unwrap();
        add(&uploads, &chunk(1, 2, 20_000, &bytes[16_384..])).unwrap();
        assert_eq!(uploads.take(KEY).unwrap(), bytes);
        assert!(uploads.take(KEY).unwrap_err().text.contains("not found"));
    }

    #[test]
    fn an_empty_file_is_one_empty_piece() {
        let uploads = Uploads::default();
        add(&uploads, &chunk(0, 1, 0, b"")).unwrap();
        assert_eq!(uploads.take(KEY).unwrap(), b"");
    }

    #[test]
    fn keys_are_names_and_never_paths() {
        for bad in ["", "../x", "a/b", ".hidden", "a..b", "a b", "é", "-x", &"x".repeat(256)] {
            let mut value = chunk(0, 1, 1, b"x");
            value["file_key"] = json!(bad);
            assert_eq!(add(&Uploads::default(), &value).unwrap_err().class, Class::Validation, "{bad}");
        }
        let hexadecimal = "0a".repeat(32);
        assert!(is_key(&format!("ft1_{hexadecimal}.zip")));
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        for (name, bad) in [
            ("chunk_index", json!(1)),
            ("chunk_index", json!(-1)),
            ("chunk_amount", json!(0)),
            ("chunk_amount", json!(2)),
            ("chunk_size", json!(2)),
            ("file_length", json!((20 << 20) + 1)),
            ("file_length", json!("1")),
            ("chunk_base64", json!("*")),
            ("chunk_base64", json!("eA")),
            ("chunk_base64", json!(STANDARD.encode(vec![0; 16_385]))),
        ] {
            let mut value = chunk(0, 1, 1, b"x");
            value[name] = bad;
            assert!(add(&Uploads::default(), &value).is_err(), "{value}");
        }
    }

    #[test]
    fn pieces_follow_each_other_and_lengths_are_believed_only_when_they_are_true() {
        let uploads = Uploads::default();
        assert!(add(&uploads, &chunk(1, 2, 4, b"x")).is_err(), "the first is missing");
        add(&uploads, &chunk(0, 3, 4, b"ab")).unwrap();
        assert!(uploads.take(KEY).unwrap_err().text.contains("not complete"));
        add(&uploads, &chunk(0, 2, 4, b"ab")).unwrap();
        assert!(add(&uploads, &chunk(1, 2, 4, b"c")).is_err(), "too few bytes");
        add(&uploads, &chunk(0, 2, 4, b"ab")).unwrap();
        assert!(add(&uploads, &chunk(1, 2, 4, b"cde")).is_err(), "too many bytes");
        add(&uploads, &chunk(0, 2, 4, b"ab")).unwrap();
        assert!(add(&uploads, &chunk(0, 3, 4, b"ab")).is_ok(), "it starts over");
        assert!(add(&uploads, &chunk(1, 2, 4, b"cd")).is_err(), "another amount");
    }

    #[test]
    fn there_is_a_bound_on_how_much_waits() {
        let uploads = Uploads::default();
        for number in 0..=FILES_MAX {
            let mut value = chunk(0, 1, 1, b"x");
            value["file_key"] = json!(format!("k{number}"));
            assert_eq!(add(&uploads, &value).is_ok(), number < FILES_MAX);
        }
        let uploads = Uploads::default();
        for number in 0..4 {
            let (value, all) = (chunk(0, 2, 16_385, &[0; 16_384]), 40_000);
            let mut piece = Chunk::read(value.as_object().unwrap(), all).unwrap();
            piece.key = format!("k{number}");
            piece.length = BYTES_MAX / 2;
            assert!(uploads.add(&piece, all).is_ok(), "only what was received counts");
        }
        let value = chunk(0, 1, 1, b"x");
        let mut piece = Chunk::read(value.as_object().unwrap(), 1).unwrap();
        piece.length = BYTES_MAX;
        assert!(uploads.add(&piece, 1).is_err());
    }
}
