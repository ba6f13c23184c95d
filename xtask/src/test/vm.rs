//! `vm`: pure cgroup v2 in a virtual machine.
//!
//! Machines with the hybrid layout cannot show that the unified driver works. Software emulation can, anywhere and in
//! seconds: Debian's cloud kernel, a small root file system, and the checks of `tests/vm/guest.sh`.

mod guest;
mod kernel;

use super::{Proof, Verdict};
use crate::machine;
use anyhow::Result;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// From start to power-off. It takes about 20 seconds; a guest that hangs must not hold up the rest.
const VM_TIME_MAX: Duration = Duration::from_mins(10);

/// The programs that make and run the machine, and the package of each.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("cpio", "cpio"),
    ("mke2fs", "e2fsprogs"),
    ("busybox", "busybox-static"),
    ("dpkg", "dpkg"),
    ("apt-get", "apt"),
    ("ldd", "libc-bin"),
];

pub(super) fn run(proof: &mut Proof) -> Result<Verdict> {
    if let Some(reason) = why_not_here() {
        return Ok(Verdict::Skipped(reason));
    }
    let directory = proof.target.join("vm");
    std::fs::create_dir_all(&directory)?;
    let kernel = match kernel::fetch(&directory) {
        Ok(kernel) => kernel,
        Err(error) => return Ok(Verdict::Skipped(format!("no kernel to boot: {error:#}"))),
    };
    let strongbox = proof.artefacts()?.strongbox;
    let initramfs = guest::build(&directory, &proof.root.join("tests/vm"), &strongbox, &kernel)?;
    let ending = proof.stream(machine_command(&kernel.image, &initramfs), VM_TIME_MAX)?;
    let tally = &proof.tally;
    Ok(match (tally.results_seen, tally.failed, tally.passed) {
        (0, ..) => Verdict::Failed(format!("the guest gave no `suite-result:` line; {ending}")),
        (_, 0, 1..) if ending.is_success() => Verdict::Passed,
        (_, failed, passed) => Verdict::Failed(format!("{passed} checks passed, {failed} failed; {ending}")),
    })
}

fn why_not_here() -> Option<String> {
    if !machine::is_root() {
        return Some("not root; the guest's files must belong to root".into());
    }
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| machine::program(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    (!missing.is_empty()).then(|| format!("missing packages: {}", missing.join(" ")))
}

/// The machine: two processors, no network, its console on our output. It ends instead of starting again.
fn machine_command(kernel: &Path, initramfs: &Path) -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-accel", "tcg,thread=multi", "-smp", "2", "-m", "2048", "-no-reboot", "-nic", "none"]);
    // Not `-nographic`: with it the firmware writes to the console too, and clears the reader's screen.
    command.args(["-display", "none", "-monitor", "none", "-serial", "stdio"]);
    command.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
    command.args(["-append", "console=ttyS0 quiet panic=-1 cgroup_no_v1=all"]);
    command
}
