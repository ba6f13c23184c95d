//! Signatures in addresses of files: they let somebody read or write one file without the token.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What a signature allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reading the file.
    Read,
    /// Writing it.
    Write,
}

/// What is signed. Path and user are as they stand in the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signed<'a> {
    /// Which file.
    pub path: &'a str,
    /// What may be done with it.
    pub operation: Operation,
    /// As whom; nothing when the address does not say.
    pub user: &'a str,
    /// Until when, in seconds since 1970.
    pub expires: Option<i64>,
}

impl Signed<'_> {
    /// The signature, with the access token of the sandbox.
    pub fn sign(&self, token: &str) -> String {
        let operation = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
        };
        let mut text = format!("{}:{operation}:{}:{token}", self.path, self.user);
        if let Some(expires) = self.expires {
            text.push(':');
            text.push_str(&expires.to_string());
        }
        format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
    }

    /// Whether it is the signature. How long that takes does not tell how much of it is right.
    pub fn is_signed(&self, token: &str, signature: &str) -> bool {
        bool::from(self.sign(token).as_bytes().ct_eq(signature.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: Signed<'_> =
        Signed { path: "/tmp/a b", operation: Operation::Read, user: "root", expires: Some(1_800_000_000) };

    #[test]
    fn the_signature_is_a_hash_of_everything_that_it_allows() {
        let text = "/tmp/a b:read:root:secret:1800000000";
        let expected = format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)));
        assert_eq!(SIGNED.sign("secret"), expected);
        assert!(SIGNED.is_signed("secret", &expected));
        let without = Signed { expires: None, ..SIGNED };
        assert_eq!(without.sign("t"), format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest("/tmp/a b:read:root:t"))));
    }

    #[test]
    fn it_is_good_for_nothing_else() {
        let signature = SIGNED.sign("secret");
        let others = [
            Signed { path: "/tmp/a", ..SIGNED },
            Signed { operation: Operation::Write, ..SIGNED },
            Signed { user: "", ..SIGNED },
            Signed { expires: None, ..SIGNED },
            Signed { expires: Some(1_900_000_000), ..SIGNED },
        ];
        for other in others {
            assert!(!other.is_signed("secret", &signature), "{other:?}");
        }
        assert!(!SIGNED.is_signed("other", &signature));
        assert!(!SIGNED.is_signed("secret", ""));
    }
}
