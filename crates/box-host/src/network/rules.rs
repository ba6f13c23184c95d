//! The packet rules for all cables at once, in a table of our own.
//!
//! They are put in force before the first cable is made and stay until the last process that makes cables is done with them, because to change
//! them takes longer than to make a cable. Anybody may change the host's rules meanwhile, ours among them: the kernel counts the changes, and as
//! long as it counts none since ours, ours are in force.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use box_core::{Error, Result};
use rustix::fs::FlockOperation;

use super::command::run;
use super::{netlink, open_read};

/// The whole policy. Replaced in one transaction; the first two lines make that work whether or not the table exists.
const RULES: &str = r#"
table inet strongbox {}
delete table inet strongbox
table inet strongbox {
    chain forward {
        type filter hook forward priority filter; policy accept;
        iifname "sbx*" jump from_box
        oifname "sbx*" jump to_box
    }
    chain from_box {
        oifname "sbx*" drop
        meta nfproto ipv6 drop
        ip saddr != 10.199.0.0/16 drop
        ip daddr { 10.199.0.0/16, 127.0.0.0/8, 169.254.0.0/16 } drop
    }
    chain to_box {
        ct state established,related accept
        drop
    }
    chain input {
        type filter hook input priority filter; policy accept;
        iifname "sbx*" drop
    }
    chain translate {
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr 10.199.0.0/16 oifname != "sbx*" masquerade
    }
}
"#;

const NO_RULES: &str = "table inet strongbox {}\ndelete table inet strongbox\n";

/// What this process knows of the rules.
#[derive(Debug, Clone, Copy)]
enum Known {
    /// It never had to do with them.
    Nothing,
    /// They may be there, or not.
    MayBeThere,
    /// They were in force when the kernel had counted so many changes.
    InForce(u32),
}

static KNOWN: Mutex<Known> = Mutex::new(Known::Nothing);

/// The right to change cables or rules of this network namespace, which one process has at a time: rules never go while a cable comes.
pub(super) struct Rules {
    known: MutexGuard<'static, Known>,
    _lock: OwnedFd,
}

impl Rules {
    pub(super) fn lock() -> Result<Self> {
        let known = known();
        let namespace = open_read("/proc/thread-self/ns/net")?;
        rustix::fs::flock(&namespace, FlockOperation::LockExclusive)
            .map_err(|source| Error::io("lock the host's network namespace", source))?;
        Ok(Self { known, _lock: namespace })
    }

    /// Puts the rules in force, unless they certainly are.
    pub(super) fn enforce(&mut self) -> Result<()> {
        let before = netlink::rules_generation();
        if let (Known::InForce(then), Some(now)) = (*self.known, before)
            && then == now
        {
            return Ok(());
        }
        *self.known = Known::MayBeThere;
        run("nft", &["-f", "-"], RULES)?;
        let after = netlink::rules_generation();
        // Ours are one change. If there was another one it may have come after ours, and the next cable looks again.
        if let (Some(before), Some(after)) = (before, after)
            && after == before.wrapping_add(1)
        {
            *self.known = Known::InForce(after);
        }
        Ok(())
    }
}

/// Removes the rules if nobody needs them, and this process ever had to do with them.
pub(super) fn remove_if(nobody_needs_them: impl FnOnce() -> bool) -> Result<()> {
    if matches!(*known(), Known::Nothing) {
        return Ok(());
    }
    let mut rules = Rules::lock()?;
    if nobody_needs_them() {
        run("nft", &["-f", "-"], NO_RULES)?;
        *rules.known = Known::Nothing;
    }
    Ok(())
}

/// Remembers that somebody's cable was met, and with it perhaps the rules of a process that could not remove them.
pub(super) fn met() {
    let mut known = known();
    if matches!(*known, Known::Nothing) {
        *known = Known::MayBeThere;
    }
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
