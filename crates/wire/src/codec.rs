//! Encodes messages: MessagePack with the names of fields and variants.
//!
//! Boxes outlive servers, so both ends meet messages of other versions. Names make that safe: unknown fields are skipped,
//! missing fields get their defaults, and an unknown variant is an error that names it. Only codes and kinds for which a general
//! one exists are read as that one (`#[serde(other)]`).

use std::io::Cursor;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How deep a message may nest. The deepest one has about ten levels.
const DEPTH_MAX: usize = 64;

/// Appends a message to `bytes`.
pub(crate) fn append<T: Serialize>(message: &T, mut bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut serializer = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
    message.serialize(&mut serializer).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Reads a message; trailing bytes are an error.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let mut deserializer = rmp_serde::Deserializer::new(Cursor::new(bytes));
    deserializer.set_max_depth(DEPTH_MAX);
    let message = T::deserialize(&mut deserializer).map_err(|error| error.to_string())?;
    match bytes.len() as u64 - deserializer.position() {
        0 => Ok(message),
        rest => Err(format!("{rest} bytes too many")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Newer {
        Old { a: u64, b: Option<String>, inner: Vec<NewerInner> },
        Unknown,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct NewerInner {
        x: u8,
        #[serde(default)]
        y: Option<u8>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Older {
        Old { a: u64, inner: Vec<OlderInner> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct OlderInner {
        x: u8,
    }

    fn write<T: Serialize>(message: &T) -> Vec<u8> {
        append(message, Vec::new()).unwrap()
    }

    #[test]
    fn older_and_newer_versions_understand_each_other() {
        let newer = Newer::Old { a: 7, b: Some("new".to_owned()), inner: vec![NewerInner { x: 1, y: Some(2) }] };
        let older = Older::Old { a: 7, inner: vec![OlderInner { x: 1 }] };
        assert_eq!(read::<Older>(&write(&newer)), Ok(older));
        let older = Older::Old { a: 7, inner: vec![OlderInner { x: 1 }] };
        let newer = Newer::Old { a: 7, b: None, inner: vec![NewerInner { x: 1, y: None }] };
        assert_eq!(read::<Newer>(&write(&older)), Ok(newer));
        let refusal = read::<Older>(&write(&Newer::Unknown)).unwrap_err();
        assert!(refusal.contains("Unknown"), "{refusal}");
    }

    #[test]
    fn messages_are_read_whole_or_not_at_all() {
        let bytes = write(&OlderInner { x: 1 });
        assert!(read::<OlderInner>(&bytes[..bytes.len() - 1]).is_err());
        assert_eq!(read::<OlderInner>(&[bytes.as_slice(), b"xy"].concat()), Err("2 bytes too many".to_owned()));
    }
}
