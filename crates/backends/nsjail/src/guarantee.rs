//! What a box really enforces, told from what was applied and found.

use box_core::{BoxSpec, Dimension, Guarantees, Level, Persistence};
use box_host::guarantee::{self, Findings, held};
use box_host::storage;

use crate::layout::{self, MountMethod};

/// What a box really enforces. How nsjail came by what it mounted is also whose ids the box has.
pub(crate) fn compute(spec: &BoxSpec, findings: &Findings<'_>, way: MountMethod) -> Guarantees {
    let note = match (way, spec.read_only_rootfs) {
        (MountMethod::Paths, false) => "; the host's programs stay read-only although the root can be written",
        _ => "",
    };
    let mut guarantees = guarantee::common(spec, findings, note);
    set_disk(&mut guarantees, spec, way);
    guarantees.set(
        Dimension::Syscalls,
        held(findings.verified.workload_confined),
        "an allow-list of system calls behind nsjail's own filter, no capability in any set, no_new_privs",
    );
    let (level, why) = match way {
        MountMethod::Staged => (
            Level::Hard,
            "a range of ids of its own; no account of the host is in it; root is charged for the inotify instances of all boxes",
        ),
        MountMethod::Paths => (
            Level::Soft,
            "agent and workload share the id of the user who runs strongbox; run strongbox as root for ranges of their own",
        ),
    };
    let root = if spec.root_capabilities { box_host::standard::NO_ROOT_CAPABILITIES } else { "" };
    guarantees.set(Dimension::Identity, level, format!("{why}{root}"));
    guarantees
}

fn set_disk(guarantees: &mut Guarantees, spec: &BoxSpec, way: MountMethod) {
    let place = match (way, spec.persistence) {
        (MountMethod::Staged, Persistence::Disk) => "ext4 image",
        (MountMethod::Staged, Persistence::Memory) | (MountMethod::Paths, _) => "tmpfs",
    };
    let (size, level) = match way {
        MountMethod::Staged => ((spec.disk_bytes_max() >> 20, spec.disk_inodes_max()), (Level::Hard, "")),
        MountMethod::Paths => {
            let home_mb = layout::division(spec).shares(spec).home_mb;
            let note = " at home, and no more at each other place; run strongbox as root for one limit of all";
            ((home_mb, storage::files_of(home_mb)), (Level::Soft, note))
        }
    };
    guarantee::set_disk(guarantees, spec, place, size, level);
}
