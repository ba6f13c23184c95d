//! One connection: requests are carried out at once, and each is answered when it is done.
//!
//! A client that does not read its replies is soon not read from either: a few replies wait to be sent, further
//! requests wait with theirs, and once all requests are in progress the next message is read only when one is answered.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use box_core::tasks::Start as _;
use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::envelope::{Incoming, Reply, Request};
use super::fault::{Class, Fault};
use super::{Connection, LangBot};
use crate::limits;

/// A source of messages.
pub(super) trait MessageReader: Send {
    /// How it can end.
    type End: Send;

    /// The next message, or the end of all.
    fn read_message(&mut self) -> impl Future<Output = Result<String, Self::End>> + Send;
}

/// A target for messages.
pub(super) trait MessageWriter: Send {
    /// Sends a message. The error means that the client is gone.
    fn write_message(&mut self, text: String) -> impl Future<Output = Result<(), Gone>> + Send;
}

/// Carries out requests.
pub(super) trait Clerk: Clone + Send + Sync + 'static {
    /// Carries a request out. Nothing when it must not be answered any more.
    fn answer(&self, connection: &Connection, request: Request) -> impl Future<Output = Option<Reply>> + Send;

    /// Those that are being carried out.
    fn tasks(&self) -> &TaskTracker;

    /// Fires when they are not waited for any more.
    fn abort(&self) -> &CancellationToken;
}

impl Clerk for LangBot {
    async fn answer(&self, connection: &Connection, request: Request) -> Option<Reply> {
        Self::answer(self, connection, request).await
    }

    fn tasks(&self) -> &TaskTracker {
        Self::tasks(self)
    }

    fn abort(&self) -> &CancellationToken {
        Self::abort(self)
    }
}

/// The client is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// How a conversation ended.
pub(super) enum Ended<E> {
    /// The client did something; there may be replies left, or some may yet come.
    Heard(E, mpsc::Receiver<String>),
    /// The client takes no replies any more.
    Gone,
}

/// Answers requests until no more come. Those that are being carried out go on.
pub(super) async fn converse<E: MessageReader>(
    clerk: &impl Clerk,
    connection: Connection,
    incoming: &mut E,
    outgoing: &mut impl MessageWriter,
) -> Ended<E::End> {
    let (replies, mut waiting) = mpsc::channel(limits::RPC_REPLIES_WAITING_MAX);
    let desk = Desk {
        clerk: clerk.clone(),
        connection: Arc::new(connection),
        replies,
        places: Arc::new(Semaphore::new(limits::RPC_REQUESTS_MAX)),
        bytes: Arc::new(Semaphore::new(limits::RPC_REQUEST_BYTES_MAX)),
    };
    tokio::select! {
        end = desk.listen(incoming) => Ended::Heard(end, waiting),
        () = write_messages(outgoing, &mut waiting) => Ended::Gone,
    }
}

/// Sends replies until there are no more, or the client is gone.
pub(super) async fn write_messages(outgoing: &mut impl MessageWriter, waiting: &mut mpsc::Receiver<String>) {
    while let Some(text) = waiting.recv().await {
        if outgoing.write_message(text).await.is_err() {
            return;
        }
    }
}

/// Accepts requests, within the limits of the connection.
struct Desk<C> {
    clerk: C,
    connection: Arc<Connection>,
    replies: mpsc::Sender<String>,
    places: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

impl<C: Clerk> Desk<C> {
    async fn listen<E: MessageReader>(self, incoming: &mut E) -> E::End {
        loop {
            let text = match incoming.read_message().await {
                Ok(text) => text,
                Err(end) => return end,
            };
            match Incoming::parse(&text) {
                Incoming::Request(request) => self.take(request, text.len()).await,
                Incoming::Refused(reply) => self.reply(reply).await,
                Incoming::Ignored => {
                    tracing::debug!(message.bytes = text.len(), "ignored a message that is not a request");
                }
            }
        }
    }

    async fn take(&self, request: Request, bytes: usize) {
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => {
                let held = self.room_for(bytes).await;
                self.begin(request, (place, held));
            }
            Err(_) => self.reply(Reply::busy(request.seq_id, limits::RPC_REQUESTS_MAX)).await,
        }
    }

    /// Waits until the requests that are being carried out leave room for a long one.
    async fn room_for(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes < limits::RPC_LONG_REQUEST_BYTES {
            return None;
        }
        let count = u32::try_from(bytes.min(limits::RPC_REQUEST_BYTES_MAX)).unwrap_or(u32::MAX);
        // It is never closed.
        Arc::clone(&self.bytes).acquire_many_owned(count).await.ok()
    }

    fn begin(&self, request: Request, held: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>)) {
        let (clerk, connection, replies) = (self.clerk.clone(), Arc::clone(&self.connection), self.replies.clone());
        let abort = self.clerk.abort().clone();
        self.clerk.tasks().start(async move {
            let answered = abort.run_until_cancelled(answer(&clerk, &connection, request)).await;
            if let Some(reply) = answered.flatten() {
                // A client that is gone does not need it.
                drop(replies.send(reply.into_text(connection.reply_bytes_max)).await);
            }
            drop(held);
        });
    }

    async fn reply(&self, reply: Reply) {
        // As above.
        drop(self.replies.send(reply.into_text(self.connection.reply_bytes_max)).await);
    }
}

/// Carries a request out. One that panics is answered like any that fails, so that the client does not wait for it.
async fn answer(clerk: &impl Clerk, connection: &Connection, request: Request) -> Option<Reply> {
    let (seq_id, action) = (request.seq_id, shown(&request.action));
    let answered = AssertUnwindSafe(clerk.answer(connection, request)).catch_unwind().await;
    let reply = answered.unwrap_or_else(|_| {
        tracing::error!(action, "an action panicked");
        let fault = Fault::new(Class::Box, "the action failed unexpectedly; the server's log says more");
        Some(Reply::failure(seq_id, &fault))
    });
    tracing::debug!(action, code = reply.as_ref().map(|reply| reply.code), "an action was answered");
    reply
}

/// As much of a stranger's word as belongs into a log.
fn shown(action: &str) -> String {
    action.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
