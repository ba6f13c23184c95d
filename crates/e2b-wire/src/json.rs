//! How values are written in messages: bytes as base64, large numbers as text. For `#[serde(with = "…")]`.

/// Bytes as base64, with padding.
pub mod bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes them.
    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)
    }
}

/// A whole number of 64 bits as text; read as text or as a number.
pub mod int64 {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(i64),
        Text(String),
    }

    /// Writes it.
    pub fn serialize<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(number),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Message {
        #[serde(with = "super::bytes")]
        data: Vec<u8>,
        #[serde(with = "super::int64")]
        size: i64,
    }

    #[test]
    fn bytes_are_base64_and_large_numbers_are_text() {
        let message = Message { data: b"hi\nx\n".to_vec(), size: 1 << 60 };
        let text = r#"{"data":"aGkKeAo=","size":"1152921504606846976"}"#;
        assert_eq!(serde_json::to_string(&message).unwrap(), text);
        assert_eq!(serde_json::from_str::<Message>(text).unwrap(), message);
        let number: Message = serde_json::from_str(r#"{"data":"","size":4}"#).unwrap();
        assert_eq!(number, Message { data: Vec::new(), size: 4 });
        for bad in [r#"{"data":"%","size":4}"#, r#"{"data":"","size":"x"}"#, r#"{"data":"","size":1.5}"#] {
            assert!(serde_json::from_str::<Message>(bad).is_err(), "{bad}");
        }
    }
}
