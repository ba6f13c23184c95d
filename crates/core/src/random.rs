//! What nobody can guess.

use rustix::rand::GetRandomFlags;

/// Random bytes, at most 256. The kernel gives so many as a whole; whatever has fewer random bits than it shows must never exist.
pub fn bytes<const LENGTH: usize>() -> std::io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    match rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())? {
        count if count == LENGTH => Ok(bytes),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}
