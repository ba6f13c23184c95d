//! Names of things by what is in them.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use box_core::hexadecimal::{hexadecimal, sha256};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// Hexadecimal digits of a SHA-256.
const CHARS: usize = 64;

/// The SHA-256 of something, written `sha256:` and 64 digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(String);

impl Digest {
    /// Of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha256(bytes))
    }

    /// The digits alone, which are a good name for a file.
    pub fn digits(&self) -> &str {
        &self.0
    }

    /// Enough of it for people.
    pub(crate) fn short(&self) -> &str {
        &self.0[..12]
    }
}

impl FromStr for Digest {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("sha256:").filter(|digits| is_digits(digits));
        let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
        digits.map(|digits| Self(digits.to_owned())).ok_or_else(|| format!("{shown} is not a digest of sha256"))
    }
}

/// Whether a text is a SHA-256 in small hexadecimal digits.
pub(crate) fn is_digits(text: &str) -> bool {
    text.len() == CHARS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A digest that is being taken.
#[derive(Debug, Default)]
pub(crate) struct Digesting(Sha256);

impl Digesting {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest(hexadecimal(&self.0.finalize()))
    }
}

/// A reader that takes the digest of what passes.
#[derive(Debug)]
pub(crate) struct DigestingReader<R> {
    inner: R,
    digesting: Digesting,
}

impl<R: Read> DigestingReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, digesting: Digesting::default() }
    }

    /// Reads the rest and returns the digest of everything.
    pub(crate) fn finish(mut self) -> io::Result<Digest> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(self.digesting.finish())
    }
}

impl<R: Read> Read for DigestingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.digesting.update(&buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sha256_in_small_digits_is_a_digest() {
        let good = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(good.parse::<Digest>().unwrap().to_string(), good);
        let [upper, short] = [good.to_uppercase(), good[..70].to_owned()];
        for bad in ["", "sha256:", "../../etc/passwd", &upper, &short, &good.replace("sha256", "sha512")] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
