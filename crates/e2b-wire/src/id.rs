//! Names of sandboxes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::limits;

/// Characters of an id that we make: of 36 letters and digits each, so nobody guesses one.
pub const SANDBOX_ID_CHARS: usize = 20;

/// The name of a sandbox: lowercase letters and digits. It is a part of names of hosts, where a dash would end it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SandboxId(String);

/// Why a text is not the name of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a sandbox ID has 1 to {} lowercase letters and digits", limits::SANDBOX_ID_CHARS_MAX)]
pub struct NotSandboxId;

impl SandboxId {
    /// A new name out of random bytes. Bytes that would prefer some characters are passed over, so give more than
    /// [`SANDBOX_ID_CHARS`]; nothing when there were too few.
    pub fn from_random(bytes: &[u8]) -> Option<Self> {
        const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
        let even = bytes.iter().filter(|byte| **byte < 252).map(|byte| char::from(ALPHABET[usize::from(byte % 36)]));
        let text: String = even.take(SANDBOX_ID_CHARS).collect();
        (text.len() == SANDBOX_ID_CHARS).then_some(Self(text))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SandboxId {
    type Err = NotSandboxId;

    /// Takes what old clients write too: the name, a dash, and the name of a machine that means nothing any more.
    fn from_str(text: &str) -> Result<Self, NotSandboxId> {
        let name = text.split_once('-').map_or(text, |(name, _)| name);
        let fits = (1..=limits::SANDBOX_ID_CHARS_MAX).contains(&name.len());
        let good = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
        if fits && name.bytes().all(good) { Ok(Self(name.to_owned())) } else { Err(NotSandboxId) }
    }
}

impl TryFrom<String> for SandboxId {
    type Error = NotSandboxId;
    fn try_from(text: String) -> Result<Self, NotSandboxId> {
        text.parse()
    }
}

impl From<SandboxId> for String {
    fn from(id: SandboxId) -> Self {
        id.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clients_name_a_machine_behind_a_dash() {
        assert_eq!("abc123-6532622b".parse::<SandboxId>().unwrap().as_str(), "abc123");
        assert_eq!("abc123".parse::<SandboxId>().unwrap().as_str(), "abc123");
    }

    #[test]
    fn what_cannot_be_part_of_a_host_is_not_a_name() {
        let long = "a".repeat(65);
        for bad in ["", "-", "-a", "A", "a_b", "ä", "a/b", "a.b", " a", &long] {
            assert_eq!(bad.parse::<SandboxId>(), Err(NotSandboxId), "{bad:?}");
        }
    }

    #[test]
    fn random_bytes_that_would_prefer_some_characters_are_passed_over() {
        assert_eq!(SandboxId::from_random(&[255; 64]), None);
        let mut bytes = vec![253; 10];
        bytes.extend(0..20);
        assert_eq!(SandboxId::from_random(&bytes).unwrap().as_str(), "0123456789abcdefghij");
        assert_eq!(SandboxId::from_random(&bytes[..29]), None, "too few");
    }
}
