//! What E2B's clients are told of a file.

use box_e2b_wire::filesystem::{EntryInfo, FileType};
use box_wire::file_op::{Detail, Entry, EntryKind};
use jiff::Timestamp;

/// An entry in their words. A link has the type and the permission bits of what it leads to.
pub(crate) fn entry_info(detail: Detail) -> EntryInfo {
    let Detail { entry, owner, group, leads_to, attributes } = detail;
    let is_symlink = entry.kind == EntryKind::Symlink;
    let (kind, mode) = match &leads_to {
        Some(target) => (target.kind, target.mode),
        None => (entry.kind, entry.mode),
    };
    EntryInfo {
        name: name_of(&entry.path).to_owned(),
        kind: file_type(kind),
        permissions: permissions(&entry),
        size: i64::try_from(entry.size).unwrap_or(i64::MAX),
        mode: mode & 0o777,
        owner: owner.unwrap_or_else(|| entry.uid.to_string()),
        group: group.unwrap_or_else(|| entry.gid.to_string()),
        modified_time: Timestamp::from_nanosecond(entry.modified_ns.into()).ok().map(|time| time.to_string()),
        symlink_target: leads_to.map(|target| target.path),
        metadata: attributes.into_iter().collect(),
        is_symlink,
        path: entry.path,
    }
}

/// The last part of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/")
}

/// A link that leads nowhere is nothing that anybody could use.
fn file_type(kind: EntryKind) -> FileType {
    match kind {
        EntryKind::File => FileType::File,
        EntryKind::Directory => FileType::Directory,
        EntryKind::Symlink | EntryKind::Other => FileType::Unspecified,
    }
}

/// Permission bits in letters, with what else there is before them: `d`, `L`, `u`, `g`, `t`, or `-`.
fn permissions(entry: &Entry) -> String {
    let is = |kind| entry.kind == kind;
    let marks = [
        (is(EntryKind::Directory), 'd'),
        (is(EntryKind::Symlink), 'L'),
        (entry.mode & 0o4000 != 0, 'u'),
        (entry.mode & 0o2000 != 0, 'g'),
        (entry.mode & 0o1000 != 0, 't'),
    ];
    let mut text: String = marks.into_iter().filter(|(is_set, _)| *is_set).map(|(_, mark)| mark).collect();
    if text.is_empty() {
        text.push('-');
    }
    text.extend((0..9).map(|place| if entry.mode & (0o400 >> place) == 0 { '-' } else { ['r', 'w', 'x'][place % 3] }));
    text
}

#[cfg(test)]
mod tests {
    use box_wire::file_op::LinkTarget;

    use super::*;

    fn detail(kind: EntryKind, mode: u32) -> Detail {
        let path = "/home/user/name".to_owned();
        let modified_ns = 1_000_000_000_500_000_000;
        let entry = Entry { path, kind, size: 4, mode, uid: 1000, gid: 7, modified_ns, target: None };
        Detail { entry, owner: Some("user".to_owned()), group: None, leads_to: None, attributes: Vec::new() }
    }

    #[test]
    fn a_file_is_told_with_names_or_numbers_of_its_owners() {
        let told = entry_info(detail(EntryKind::File, 0o640));
        assert_eq!((told.name.as_str(), told.kind, told.size, told.mode), ("name", FileType::File, 4, 0o640));
        assert_eq!((told.owner.as_str(), told.group.as_str()), ("user", "7"));
        assert_eq!(told.modified_time.as_deref(), Some("2001-09-09T01:46:40.5Z"));
        assert_eq!(name_of("/"), "/");
    }

    #[test]
    fn a_link_has_type_and_bits_of_what_it_leads_to() {
        let target = LinkTarget { path: "/etc".to_owned(), kind: EntryKind::Directory, mode: 0o1755 };
        let told = entry_info(Detail { leads_to: Some(target), ..detail(EntryKind::Symlink, 0o777) });
        assert_eq!((told.kind, told.mode, told.is_symlink), (FileType::Directory, 0o755, true));
        assert_eq!((told.permissions.as_str(), told.symlink_target.as_deref()), ("Lrwxrwxrwx", Some("/etc")));
        let dangling = entry_info(detail(EntryKind::Symlink, 0o777));
        assert_eq!((dangling.kind, dangling.is_symlink, dangling.symlink_target), (FileType::Unspecified, true, None));
    }

    #[test]
    fn permission_bits_are_letters() {
        for (kind, mode, text) in [
            (EntryKind::File, 0o640, "-rw-r-----"),
            (EntryKind::Directory, 0o755, "drwxr-xr-x"),
            (EntryKind::Directory, 0o1777, "dtrwxrwxrwx"),
            (EntryKind::File, 0o6711, "ugrwx--x--x"),
            (EntryKind::Other, 0, "----------"),
        ] {
            assert_eq!(permissions(&detail(kind, mode).entry), text);
        }
    }
}
