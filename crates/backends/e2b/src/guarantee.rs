//! What is known of how firmly a sandbox holds: what the provider says, never more.

use box_core::{BoxSpec, Dimension, Guarantees, Level, Network};
use box_wire::message::Verified;

use crate::words::Detail;

/// The provider's machine cannot be inspected from here, so no guarantee is hard.
pub(crate) fn compute(spec: &BoxSpec, detail: Option<&Detail>, verified: &Verified) -> Guarantees {
    let mut guarantees = Guarantees::default();
    let cpus = detail.and_then(|detail| detail.cpu_count);
    let (level, why) = told("processors", cpus, spec.cpus);
    guarantees.set(Dimension::Cpu, level, why);
    #[expect(clippy::cast_precision_loss, reason = "sizes in MiB are small")]
    let number = |value: u64| value as f64;
    let (level, why) =
        told("MiB of memory", detail.and_then(|detail| detail.memory_mb).map(number), number(spec.memory_mb));
    guarantees.set(Dimension::Memory, level, why);
    let why = format!("{} processes, by a limit that each process of the user inherits", spec.pids_limit);
    guarantees.set(Dimension::Pids, Level::Soft, why);
    let disk_mb = number(spec.disk_bytes_max() >> 20);
    let (level, why) = told("MiB of disk", detail.and_then(|detail| detail.disk_size_mb).map(number), disk_mb);
    guarantees.set(Dimension::DiskBytes, level, why);
    guarantees.set(Dimension::DiskInodes, Level::Absent, "the provider takes no limit of files, and names none");
    let network = match spec.network {
        Network::Off => "the provider was asked to let nothing out; that it does not is not seen from here",
        Network::On => "a machine of the provider's, with a network of its own, which sees nothing of this host",
    };
    guarantees.set(Dimension::Network, Level::Soft, network);
    set_machine(&mut guarantees, spec, verified);
    guarantees
}

fn set_machine(guarantees: &mut Guarantees, spec: &BoxSpec, verified: &Verified) {
    let landlock = match verified.landlock_abi {
        0 => "no Landlock in its kernel".to_owned(),
        abi => format!("Landlock ABI {abi}"),
    };
    let root = if spec.read_only_rootfs { "writing only in its places" } else { "writing where its user may" };
    let why = format!("no file of this host but copies of its mounts; {root}; {landlock}; the provider's machine");
    guarantees.set(Dimension::Rootfs, Level::Soft, why);
    let confined = if verified.workload_confined { Level::Soft } else { Level::Absent };
    let why = "a kernel of its own at the provider's; no capability, no_new_privs, and no filter of system calls";
    guarantees.set(Dimension::Syscalls, confined, why);
    guarantees.set(Dimension::Identity, Level::Soft, "ids of the provider's machine mean nothing on this host");
    guarantees.set(Dimension::Kill, Level::Soft, "a walk over descendants, then the whole sandbox");
}

/// What the provider says that a sandbox has, against what was asked for. It cannot be asked for less than its template has.
fn told(what: &str, given: Option<f64>, asked: f64) -> (Level, String) {
    match given {
        Some(given) if given <= asked => (Level::Soft, format!("{given} {what}, as the provider says")),
        Some(given) => {
            let why =
                format!("the provider gives {given} {what}, more than the {asked} asked for: its template decides");
            (Level::Absent, why)
        }
        None => {
            (Level::Absent, format!("{asked} {what} cannot be asked of the provider, which does not say what it gives"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use box_core::Profile;

    fn detail(memory_mb: u64) -> Detail {
        let text =
            format!(r#"{{"sandboxID":"a","state":"running","cpuCount":2,"memoryMB":{memory_mb},"diskSizeMB":999999}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn nothing_is_hard_and_nothing_is_left_out() {
        let spec = Profile::default().spec();
        let verified = Verified { workload_confined: true, ..Verified::default() };
        let guarantees = compute(&spec, Some(&detail(1)), &verified);
        for dimension in Dimension::ALL {
            assert!(guarantees.level(dimension) < Level::Hard, "{dimension}");
            assert!(guarantees.iter().any(|one| one.dimension == dimension && !one.why.is_empty()), "{dimension}");
        }
    }

    #[test]
    fn a_limit_is_held_only_where_the_provider_says_that_it_gives_no_more() {
        let spec = Profile::default().spec();
        let level = |detail: Option<&Detail>| compute(&spec, detail, &Verified::default()).level(Dimension::Memory);
        assert_eq!(level(Some(&detail(spec.memory_mb))), Level::Soft);
        assert_eq!(level(Some(&detail(spec.memory_mb + 1))), Level::Absent);
        assert_eq!(level(None), Level::Absent);
    }
}
