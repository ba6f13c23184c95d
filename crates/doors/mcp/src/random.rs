//! Names that nobody can guess.

use box_core::hexadecimal::hexadecimal;
use box_core::random;

/// 256 bits.
const NAME_BYTES: usize = 32;

/// A name that nobody had before and nobody can guess.
pub(crate) fn unguessable() -> std::io::Result<String> {
    Ok(hexadecimal(&random::bytes::<NAME_BYTES>()?))
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
