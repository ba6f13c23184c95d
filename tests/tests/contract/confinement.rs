//! What the workload has in its hands: no capability, no descriptor, and no way to its agent.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_core::{BoxSpec, Profile, SyscallSet};
use box_tests::{Difference, Ground};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        the_workload_has_no_capability_and_a_filter,
        the_workload_has_three_descriptors,
        the_agent_cannot_be_signalled,
        the_agent_cannot_be_read,
        the_agent_cannot_be_traced,
        debuggers_work_only_where_asked_for,
    ]
}

async fn the_workload_has_no_capability_and_a_filter(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::MachineOfProvider)?;
    let status = ground.plain().await?.check("cat /proc/self/status").await?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.map(str::trim).with_context(|| format!("{name} is not in the status"))
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        ensure!(field(set)? == "0000000000000000", "{set} is {}", field(set)?);
    }
    ensure!(field("NoNewPrivs")? == "1");
    ensure!(field("Seccomp")? == "2");
    Ok(())
}

async fn the_workload_has_three_descriptors(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    ensure!(one.check("ls /proc/$$/fd; true").await? == "0\n1\n2");
    let script = "import os; print([n for n in range(3, 1024) if os.path.exists('/proc/self/fd/%d' % n)])";
    ensure!(one.argv(&["python3", "-c", script]).await?.text() == "[]");
    Ok(())
}

async fn the_agent_cannot_be_signalled(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.shell("for s in KILL STOP TERM INT HUP SEGV ABRT USR1 USR2 PIPE; do kill -$s 1; done").await?;
    one.ping().await.context("the agent is gone")?;
    one.shell("kill -9 -1").await.context("the exec that killed everything was not reported")?;
    one.shell("kill -STOP -1").await.context("the exec that stopped everything was not reported")?;
    ensure!(one.check("echo alive").await? == "alive");
    Ok(())
}

async fn the_agent_cannot_be_read(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    for file in ["environ", "maps", "mem", "auxv", "stack", "syscall"] {
        let output = one.shell(&format!("head -c 100 /proc/1/{file} | wc -c")).await?;
        ensure!(output.text() == "0", "/proc/1/{file} gave {} bytes", output.text());
    }
    let listed = one.shell("ls /proc/1/fd").await?.text();
    ensure!(listed.is_empty() || ground.differs(Difference::ListedAgent), "descriptors of the agent are listed");
    let led_to = one.shell("for fd in $(seq 0 40); do readlink /proc/1/fd/$fd; done").await?.text();
    ensure!(led_to.is_empty(), "descriptors of the agent lead to {led_to}");
    for link in ["root", "cwd", "exe"] {
        ensure!(!one.shell(&format!("readlink /proc/1/{link}")).await?.succeeded(), "/proc/1/{link} can be read");
    }
    Ok(())
}

const TRACE: &str = "import ctypes\n\
    L = ctypes.CDLL(None, use_errno=True)\n\
    for request in (16, 0x4206):\n\
    \x20r = L.syscall(101, request, TARGET, 0, 0)\n\
    \x20print(r, ctypes.get_errno())";

async fn the_agent_cannot_be_traced(ground: Arc<Ground>) -> Result<()> {
    for syscalls in [SyscallSet::Default, SyscallSet::Debug] {
        let one = ground.make(&BoxSpec { syscalls, ..Profile::default().spec() }).await?;
        let output = one.argv(&["python3", "-c", &TRACE.replace("TARGET", "1")]).await?.text();
        ensure!(!output.is_empty() && output.lines().all(|line| line.starts_with("-1 ")), "{syscalls:?}: {output}");
    }
    Ok(())
}

async fn debuggers_work_only_where_asked_for(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::MachineOfProvider)?;
    let script = format!(
        "import os, time\nchild = os.fork()\nif child == 0: time.sleep(20); os._exit(0)\n{}",
        TRACE.replace("TARGET", "child").replace("(16, 0x4206)", "(16,)")
    );
    let plain = ground.plain().await?.argv(&["python3", "-c", &script]).await?.text();
    ensure!(plain.starts_with("-1 "), "ptrace works in a default box: {plain}");
    let one = ground.make(&BoxSpec { syscalls: SyscallSet::Debug, ..Profile::default().spec() }).await?;
    let debug = one.argv(&["python3", "-c", &script]).await?;
    ensure!(debug.text().starts_with("0 "), "ptrace fails in a debug box: {} {}", debug.text(), debug.errors());
    Ok(())
}
