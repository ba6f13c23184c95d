//! The agent's bytes, carried inside the host program, and the sealed file from which boxes execute it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags};

/// The agent as a static program.
pub static AGENT: &[u8] = include_bytes!(env!("STRONGBOX_AGENT"));

/// The SHA-256 of the agent, in hexadecimal digits.
const DIGEST: &str = env!("STRONGBOX_AGENT_DIGEST");

/// Digits of the digest that distinguish the file of one version from those of others.
const NAME_DIGITS: usize = 16;

/// The name of a file or volume that holds this version of the agent.
pub fn name() -> String {
    format!("agent-{}", &DIGEST[..NAME_DIGITS])
}

/// A sealed memory file that holds the agent, created once per process.
///
/// A box can reach the file that its first process was executed from (`/proc/1/exe`). The seals keep everyone, also the
/// owner, from writing, replacing or truncating it.
pub fn sealed() -> io::Result<BorrowedFd<'static>> {
    static SEALED: OnceLock<OwnedFd> = OnceLock::new();
    once(&SEALED, 0o555)
}

/// The same, but it can only be executed.
///
/// The kernel counts a process whose program it may not read among those of the namespace in which the program's owner is known. So
/// an agent that is started from here by root is hidden even from root of the user namespace that it lives in.
pub fn sealed_unreadable() -> io::Result<BorrowedFd<'static>> {
    static SEALED: OnceLock<OwnedFd> = OnceLock::new();
    once(&SEALED, 0o111)
}

fn once(place: &'static OnceLock<OwnedFd>, mode: u32) -> io::Result<BorrowedFd<'static>> {
    if let Some(ready) = place.get() {
        return Ok(ready.as_fd());
    }
    let sealed = seal(AGENT, mode)?;
    Ok(place.get_or_init(|| sealed).as_fd())
}

fn seal(bytes: &[u8], mode: u32) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Newer kernels want executable files marked by this flag; older ones do not know it.
    let file = rustix::fs::memfd_create("strongbox-agent", flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create("strongbox-agent", flags))?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest)?;
        rest = &rest[count..];
    }
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(mode))?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SPECIFICATION.md promises the size.
    #[test]
    fn the_agent_is_small_and_static() {
        assert!(AGENT.len() <= 4 << 20, "the agent has {} bytes", AGENT.len());
        assert!(AGENT.starts_with(b"\x7fELF"));
        let interpreter = b"/lib64/ld-linux";
        assert!(!AGENT.windows(interpreter.len()).any(|window| window == interpreter), "the agent needs a loader");
    }

    #[test]
    fn nobody_can_change_the_sealed_file() {
        let file = sealed().unwrap();
        assert!(rustix::io::pwrite(file, b"x", 0).is_err());
        assert!(rustix::fs::ftruncate(file, 0).is_err());
    }
}
