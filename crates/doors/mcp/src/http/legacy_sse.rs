//! The two-way scheme of 2024-11-05: a client opens a stream of events, is told where to post its messages, and hears the answers on the
//! stream. A session lives as long as its stream.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{OriginalUri, Request};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use box_core::tasks::Start as _;
use futures_util::stream::{self, StreamExt};
use http::StatusCode;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{RoleServer, ServerHandler};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::identity::Owner;
use super::{KEEP_ALIVE, MESSAGE_BYTES_MAX, refuse};
use crate::random::unguessable;

/// Most sessions of all callers together. They are of a kind that dies out.
const SESSIONS_MAX: usize = 1000;
/// Most messages that wait, in each direction.
const WAITING_MAX: usize = 64;
/// Longest that a message waits for its turn.
const POST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest that a client may take to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_mins(1);

/// All sessions of this kind.
#[derive(Debug)]
pub(super) struct LegacySse {
    boxes: Arc<Mutex<HashMap<String, LegacySession>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Where messages of a client go.
#[derive(Debug, Clone)]
struct LegacySession {
    owner: Owner,
    messages: mpsc::Sender<ClientJsonRpcMessage>,
}

impl LegacySse {
    pub(super) fn new(tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self { boxes: Arc::default(), tasks, stop }
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.boxes).len()
    }

    /// Opens a stream, and serves its client until the stream ends.
    pub(super) fn open<S: ServerHandler>(&self, owner: Owner, handler: S, request: &Request) -> Response {
        if self.count() >= SESSIONS_MAX {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many clients are connected; try again later");
        }
        let Ok(name) = unguessable() else {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "a session could not be named");
        };
        let (messages, incoming) = mpsc::channel(WAITING_MAX);
        let (outgoing, answers) = mpsc::channel(WAITING_MAX);
        let gone = self.stop.child_token();
        lock(&self.boxes).insert(name.clone(), LegacySession { owner, messages });
        let wire = Wire { incoming, outgoing, gone: gone.clone() };
        let leaving = Leaving { boxes: Arc::clone(&self.boxes), name: name.clone(), gone };
        self.tasks.start(serve(handler, wire));
        let endpoint = Event::default().event("endpoint").data(address_of(request, &name));
        let events = stream::once(async move { endpoint }).chain(stream::unfold((answers, leaving), next_event));
        let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
        Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(keep_alive).into_response()
    }

    /// Takes a message of a client.
    pub(super) async fn post(&self, owner: &Owner, name: &str, request: Request) -> Response {
        let legacy_session =
            lock(&self.boxes).get(name).filter(|legacy_session| legacy_session.owner == *owner).cloned();
        let Some(legacy_session) = legacy_session else {
            return refuse(StatusCode::NOT_FOUND, "there is no such session");
        };
        let Ok(body) = to_bytes(request.into_body(), MESSAGE_BYTES_MAX).await else {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the message is longer than 16 MiB, or broke off");
        };
        let Ok(message) = serde_json::from_slice(&body) else {
            return refuse(StatusCode::BAD_REQUEST, "the body is no message of MCP");
        };
        match legacy_session.messages.send_timeout(message, POST_TIMEOUT).await {
            Ok(()) => StatusCode::ACCEPTED.into_response(),
            Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "the session does not take messages; open a new one"),
        }
    }
}

/// Serves a client until its stream ends.
async fn serve<S: ServerHandler>(handler: S, wire: Wire) {
    let gone = wire.gone.clone();
    let begun = tokio::time::timeout(BEGIN_TIMEOUT, rmcp::serve_server(handler, wire)).await;
    if let Ok(Ok(running)) = begun {
        drop(running.waiting().await);
    }
    gone.cancel();
}

/// Where the client posts: the address that it opened, as it wrote it, because we may be mounted below another one, and because what
/// it asked there holds for all of its session.
fn address_of(request: &Request, name: &str) -> String {
    let original = request.extensions().get::<OriginalUri>().map_or_else(|| request.uri(), |original| &original.0);
    let asked = original.query().into_iter().flat_map(|query| query.split('&'));
    let kept = asked.filter(|pair| !pair.is_empty() && !pair.starts_with("session_id="));
    let session = format!("session_id={name}");
    format!("{}?{}", original.path(), kept.chain([session.as_str()]).collect::<Vec<_>>().join("&"))
}

async fn next_event(
    (mut answers, leaving): (mpsc::Receiver<ServerJsonRpcMessage>, Leaving),
) -> Option<(Event, (mpsc::Receiver<ServerJsonRpcMessage>, Leaving))> {
    let message = tokio::select! {
        biased;
        message = answers.recv() => message?,
        () = leaving.gone.cancelled() => return None,
    };
    let text = serde_json::to_string(&message).ok()?;
    Some((Event::default().event("message").data(text), (answers, leaving)))
}

/// Ends a session with its stream.
#[derive(Debug)]
struct Leaving {
    boxes: Arc<Mutex<HashMap<String, LegacySession>>>,
    name: String,
    gone: CancellationToken,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        lock(&self.boxes).remove(&self.name);
        self.gone.cancel();
    }
}

/// The session's end of both directions.
#[derive(Debug)]
struct Wire {
    incoming: mpsc::Receiver<ClientJsonRpcMessage>,
    outgoing: mpsc::Sender<ServerJsonRpcMessage>,
    gone: CancellationToken,
}

impl Transport<RoleServer> for Wire {
    type Error = std::io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move { outgoing.send(message).await.map_err(|_| std::io::ErrorKind::BrokenPipe.into()) }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        tokio::select! {
            message = self.incoming.recv() => message,
            () = self.gone.cancelled() => None,
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.gone.cancel();
        Ok(())
    }
}

fn lock(boxes: &Mutex<HashMap<String, LegacySession>>) -> MutexGuard<'_, HashMap<String, LegacySession>> {
    boxes.lock().unwrap_or_else(PoisonError::into_inner)
}
