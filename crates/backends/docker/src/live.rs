//! Boxes that this process knows, and how their agents are dialed.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use box_core::{AgentStream, Result};
use box_host::live;
use box_host::process::Process;
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::remote;

/// What finds a box again: stored in its handle, opaque to other code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Locator {
    /// The engine's id of the container.
    pub(crate) container: String,
    /// Its first process, where it can be seen from here.
    pub(crate) agent: Option<Process>,
}

/// A box that this process knows.
#[derive(Debug)]
pub(crate) struct LiveBox {
    /// The engine's id of the container.
    pub(crate) container: String,
    pub(crate) link: Link,
    /// Held while the box is to die with us.
    pub(crate) _lifeline: Option<Lifeline>,
}

/// How the agent is reached.
#[derive(Debug)]
pub(crate) enum Link {
    /// By its socket in the box's directory on the host.
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

/// The connection by which an agent knows that its server lives.
#[derive(Debug)]
pub(crate) enum Lifeline {
    /// The socket of its setup.
    Socket(#[expect(dead_code, reason = "closed when it is dropped")] UnixStream),
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

    /// Whether the agent answers. Dialing is the check, because a process that is being torn down exists for a while
    /// longer.
    pub(crate) async fn is_running(&self, client: &Client) -> bool {
        match &self.link {
            Link::Shared { directory, .. } => live::answers(directory),
            Link::Remote => remote::is_running(client, &self.container).await,
        }
    }

    /// A stream to the agent.
    pub(crate) async fn dial(&self, client: &Client) -> Result<AgentStream> {
        match &self.link {
            Link::Shared { directory, .. } => live::dial(directory).await,
            Link::Remote => remote::dial(client, &self.container).await,
        }
    }
}
