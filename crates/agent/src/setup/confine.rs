//! Takes rights away: for good from the agent, and completely from everything that it starts.

use std::os::fd::OwnedFd;

use box_wire::plan::Bounding;
use box_wire::{ContainerSetup, GuestPath, Plan, RootCapability, User};
use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, Scope,
};
use rustix::io::{Errno, Result};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, Gid, Uid};

use super::{Callers, Failure, Prepared, Step};
use crate::sys;

/// Capabilities that the agent keeps: to start commands as the workload, and to end them.
const AGENT_CAPABILITIES: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// No set, no root magic, no way back: capabilities follow only explicit words, and uid 0 means nothing.
const SECURE_BITS: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT
    .union(CapabilitiesSecureBits::NO_ROOT_LOCKED)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP)
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// The same for boxes whose root has capabilities: the kernel grants uid 0 the bounding set, which holds only what the
/// plan allows, and removes it when the process changes to another uid.
const CAPABLE_ROOT_SECURE_BITS: CapabilitiesSecureBits = CapabilitiesSecureBits::NO_ROOT_LOCKED
    .union(CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE)
    .union(CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED);

/// Capabilities of the box's root, as a kernel bit set.
pub(super) fn root_set(capabilities: &[RootCapability]) -> CapabilitySet {
    let bit = |capability: &RootCapability| CapabilitySet::from_bits_retain(1 << capability.number());
    capabilities.iter().map(bit).fold(CapabilitySet::empty(), CapabilitySet::union)
}

/// Takes from the agent everything that it needs only during set-up. Whatever it starts inherits the loss.
///
/// `own` are directories outside of the box in which only the agent writes.
pub(super) fn confine_agent<'a>(
    plan: &Plan,
    own: impl Iterator<Item = &'a OwnedFd>,
) -> std::result::Result<(), Failure> {
    // If only one id is mapped, the kernel refuses to change groups: there are none to drop.
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(error) => return Err(Failure::new("groups", error)),
    }
    rustix::thread::clear_ambient_capability_set().step("ambient")?;
    let root = root_set(&plan.root_capabilities);
    let secure_bits = if root.is_empty() { SECURE_BITS } else { CAPABLE_ROOT_SECURE_BITS };
    rustix::thread::set_capabilities_secure_bits(secure_bits).step("secure_bits")?;
    sys::drop_bounding_set_but(root.bits());
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    restrict_writes(&plan.landlock_writable, plan.landlock_sockets.as_deref(), own).step("landlock")?;
    become_agent(plan.agent, root)?;
    // Changing the user id made the process visible again.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).step("hide")
}

/// Gives the agent its own id. Capabilities for root of the box stay permitted, so that they can be passed on, but not
/// effective.
fn become_agent(user: User, root: CapabilitySet) -> std::result::Result<(), Failure> {
    // If root has capabilities, leaving its id would otherwise clear all of the agent's.
    rustix::thread::set_keep_capabilities(true).step("agent_user")?;
    become_user(user).step("agent_user")?;
    rustix::thread::set_keep_capabilities(false).step("agent_user")?;
    let (effective, permitted) = (AGENT_CAPABILITIES, AGENT_CAPABILITIES.union(root));
    let sets = CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).step("agent_capabilities")
}

/// Drops rights that an engine left to the agent in its container. If the agent runs as the commands' user, it must
/// have no capability at all.
pub(super) fn confine_lodger<'a>(
    setup: &ContainerSetup,
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
    sys::drop_bounding_set_but(0);
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    restrict_writes(&setup.landlock_writable, setup.landlock_sockets.as_deref(), own).step("landlock")?;
    if let Some(agent) = setup.agent {
        become_agent(agent, CapabilitySet::empty())?;
    } else {
        become_user(setup.workload).step("agent_user")?;
        set_capabilities(CapabilitySet::empty()).step("agent_capabilities")?;
    }
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).step("hide")
}

/// The second lock behind the mounts: writing, and making sockets and named pipes, only where the plan says; signals and abstract sockets only inside
/// the box.
///
/// Applied to the agent before its first child, so that all commands share one domain and can signal each other. Kernels
/// without Landlock, or with an older one, hold less; the host reports which.
fn restrict_writes<'a>(
    writable: &[GuestPath],
    sockets: Option<&[GuestPath]>,
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
    // A program of the host that opens one would talk to the box, or wait for it.
    let meetings = AccessFs::MakeSock | AccessFs::MakeFifo;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(if sockets.is_some() { writes | meetings } else { writes })?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?;
    for path in writable {
        ruleset = ruleset.add_rule(PathBeneath::new(PathFd::new(path.as_str())?, writes))?;
    }
    for path in sockets.into_iter().flatten() {
        // Not every root has all of these.
        if let Ok(place) = PathFd::new(path.as_str()) {
            ruleset = ruleset.add_rule(PathBeneath::new(place, meetings))?;
        }
    }
    // The agent creates cgroups of execs there, lets processes enter them, and writes journals. No other process of the
    // box has a path to these directories.
    for directory in own {
        ruleset = ruleset.add_rule(PathBeneath::new(directory, writes))?;
    }
    ruleset.restrict_self()?;
    Ok(())
}

/// Turns a forked child into the workload: user, capabilities, filter. Nothing that follows can undo it. Only root has any of the
/// capabilities that root of this box has.
pub(crate) fn confine_workload(user: User, prepared: &Prepared) -> Result<()> {
    let Prepared { root, bounding, seccomp, callers, workload, .. } = prepared;
    // In a container that an engine made there is one user for all commands.
    if *callers == Callers::Root && user != *workload {
        return Err(Errno::PERM);
    }
    let root = *root;
    let keep = if user.uid == 0 { root } else { CapabilitySet::empty() };
    become_user(user)?;
    set_capabilities(keep)?;
    install(seccomp)?;
    verify_confinement(keep, root, *bounding)
}

/// Leaves a process of the agent nothing but signals, when it has started what it had to start.
pub(crate) fn keep_only_kill() -> Result<()> {
    set_capabilities(CapabilitySet::KILL)
}

/// Installs filters for system calls, in this order. Nothing removes them.
pub(crate) fn install(programs: &[Vec<u8>]) -> Result<()> {
    let install = |program: &Vec<u8>| sys::install_filter(program);
    programs.iter().try_for_each(install).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Checks from inside, just before a command starts, that it has nothing left but `kept`.
fn verify_confinement(kept: CapabilitySet, root: CapabilitySet, bounding: Bounding) -> Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    let confined = sets.effective == kept
        && sets.permitted == kept
        && sets.inheritable.is_empty()
        && rustix::thread::no_new_privs()?
        && (bounding == Bounding::Inert || root_is_bounded(root)?);
    if confined { Ok(()) } else { Err(Errno::NOTRECOVERABLE) }
}

/// Checks what every command inherits from the agent: `no_new_privs`, a bounding set of exactly root's capabilities,
/// and if that is empty, locked secure bits that give uid 0 no capabilities. Each command checks the rest itself,
/// before it starts.
pub(super) fn verify_inheritance(root: CapabilitySet, bounding: Bounding) -> Result<bool> {
    let is_bounded = || Ok::<_, Errno>(root_is_bounded(root)? && sys::bounding_set() == root.bits());
    let inherited = rustix::thread::no_new_privs()? && (bounding == Bounding::Inert || is_bounded()?);
    if inherited { Ok(true) } else { Err(Errno::NOTRECOVERABLE) }
}

/// Whether uid 0 is limited to `root`: by the bounding set, or by the secure bits, which take a capability to set.
fn root_is_bounded(root: CapabilitySet) -> Result<bool> {
    let is_bounded = sys::bounding_set() & !root.bits() == 0;
    Ok(is_bounded || rustix::thread::capabilities_secure_bits()?.contains(SECURE_BITS))
}

/// Changes the ids of this process.
pub(crate) fn become_user(user: User) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

fn set_capabilities(keep: CapabilitySet) -> Result<()> {
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)
}
