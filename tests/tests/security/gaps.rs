//! Where a backend is known to hold less than the corpus asks for. SECURITY.md documents each gap, and each must still
//! exist: a closed gap has to be removed from both lists.

use anyhow::{Result, ensure};
use box_core::BackendName;
use box_tests::suite::skip;

/// What users can read.
const TOLD: &str = include_str!("../../../SECURITY.md");

const CONTAINERS: &[BackendName] = &[BackendName::Docker, BackendName::Podman];
const OTHERS: &[BackendName] = &[BackendName::Docker, BackendName::Podman, BackendName::Nsjail];

/// The case, the backends that answer otherwise, and why that is so.
const GAPS: &[(&str, &[BackendName], &str)] = &[
    (
        "OWN-08",
        CONTAINERS,
        "the mount table tells where the agent's program lies on the host, because the engine binds it by its path",
    ),
    (
        "OWN-11",
        OTHERS,
        "only the filter of system calls keeps the box from making user namespaces; a second lock is missing",
    ),
    (
        "OWN-15",
        CONTAINERS,
        "ids of a container are those of the host, unless the engine maps them; no process in the box is 0",
    ),
    (
        "CAP-03",
        &[BackendName::Nsjail],
        "nsjail mounts the root without nosuid; no_new_privs alone makes such files powerless",
    ),
];

/// Why a backend answers otherwise than a case expects; none where it must not.
fn why(case: &str, backend: BackendName) -> Option<&'static str> {
    let known = GAPS.iter().find(|(id, backends, _)| *id == case && backends.contains(&backend));
    known.map(|(.., why)| *why)
}

/// Judges what was found wrong with a case. Only the verdict of a known gap may be.
pub(crate) fn judge(case: &str, backend: BackendName, wrong: &[(String, String)], detail: &str) -> Result<()> {
    let texts: Vec<String> = wrong.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    let Some(reason) = why(case, backend) else {
        ensure!(wrong.is_empty(), "{} [{detail}]", texts.join("; "));
        return Ok(());
    };
    ensure!(wrong.iter().all(|(name, _)| name == "verdict"), "{} [{detail}]", texts.join("; "));
    ensure!(!wrong.is_empty(), "this gap is closed; remove it from the list and from SECURITY.md: {reason}");
    skip(format!("known gap: {reason}"))
}

/// Holds that SECURITY.md documents every gap.
pub(crate) fn all_are_told() -> Result<()> {
    for (id, backends, _) in GAPS {
        let row = TOLD.lines().find(|line| line.contains(id) && line.starts_with('|'));
        let is_told = |backend: &&BackendName| row.is_some_and(|row| row.contains(backend.as_str()));
        ensure!(backends.iter().all(|backend| is_told(&backend)), "SECURITY.md does not tell of {id} on {backends:?}");
    }
    Ok(())
}
