//! The one directory of a hierarchy below which all boxes are.
//!
//! It is made by the first box and removed with the last. Other processes do the same concurrently, so no process may
//! rely on its existence: if it is gone, it is made again.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use box_core::{Error, Result};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::file;

/// How often the directory may vanish between two calls before this gives up. Each time, another process made progress.
const RACES_MAX: usize = 1000;
/// Where this process moves when its own directory must delegate controllers.
pub(super) const HOST_LEAF: &str = "strongbox-host";

/// The one directory of a hierarchy below which all boxes are.
#[derive(Debug)]
pub(super) struct Top {
    /// In what it is made.
    base: OwnedFd,
    /// Its name there.
    name: String,
    /// What it hands to its children, as written to `cgroup.subtree_control`; empty where limits are elsewhere.
    controllers: String,
    /// Kept open because walking to it costs more than everything else; may be a directory that is gone.
    current: Mutex<Option<Arc<OwnedFd>>>,
}

impl Top {
    pub(super) fn new(base: OwnedFd, name: impl Into<String>, controllers: impl Into<String>) -> Self {
        Self { base, name: name.into(), controllers: controllers.into(), current: Mutex::new(None) }
    }

    /// What boxes hand to their children, as written to `cgroup.subtree_control`.
    pub(super) fn controllers(&self) -> &str {
        &self.controllers
    }

    /// Makes the directory of a box and opens it.
    pub(super) fn make(&self, name: &str) -> Result<OwnedFd> {
        for _ in 0..RACES_MAX {
            let top = self.directory()?;
            match rustix::fs::mkdirat(&*top, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    return file::open_directory(&*top, name).map_err(|errno| self.failed("opening", name, errno));
                }
                Err(Errno::NOENT | Errno::NODEV) => self.forget(&top),
                Err(Errno::EXIST) => {
                    let reason = format!("a cgroup named {}/{name} exists; destroy that box first", self.name);
                    return Err(Error::Setup { step: "cgroup".to_owned(), reason });
                }
                Err(errno) => return Err(self.failed("making", name, errno)),
            }
        }
        Err(self.failed("making", name, Errno::AGAIN))
    }

    /// Opens the directory of a box if it exists.
    pub(super) fn find(&self, name: &str) -> Result<Option<OwnedFd>> {
        match self.existing().and_then(|top| file::open_directory(top, name)) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::NOENT | Errno::NODEV) => Ok(None),
            Err(errno) => Err(self.failed("opening", name, errno)),
        }
    }

    /// Names of all boxes that exist here.
    pub(super) fn list(&self) -> Result<Vec<String>> {
        match self.existing().and_then(file::children) {
            Ok(names) => Ok(names),
            Err(Errno::NOENT | Errno::NODEV) => Ok(Vec::new()),
            Err(errno) => Err(self.failed("listing", "", errno)),
        }
    }

    /// Removes a box with everything below it, and this directory with its last box. What is gone already is fine.
    pub(super) fn remove(&self, name: &str, leaves: &[&str], deadline: Instant) -> Result<()> {
        let Some(directory) = self.find(name)? else { return Ok(()) };
        for leaf in leaves {
            remove_tree(&directory, leaf, deadline).map_err(|errno| self.failed("removing", name, errno))?;
        }
        if let Ok(top) = self.existing() {
            remove_tree(&top, name, deadline).map_err(|errno| self.failed("removing", name, errno))?;
        }
        Ok(())
    }

    /// Removes the directory of all boxes, if there are none.
    pub(super) fn leave(&self) {
        // Refused while a box is in it, or because root made it for this user: both are expected.
        let _ = rustix::fs::unlinkat(&self.base, &self.name, AtFlags::REMOVEDIR);
    }

    fn failed(&self, doing: &str, name: &str, errno: Errno) -> Error {
        Error::io(format!("{doing} the cgroup {}/{name}", self.name), errno)
    }

    fn existing(&self) -> rustix::io::Result<OwnedFd> {
        file::open_directory(&self.base, &self.name)
    }

    /// The directory, made if need be.
    fn directory(&self) -> Result<Arc<OwnedFd>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(top) = &*current {
            return Ok(Arc::clone(top));
        }
        let top = Arc::new(self.establish()?);
        *current = Some(Arc::clone(&top));
        Ok(top)
    }

    fn forget(&self, gone: &Arc<OwnedFd>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().is_some_and(|held| Arc::ptr_eq(held, gone)) {
            *current = None;
        }
    }

    fn establish(&self) -> Result<OwnedFd> {
        self.hand_out_controllers()?;
        for _ in 0..RACES_MAX {
            match rustix::fs::mkdirat(&self.base, &self.name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.failed("making", "", errno)),
            }
            let opened = self.existing().and_then(|top| {
                if !self.controllers.is_empty() {
                    file::write(&top, "cgroup.subtree_control", &self.controllers)?;
                }
                Ok(top)
            });
            match opened {
                Ok(top) => return Ok(top),
                Err(Errno::NOENT | Errno::NODEV) => {}
                Err(errno) => return Err(self.failed("preparing", "", errno)),
            }
        }
        Err(self.failed("making", "", Errno::AGAIN))
    }

    /// Lets the base delegate its controllers. A cgroup that does so must have no processes of its own, so this process
    /// moves into a leaf first; the real root of a hierarchy is the one exception to that rule.
    fn hand_out_controllers(&self) -> Result<()> {
        let given = file::read(&self.base, "cgroup.subtree_control").unwrap_or_default();
        if self.controllers.split_whitespace().all(|wanted| gives(&given, wanted)) {
            return Ok(());
        }
        if file::exists(&self.base, "cgroup.type") && file::holds(&self.base, std::process::id()) {
            let made = rustix::fs::mkdirat(&self.base, HOST_LEAF, Mode::from_raw_mode(0o755));
            if let Err(errno) = made
                && errno != Errno::EXIST
            {
                return Err(self.failed("making a leaf for ourselves beside", "", errno));
            }
            let leaf = file::open_directory(&self.base, HOST_LEAF)
                .map_err(|errno| self.failed("opening a leaf for ourselves beside", "", errno))?;
            file::set(leaf, "cgroup.procs", "0")?;
        }
        file::set(&self.base, "cgroup.subtree_control", &self.controllers)
    }
}

/// Whether a cgroup's children have the controllers that are wanted, e.g. `+memory +pids`.
pub(super) fn gives(subtree_control: &str, wanted: &str) -> bool {
    let wanted = wanted.trim_start_matches('+');
    subtree_control.split_whitespace().any(|given| given == wanted)
}

/// Removes a cgroup and all below it, deepest first, waiting for processes that are on their way out.
fn remove_tree(parent: impl AsFd, name: &str, deadline: Instant) -> rustix::io::Result<()> {
    let mut pause = Duration::from_micros(100);
    loop {
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NODEV) => return Ok(()),
            Err(Errno::BUSY | Errno::NOTEMPTY) if Instant::now() < deadline => {}
            Err(errno) => return Err(errno),
        }
        if !remove_deepest_first(&parent, name)? {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }
}

/// Removes what can be removed below a cgroup; returns whether anything was. Holds one descriptor at a time and does
/// not recurse, because a box chooses the depth of the tree.
fn remove_deepest_first(parent: impl AsFd, name: &str) -> rustix::io::Result<bool> {
    let mut current = match file::open_directory(parent, name) {
        Ok(directory) => directory,
        Err(Errno::NOENT | Errno::NODEV) => return Ok(true),
        Err(errno) => return Err(errno),
    };
    let mut depth = 0_usize;
    let mut busy: Vec<String> = Vec::new();
    let mut removed = false;
    loop {
        let next = file::children(&current)?.into_iter().find(|child| !busy.contains(child));
        if let Some(child) = next {
            match rustix::fs::unlinkat(&current, child.as_str(), AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT | Errno::NODEV) => removed = true,
                Err(Errno::BUSY | Errno::NOTEMPTY) => {
                    let below = file::open_directory(&current, &child)?;
                    if file::children(&below)?.is_empty() {
                        busy.push(child);
                    } else {
                        current = below;
                        depth += 1;
                        busy.clear();
                    }
                }
                Err(errno) => return Err(errno),
            }
        } else if busy.is_empty() && depth > 0 {
            current = file::open_directory(&current, "..")?;
            depth -= 1;
        } else {
            return Ok(removed);
        }
    }
}
