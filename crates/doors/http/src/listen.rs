//! What is listened on.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use tokio::net::{TcpListener, UnixListener};

use crate::Error;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// Listens on an address.
pub(crate) async fn tcp(address: SocketAddr) -> Result<TcpListener, Error> {
    let failed = |error| Error::new(format!("cannot listen on {address}: {error}; choose another with --listen"));
    TcpListener::bind(address).await.map_err(failed)
}

/// A Unix socket and its file. The file is removed with it, unless another server has replaced it.
#[derive(Debug)]
pub(crate) struct UnixDoor {
    pub(crate) listener: UnixListener,
    _file: SocketFile,
}

#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

/// Listens on a Unix socket that only its owner can open. One that was left behind by a dead server is replaced.
pub(crate) fn unix(path: &Path) -> Result<UnixDoor, Error> {
    remove_stale(path)?;
    let failed = |error: std::io::Error| Error::new(format!("cannot listen on {}: {error}", path.display()));
    let listener = bind_private(path).map_err(failed)?;
    let found = std::fs::symlink_metadata(path).map_err(failed)?;
    let file = SocketFile { path: path.to_owned(), identity: (found.dev(), found.ino()) };
    Ok(UnixDoor { listener, _file: file })
}

/// Sets the mode before the socket has a name, so that other users cannot open it even for a moment.
fn bind_private(path: &Path) -> std::io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

fn remove_stale(path: &Path) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::new(format!("{}: {what}", path.display())));
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return refuse("is there and is not a socket; remove it, or choose another path");
    }
    match StdUnixStream::connect(path) {
        Ok(_) => refuse("another server listens there already; stop it, or choose another path"),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            let failed = |error| Error::new(format!("{}: the old socket cannot be removed: {error}", path.display()));
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) => refuse(&format!("cannot check whether another server listens there: {error}")),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), error = %error, "the socket could not be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_owner_can_open_the_socket_and_it_goes_with_the_server() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let door = unix(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(StdUnixStream::connect(&path).is_ok());
        drop(door);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_socket_that_nobody_listens_on_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        assert!(unix(&path).is_ok());
    }

    #[tokio::test]
    async fn what_is_used_or_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let door = unix(&path).unwrap();
        assert!(unix(&path).unwrap_err().to_string().contains("listens there already"));
        drop(door);
        std::fs::write(&path, "precious").unwrap();
        assert!(unix(&path).unwrap_err().to_string().contains("not a socket"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }

    #[tokio::test]
    async fn a_file_that_took_the_place_of_the_socket_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let door = unix(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another").unwrap();
        drop(door);
        assert!(path.exists());
    }
}
