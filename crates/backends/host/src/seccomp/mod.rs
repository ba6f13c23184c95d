//! Which system calls a box has.
//!
//! The policy is one table (`table.rs`): every call of x86_64 is allowed, refused (`EPERM`), or decided by its
//! arguments; a call that is not listed does not exist (`ENOSYS`). The table becomes one classic BPF program
//! (`compile.rs`) that every command installs last, just before it starts. The whole verdict table is a snapshot test,
//! so no change goes unseen.
//!
//! - An unknown call answers `ENOSYS`, because that is what programs expect of an older kernel: they fall back. `clone3`
//!   answers so too: its flags lie behind a pointer that a filter cannot read, and C libraries then use `clone`.
//! - A call that exists but is not for boxes answers `EPERM`, so that its user sees what happened.
//! - Arguments are compared by their low 32 bits only, as the kernel takes them: rubbish in the upper half hides nothing.
//! - The 32-bit table (`int 0x80`) kills the process. Numbers of the x32 table are unknown calls.

mod compile;
mod modes;
mod names;
mod profile;
mod table;

#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod live;
#[cfg(test)]
mod tests;

pub use profile::engine_profile;

use std::sync::OnceLock;

use box_core::{BoxSpec, Error, Result, SyscallSet};
use box_wire::plan::ModeGuard;
use modes::Openat2;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the system call table of box-native is written for x86_64; other processors need a table of their own");

/// The most instructions that the kernel takes in one program.
const INSTRUCTIONS_MAX: usize = 4096;

/// The programs that every command and file operation of a box installs, in this order, each as instructions of eight bytes.
///
/// They are compiled once per set and process.
pub fn programs(set: SyscallSet) -> Result<Vec<Vec<u8>>> {
    static DEFAULT: OnceLock<Vec<u8>> = OnceLock::new();
    static DEBUG: OnceLock<Vec<u8>> = OnceLock::new();
    let cache = match set {
        SyscallSet::Default => &DEFAULT,
        SyscallSet::Debug => &DEBUG,
    };
    let program = cache.get_or_init(|| compile::program(&table::decisions(set), compile::UNKNOWN));
    let count = program.len() / compile::INSTRUCTION_BYTES;
    if count > INSTRUCTIONS_MAX {
        let reason = format!("the filter has {count} instructions, but the kernel takes {INSTRUCTIONS_MAX}");
        return Err(Error::Setup { step: "seccomp".to_owned(), reason });
    }
    Ok(vec![program.clone()])
}

/// An additional filter, installed last, for boxes that can write to host directories: no file gets a set-user-id or
/// set-group-id bit, because it would be effective on the host, no device is created, and no subvolume of btrfs. File operations keep `openat2`, which
/// keeps them inside their tree; they pass no mode to it.
pub fn mode_guard(spec: &BoxSpec) -> ModeGuard {
    static GUARD: OnceLock<ModeGuard> = OnceLock::new();
    let compile = |openat2| {
        let decisions = modes::decisions(openat2);
        vec![compile::program(&decisions, compile::Decision::Always(compile::Answer::Allow))]
    };
    let compile = || ModeGuard { commands: compile(Openat2::Unknown), file_ops: compile(Openat2::Known) };
    spec.host_writable().next().map(|_| GUARD.get_or_init(compile).clone()).unwrap_or_default()
}
