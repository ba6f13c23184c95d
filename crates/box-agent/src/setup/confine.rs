//! Takes rights away: for good from the agent, and completely from everything that it starts.

use std::os::fd::OwnedFd;

use box_wire::{GuestPath, Lodging, Plan, User};
use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
};
use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid, Uid};

use super::{Failure, Step};
use crate::sys;

/// What the agent keeps: to start commands as the workload, and to end them.
const AGENT_CAPABILITIES: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// No set, no root magic, no way back: capabilities follow only explicit words, and uid 0 means nothing.
const SECURE_BITS: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// Takes from the agent everything that it needs only during set-up. Whatever it starts inherits the loss.
///
/// `own` are directories outside of the box in which only the agent writes.
pub(super) fn confine_agent<'a>(
    plan: &Plan,
    own: impl Iterator<Item = &'a OwnedFd>,
) -> std::result::Result<(), Failure> {
    // Where only one id is mapped, the kernel does not let anybody change the groups: there are none to drop.
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => return Err(Failure::new("groups", error)),
    }
    rustix::thread::clear_ambient_capability_set().step("ambient")?;
    rustix::thread::set_capabilities_secure_bits(SECURE_BITS).step("secure_bits")?;
    sys::drop_bounding_set();
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    restrict_writes(&plan.landlock_writable, own).step("landlock")?;
    become_user(plan.agent).step("agent_user")?;
    set_capabilities(AGENT_CAPABILITIES).step("agent_capabilities")?;
    // Changing the user id made the process visible again.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).step("hide")
}

/// Takes from an agent in an engine's container what the engine left it. There must be no capability at all: the agent is who
/// its commands are.
pub(super) fn confine_lodger<'a>(
    lodging: &Lodging,
    own: impl Iterator<Item = &'a OwnedFd>,
) -> std::result::Result<(), Failure> {
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => return Err(Failure::new("groups", error)),
    }
    match rustix::thread::clear_ambient_capability_set() {
        // A kernel that only looks like Linux may have no such set, and then nothing is in it.
        Ok(()) | Err(Errno::INVAL) => {}
        Err(error) => return Err(Failure::new("ambient", error)),
    }
    // Needs a capability that a well-made container does not have; where it has one, this takes the rest.
    sys::drop_bounding_set();
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    restrict_writes(&lodging.landlock_writable, own).step("landlock")?;
    become_user(lodging.workload).step("agent_user")?;
    set_capabilities(CapabilitySet::empty()).step("agent_capabilities")?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).step("hide")
}

/// The second lock behind the mounts: writing only where the plan says, signals and abstract sockets only inside the box.
///
/// Applied to the agent before its first child, so that all commands share one domain and can signal each other. Kernels
/// without Landlock, or with an older one, hold less; the host reports which.
fn restrict_writes<'a>(
    writable: &[GuestPath],
    own: impl Iterator<Item = &'a OwnedFd>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    if sys::landlock_abi() == 0 {
        return Ok(());
    }
    // Making and removing names is left to the mounts: Landlock looks at every directory on the way up, for each name, which
    // makes a deep tree slow to build. A new file cannot be opened for writing where this does not allow it either.
    let writes = AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::IoctlDev
        | AccessFs::MakeChar
        | AccessFs::MakeBlock
        | AccessFs::Refer;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(writes)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?;
    for path in writable {
        ruleset = ruleset.add_rule(PathBeneath::new(PathFd::new(path.as_str())?, writes))?;
    }
    // The agent makes cgroups of execs there, lets them enter, and keeps what they write. Nobody else in the box has a way to
    // name these directories.
    for directory in own {
        ruleset = ruleset.add_rule(PathBeneath::new(directory, writes))?;
    }
    ruleset.restrict_self()?;
    Ok(())
}

/// Turns a forked child into the workload: user, capabilities, filter. Nothing that follows can undo it.
pub(crate) fn confine_workload(user: User, seccomp: &[Vec<u8>]) -> Result<()> {
    become_user(user)?;
    set_capabilities(CapabilitySet::empty())?;
    for program in seccomp {
        sys::install_filter(program).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    }
    verify_confinement()
}

/// Checks from inside, just before a command starts, that it has nothing left.
fn verify_confinement() -> Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    let none = CapabilitySet::empty();
    let confined = sets.effective == none
        && sets.permitted == none
        && sets.inheritable == none
        && rustix::thread::no_new_privs()?
        && root_is_powerless()?;
    if confined { Ok(()) } else { Err(Errno::NOTRECOVERABLE) }
}

/// Checks what every command inherits from the agent: `no_new_privs`, an empty bounding set, and locked bits that make uid 0
/// mean nothing. The rest each command checks itself, before it starts.
pub(super) fn verify_inheritance() -> Result<bool> {
    let inherited = rustix::thread::no_new_privs()? && root_is_powerless()? && sys::bounding_set_is_empty();
    if inherited { Ok(true) } else { Err(Errno::NOTRECOVERABLE) }
}

/// Whether uid 0 means nothing: by the bits, which need a capability to be set, or because nobody here can ever have one.
fn root_is_powerless() -> Result<bool> {
    Ok(sys::bounding_set_is_empty() || rustix::thread::capabilities_secure_bits()?.contains(SECURE_BITS))
}

fn become_user(user: User) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

fn set_capabilities(keep: CapabilitySet) -> Result<()> {
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}
