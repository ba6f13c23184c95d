//! Users and groups of the box, by name, as its files list them.

use std::io::Read as _;

/// More of a list of accounts is not read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One line of `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: Vec<u8>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: Vec<u8>,
    pub(super) shell: Vec<u8>,
}

/// The accounts of a box.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    users: Vec<u8>,
    groups: Vec<u8>,
}

impl Accounts {
    /// Reads those of this box.
    pub(super) fn read() -> Self {
        let read = |path: &str| {
            let mut text = Vec::new();
            if let Ok(file) = std::fs::File::open(path) {
                let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut text);
            }
            text
        };
        Self { users: read("/etc/passwd"), groups: read("/etc/group") }
    }

    #[cfg(test)]
    pub(super) fn of(users: &str, groups: &str) -> Self {
        Self { users: users.into(), groups: groups.into() }
    }

    /// A user by name, or by number with `#` before it.
    pub(super) fn user(&self, wanted: &[u8]) -> Option<Account> {
        let number = numbered(wanted);
        self.users().find(|user| number.map_or(user.name == wanted, |uid| user.uid == uid))
    }

    /// A user by number.
    pub(super) fn user_of(&self, uid: u32) -> Option<Account> {
        self.users().find(|user| user.uid == uid)
    }

    /// The number of a group, by name, or by number with `#` before it.
    pub(super) fn group(&self, wanted: &[u8]) -> Option<u32> {
        let named = || {
            let lines = self.groups.split(|byte| *byte == b'\n').map(fields);
            lines.filter(|line| line.first() == Some(&wanted)).find_map(|line| number(line.get(2)?))
        };
        numbered(wanted).or_else(named)
    }

    fn users(&self) -> impl Iterator<Item = Account> {
        self.users.split(|byte| *byte == b'\n').filter_map(|line| {
            let [name, _, uid, gid, _, home, shell] = fields(line)[..] else { return None };
            let shell = if shell.is_empty() { b"/bin/sh".as_slice() } else { shell };
            let (name, home, shell) = (name.to_vec(), home.to_vec(), shell.to_vec());
            Some(Account { name, uid: number(uid)?, gid: number(gid)?, home, shell })
        })
    }
}

fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| *byte == b':').collect()
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn numbered(wanted: &[u8]) -> Option<u32> {
    number(wanted.strip_prefix(b"#")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_by_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\nbroken\nuser:x:1000:1001:user:/home/user:\n";
        let accounts = Accounts::of(users, "root:x:0:\ndisk:x:6:user\n");
        let user = accounts.user(b"user").unwrap();
        assert_eq!((user.uid, user.gid, user.shell.as_slice()), (1000, 1001, b"/bin/sh".as_slice()));
        assert_eq!(accounts.user(b"#1000"), Some(user.clone()));
        assert_eq!(accounts.user_of(1000), Some(user));
        assert_eq!((accounts.user(b"broken"), accounts.user(b"#7"), accounts.user(b"")), (None, None, None));
        assert_eq!((accounts.group(b"disk"), accounts.group(b"#77"), accounts.group(b"no")), (Some(6), Some(77), None));
    }
}
