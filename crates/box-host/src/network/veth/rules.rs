//! The packet rules for all cables at once, in a table of our own.
//!
//! They are put in force before the first cable is made and stay until the last process that makes cables is done with them, because to change
//! them takes longer than to make a cable. Anybody may change the host's rules meanwhile, ours among them: the kernel counts the changes, and as
//! long as it counts none since ours, ours are in force.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use box_core::{Error, Result};
use rustix::fs::FlockOperation;

use crate::network::command::run;
use crate::network::{netlink, open_read, shut};

/// How many connections of one box the kernel follows at once. It follows a limited number for the whole machine, and a box must not have them all.
const CONNECTIONS_MAX: u32 = 2048;

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

    /// Puts the rules in force with one chain more, until [`Self::enforce`] is called.
    pub(super) fn enforce_with(&mut self, chain: &str) -> Result<()> {
        *self.known = Known::MayBeThere;
        run("nft", &["-f", "-"], &text(chain))
    }

    /// Puts the rules in force, unless they certainly are. Answers how many changes the kernel had counted then, where that is certain.
    pub(super) fn enforce(&mut self) -> Result<Option<u32>> {
        let before = netlink::rules_generation();
        if let Known::InForce(generation) = *self.known
            && before == Some(generation)
        {
            return Ok(before);
        }
        self.enforce_with("")?;
        // Ours are one change. If there was another one it may have come after ours, and the next cable looks again.
        let after = netlink::rules_generation().filter(|after| before.map(|it| it.wrapping_add(1)) == Some(*after));
        if let Some(generation) = after {
            *self.known = Known::InForce(generation);
        }
        Ok(after)
    }
}

/// The whole policy, and a chain more. Replaced in one transaction; the first two lines make that work whether or not the table exists.
fn text(chain: &str) -> String {
    let metadata = shut::METADATA.join(", ");
    format!(
        r#"
table inet strongbox {{}}
delete table inet strongbox
table inet strongbox {{
    set connections {{
        type ipv4_addr
        size 65536
        flags dynamic
    }}
    chain forward {{
        type filter hook forward priority filter; policy accept;
        iifname "sbx*" jump from_box
        oifname "sbx*" jump to_box
    }}
    chain from_box {{
        oifname "sbx*" drop
        meta nfproto ipv6 drop
        ip saddr != 10.199.0.0/16 drop
        ip daddr {{ 10.199.0.0/16, 127.0.0.0/8, {metadata} }} drop
        ct state new add @connections {{ ip saddr ct count over {CONNECTIONS_MAX} }} reject
    }}
    chain to_box {{
        ct state established,related accept
        drop
    }}
    chain input {{
        type filter hook input priority filter; policy accept;
        iifname "sbx*" drop
    }}
    chain translate {{
        type nat hook postrouting priority srcnat; policy accept;
        ip saddr 10.199.0.0/16 oifname != "sbx*" masquerade
    }}
    {chain}
}}
"#
    )
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
