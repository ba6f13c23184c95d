//! Which ids of the host a jail consists of. Never root's.

use std::os::fd::OwnedFd;

use box_core::{Error, Result};
use box_host::ids::{IdMaps, RANGE_IDS, Ranges};
use box_host::local::Record;
use box_wire::User;

use crate::fault;
use crate::jail::IdLine;

/// The ids of a jail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ids {
    /// A range of the host's ids that nobody else has, by the first of them.
    Range(u32),
    /// The one of whoever runs us, by its user and group.
    Own(u32, u32),
}

impl Ids {
    /// Writes the intent and claims a range, in that order; an ordinary user has nothing to claim.
    pub(crate) fn claim(ranges: Option<&Ranges>, record: &mut Record, directory: &OwnedFd) -> Result<Self> {
        match record.claim_range(ranges, directory, fault::common)? {
            None => Ok(Self::Own(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())),
            Some(range) => {
                let first = IdMaps::of_range(range).host_user(0);
                let empty = || Error::Setup { step: "ids".to_owned(), reason: "the range is empty".to_owned() };
                first.map(Self::Range).ok_or_else(empty)
            }
        }
    }

    /// Who a user of the box is on the host.
    pub(crate) fn on_host(&self, user: User) -> (u32, u32) {
        match *self {
            Self::Range(first) => (first + user.uid, first + user.gid),
            Self::Own(uid, gid) => (uid, gid),
        }
    }

    /// To whom things can be given so that the box has them. An ordinary user may not give anything away, and need not.
    pub(crate) fn owner(&self, user: User) -> Option<(u32, u32)> {
        matches!(self, Self::Range(_)).then(|| self.on_host(user))
    }

    /// The maps of users and groups for an agent that is this user.
    pub(crate) fn lines(&self, user: User) -> (Vec<IdLine>, Vec<IdLine>) {
        match *self {
            Self::Range(first) => (around(user.uid, first), around(user.gid, first)),
            Self::Own(uid, gid) => {
                let only = |inside, outside| vec![IdLine { inside, outside, count: 1 }];
                (only(user.uid, uid), only(user.gid, gid))
            }
        }
    }
}

/// A whole range, cut so that this id comes first: nsjail starts the agent as the first id of the first line.
fn around(id: u32, first: u32) -> Vec<IdLine> {
    let line = |inside: u32, count: u32| IdLine { inside, outside: first + inside, count };
    if id == 0 {
        return vec![line(0, RANGE_IDS)];
    }
    let lines = [line(id, 1), line(0, id), line(id + 1, RANGE_IDS.saturating_sub(id + 1))];
    lines.into_iter().filter(|line| line.count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_id_comes_first_and_none_is_mapped_twice() {
        for id in [0, 1, 1000, 65534, 65535] {
            let lines = around(id, 0x7000_0000);
            assert_eq!(lines[0].inside, id);
            let mut inside: Vec<u32> = lines.iter().flat_map(|line| line.inside..line.inside + line.count).collect();
            inside.sort_unstable();
            assert!(inside.iter().copied().eq(0..RANGE_IDS), "{id}");
            assert!(lines.iter().all(|line| line.outside == 0x7000_0000 + line.inside));
        }
    }

    #[test]
    fn an_ordinary_user_is_whoever_the_box_wants() {
        let ids = Ids::Own(1000, 100);
        let (users, groups) = ids.lines(User { uid: 0, gid: 7 });
        assert_eq!(users, [IdLine { inside: 0, outside: 1000, count: 1 }]);
        assert_eq!(groups, [IdLine { inside: 7, outside: 100, count: 1 }]);
        assert_eq!(ids.owner(User::ROOT), None);
    }
}
