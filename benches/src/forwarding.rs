//! A private network with a machine that forwards packets, so that the real network stays untouched.
#![expect(unsafe_code, reason = "a network namespace is made, which a thread may always do")]

use anyhow::{Context, Result, anyhow};
use rustix::thread::UnshareFlags;

use crate::commands::{output, silent};

/// Does something in such a network, in a thread that ends there. Children are there too.
pub(crate) fn within<T: Send>(act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let enter_and_act = || {
        // SAFETY: only this thread moves, and it ends there.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.context("making a network needs root")?;
        set_up()?;
        act()
    };
    let done = std::thread::scope(|scope| scope.spawn(enter_and_act).join());
    done.map_err(|_| anyhow!("the thread in the other network broke down"))?
}

/// A link that leads nowhere, and the way to everywhere by it.
fn set_up() -> Result<()> {
    for line in [
        "link set lo up",
        "link add out0 type veth peer name out1",
        "address add 198.51.100.1/24 dev out0",
        "link set out0 up",
        "link set out1 up",
        "route add default via 198.51.100.7",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        output(&mut silent("ip", &arguments))?;
    }
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("forwarding packets")
}
