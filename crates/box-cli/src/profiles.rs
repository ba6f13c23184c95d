//! `strongbox profiles`: the presets and what they set.

use box_core::{Network, Profile, SyscallSet, profile::BUILT_IN};

use crate::fault::Fault;
use crate::listing;
use crate::options::JsonOption;

/// Lists the built-in profiles.
pub(crate) fn main(options: &JsonOption) -> Result<u8, Fault> {
    if options.json {
        return listing::write_json(&BUILT_IN.iter().map(as_json).collect());
    }
    listing::write_out(table().as_bytes())
}

fn table() -> String {
    let line = |name: &str, network: &str, cpus: &str, memory: &str, pids: &str, root: &str, about: &str| {
        format!("{name:<18}{network:<9}{cpus:<6}{memory:<10}{pids:<6}{root:<11}{about}\n")
    };
    let rows = BUILT_IN.iter().map(|profile| {
        let root = if profile.read_only_rootfs { "read-only" } else { "writable" };
        let (cpus, pids) = (profile.cpus.to_string(), profile.pids_limit.to_string());
        let memory = format!("{} MiB", profile.memory_mb);
        line(profile.name, network(profile), &cpus, &memory, &pids, root, profile.about)
    });
    let head = line("NAME", "NETWORK", "CPUS", "MEMORY", "PIDS", "ROOT", "ABOUT");
    std::iter::once(head).chain(rows).collect()
}

fn network(profile: &Profile) -> &'static str {
    match profile.network {
        Network::On => "on",
        Network::Off => "off",
    }
}

fn as_json(profile: &Profile) -> serde_json::Value {
    serde_json::json!({
        "name": profile.name,
        "about": profile.about,
        "network": network(profile),
        "cpus": profile.cpus,
        "memory_mb": profile.memory_mb,
        "pids_limit": profile.pids_limit,
        "read_only_rootfs": profile.read_only_rootfs,
        "timeout_sec": profile.timeout_sec,
        "timeout_sec_max": profile.timeout_sec_max,
        "ptrace": profile.syscalls == SyscallSet::Debug,
    })
}
