//! Which ids of the host a jail consists of. Never root's.

use std::os::fd::OwnedFd;

use box_core::{Error, Result};
use box_host::ids::{IdMaps, RANGE_IDS, Ranges};
use box_host::record;
use box_wire::User;

use crate::fault;
use crate::jail::IdLine;
use crate::record::Record;

/// Claims of id ranges that are tried before giving up. There are thousands of ranges.
const CLAIMS_MAX: u32 = 64;

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
        let Some(ranges) = ranges else {
            record::write(record, directory)?;
            fault::point("jail_record_written");
            let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
            return Ok(Self::Own(uid.as_raw(), gid.as_raw()));
        };
        for _ in 0..CLAIMS_MAX {
            let range = Ranges::pick()?;
            record.range = Some(range);
            record::write(record, directory)?;
            fault::point("jail_record_written");
            if ranges.claim(range, &record.cgroup)? {
                fault::point("jail_range_claimed");
                let first = IdMaps::of_range(range).host_user(0);
                return first.map(Self::Range).ok_or_else(|| none("the range is empty"));
            }
        }
        Err(none("every range of ids that was tried is taken; are there thousands of boxes?"))
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

fn none(reason: &str) -> Error {
    Error::Setup { step: "ids".to_owned(), reason: reason.to_owned() }
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
