//! The packet rules for all veth pairs, in one nftables table.
//!
//! They are put in force before the first veth pair is made and stay until the last process that makes veth pairs is
//! done with them, because changing them takes longer than making a veth pair. Other programs may change the host's
//! rules meanwhile, this table among them. The kernel counts the changes: as long as the count is that of our last
//! write, our rules are in force. After a change they are compared with the expected ones, and written again if they
//! differ; until then all boxes are cut off.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use box_core::{Error, Result};
use rustix::fs::FlockOperation;

use super::{Links, cut_all, has_any, reconnect};
use crate::network::command::{ask, run};
use crate::network::{netlink, open_read, shut};

/// How many connections of one box the kernel follows at once. It follows a limited number for the whole machine, and a box must not have them all.
const CONNECTIONS_MAX: u32 = 2048;

const NO_RULES: &str = "table inet strongbox {}\ndelete table inet strongbox\n";

/// What this process knows of the rules.
#[derive(Debug, Clone)]
enum Known {
    /// It never had to do with them.
    Nothing,
    /// They may be there, or not.
    MayBeThere,
    /// They were in force when the kernel had counted so many changes, and `nft` showed them like this.
    InForce { generation: u32, shown: String },
}

static KNOWN: Mutex<Known> = Mutex::new(Known::Nothing);

/// The interfaces that are to be switched on again once the rules are back.
static CUT: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// The right to change veth pairs or rules of this network namespace, which one process has at a time: rules never go while a veth pair comes.
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
        if self.known.is_in_force(before) {
            return Ok(before);
        }
        self.enforce_with("")?;
        let shown = show()?;
        // One write is one change. A second change in between may have come after it; then the next check finds out.
        let after = netlink::rules_generation().filter(|after| before.map(|it| it.wrapping_add(1)) == Some(*after));
        if let Some(generation) = after.or(before) {
            *self.known = Known::InForce { generation, shown };
        }
        Ok(after)
    }

    /// Whether the rules are as they were, although the kernel has counted changes. Then these were other rules.
    fn are_untouched(&mut self) -> bool {
        let before = netlink::rules_generation();
        let Known::InForce { generation, shown } = &mut *self.known else { return false };
        let same = show().is_ok_and(|now| now == *shown);
        if let Some(before) = before.filter(|_| same) {
            *generation = before;
        }
        same
    }
}

impl Known {
    fn is_in_force(&self, now: Option<u32>) -> bool {
        matches!(self, Self::InForce { generation, .. } if now == Some(*generation))
    }
}

/// Restores rules that another program changed, and cuts all boxes off until they are restored.
pub(super) fn keep() -> Result<()> {
    let is_settled = |known: &Known| matches!(known, Known::Nothing) || known.is_in_force(netlink::rules_generation());
    let mut cut = CUT.lock().unwrap_or_else(PoisonError::into_inner);
    if cut.is_empty() && is_settled(&known()) {
        return Ok(());
    }
    let mut rules = Rules::lock()?;
    if cut.is_empty() && (is_settled(&rules.known) || rules.are_untouched()) {
        return Ok(());
    }
    if cut.is_empty() && !has_any() {
        // No box needs them. The next veth pair brings them back before it exists.
        *rules.known = Known::MayBeThere;
        return Ok(());
    }
    let links = Links::open()?;
    cut.extend(cut_all(&links));
    if !cut.is_empty() {
        tracing::warn!("packet rules of boxes were changed by another program; restoring them");
    }
    rules.enforce()?;
    reconnect(&links, &cut).map_err(|error| Error::io("switch boxes on again", error))?;
    cut.clear();
    Ok(())
}

/// The rules as `nft` shows them, without the addresses that come and go.
fn show() -> Result<String> {
    ask("nft", &["--terse", "--stateless", "list", "table", "inet", "strongbox"])
}

/// The whole policy, and a chain more. Replaced in one transaction; the first two lines make that work whether or not the table exists.
fn text(chain: &str) -> String {
    let (metadata, reserved) = (shut::METADATA.join(", "), shut::RESERVED.join(", "));
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
    chain before_translation {{
        type filter hook prerouting priority raw; policy accept;
        iifname "sbx*" fib daddr type {{ local, broadcast, anycast, multicast }} drop
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
        ct status dnat ct original ip daddr != {{ {reserved} }} ip daddr {{ {reserved} }} drop
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

/// Removes the rules if they are unused and this process ever had to do with them.
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

/// Records that a veth pair was met, and with it perhaps the rules of a process that could not remove them.
pub(super) fn met() {
    let mut known = known();
    if matches!(*known, Known::Nothing) {
        *known = Known::MayBeThere;
    }
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
