//! A Podman service that this process starts if none listens at its usual sockets.
//!
//! It ends after an idle time, so that the service of a killed server does not stay. A live server sends requests now
//! and then to keep it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use box_core::{Error, Result};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::address::Endpoint;
use crate::client::Client;
use crate::config::EngineKind;

/// Idle time after which the service ends.
const IDLE_SEC: u64 = 90;
/// Pause between requests that keep it alive.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// How long it may take to listen. The first start of an ordinary user makes its storage.
const START_WAIT: Duration = Duration::from_secs(30);
/// How often it is looked whether it listens.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The program.
const PROGRAM: &str = "podman";
/// Longest path of a socket.
const SOCKET_BYTES_MAX: usize = 107;

/// A running service. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Service {
    child: Child,
    arguments: Vec<String>,
    socket: PathBuf,
}

impl Service {
    /// Starts a service on a private socket and waits until it answers.
    pub(crate) async fn start(arguments: &[String], socket: PathBuf) -> Result<(Self, Client)> {
        if socket.as_os_str().len() > SOCKET_BYTES_MAX {
            return Err(unavailable(
                &format!("the path of its socket, {}, is too long", socket.display()),
                "choose a shorter state directory, or start the service yourself and set podman.address",
            ));
        }
        let mut service = Self { child: spawn(arguments, &socket)?, arguments: arguments.to_vec(), socket };
        let client = service.answered().await?;
        Ok((service, client))
    }

    /// Keeps the service from ending for want of questions, starts it again when it has ended all the same, and ends it with us.
    pub(crate) async fn tend(mut self, client: Client, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(ASK_EVERY) => drop(client.docker.ping().await),
                status = self.child.wait() => {
                    tracing::warn!(status = ?status.ok(), "the service of podman ended; it is started again");
                    if let Err(error) = self.restart() {
                        tracing::warn!(error = %error, "the service of podman cannot be started again");
                        tokio::time::sleep(ASK_EVERY).await;
                    }
                }
            }
        }
        self.end().await;
    }

    fn restart(&mut self) -> Result<()> {
        self.child = spawn(&self.arguments, &self.socket)?;
        Ok(())
    }

    async fn answered(&mut self) -> Result<Client> {
        let endpoint = own_endpoint(&self.socket);
        let deadline = tokio::time::Instant::now() + START_WAIT;
        loop {
            if let Ok(client) = Client::connect(EngineKind::Podman, &endpoint).await {
                return Ok(client);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                let fix = "run `podman system service` by hand to see why";
                return Err(unavailable(&format!("its service ended at once ({status})"), fix));
            }
            if tokio::time::Instant::now() >= deadline {
                return Err(unavailable("its service does not answer", "run `podman info` to see why"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn end(mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::warn!(error = %error, "the service of podman cannot be ended; it ends by itself in a while");
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn spawn(arguments: &[String], socket: &Path) -> Result<Child> {
    // This process holds the lease of the instance, so an earlier service on this socket is dead or will be.
    let _ = std::fs::remove_file(socket);
    let mut command = Command::new(PROGRAM);
    command.args(arguments).args(["system", "service", "--time"]).arg(IDLE_SEC.to_string());
    command.arg(own_endpoint(socket).address);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => unavailable("it is not installed", "apt-get install podman"),
        _ => Error::io("starting podman", error),
    })
}

/// The address of our service.
fn own_endpoint(socket: &Path) -> Endpoint {
    Endpoint::of_socket(socket, "a service that strongbox started")
}

/// The socket of the private service.
pub(crate) fn socket_of(state: &Path, instance: &str) -> PathBuf {
    state.join(format!("{instance}.sock"))
}

fn unavailable(reason: &str, fix: &str) -> Error {
    Error::Unavailable { what: "podman".to_owned(), reason: reason.to_owned(), fix: fix.to_owned() }
}
