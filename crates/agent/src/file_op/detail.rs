//! Details of files that only the box knows: names of owners, targets of links, and extended attributes.

use std::collections::HashMap;
use std::io::Read;

use box_wire::file_op::{Detail, Entry, EntryKind, LinkTarget};
use box_wire::limits::{PATH_COMPONENT_BYTES_MAX, REPLY_BYTES_MAX};
use box_wire::{Answer, GuestPath};
use rustix::fs::{Mode, OFlags};

use super::attributes;
use super::files::kind;
use super::place::{FileTree, OpenedPath, reopen};

/// How much is read of a file that names users or groups.
const NAMES_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a reply that each detail may need besides its text.
const DETAIL_BYTES: usize = 96;

/// Adds the requested details to entries.
pub(super) struct Teller<'a> {
    place: &'a FileTree,
    /// Report attributes with this prefix.
    attributes: Option<&'a str>,
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl<'a> Teller<'a> {
    pub(super) fn new(place: &'a FileTree, attributes: Option<&'a str>) -> Self {
        Self { place, attributes, users: names("/etc/passwd"), groups: names("/etc/group") }
    }

    /// An answer with more in it.
    pub(super) fn answer(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Entry(entry) => Answer::Detail(Box::new(self.detail(entry))),
            Answer::Entries { entries, truncated } => self.details(entries, truncated),
            other => other,
        }
    }

    /// As many as fit into a reply.
    fn details(&self, entries: Vec<Entry>, mut truncated: bool) -> Answer {
        let mut details = Vec::with_capacity(entries.len());
        let mut bytes = 0;
        for entry in entries {
            let detail = self.detail(entry);
            bytes += bytes_of(&detail);
            if bytes > REPLY_BYTES_MAX - REPLY_BYTES_MAX / 8 {
                truncated = true;
                break;
            }
            details.push(detail);
        }
        Answer::Details { entries: details, truncated }
    }

    pub(super) fn detail(&self, entry: Entry) -> Detail {
        let (owner, group) = (self.users.get(&entry.uid).cloned(), self.groups.get(&entry.gid).cloned());
        let is_link = entry.kind == EntryKind::Symlink;
        let wanted = is_link || self.attributes.is_some();
        // A path that is not valid as an argument, or a file that is gone by now, has no further details.
        let path = entry.path.parse::<GuestPath>().ok().filter(|_| wanted);
        let found = path.and_then(|path| self.place.look_up(&path).ok());
        let attributes = match (self.attributes, &found) {
            (Some(prefix), Some(found)) => attributes::read(&found.object, prefix),
            _ => Vec::new(),
        };
        let leads_to = found.filter(|_| is_link).and_then(|found| target(&found));
        Detail { entry, owner, group, leads_to, attributes }
    }
}

fn target(found: &OpenedPath) -> Option<LinkTarget> {
    let stat = rustix::fs::fstat(&found.object).ok()?;
    let path = found.real.to_string_lossy().into_owned();
    Some(LinkTarget { path, kind: kind(&stat), mode: stat.st_mode & 0o7777 })
}

/// The names of ids in a file like `/etc/passwd`. An unreadable file has none.
fn names(path: &str) -> HashMap<u32, String> {
    let opened = || {
        let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        reopen(&found, &path.parse().ok()?, OFlags::RDONLY).ok()
    };
    let mut text = Vec::new();
    if let Some(file) = opened() {
        // What was read before something went wrong is good.
        let _ = file.take(NAMES_BYTES_MAX).read_to_end(&mut text);
    }
    parse(&String::from_utf8_lossy(&text))
}

/// Lines of name, something, and number. The first name of a number counts.
fn parse(text: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let (Some(name), Some(number)) = (fields.next(), fields.nth(1)) else { continue };
        let Ok(number) = number.parse() else { continue };
        if !name.is_empty() && name.len() <= PATH_COMPONENT_BYTES_MAX {
            names.entry(number).or_insert_with(|| name.to_owned());
        }
    }
    names
}

fn bytes_of(detail: &Detail) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let attributes: usize = detail.attributes.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    let target = detail.leads_to.as_ref().map_or(0, |target| target.path.len());
    let entry = detail.entry.path.len() + text(&detail.entry.target);
    DETAIL_BYTES + entry + text(&detail.owner) + text(&detail.group) + target + attributes
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::files::stat;
    use super::super::list::list;
    use super::super::place::ground::Ground;
    use super::*;

    fn detail(ground: &Ground, name: &str) -> Detail {
        Teller::new(&ground.place, Some("user.")).detail(stat(&ground.place, &ground.path(name)).unwrap())
    }

    #[test]
    fn the_first_name_of_a_number_counts_and_nonsense_names_nobody() {
        let names = parse("root:x:0:0:root:/root:/bin/sh\nagain:x:0\n\n:x:1\nbad:x:-1\nlong\nuser:x:1000:1000::/\n");
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort();
        assert_eq!(names, [(0, "root".to_owned()), (1000, "user".to_owned())]);
    }

    #[test]
    fn links_are_told_with_where_they_lead() {
        let ground = Ground::new();
        fs::create_dir(ground.tree.join("directory")).unwrap();
        symlink("directory", ground.tree.join("one")).unwrap();
        symlink("one", ground.tree.join("two")).unwrap();
        symlink("none", ground.tree.join("dangling")).unwrap();
        symlink("/etc", ground.tree.join("out")).unwrap();
        symlink("loop", ground.tree.join("loop")).unwrap();
        let led = detail(&ground, "two");
        let target = led.leads_to.unwrap();
        assert_eq!(led.entry.target.as_deref(), Some("one"), "what it says");
        assert_eq!((target.path, target.kind), (ground.path("directory").to_string(), EntryKind::Directory));
        for name in ["dangling", "out", "loop", "directory"] {
            assert_eq!(detail(&ground, name).leads_to, None, "{name}");
        }
    }

    #[test]
    fn a_listing_in_detail_fits_into_a_reply() {
        let ground = Ground::in_memory();
        let deep = vec!["d".repeat(200); 15].join("/");
        fs::create_dir_all(ground.tree.join(&deep)).unwrap();
        for number in 0..4000 {
            symlink(&deep, ground.tree.join(format!("{number:04}"))).unwrap();
        }
        let listed = list(&ground.place, &ground.path(""), 1, 10_000).unwrap();
        let told = Teller::new(&ground.place, None).answer(listed);
        let Answer::Details { entries, truncated } = &told else { panic!("{told:?}") };
        assert!(*truncated && entries.len() > 500, "{}", entries.len());
        let reply: box_wire::file_op::Reply = Ok(told);
        assert!(box_wire::file_op::encode(&reply).unwrap().len() <= REPLY_BYTES_MAX);
    }
}
