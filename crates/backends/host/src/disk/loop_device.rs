//! Loop devices that go by themselves.

#![expect(unsafe_code, reason = "loop devices are set up by ioctl")]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use box_core::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// `LOOP_CTL_GET_FREE`: says which device is free, and makes one if none is.
const GET_FREE: libc::Ioctl = 0x4c82;
/// `LOOP_CONFIGURE`: binds a file and sets everything in one step.
const CONFIGURE: libc::Ioctl = 0x4c0a;
/// `LO_FLAGS_AUTOCLEAR`: unbind when the last user closes the device.
const AUTOCLEAR: u32 = 4;
/// How often another process may take the free device before we do.
const RACES_MAX: usize = 1000;

/// A loop device that is bound as long as this or a mount of it exists.
#[derive(Debug)]
pub(super) struct LoopDevice {
    /// Its node.
    pub(super) path: String,
    /// Keeps it bound until it is mounted.
    _open: OwnedFd,
}

/// `struct loop_info64` of the kernel.
#[repr(C)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of the kernel.
#[repr(C)]
struct Config {
    file: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

/// Binds a file to a free device.
pub(super) fn attach(image: BorrowedFd<'_>) -> Result<LoopDevice> {
    let control = rustix::fs::open("/dev/loop-control", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| unavailable("/dev/loop-control", errno))?;
    let config = config(image)?;
    for _ in 0..RACES_MAX {
        // SAFETY: the call takes no argument and returns a number.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), GET_FREE) };
        if number < 0 {
            return Err(unavailable("a free loop device", last_errno()));
        }
        let path = format!("/dev/loop{number}");
        let device = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| unavailable(&path, errno))?;
        // SAFETY: the kernel reads one `loop_config`, which has its layout and lives until the call returns.
        let configured = unsafe { libc::ioctl(device.as_raw_fd(), CONFIGURE, &raw const config) };
        match (configured, last_errno()) {
            (0, _) => return Ok(LoopDevice { path, _open: device }),
            (_, Errno::BUSY) => {}
            (_, errno) => return Err(Error::io(format!("binding a disk image to {path}"), errno)),
        }
    }
    Err(unavailable("a free loop device", Errno::BUSY))
}

fn config(image: BorrowedFd<'_>) -> Result<Config> {
    let file = u32::try_from(image.as_raw_fd()).map_err(|_| Error::io("binding a disk image", Errno::BADF))?;
    let info = Info {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: AUTOCLEAR,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    Ok(Config { file, block_size: 0, info, reserved: [0; 8] })
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn unavailable(what: &str, errno: Errno) -> Error {
    Error::MissingFacility {
        what: "a disk image".to_owned(),
        reason: format!("{what}: {errno}"),
        fix: "as root: modprobe loop, or let the box keep its files in memory".to_owned(),
    }
}
