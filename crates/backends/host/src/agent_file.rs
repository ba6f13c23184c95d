//! The agent as a file: for engines that need a path, and for boxes of root, so that a process that makes one box does
//! not first copy the agent into memory.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use box_core::{Error, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;

use crate::instance::{self, State};

/// Every user may execute it, none may change it.
const FILE_MODE: u32 = 0o555;

/// The file that holds the agent, written when it is not there yet or holds anything else. Those of other versions are left alone:
/// boxes may live that were started from them.
pub fn agent_file(state: &State) -> Result<PathBuf> {
    let name = box_agent_image::name();
    let path = state.path.join(&name);
    let failed = |error: Errno| Error::io(format!("writing the agent to {}", path.display()), error);
    let directory = instance::open_directory(CWD, &state.path).map_err(failed)?;
    let _guard = instance::guard(state)?;
    if !holds_agent(&directory, &name).map_err(failed)? {
        write(&directory, &name).map_err(failed)?;
    }
    Ok(path)
}

/// The program that boxes are started from.
///
/// A box can reach the file that its first process was executed from (`/proc/1/exe`). For root that is the file in the state
/// directory: it is read-only and belongs to root, whose id no box has. An ordinary user's boxes have that user's own id, so
/// they start from a sealed file in memory; so do root's where the state directory is mounted `noexec`.
pub fn agent_program(state: &State) -> Result<OwnedFd> {
    if rustix::process::geteuid().is_root() {
        match executable_file(state) {
            Ok(Some(file)) => return Ok(file),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(error = %error, "failed to store the agent; boxes start from a copy in memory");
            }
        }
    }
    let sealed = box_agent_image::sealed().and_then(|sealed| sealed.try_clone_to_owned());
    sealed.map_err(|error| Error::io("preparing the agent", error))
}

/// The same file for boxes that show it as a program; none where it could not be executed.
pub fn agent_for_boxes(state_dir: &Path) -> Result<Option<PathBuf>> {
    let state = State::open(state_dir)?;
    Ok(executable_file(&state)?.map(|_| state.path.join(box_agent_image::name())))
}

/// The agent's file, written if need be; none where it cannot be executed.
fn executable_file(state: &State) -> Result<Option<OwnedFd>> {
    let failed = |error: Errno| Error::io(format!("opening the agent in {}", state.path.display()), error);
    let directory = instance::open_directory(CWD, &state.path).map_err(failed)?;
    if rustix::fs::fstatvfs(&directory).map_err(failed)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Ok(None);
    }
    let name = box_agent_image::name();
    // Only root writes to the directory, and only complete files get this name, so comparing the size is enough.
    if let Some(file) = open_fitting(&directory, &name).map_err(failed)? {
        return Ok(Some(file));
    }
    agent_file(state)?;
    open_fitting(&directory, &name).map_err(failed)
}

/// Opens the file of this name, if it is a read-only regular file of this user and has the agent's size.
fn open_fitting(directory: &OwnedFd, name: &str) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS) => return Ok(None),
        Err(error) => return Err(error),
    };
    let stat = rustix::fs::fstat(&file)?;
    let fits = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mode & 0o7777 == FILE_MODE
        && stat.st_uid == rustix::process::geteuid().as_raw()
        && u64::try_from(stat.st_size) == Ok(box_agent_image::AGENT.len() as u64);
    Ok(fits.then_some(file))
}

/// Whether the file of this name holds exactly the agent.
fn holds_agent(directory: &OwnedFd, name: &str) -> rustix::io::Result<bool> {
    let Some(file) = open_fitting(directory, name)? else { return Ok(false) };
    let agent = box_agent_image::AGENT;
    let mut found = vec![0; agent.len()];
    let mut filled = 0;
    while filled < found.len() {
        match rustix::io::read(&file, &mut found[filled..])? {
            0 => return Ok(false),
            count => filled += count,
        }
    }
    Ok(found == agent)
}

/// Writes a temporary file and renames it. The caller holds the lock, so an existing partial file is a leftover.
fn write(directory: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    let partial = format!(".{name}.partial");
    match rustix::fs::unlinkat(directory, &partial, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, &partial, flags, Mode::from_raw_mode(0o600))?;
    let mut rest = box_agent_image::AGENT;
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest)?;
        rest = &rest[count..];
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(FILE_MODE))?;
    rustix::fs::fsync(&file)?;
    rustix::fs::renameat(directory, &partial, directory, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn the_agent_is_written_once_and_others_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        let older = directory.path().join("agent-0123456789abcdef");
        fs::write(&older, "an older one").unwrap();
        let path = agent_file(&state).unwrap();
        let made = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), box_agent_image::AGENT);
        assert_eq!(made.mode() & 0o7777, 0o555);
        assert_eq!(agent_file(&state).unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), made.ino(), "not written again");
        assert_eq!(fs::read(&older).unwrap(), b"an older one");
        let ends = std::process::Command::new(&path).arg("attach").stdin(std::process::Stdio::null()).status().unwrap();
        assert_eq!(ends.code(), Some(3), "it runs, and waits for no word that never comes");
    }

    #[test]
    fn the_program_of_boxes_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        for _ in 0..2 {
            let program = agent_program(&state).unwrap();
            assert!(rustix::io::pwrite(&program, b"x", 0).is_err());
            let mut found = vec![0; box_agent_image::AGENT.len()];
            assert_eq!(rustix::io::pread(&program, &mut found, 0).unwrap(), found.len());
            assert_eq!(found, box_agent_image::AGENT);
        }
    }

    #[test]
    fn whatever_is_not_the_agent_gives_way() {
        let directory = tempfile::tempdir().unwrap();
        let state = State::open(directory.path()).unwrap();
        let path = agent_file(&state).unwrap();
        let outside = directory.path().join("outside");
        fs::write(&outside, "not ours").unwrap();
        let spoil: [&dyn Fn(); 4] = [
            &|| {
                let mut wrong = box_agent_image::AGENT.to_vec();
                *wrong.last_mut().unwrap() ^= 1;
                fs::write(&path, wrong).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
            },
            &|| fs::write(&path, "short").unwrap(),
            &|| symlink(&outside, &path).unwrap(),
            &|| {
                fs::write(&path, box_agent_image::AGENT).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            },
        ];
        for (index, spoil) in spoil.iter().enumerate() {
            fs::remove_file(&path).unwrap();
            spoil();
            agent_file(&state).unwrap();
            let made = fs::symlink_metadata(&path).unwrap();
            assert!(made.is_file() && made.mode() & 0o7777 == 0o555, "{index}");
            assert_eq!(fs::read(&path).unwrap(), box_agent_image::AGENT, "{index}");
        }
        assert_eq!(fs::read(&outside).unwrap(), b"not ours");
        let partial =
            |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().contains("partial");
        assert!(!fs::read_dir(directory.path()).unwrap().any(partial));
    }
}
