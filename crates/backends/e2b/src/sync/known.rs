//! What both sides had when they were last the same.

use std::collections::{BTreeMap, BTreeSet};

use box_wire::file_op::{Entry, EntryKind};

/// Of a second.
const NANOSECONDS: i64 = 1_000_000_000;

/// What an entry was like on the host. Two that are equal were not changed in between: the kernel counts every change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HostStamp {
    Directory,
    Link(Vec<u8>),
    File { inode: u64, size: u64, mode: u32, modified: (i64, i64), changed: (i64, i64) },
}

/// What an entry was like in the box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BoxStamp {
    Directory,
    Link(String),
    File {
        size: u64,
        mode: u32,
        modified_ns: i64,
    },
    /// Something that is not carried.
    Other,
}

/// An entry that both sides have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) host: HostStamp,
    pub(super) boxed: BoxStamp,
}

/// What both sides had when they were last the same, by paths from the top.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Known(pub(super) BTreeMap<String, Pair>);

/// What is different in the box.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    /// What is new or was changed.
    pub(super) changed: BTreeMap<String, BoxStamp>,
    /// Removed entries.
    pub(super) removed: BTreeSet<String>,
}

impl News {
    pub(super) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    /// Whether there is something whose content has to be fetched.
    pub(super) fn has_content(&self) -> bool {
        !self.changed.is_empty()
    }
}

impl Known {
    /// Forgets an entry and everything below it.
    pub(super) fn forget(&mut self, path: &str) {
        let below = format!("{path}/");
        self.0.retain(|known, _| known != path && !known.starts_with(&below));
    }

    /// Notes what was carried.
    pub(super) fn learn(&mut self, carried: BTreeMap<String, Pair>) {
        self.0.extend(carried);
    }

    /// A guess of the last synchronized state: equal entries are in it, and of different ones the newer counts as
    /// changed. No entry counts as removed.
    pub(super) fn guess(host: BTreeMap<String, HostStamp>, boxed: &BTreeMap<String, BoxStamp>) -> Self {
        let pair = |(path, host): (String, HostStamp)| {
            let found = boxed.get(&path)?;
            let boxed = match (&host, found) {
                _ if host.in_box() == *found => found.clone(),
                (
                    HostStamp::File { modified: (here, _), size, .. },
                    BoxStamp::File { modified_ns, size: there, .. },
                ) => {
                    let in_box = modified_ns.div_euclid(NANOSECONDS);
                    match here.cmp(&in_box) {
                        std::cmp::Ordering::Equal if size == there => found.clone(),
                        // Unlike anything that the box could have, so that it will be taken out.
                        std::cmp::Ordering::Less | std::cmp::Ordering::Equal => BoxStamp::Other,
                        std::cmp::Ordering::Greater => return None,
                    }
                }
                _ => return None,
            };
            Some((path, Pair { host, boxed }))
        };
        Self(host.into_iter().filter_map(pair).collect())
    }

    /// What is different in the box, of which this is everything.
    pub(super) fn compare(&self, listed: BTreeMap<String, BoxStamp>) -> News {
        let removed = self.0.keys().filter(|path| !listed.contains_key(*path)).cloned().collect();
        let is_news = |(path, stamp): &(String, BoxStamp)| {
            *stamp != BoxStamp::Other && self.0.get(path).is_none_or(|known| known.boxed != *stamp)
        };
        News { changed: listed.into_iter().filter(is_news).collect(), removed }
    }
}

impl BoxStamp {
    /// What the agent says of an entry.
    pub(super) fn of(entry: &Entry) -> Self {
        match entry.kind {
            EntryKind::Directory => Self::Directory,
            EntryKind::Symlink => Self::Link(entry.target.clone().unwrap_or_default()),
            EntryKind::File => {
                Self::File { size: entry.size, mode: entry.mode & 0o777, modified_ns: entry.modified_ns }
            }
            EntryKind::Other => Self::Other,
        }
    }
}

impl HostStamp {
    /// What the box has when this was carried into it: an archive counts time in seconds.
    pub(super) fn in_box(&self) -> BoxStamp {
        match self {
            Self::Directory => BoxStamp::Directory,
            Self::Link(target) => BoxStamp::Link(String::from_utf8_lossy(target).into_owned()),
            Self::File { size, mode, modified: (seconds, _), .. } => {
                let modified_ns = seconds.max(&0).saturating_mul(NANOSECONDS);
                BoxStamp::File { size: *size, mode: *mode, modified_ns }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(seconds: i64, size: u64) -> HostStamp {
        HostStamp::File { inode: 1, size, mode: 0o644, modified: (seconds, 5), changed: (seconds, 5) }
    }

    fn boxed(seconds: i64, size: u64) -> BoxStamp {
        BoxStamp::File { size, mode: 0o644, modified_ns: seconds * NANOSECONDS + 7 }
    }

    #[test]
    fn without_memory_the_later_of_two_counts_and_nothing_is_taken_for_removed() {
        let here =
            [("same", host(9, 1)), ("later here", host(9, 1)), ("later there", host(9, 1)), ("only here", host(9, 1))];
        let there = [
            ("same", boxed(9, 1)),
            ("later here", boxed(8, 1)),
            ("later there", boxed(10, 1)),
            ("only there", boxed(1, 1)),
        ];
        let here = here.map(|(path, stamp)| (path.to_owned(), stamp)).into();
        let there: BTreeMap<_, _> = there.map(|(path, stamp)| (path.to_owned(), stamp)).into();
        let known = Known::guess(here, &there);
        assert_eq!(known.0.keys().collect::<Vec<_>>(), ["later there", "same"], "the others are carried in");
        let news = known.compare(there);
        assert_eq!(news.changed.keys().collect::<Vec<_>>(), ["later here", "later there", "only there"]);
        assert!(news.removed.is_empty());
    }
}
