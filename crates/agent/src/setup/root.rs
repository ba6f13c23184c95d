//! Builds the new root and moves into it.

use std::os::fd::OwnedFd;

use box_wire::limits::TERMINALS_MAX;
use box_wire::plan::{Access, Own, Root, Step as PlanStep, Storage as Planned, Tracking};
use box_wire::{GuestPath, Plan, User};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::{Gid, Uid};

use super::charged::Limits;
use super::storage::Stage;
use super::{Descriptors, Failure, Step, mounts};
use crate::snapshot::Storage;

/// The parts of a root under construction.
struct Site {
    /// The file system that holds everything the box owns.
    stage: Stage,
    /// The new root, as a mount inside the stage.
    root: OwnedFd,
    /// Trees of the host, taken as they are used.
    trees: Vec<Option<OwnedFd>>,
    /// Places that must be found read-only at the end.
    read_only: Vec<GuestPath>,
    /// The user of commands.
    workload: User,
    /// The group that may inspect processes of others.
    onlooker: Option<u32>,
}

/// Builds the root, pivots into it and detaches the host. Answers how many mounts were found read-only, as planned, and what is kept of
/// the storage.
pub(super) fn build(
    plan: &Plan,
    descriptors: &mut Descriptors,
    limits: Limits<'_>,
) -> std::result::Result<(u32, Storage), Failure> {
    rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).step("private")?;
    let mut trees = Vec::with_capacity(plan.trees.len());
    for tree in &plan.trees {
        let gathered = mounts::gather(tree, |index| descriptors.take(index).ok());
        trees.push(Some(gathered.step(&format!("tree {tree:?}"))?));
    }
    let storage = match plan.storage {
        Planned::Tmpfs { bytes_max, inodes_max } => mounts::tmpfs(bytes_max, inodes_max, 0o755).step("storage")?,
        Planned::Mount(index) => descriptors.take(index)?,
    };
    let snapshot = plan.snapshot.map(|index| descriptors.take(index)).transpose()?;
    let mut site =
        Site::open(plan, Stage::open(plan, storage, snapshot.map(|archive| (archive, limits)))?, trees).step("root")?;
    for step in &plan.steps {
        site.apply(step).step(&describe(step))?;
    }
    if plan.root_read_only {
        site.seal(&GuestPath::root()).step("root_read_only")?;
    }
    site.move_in().step("pivot")?;
    let read_only = site.count_read_only().step("verify_mounts")?;
    Ok((read_only, site.stage.keep()))
}

impl Site {
    fn open(plan: &Plan, mut stage: Stage, mut trees: Vec<Option<OwnedFd>>) -> Result<Self> {
        let root = match plan.root {
            Root::Empty => stage.root()?,
            Root::Tree(tree) => take_tree(&mut trees, tree)?,
            Root::Overlay(tree) => {
                stage.overlay(&GuestPath::root(), &take_tree(&mut trees, tree)?, None, &Own::default())?
            }
        };
        let access = if matches!(plan.root, Root::Tree(_)) { Access::ReadOnly } else { Access::ReadWrite };
        mounts::restrict(&root, access)?;
        mounts::attach(&root, stage.root_place()?)?;
        Ok(Self { stage, root, trees, read_only: Vec::new(), workload: plan.workload, onlooker: onlooker(plan) })
    }

    fn apply(&mut self, step: &PlanStep) -> Result<()> {
        match step {
            PlanStep::Directory { path, mode, owner } => mounts::make_directory(&self.root, path, *mode, *owner),
            PlanStep::Own { path, owner } => self.own(path, *owner),
            PlanStep::Symlink { path, target } => self.symlink(path, target),
            PlanStep::File { path, mode, contents } => self.file(path, *mode, contents),
            PlanStep::Provide { path, mode, contents } => self.provide(path, *mode, contents),
            PlanStep::Attach { tree, path, access } => {
                let mount = take_tree(&mut self.trees, *tree)?;
                self.mount(&mount, path, *access)
            }
            PlanStep::Program { tree, path, link } => {
                let mount = take_tree(&mut self.trees, *tree)?;
                if_possible(self.mount(&mount, path, Access::ReadOnly).and_then(|()| self.symlink(link, path.as_str())))
            }
            PlanStep::Overlay { tree, shared, path, own } => {
                let lower = take_tree(&mut self.trees, *tree)?;
                let shared = shared.map(|tree| take_tree(&mut self.trees, tree)).transpose()?;
                let mount = self.stage.overlay(path, &lower, shared.as_ref(), own)?;
                self.mount(&mount, path, Access::ReadWrite)
            }
            PlanStep::Writable { path, mode, owner } => {
                let mount = self.stage.writable(path, *mode, *owner)?;
                self.mount(&mount, path, Access::ReadWrite)
            }
            PlanStep::Tmpfs { path, bytes_max, inodes_max, mode, access } => {
                let mount = mounts::tmpfs(*bytes_max, *inodes_max, *mode)?;
                self.mount(&mount, path, *access)
            }
            PlanStep::Proc { path } => {
                // Processes of others can be counted but not looked into.
                let exempt = self.onlooker.map(|group| ("gid", group.to_string()));
                let options: Vec<_> = [("hidepid", "1".to_owned())].into_iter().chain(exempt).collect();
                let mount = mounts::pseudo("proc", &options)?;
                self.mount(&mount, path, Access::ReadWrite)
            }
            PlanStep::Devpts { path } => {
                let owner = self.workload;
                let options = [
                    ("mode", "620".to_owned()),
                    ("ptmxmode", "666".to_owned()),
                    ("uid", owner.uid.to_string()),
                    ("gid", owner.gid.to_string()),
                    ("max", TERMINALS_MAX.to_string()),
                ];
                let mount = mounts::pseudo("devpts", &options)?;
                self.mount(&mount, path, Access::Device)
            }
            PlanStep::Mask { path } => if_there(self.mask(path)),
            PlanStep::Seal { path } => self.seal(path),
            PlanStep::Sysctl { name, value } => {
                // Best effort: not every kernel has every name, and the filter denies what these would.
                let _ = self.set(name, value);
                Ok(())
            }
        }
    }

    fn mount(&mut self, mount: &OwnedFd, path: &GuestPath, access: Access) -> Result<()> {
        let place = mounts::make_place(&self.root, path, mount)?;
        mounts::restrict(mount, access)?;
        mounts::attach(mount, place)?;
        if access == Access::ReadOnly {
            self.read_only.push(path.clone());
        }
        Ok(())
    }

    fn own(&self, path: &GuestPath, owner: User) -> Result<()> {
        let place = mounts::open_target(&self.root, path.relative())?;
        let (user, group) = (Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)));
        rustix::fs::chownat(&place, "", user, group, AtFlags::EMPTY_PATH)
    }

    fn symlink(&self, path: &GuestPath, target: &str) -> Result<()> {
        let (parent, name) = self.parent_of(path)?;
        match rustix::fs::symlinkat(target, &parent, &name) {
            Err(Errno::EXIST) => Ok(()),
            made => made,
        }
    }

    fn file(&self, path: &GuestPath, mode: u32, contents: &[u8]) -> Result<()> {
        let (parent, name) = self.parent_of(path)?;
        // An image's own file or link of this name gives way: what the plan says is what is there.
        match rustix::fs::unlinkat(&parent, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        write_new(&parent, &name, mode, contents)
    }

    fn provide(&self, path: &GuestPath, mode: u32, contents: &[u8]) -> Result<()> {
        let (parent, name) = self.parent_of(path)?;
        match write_new(&parent, &name, mode, contents) {
            Err(Errno::EXIST) if is_empty_file(&parent, &name)? => self.file(path, mode, contents),
            Err(Errno::EXIST) => Ok(()),
            written => written,
        }
    }

    fn parent_of(&self, path: &GuestPath) -> Result<(OwnedFd, String)> {
        let parent = path.parent();
        mounts::make_directory(&self.root, &parent, 0o755, User::ROOT)?;
        Ok((mounts::open_target(&self.root, parent.relative())?, path.name().to_owned()))
    }

    fn mask(&mut self, path: &GuestPath) -> Result<()> {
        let place = mounts::open_target(&self.root, path.relative())?;
        if mounts::is_directory(&place)? {
            let empty = self.stage.empty()?;
            mounts::restrict(&empty, Access::ReadOnly)?;
            mounts::attach(empty, place)?;
            self.read_only.push(path.clone());
            return Ok(());
        }
        let null = mounts::clone_at(&self.root, "dev/null")?;
        mounts::attach(null, place)
    }

    /// Makes an existing mount read-only, and only that one.
    fn seal(&mut self, path: &GuestPath) -> Result<()> {
        let place = mounts::open_target(&self.root, path.relative())?;
        mounts::seal(&place)?;
        self.read_only.push(path.clone());
        Ok(())
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, format!("proc/sys/{name}"), flags, Mode::empty())?;
        rustix::io::write(file, value.as_bytes()).map(drop)
    }

    /// Makes the new root the root and lets go of the host's.
    fn move_in(&mut self) -> Result<()> {
        rustix::process::fchdir(&self.root)?;
        rustix::process::pivot_root(".", ".")?;
        // The old root now lies over the new one; taking it off takes the stage and everything of the host with it.
        rustix::mount::unmount(".", UnmountFlags::DETACH)?;
        rustix::process::chdir("/")
    }

    fn count_read_only(&self) -> Result<u32> {
        let mut count = 0;
        for path in &self.read_only {
            let place = mounts::open_target(&self.root, path.relative())?;
            if !mounts::is_read_only(place)? {
                return Err(Errno::ROFS);
            }
            count += 1;
        }
        Ok(count)
    }
}

/// The agent's group, which must see all processes to find the descendants of an exec if there are no cgroups.
/// Otherwise none, because root of a box may be able to join any group.
fn onlooker(plan: &Plan) -> Option<u32> {
    (plan.tracking == Tracking::Ancestry).then_some(plan.agent.gid)
}

/// Whether a file is empty: a restored box may have had a file mounted there.
fn is_empty_file(parent: &OwnedFd, name: &str) -> Result<bool> {
    let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size == 0)
}

fn write_new(parent: &OwnedFd, name: &str, mode: u32, contents: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(mode))?;
    let mut rest = contents;
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest)?;
        rest = &rest[count..];
    }
    Ok(())
}

fn take_tree(trees: &mut [Option<OwnedFd>], index: u32) -> Result<OwnedFd> {
    let slot = usize::try_from(index).ok().and_then(|index| trees.get_mut(index));
    slot.and_then(Option::take).ok_or(Errno::BADF)
}

fn if_there(done: Result<()>) -> Result<()> {
    match done {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        other => other,
    }
}

/// Ignores failures of a step for which an image need not have a place.
fn if_possible(done: Result<()>) -> Result<()> {
    match done {
        Err(Errno::LOOP | Errno::EXIST | Errno::ISDIR) => Ok(()),
        other => if_there(other),
    }
}

/// A short name of a step for the report.
fn describe(step: &PlanStep) -> String {
    let (verb, path) = match step {
        PlanStep::Directory { path, .. } => ("directory", path.as_str()),
        PlanStep::Own { path, .. } => ("own", path.as_str()),
        PlanStep::Symlink { path, .. } => ("symlink", path.as_str()),
        PlanStep::File { path, .. } | PlanStep::Provide { path, .. } => ("file", path.as_str()),
        PlanStep::Attach { path, .. } => ("mount", path.as_str()),
        PlanStep::Program { path, .. } => ("program", path.as_str()),
        PlanStep::Overlay { path, .. } => ("overlay", path.as_str()),
        PlanStep::Writable { path, .. } => ("writable", path.as_str()),
        PlanStep::Tmpfs { path, .. } => ("tmpfs", path.as_str()),
        PlanStep::Proc { path } => ("proc", path.as_str()),
        PlanStep::Devpts { path } => ("devpts", path.as_str()),
        PlanStep::Mask { path } => ("mask", path.as_str()),
        PlanStep::Seal { path } => ("seal", path.as_str()),
        PlanStep::Sysctl { name, .. } => ("sysctl", name.as_str()),
    };
    format!("{verb} {path}")
}
