//! Waits for the agent of a container that was started, and makes sure of who it is.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use box_core::{Error, Result};
use box_host::blocking;
use box_host::control_socket::ControlSocket;
use box_host::process::Process;

use crate::backend::Inner;
use crate::client::setup;
use crate::create;

/// How long a container that was started may take until its agent connects. Real ones take milliseconds.
const KNOCK_WAIT: Duration = Duration::from_secs(30);

/// How long is waited before it is looked whether there still is hope.
const HOPE_WAIT: Duration = Duration::from_secs(1);

/// An agent that connected.
#[derive(Debug)]
pub(crate) struct ConnectedAgent {
    /// The conversation with it.
    pub(crate) control: UnixStream,
    /// The first process of the container.
    pub(crate) agent: Process,
    pub(crate) pidfd: OwnedFd,
    /// Its user, as this machine's kernel knows it.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
}

/// Waits until the first process of a container connects. Everybody else is turned away.
pub(crate) async fn wait(inner: &Inner, container: &str, control_socket: ControlSocket) -> Result<ConnectedAgent> {
    let control_socket = Arc::new(control_socket);
    let deadline = tokio::time::Instant::now() + KNOCK_WAIT;
    loop {
        let agent = first_process(inner, container).await?;
        let waiting = Arc::clone(&control_socket);
        let connected = blocking(move || waiting.accept(HOPE_WAIT, Some(agent.pid))).await;
        match connected {
            Ok(control) => return identify(control, agent),
            Err(Error::Setup { .. }) if tokio::time::Instant::now() < deadline => {}
            Err(error) => return Err(error),
        }
    }
}

/// The first process of a running container, as the engine reports it.
async fn first_process(inner: &Inner, container: &str) -> Result<Process> {
    let state = create::inspect(inner, container).await?.state.unwrap_or_default();
    let pid = state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid > 0);
    let running = state.running.unwrap_or(false);
    match pid.and_then(Process::of) {
        Some(process) if running => Ok(process),
        None if running => {
            Err(setup("verify", "the engine's processes cannot be seen from here; does it run on this machine?"))
        }
        _ => {
            let code = state.exit_code.unwrap_or_default();
            Err(setup("container", &format!("it ended with code {code} before its agent connected")))
        }
    }
}

fn identify(control: UnixStream, agent: Process) -> Result<ConnectedAgent> {
    let peer =
        rustix::net::sockopt::socket_peercred(&control).map_err(|error| Error::io("asking who knocked", error))?;
    let (uid, gid) = (peer.uid.as_raw(), peer.gid.as_raw());
    if uid == 0 || gid == 0 {
        return Err(setup("verify", "the container runs as the host's root"));
    }
    let pidfd = agent.open().ok_or_else(|| setup("agent", "it ended while it was being started"))?;
    Ok(ConnectedAgent { control, agent, pidfd, uid, gid })
}
