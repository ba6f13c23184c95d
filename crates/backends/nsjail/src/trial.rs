//! A jail that does nothing, to see whether one can be made.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use box_core::{Error, Result};
use box_wire::GuestPath;
use box_wire::plan::Access;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Signal, WaitId, WaitIdOptions};

use crate::jail::{IdLine, Jail, Mount};
use crate::launch::{self, Launch, Scene};

/// How long that may take.
const WAIT: Duration = Duration::from_secs(10);

/// What the agent answers when nobody is behind the control socket at which it is sent: it was started, and that is all there is to know.
const NOBODY_THERE: i32 = 2;

/// Makes a jail in which the agent finds nobody, and ends.
pub(crate) fn run(program: &Path) -> Result<()> {
    let launch = Launch { program, config: &jail()?.render(), entrances: Vec::new(), scene: Scene::bare() };
    let launched = launch::launch(launch)?;
    let mut polled = [PollFd::new(&launched.pidfd, PollFlags::IN)];
    let wait = Timespec { tv_sec: i64::try_from(WAIT.as_secs()).unwrap_or(10), tv_nsec: 0 };
    let ended = rustix::event::poll(&mut polled, Some(&wait)).unwrap_or(0);
    if ended == 0 {
        let _ = rustix::process::pidfd_send_signal(&launched.pidfd, Signal::KILL);
    }
    let status = rustix::process::waitid(WaitId::PidFd(launched.pidfd.as_fd()), WaitIdOptions::EXITED);
    let code = status.ok().flatten().and_then(|status| status.exit_status());
    if code == Some(NOBODY_THERE) {
        return Ok(());
    }
    Err(Error::Setup { step: "nsjail".to_owned(), reason: launched.log.reason() })
}

fn jail() -> Result<Jail> {
    let path = |text: &str| GuestPath::parse("path", text);
    // Any id but root's will do for one that is gone at once; an ordinary user has only one.
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let someone = |own: u32| if own == 0 { box_host::WORKSPACE_OWNER } else { own };
    let line = |outside: u32| vec![IdLine { inside: 0, outside, count: 1 }];
    let small =
        Mount::Tmpfs { target: path("/tmp")?, bytes_max: 4096, inodes_max: 4, mode: 0o1777, access: Access::ReadWrite };
    Ok(Jail {
        hostname: "trial".to_owned(),
        users: line(someone(uid.as_raw())),
        groups: line(someone(gid.as_raw())),
        mounts: vec![Mount::Processes(path("/proc")?), small],
        control_socket: path("/tmp/nobody")?,
    })
}
