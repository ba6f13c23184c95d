//! Names that nobody can guess.

use box_core::hexadecimal::hexadecimal;
use rustix::rand::GetRandomFlags;

/// 256 bits.
const NAME_BYTES: usize = 32;

/// A name that nobody had before and nobody can guess.
pub(crate) fn unguessable() -> std::io::Result<String> {
    let mut bytes = [0; NAME_BYTES];
    // The kernel gives up to 256 bytes as a whole; a name with fewer random bits than it shows must never exist.
    match rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())? {
        NAME_BYTES => Ok(hexadecimal(&bytes)),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_names_are_the_same() {
        let (one, other) = (unguessable().unwrap(), unguessable().unwrap());
        assert!(one.len() == 64 && one != other);
    }
}
