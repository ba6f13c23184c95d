//! An instance: one server, or one `strongbox run`, and the directories in which it remembers its boxes.
//!
//! ```text
//! <state>/images/                    unpacked root file systems
//! <state>/agent-<hash>               the agent, which engines and boxes of root are started from
//! <state>/disks/<instance>.<box>     what boxes keep on disk
//! <state>/journals/<instance>.<box>/ what execs in them wrote
//! <run>/instances.lock               held for moments, while instances come and go
//! <run>/instances/<name>/lock        held as long as the instance lives: the lease
//! <run>/instances/<name>/boxes/<box>/record.json, agent.sock, door/
//! ```
//! No box survives a reboot, so what is known of living ones is kept in memory: `<run>` is a directory below `/run` or
//! `$XDG_RUNTIME_DIR` that belongs to this state directory, or the state directory itself where there is neither.
//!
//! A lock belongs to an open file, so the kernel releases it when its holder dies. A process that can take the lock of
//! an instance knows that the instance is dead; only the holder of the lock touches its boxes.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use box_core::{Error, Result, random};
use box_wire::BoxId;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::journal;
use crate::process::Process;

/// Instances whose boxes die with them carry this before their random name.
const EPHEMERAL: &str = "run-";

/// The file in an instance's directory whose lock is its lease.
const LEASE: &str = "lock";

/// Longest name of a persistent instance.
const NAME_BYTES_MAX: usize = 48;

/// How long a lease may take to come free after its holder was killed.
const LEASE_WAIT: Duration = Duration::from_secs(2);

/// Time between two looks at a lease that is held.
const LEASE_PAUSE: Duration = Duration::from_millis(20);

/// More than a lease says of its owner.
const OWNER_BYTES_MAX: usize = 256;

/// Whether an instance outlives its process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceKind {
    /// This process only; whatever it leaves is removed by the next one.
    Ephemeral,
    /// Known by this name across restarts.
    Persistent(String),
}

/// A living instance. The lease ends when this is dropped.
#[derive(Debug)]
pub struct Instance {
    pub name: String,
    pub kind: InstanceKind,
    instances: OwnedFd,
    directory: OwnedFd,
    boxes: OwnedFd,
    _lease: OwnedFd,
}

/// An instance whose process is gone, now in our hands.
#[derive(Debug)]
pub struct Remains {
    pub name: String,
    instances: OwnedFd,
    boxes: Option<OwnedFd>,
    _lease: OwnedFd,
}

/// The default state directory: never a place that other users can write to.
pub fn default_state_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/strongbox");
    }
    let home = || std::env::var_os("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let base = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    base.unwrap_or_else(|| home().join(".local/state")).join("strongbox")
}

/// The directories of a state.
#[derive(Debug)]
pub struct State {
    /// The state directory, as it really is.
    pub path: PathBuf,
    /// Where boxes keep what they keep on disk.
    pub disks: OwnedFd,
    /// Where the output of journalled execs is kept.
    pub journals: OwnedFd,
    run: OwnedFd,
}

impl State {
    /// Opens the directories, making them if need be, and refuses those that others can change.
    pub fn open(path: &Path) -> Result<Self> {
        let state = open_private(path)?;
        let failed = |error: Errno| Error::io(format!("making directories in {}", path.display()), error);
        for name in ["images", "disks", "journals"] {
            make_directory(&state, name).map_err(failed)?;
        }
        let disks = open_directory(&state, "disks").map_err(failed)?;
        let journals = open_directory(&state, "journals").map_err(failed)?;
        let path = path.canonicalize().map_err(|error| Error::io("finding the state directory", error))?;
        let run = match run_dir(&path) {
            Some(run) => open_private(&run)?,
            None => state,
        };
        make_directory(&run, "instances").map_err(failed)?;
        Ok(Self { path, disks, journals, run })
    }
}

impl State {
    /// Whether a box is remembered, by its name among those of all instances. One that is not does not live.
    pub fn has_box(&self, name: &str) -> bool {
        let Some((instance, id)) = name.split_once('.') else { return false };
        let is_name = |part: &str| part.parse::<BoxId>().is_ok();
        let boxes = || open_directory(open_directory(open_directory(&self.run, "instances")?, instance)?, "boxes");
        is_name(instance) && is_name(id) && boxes().and_then(|boxes| open_directory(boxes, id)).is_ok()
    }
}

/// The directory in memory that belongs to a state directory.
fn run_dir(state: &Path) -> Option<PathBuf> {
    let base = if rustix::process::geteuid().is_root() {
        PathBuf::from("/run")
    } else {
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir())?
    };
    let digest = Sha256::digest(state.as_os_str().as_encoded_bytes());
    let start = digest.iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    Some(base.join("strongbox").join(format!("{start:016x}")))
}

/// Opens a private directory, creating it if necessary, and refuses one that others can change.
pub fn open_private(path: &Path) -> Result<OwnedFd> {
    let failed = |error: std::io::Error| Error::io(format!("opening the state directory {}", path.display()), error);
    if !path.exists() {
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
        builder.create(path).map_err(failed)?;
    }
    let opened = open_directory(CWD, path).map_err(|error| failed(error.into()))?;
    let stat = rustix::fs::fstat(&opened).map_err(|error| failed(error.into()))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        let reason = "it must belong to the user that runs strongbox and must not be writable by others";
        let fix = format!("chown and chmod 700 {}, or choose another with --state-dir", path.display());
        return Err(Error::Unavailable { what: path.display().to_string(), reason: reason.to_owned(), fix });
    }
    Ok(opened)
}

impl Instance {
    /// Starts an instance, or takes a persistent one over whose process is gone.
    pub fn start(state: &State, kind: &InstanceKind) -> Result<Self> {
        let name = match kind {
            InstanceKind::Ephemeral => format!("{EPHEMERAL}{}", random_name()?),
            InstanceKind::Persistent(name) => checked_name(name)?,
        };
        // What a process that was killed had forked a moment before holds its lease until it has closed what it inherited.
        let patience = Instant::now() + LEASE_WAIT;
        loop {
            if let Some(started) = Self::claim(state, &name, kind)? {
                return Ok(started);
            }
            if Instant::now() >= patience {
                return Err(Error::Unavailable {
                    what: format!("the instance {name}"),
                    reason: "another process is running it".to_owned(),
                    fix: "stop that process, or choose another instance or state directory".to_owned(),
                });
            }
            std::thread::sleep(LEASE_PAUSE);
        }
    }

    /// Takes the lease of an instance, if it is free.
    fn claim(state: &State, name: &str, kind: &InstanceKind) -> Result<Option<Self>> {
        let failed = |error: Errno| Error::io(format!("starting the instance {name}"), error);
        let _guard = guard(state)?;
        let instances = open_directory(&state.run, "instances").map_err(failed)?;
        make_directory(&instances, name).map_err(failed)?;
        let directory = open_directory(&instances, name).map_err(failed)?;
        let Some(lease) = try_lock(&directory).map_err(failed)? else { return Ok(None) };
        name_owner(&lease).map_err(failed)?;
        make_directory(&directory, "boxes").map_err(failed)?;
        let boxes = open_directory(&directory, "boxes").map_err(failed)?;
        Ok(Some(Self { name: name.to_owned(), kind: kind.clone(), instances, directory, boxes, _lease: lease }))
    }

    /// Makes the directory of a new box. An existing one means that the id is taken.
    pub fn make_box(&self, id: &BoxId) -> Result<OwnedFd> {
        let failed = |error: Errno| Error::io(format!("making the directory of box {id}"), error);
        match rustix::fs::mkdirat(&self.boxes, id.as_str(), Mode::from_raw_mode(0o700)) {
            Ok(()) => self.open_box(id).map_err(failed),
            Err(Errno::EXIST) => Err(taken(id)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Opens the directory of a box.
    pub fn open_box(&self, id: &BoxId) -> rustix::io::Result<OwnedFd> {
        open_directory(&self.boxes, id.as_str())
    }

    /// Gives a box that was made ahead the id under which it is wanted. An existing one means that the id is taken.
    pub fn rename_box(&self, from: &BoxId, to: &BoxId) -> Result<()> {
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&self.boxes, from.as_str(), &self.boxes, to.as_str(), flags) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(taken(to)),
            Err(error) => Err(Error::io(format!("renaming box {from} to {to}"), error)),
        }
    }

    /// The file of the lease: a process that can lock it knows that the instance is dead.
    pub fn lease_path(&self) -> Result<PathBuf> {
        let directory = std::fs::read_link(format!("/proc/self/fd/{}", self.directory.as_raw_fd()));
        let directory = directory.map_err(|error| Error::io(format!("finding the instance {}", self.name), error))?;
        Ok(directory.join(LEASE))
    }

    /// The name of a box among those of all instances.
    pub fn name_of(&self, id: &BoxId) -> String {
        format!("{}.{id}", self.name)
    }

    /// Ids of all boxes that have a directory.
    pub fn list(&self) -> Vec<BoxId> {
        list(&self.boxes)
    }

    /// Removes the directory of a box that is gone.
    pub fn remove_box(&self, id: &BoxId) -> Result<()> {
        remove_box(&self.boxes, id)
    }

    /// Ends an instance that leaves nothing behind.
    pub fn end(self) {
        if self.kind == InstanceKind::Ephemeral {
            remove_instance(&self.instances, &self.directory, &self.name);
        }
    }
}

fn taken(id: &BoxId) -> Error {
    box_wire::Invalid::new("box id", id.as_str(), "an id that no box has").into()
}

/// Whether the instance of this lease is known to be dead: it is gone, or its kind dies with its process and the lock
/// is free. Only for leases of this machine. In doubt it is alive.
pub fn is_dead(name: &str, lease: &Path) -> bool {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(lease, flags, Mode::empty()) {
        Err(Errno::NOENT) => true,
        Err(_) => false,
        Ok(file) => {
            let lock = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            name.starts_with(EPHEMERAL) && lock().is_ok()
        }
    }
}

/// Removes disks and journals whose ephemeral instance is gone without a trace, as after a reboot.
pub fn sweep_storage(state: &State) -> Result<()> {
    let _guard = guard(state)?;
    let instances = open_directory(&state.run, "instances").map_err(|error| Error::io("opening instances", error))?;
    let is_left = |name: &String| {
        let owner = name.trim_start_matches('.').split('.').next().unwrap_or_default();
        owner.starts_with(EPHEMERAL) && open_directory(&instances, owner).is_err()
    };
    for name in names(&state.disks).into_iter().filter(is_left) {
        // The disk of a native box is one file, that of an engine's box a directory; either is removed like a journal.
        if let Err(error) = journal::remove(&state.disks, &name) {
            tracing::warn!(disk.name = %name, error = %error, "failed to remove an orphaned disk");
        }
    }
    for name in names(&state.journals).into_iter().filter(is_left) {
        if let Err(error) = journal::remove(&state.journals, &name) {
            tracing::warn!(journal.name = %name, error = %error, "failed to remove an orphaned journal");
        }
    }
    Ok(())
}

impl Remains {
    /// Every ephemeral instance whose process is gone.
    pub fn find(state: &State) -> Result<Vec<Self>> {
        let failed = |error: Errno| Error::io("looking for instances that died", error);
        let _guard = guard(state)?;
        let instances = open_directory(&state.run, "instances").map_err(failed)?;
        let (mut found, patience) = (Vec::new(), Instant::now() + LEASE_WAIT);
        for name in names(&instances).into_iter().filter(|name| name.starts_with(EPHEMERAL)) {
            // Opened without following links: a link is never looked into.
            let Ok(directory) = open_directory(&instances, &name) else { continue };
            if let Some(lease) = lease_of_dead(&directory, patience) {
                let boxes = open_directory(&directory, "boxes").ok();
                let instances = open_directory(&state.run, "instances").map_err(failed)?;
                found.push(Self { name, instances, boxes, _lease: lease });
            }
        }
        Ok(found)
    }

    /// Ids of the boxes that it left.
    pub fn list(&self) -> Vec<BoxId> {
        self.boxes.as_ref().map(list).unwrap_or_default()
    }

    /// Opens the directory of one of them.
    pub fn open_box(&self, id: &BoxId) -> Option<OwnedFd> {
        open_directory(self.boxes.as_ref()?, id.as_str()).ok()
    }

    /// Removes the directory of one of them.
    pub fn remove_box(&self, id: &BoxId) -> Result<()> {
        self.boxes.as_ref().map_or(Ok(()), |boxes| remove_box(boxes, id))
    }

    /// Removes what is left of the instance itself.
    pub fn clear(self) {
        if let Ok(directory) = open_directory(&self.instances, &self.name) {
            remove_instance(&self.instances, &directory, &self.name);
        }
    }
}

/// Held for the moments in which instances come and go, so that a new one is never taken for a dead one.
pub(crate) fn guard(state: &State) -> Result<OwnedFd> {
    let failed = |error: Errno| Error::io("locking the state directory", error);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&state.run, "instances.lock", flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(failed)?;
    Ok(file)
}

/// Takes the lease of an instance, if it is free.
fn try_lock(directory: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, LEASE, flags, Mode::from_raw_mode(0o600))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes into a lease whose it is.
fn name_owner(lease: &OwnedFd) -> rustix::io::Result<()> {
    let owner = Process::of(std::process::id()).and_then(|owner| serde_json::to_vec(&owner).ok()).unwrap_or_default();
    rustix::fs::ftruncate(lease, 0)?;
    rustix::io::pwrite(lease, &owner, 0).map(drop)
}

/// Takes the lease of an instance whose process is dead. What that process had forked a moment before it was killed holds the lease
/// until it has closed what it inherited, which is waited for.
fn lease_of_dead(directory: &OwnedFd, patience: Instant) -> Option<OwnedFd> {
    loop {
        if let Some(lease) = try_lock(directory).ok()? {
            return Some(lease);
        }
        if Instant::now() >= patience || owner_of(directory).is_none_or(Process::is_running) {
            return None;
        }
        std::thread::sleep(LEASE_PAUSE);
    }
}

/// Whose a lease is, where it says so: those of older versions do not.
fn owner_of(directory: &OwnedFd) -> Option<Process> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, LEASE, flags, Mode::empty()).ok()?;
    let mut text = [0; OWNER_BYTES_MAX];
    let length = rustix::io::read(&file, &mut text[..]).ok()?;
    serde_json::from_slice(&text[..length]).ok()
}

/// Files that we put into a box's directory. Nothing else is ever in one.
const BOX_FILES: [&str; 3] = ["record.json", "agent.sock", "door/control.sock"];

/// Directories that we put there, when they are empty.
const BOX_DIRECTORIES: [&str; 1] = ["door"];

fn remove_box(boxes: &OwnedFd, id: &BoxId) -> Result<()> {
    let failed = |error: Errno| Error::io(format!("removing the directory of box {id}"), error);
    let directory = match open_directory(boxes, id.as_str()) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for name in BOX_FILES {
        match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    for name in BOX_DIRECTORIES {
        match rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    rustix::fs::unlinkat(boxes, id.as_str(), AtFlags::REMOVEDIR).map_err(failed)
}

/// Removes an instance's own files. Directories with content stay, and a later start tries again.
fn remove_instance(instances: &OwnedFd, directory: &OwnedFd, name: &str) {
    if matches!(rustix::fs::unlinkat(directory, "boxes", AtFlags::REMOVEDIR), Ok(()) | Err(Errno::NOENT)) {
        let _ = rustix::fs::unlinkat(directory, LEASE, AtFlags::empty());
        let _ = rustix::fs::unlinkat(instances, name, AtFlags::REMOVEDIR);
    }
}

fn list(boxes: &OwnedFd) -> Vec<BoxId> {
    names(boxes).into_iter().filter_map(|name| name.parse().ok()).collect()
}

fn names(directory: &OwnedFd) -> Vec<String> {
    let Ok(entries) = rustix::fs::Dir::read_from(directory) else { return Vec::new() };
    let text = |entry: rustix::fs::DirEntry| entry.file_name().to_str().ok().map(str::to_owned);
    entries.flatten().filter_map(text).filter(|name| name != "." && name != "..").collect()
}

fn make_directory(parent: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error),
    }
}

pub fn open_directory(parent: impl std::os::fd::AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

fn random_name() -> Result<String> {
    let random = random::bytes().map_err(|error| Error::io("choosing a name", error))?;
    Ok(format!("{:016x}", u64::from_ne_bytes(random)))
}

fn checked_name(name: &str) -> Result<String> {
    let parsed: BoxId = name.parse()?;
    if parsed.as_str().len() > NAME_BYTES_MAX || parsed.as_str().starts_with(EPHEMERAL) {
        let allowed = format!("at most {NAME_BYTES_MAX} bytes, not starting with {EPHEMERAL}");
        return Err(box_wire::Invalid::new("instance", name, allowed).into());
    }
    Ok(parsed.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_instance_is_never_found_among_the_remains() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        let living = Instance::start(&state, &InstanceKind::Ephemeral).unwrap();
        assert!(Remains::find(&state).unwrap().is_empty());
        let name = living.name.clone();
        let id: BoxId = "b".parse().unwrap();
        living.make_box(&id).unwrap();
        drop(living);
        let remains = Remains::find(&state).unwrap();
        assert_eq!(remains.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [name.as_str()]);
        for one in remains {
            assert_eq!(one.list(), std::slice::from_ref(&id));
            one.remove_box(&id).unwrap();
            one.clear();
        }
        assert!(open_directory(&state.run, "instances").and_then(|all| open_directory(&all, &name)).is_err());
    }

    #[test]
    fn a_child_that_holds_the_lease_of_a_dead_process_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        let living = Instance::start(&state, &InstanceKind::Ephemeral).unwrap();
        let path = living.lease_path().unwrap();
        drop(living);
        let dead = Process { pid: u32::MAX, start_time_ticks: 1 };
        std::fs::write(&path, serde_json::to_vec(&dead).unwrap()).unwrap();
        let inherited = std::fs::File::open(&path).unwrap();
        rustix::fs::flock(&inherited, FlockOperation::LockExclusive).unwrap();
        let closing = std::thread::spawn(move || {
            std::thread::sleep(LEASE_PAUSE * 3);
            drop(inherited);
        });
        assert_eq!(Remains::find(&state).unwrap().len(), 1);
        closing.join().unwrap();
    }

    #[test]
    fn two_processes_cannot_run_one_instance() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        let kind = InstanceKind::Persistent("main".to_owned());
        let first = Instance::start(&state, &kind).unwrap();
        assert_eq!(Instance::start(&state, &kind).unwrap_err().code(), "unavailable");
        drop(first);
        // Tests beside this one fork, and a fork holds the lock until it is over; that is waited for.
        assert!(Instance::start(&state, &kind).is_ok());
        assert!(Instance::start(&state, &InstanceKind::Persistent("run-x".to_owned())).is_err());
    }

    #[test]
    fn a_state_directory_that_others_can_change_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert_eq!(State::open(directory.path()).unwrap_err().code(), "unavailable");
    }

    #[test]
    fn journals_of_living_and_of_lasting_instances_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        let living = Instance::start(&state, &InstanceKind::Ephemeral).unwrap();
        let [alive, dead, lasting] = [&living.name, "run-0123", "main"].map(|owner| format!("{owner}.box"));
        for name in [&alive, &dead, &lasting] {
            let place = directory.path().join("journals").join(name);
            std::fs::create_dir(&place).unwrap();
            std::fs::write(place.join("e.end"), b"x").unwrap();
        }
        sweep_storage(&state).unwrap();
        let mut left = names(&state.journals);
        left.sort();
        let mut expected = vec![alive, lasting];
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_link_in_the_place_of_an_instance_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(outside.path().join("boxes")).unwrap();
        std::fs::write(outside.path().join("lock"), b"").unwrap();
        let state = State::open(directory.path()).unwrap();
        let instances = open_directory(&state.run, "instances").unwrap();
        rustix::fs::symlinkat(outside.path(), &instances, "run-evil").unwrap();
        assert!(Remains::find(&state).unwrap().is_empty());
        rustix::fs::unlinkat(&instances, "run-evil", AtFlags::empty()).unwrap();
        assert!(outside.path().join("boxes").exists());
    }
}
