//! The connection to an engine, and the conversion of its errors.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::errors::Error as EngineError;
use bollard::{ClientVersion, Docker};
use box_core::{Error, Result};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::address::Endpoint;
use crate::config::EngineKind;
use crate::models::{ContainerInspect, ImageInspect};
use crate::transport::Transport;

/// How long an engine may take to begin its answer. Making a container on a busy machine can take tens of seconds.
const ANSWER_SEC_MAX: u64 = 120;

/// How long an engine may take for an answer that costs it nothing. One that takes longer is stopped, or as good as that.
const PING_TIME_MAX: Duration = Duration::from_secs(5);

/// How long an engine that gave no answer is not asked again.
const SILENCE_AGE_MAX: Duration = Duration::from_secs(5);

/// An engine that was reached.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// The client for everything that is not read; making copies of it costs nothing.
    pub(crate) docker: Docker,
    transport: Arc<Transport>,
    /// Its address.
    pub(crate) address: String,
    /// The source of the address.
    pub(crate) source: String,
    /// Which engine it is.
    pub(crate) kind: EngineKind,
    /// When it last gave no answer.
    silent_at: Arc<Mutex<Option<Instant>>>,
}

impl Client {
    /// Reaches the engine at an address and agrees on a version with it.
    pub(crate) async fn connect(kind: EngineKind, endpoint: &Endpoint) -> Result<Self> {
        let Endpoint { address, source, .. } = endpoint;
        let unreachable = |error: EngineError| unavailable(kind, endpoint, &error);
        let transport = Arc::new(Transport::of(kind, endpoint)?);
        let docker = transport.docker(ANSWER_SEC_MAX).map_err(unreachable)?;
        // For its version, Podman looks at all of its containers and waits for each that is busy. So that answer may take long, and
        // whether the engine is there at all is asked first.
        let pong = tokio::time::timeout(PING_TIME_MAX, docker.ping()).await;
        pong.map_err(|_| silent(kind, address))?.map_err(unreachable)?;
        let docker = docker.negotiate_version().await.map_err(unreachable)?;
        Ok(Self {
            docker,
            transport,
            address: address.clone(),
            source: source.clone(),
            kind,
            silent_at: Arc::default(),
        })
    }

    /// Asks the engine whether it is there. A stopped one still accepts connections, so work that takes long begins with this.
    /// After a missing answer the engine is not asked again for a while: callers get the error at once.
    pub(crate) async fn ping(&self) -> Result<()> {
        let silent_at = || self.silent_at.lock().unwrap_or_else(PoisonError::into_inner);
        if silent_at().is_some_and(|at| at.elapsed() < SILENCE_AGE_MAX) {
            return Err(silent(self.kind, &self.address));
        }
        match tokio::time::timeout(PING_TIME_MAX, self.docker.ping()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(unavailable(self.kind, &self.endpoint(), &error)),
            Err(_) => {
                *silent_at() = Some(Instant::now());
                Err(silent(self.kind, &self.address))
            }
        }
    }

    /// Reads an answer to `GET` of a path of the API. `models` says what is read; the rest of the answer is skipped.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> std::result::Result<T, EngineError> {
        let ClientVersion { major_version, minor_version } = self.docker.client_version();
        let asked = self.transport.get(format!("/v{major_version}.{minor_version}{path}"));
        let answered = tokio::time::timeout(Duration::from_secs(ANSWER_SEC_MAX), asked).await;
        let bytes = answered.map_err(|_| EngineError::RequestTimeoutError)??;
        serde_json::from_slice(&bytes)
            .map_err(|error| EngineError::JsonDataError { message: format!("{path}: {error}"), column: error.column() })
    }

    /// What the engine knows of a container.
    pub(crate) async fn inspect_container(&self, name: &str) -> std::result::Result<ContainerInspect, EngineError> {
        self.get(&format!("/containers/{name}/json")).await
    }

    /// What the engine knows of an image.
    pub(crate) async fn inspect_image(&self, name: &str) -> std::result::Result<ImageInspect, EngineError> {
        self.get(&format!("/images/{name}/json")).await
    }

    /// Its address, and the source of that.
    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::new(&self.address, &self.source)
    }

    /// Whether the engine may see other files than we do.
    pub(crate) fn is_remote(&self) -> bool {
        !self.address.starts_with("unix://")
    }

    /// Whether an ordinary user runs the engine. Podman maps ids then, and its older versions do not say so.
    pub(crate) fn belongs_to_a_user(&self) -> bool {
        let socket = self.address.strip_prefix("unix://").map(std::fs::metadata);
        let is_users = |found: std::fs::Metadata| std::os::unix::fs::MetadataExt::uid(&found) != 0;
        self.kind == EngineKind::Podman && socket.and_then(std::result::Result::ok).is_some_and(is_users)
    }

    /// Converts an error of the engine.
    pub(crate) fn explain(&self, step: &str, error: &EngineError) -> Error {
        match error {
            EngineError::DockerResponseServerError { message, .. } => setup(step, message.trim()),
            EngineError::DockerStreamError { error } => setup(step, error.trim()),
            EngineError::JsonDataError { message, .. } => setup(step, &format!("the engine's answer: {message}")),
            other => unavailable(self.kind, &self.endpoint(), other),
        }
    }
}

/// An engine that accepts connections and says nothing.
fn silent(kind: EngineKind, address: &str) -> Error {
    Error::Unavailable {
        what: format!("the {kind} engine"),
        reason: format!("no answer from {address} within {} seconds", PING_TIME_MAX.as_secs()),
        fix: format!("see whether {kind} is stopped or overloaded, and restart it"),
    }
}

/// The status with which an engine refused.
pub(crate) fn status(error: &EngineError) -> Option<u16> {
    match error {
        EngineError::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// An engine that cannot be reached.
pub(crate) fn unavailable(kind: EngineKind, endpoint: &Endpoint, error: &EngineError) -> Error {
    let fix = match kind {
        EngineKind::Docker => "start dockerd, or set DOCKER_HOST or docker.address to where it listens",
        EngineKind::Podman => {
            "start `podman system service`, or set CONTAINER_HOST or podman.address to where it listens"
        }
    };
    Error::Unavailable {
        what: format!("the {kind} engine"),
        reason: format!("cannot connect to {endpoint}: {}", with_causes(error)),
        fix: fix.to_owned(),
    }
}

/// An error with everything that led to it: the connection's own reason is the last.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let told = next.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        cause = next.source();
    }
    text
}

/// A step of making or changing a box that failed.
pub(crate) fn setup(step: &str, reason: &str) -> Error {
    Error::Setup { step: step.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_engine_that_accepts_connections_and_says_nothing_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("engine.sock");
        let _listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let address = format!("unix://{}", socket.display());
        let error = Client::connect(EngineKind::Docker, &Endpoint::new(&address, "a test")).await.unwrap_err();
        assert_eq!(error.code(), "unavailable");
        assert!(error.to_string().contains("no answer from unix://"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_gave_no_answer_is_not_asked_again_for_a_while() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("engine.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let address = format!("unix://{}", socket.display());
        let transport = Transport::of(EngineKind::Docker, &Endpoint::new(&address, "a test")).unwrap();
        let transport = Arc::new(transport);
        let docker = transport.docker(ANSWER_SEC_MAX).unwrap();
        let client = Client {
            docker,
            transport,
            address,
            source: "a test".to_owned(),
            kind: EngineKind::Docker,
            silent_at: Arc::default(),
        };
        assert_eq!(client.ping().await.unwrap_err().code(), "unavailable");
        let asked_at = Instant::now();
        assert!(client.ping().await.unwrap_err().to_string().contains("no answer"));
        assert_eq!(asked_at.elapsed(), Duration::ZERO, "the known error comes at once");
        drop(listener);
        tokio::time::advance(SILENCE_AGE_MAX).await;
        let error = client.ping().await.unwrap_err().to_string();
        assert!(!error.contains("no answer"), "it is asked again: {error}");
    }
}
