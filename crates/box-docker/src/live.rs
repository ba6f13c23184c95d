//! Boxes that this process knows, and how their agents are dialled.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::Mutex;

use box_core::{AgentStream, Error, Result};
use box_host::handover;
use box_host::process::Process;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use crate::client::Client;
use crate::remote;

/// What finds a box again: written into its handle, and understood by nobody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Locator {
    /// What the engine calls the container.
    pub(crate) container: String,
    /// Its first process, where it can be seen from here.
    pub(crate) agent: Option<Process>,
}

/// A box that this process knows.
#[derive(Debug)]
pub(crate) struct LiveBox {
    /// What the engine calls its container.
    pub(crate) container: String,
    pub(crate) link: Link,
    /// Held while the box is to die with us.
    pub(crate) _lifeline: Option<Lifeline>,
}

/// How the agent is reached.
#[derive(Debug)]
pub(crate) enum Link {
    /// By its socket in a directory of ours.
    Shared {
        /// The box's directory.
        directory: OwnedFd,
        /// The agent's process.
        pidfd: OwnedFd,
        /// Its number and start time.
        agent: Process,
    },
    /// Through the engine.
    Remote,
}

/// What tells an agent that its maker lives.
#[derive(Debug)]
pub(crate) enum Lifeline {
    /// The socket over which it was told what to be.
    Socket(#[expect(dead_code, reason = "closed when it is dropped")] BlockingStream),
    /// Its standard input, through the engine.
    Stream(#[expect(dead_code, reason = "closed when it is dropped")] Mutex<remote::Attached>),
}

impl LiveBox {
    /// The first process, where it can be seen from here.
    pub(crate) fn agent(&self) -> Option<Process> {
        match &self.link {
            Link::Shared { agent, .. } => Some(*agent),
            Link::Remote => None,
        }
    }

    /// Whether somebody still answers. Asked by dialling: a process that is being torn down exists for a while longer.
    pub(crate) async fn is_running(&self, client: &Client) -> bool {
        match &self.link {
            Link::Shared { directory, .. } => BlockingStream::connect(socket(directory)).is_ok(),
            Link::Remote => remote::is_running(client, &self.container).await,
        }
    }

    /// A stream to the agent.
    pub(crate) async fn dial(&self, client: &Client) -> Result<AgentStream> {
        let Link::Shared { directory, .. } = &self.link else { return remote::dial(client, &self.container).await };
        let stream = UnixStream::connect(socket(directory)).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => Error::Gone { reason: "its agent is not listening".to_owned() },
            _ => Error::io("dialling the agent", error),
        })?;
        Ok(AgentStream::new(stream))
    }
}

/// The agent's socket, by way of the descriptor, because a socket's path may only have 107 bytes.
fn socket(directory: &OwnedFd) -> String {
    format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), handover::SOCKET)
}
