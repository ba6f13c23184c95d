//! Which ids of the host a box consists of. Never a real account's, and never 0.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;

use crate::WORKSPACE_OWNER;
use crate::mounts::write_file;
use box_core::{Account, Error, Result, random};
use box_wire::User;
use rustix::fs::{AtFlags, Mode, OFlags};

use crate::program;

/// Ids in one range: everything that 16 bits can name.
pub const RANGE_IDS: u32 = 1 << 16;

/// First id that ranges are cut from. Above the ranges of systemd and of `/etc/subuid`, below the ids that are negative as
/// 32-bit numbers, which some programs and file systems mishandle.
pub(crate) const FIRST_ID: u32 = 0x7000_0000;

/// Ranges there are. The one behind them is never given to a box: it owns what boxes keep in trees of the service's own.
const RANGES: u32 = (WORKSPACE_OWNER - FIRST_ID) / RANGE_IDS;

/// The agent's id inside every box. Systems keep it unused, because it was once the error value of 16-bit ids.
pub const AGENT_ID: u32 = 65535;

/// Where ranges are claimed, for all instances of the machine.
const CLAIMS: &str = "/run/strongbox/ids";

/// How the ids of a box and of the host correspond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdMaps {
    /// Lines of the user map: inside, outside, count.
    pub users: Vec<(u32, u32, u32)>,
    /// Lines of the group map.
    pub groups: Vec<(u32, u32, u32)>,
    /// How they are written.
    pub writer: Writer,
}

/// Who may write a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// We, as root.
    Ourselves,
    /// `newuidmap` and `newgidmap`, which know who may use what.
    NewIdMap,
    /// The caller, for its own id only; the group list must be given up first.
    SingleId,
}

impl IdMaps {
    /// The maps of a claimed range.
    pub fn of_range(range: u32) -> Self {
        let line = vec![(0, FIRST_ID + range * RANGE_IDS, RANGE_IDS)];
        Self { users: line.clone(), groups: line, writer: Writer::Ourselves }
    }

    /// The maps of an ordinary user: root of the box is the user, all other ids come from the user's subordinate ids.
    pub fn rootless() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let users = subordinate("/etc/subuid", uid);
        let groups = subordinate("/etc/subgid", uid);
        match (users, groups) {
            (Some(users), Some(groups))
                if program::find("newuidmap").is_some() && program::find("newgidmap").is_some() =>
            {
                Self { users: share(uid, users), groups: share(gid, groups), writer: Writer::NewIdMap }
            }
            _ => Self { users: vec![(0, uid, 1)], groups: vec![(0, gid, 1)], writer: Writer::SingleId },
        }
    }

    /// The actual user of commands for a requested one: root instead of the default user, if the maps lack that one.
    /// Other unmapped users are refused later.
    pub fn workload(&self, asked: User) -> User {
        let is_known = self.host_user(asked.uid).is_some() && self.host_group(asked.gid).is_some();
        if is_known || asked != Account::User.user() { asked } else { User::ROOT }
    }

    /// Whether agent and workload are different users, and there are more than those two.
    pub fn has_users(&self) -> bool {
        self.writer != Writer::SingleId
    }

    /// Who the agent becomes: an id of its own where there is one.
    pub fn agent(&self) -> User {
        match self.writer {
            Writer::SingleId => User::ROOT,
            _ => User { uid: AGENT_ID, gid: AGENT_ID },
        }
    }

    /// Who the agent is on the host, where we can give things to it. An ordinary user may not give anything away, but is root of
    /// the box's user namespace, as whom the agent opens to itself what it needs.
    pub fn agent_owner(&self) -> Result<Option<(u32, u32)>> {
        if self.writer != Writer::Ourselves {
            return Ok(None);
        }
        let agent = self.agent();
        match (self.host_user(agent.uid), self.host_group(agent.gid)) {
            (Some(uid), Some(gid)) => Ok(Some((uid, gid))),
            _ => Err(Error::Setup { step: "ids".to_owned(), reason: "the agent has no id on the host".to_owned() }),
        }
    }

    /// The id of the host behind a user of the box.
    pub fn host_user(&self, uid: u32) -> Option<u32> {
        translate(&self.users, uid)
    }

    /// The id of the host behind a group of the box.
    pub fn host_group(&self, gid: u32) -> Option<u32> {
        translate(&self.groups, gid)
    }

    /// Writes both maps for a process in a fresh user namespace.
    pub fn write(&self, pid: u32) -> Result<()> {
        match self.writer {
            Writer::NewIdMap => {
                run_mapper("newuidmap", pid, &self.users)?;
                run_mapper("newgidmap", pid, &self.groups)
            }
            Writer::SingleId | Writer::Ourselves => {
                if self.writer == Writer::SingleId {
                    write_file(&format!("/proc/{pid}/setgroups"), "deny")?;
                }
                write_file(&format!("/proc/{pid}/uid_map"), &render(&self.users))?;
                write_file(&format!("/proc/{pid}/gid_map"), &render(&self.groups))
            }
        }
    }
}

/// Claims ranges of ids for the boxes of this machine. One file per claim, made exclusively.
#[derive(Debug)]
pub struct Ranges {
    claims: rustix::fd::OwnedFd,
}

impl Ranges {
    /// Opens the list of claims; root only.
    pub fn open() -> Result<Self> {
        let failed = |error: std::io::Error| Error::io(format!("opening {CLAIMS}"), error);
        let mut so_far = PathBuf::from("/run");
        for name in ["strongbox", "ids"] {
            so_far.push(name);
            match rustix::fs::mkdir(&so_far, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let claims = rustix::fs::open(&so_far, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
        Ok(Self { claims })
    }

    /// Picks a range that is probably free. [`Ranges::claim`] reserves it.
    pub fn pick() -> Result<u32> {
        let random = random::bytes().map_err(|error| Error::io("picking a range of ids", error))?;
        Ok(u32::from_ne_bytes(random) % RANGES)
    }

    /// Claims a range for `owner`. False if it is taken.
    pub fn claim(&self, range: u32, owner: &str) -> Result<bool> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.claims, range.to_string(), flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => {
                let mut file = std::fs::File::from(file);
                file.write_all(owner.as_bytes()).map_err(|error| Error::io("claiming a range of ids", error))?;
                Ok(true)
            }
            Err(rustix::io::Errno::EXIST) => Ok(false),
            Err(error) => Err(Error::io("claiming a range of ids", error)),
        }
    }

    /// Gives a range back if `owner` has it.
    pub fn release(&self, range: u32, owner: &str) {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(&self.claims, range.to_string(), flags, Mode::empty()) else { return };
        let mut text = [0; 256];
        let length = rustix::io::read(file.as_fd(), &mut text).unwrap_or(0);
        // An empty claim was being made when its maker died, and only its maker knows of the number.
        if length == 0 || &text[..length] == owner.as_bytes() {
            let _ = rustix::fs::unlinkat(&self.claims, range.to_string(), AtFlags::empty());
        }
    }
}

/// Distributes subordinate ids: the agent gets one, users other than root the rest.
fn share(own: u32, (first, count): (u32, u32)) -> Vec<(u32, u32, u32)> {
    let others = count.min(RANGE_IDS - 1) - 1;
    vec![(0, own, 1), (1, first, others), (AGENT_ID, first + others, 1)]
}

/// The first range of at least two subordinate ids that the file grants to a user, by name or number.
fn subordinate(file: &str, uid: u32) -> Option<(u32, u32)> {
    let granted = std::fs::read_to_string(file).ok()?;
    parse_subordinate(&granted, uid, user_name(uid).as_deref())
}

fn parse_subordinate(text: &str, uid: u32, name: Option<&str>) -> Option<(u32, u32)> {
    let number = uid.to_string();
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let who = fields.next()?;
        let (first, count) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        ((who == number || Some(who) == name) && count >= 2 && first > 0).then_some((first, count))
    })
}

fn user_name(uid: u32) -> Option<String> {
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    let number = uid.to_string();
    let line = accounts.lines().find(|line| line.split(':').nth(2) == Some(&number))?;
    line.split(':').next().map(str::to_owned)
}

fn run_mapper(name: &str, pid: u32, lines: &[(u32, u32, u32)]) -> Result<()> {
    let program = program::find(name).ok_or_else(|| Error::Unavailable {
        what: name.to_owned(),
        reason: "it is not installed".to_owned(),
        fix: "apt-get install uidmap".to_owned(),
    })?;
    let mut command = Command::new(program);
    command.env_clear().arg(pid.to_string());
    for (inside, outside, count) in lines {
        command.args([inside.to_string(), outside.to_string(), count.to_string()]);
    }
    let output = command.output().map_err(|error| Error::io(format!("running {name}"), error))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Setup { step: "ids_mapped".to_owned(), reason: format!("{name}: {reason}") })
}

fn translate(lines: &[(u32, u32, u32)], id: u32) -> Option<u32> {
    lines.iter().find(|(inside, _, count)| (*inside..inside + count).contains(&id)).map(|(i, o, _)| o + (id - i))
}

fn render(lines: &[(u32, u32, u32)]) -> String {
    let line = |(inside, outside, count): &(u32, u32, u32)| format!("{inside} {outside} {count}");
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_never_hold_an_id_of_the_host_and_never_meet() {
        let last = IdMaps::of_range(RANGES - 1);
        assert!(last.host_user(AGENT_ID).unwrap() < WORKSPACE_OWNER);
        assert!(i32::try_from(WORKSPACE_OWNER + RANGE_IDS - 1).is_ok());
        assert_eq!(WORKSPACE_OWNER, FIRST_ID + RANGES * RANGE_IDS, "no id lies between them");
        assert_eq!(IdMaps::of_range(0).host_user(0), Some(FIRST_ID));
        assert_eq!(IdMaps::of_range(1).host_user(0), Some(FIRST_ID + RANGE_IDS));
        assert_eq!(IdMaps::of_range(0).host_user(AGENT_ID + 1), None);
    }

    #[test]
    fn the_ordinary_user_is_root_where_a_box_does_not_have_it() {
        let (user, other) = (Account::User.user(), User { uid: 2000, gid: 2000 });
        let maps = |lines: Vec<_>, writer| IdMaps { users: lines.clone(), groups: lines, writer };
        assert_eq!(IdMaps::of_range(7).workload(user), user);
        let few = maps(share(1000, (5, 10)), Writer::NewIdMap);
        assert_eq!((few.workload(user), few.workload(other)), (User::ROOT, other));
        let single = maps(vec![(0, 1000, 1)], Writer::SingleId);
        assert_eq!((single.workload(user), single.has_users()), (User::ROOT, false));
    }

    #[test]
    fn subordinate_ids_are_found_by_name_or_number_and_leave_room_for_the_agent() {
        let text = "other:100000:65536\nme:165536:65536\n";
        assert_eq!(parse_subordinate(text, 1000, Some("me")), Some((165_536, 65536)));
        assert_eq!(parse_subordinate("1000:5:10\n", 1000, None), Some((5, 10)));
        assert_eq!(parse_subordinate("me:0:65536\nme:7:1\n", 1000, Some("me")), None, "never root, never one");
        let maps = share(1000, (165_536, 65536));
        assert_eq!(maps, [(0, 1000, 1), (1, 165_536, 65534), (AGENT_ID, 165_536 + 65534, 1)]);
        assert_eq!(share(1000, (5, 10)), [(0, 1000, 1), (1, 5, 9), (AGENT_ID, 14, 1)]);
    }
}
