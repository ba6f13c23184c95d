//! Stands between a server's transport and rmcp, and sees every message in its order.
//!
//! rmcp handles each notification in a task of its own, so that progress could overtake the answer or other progress, and so many
//! tasks could be made as a server likes. What is here takes them off the stream instead, without waiting for anybody.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, GetExtensions, GetMeta, JsonRpcMessage, ProgressToken, RequestId, RequestMetaObject,
    ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::Transport;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::any_transport::{AnyTransport, TransportError};
use super::calls::Marked;
use super::wire::Wire;

/// Where a request carries its token of progress.
const PROGRESS_TOKEN: &str = "progressToken";

/// Most requests of a server that wait for our answer. Beyond them it is not read: rmcp makes a task of each, and one more of each answer that
/// the server does not take.
const ASKED_MAX: usize = 256;

/// A transport whose messages are looked at.
#[derive(Debug)]
pub(super) struct Interceptor {
    transport: AnyTransport,
    wire: Arc<Wire>,
    room: Room,
    /// Room for the next request, before it is read: nothing that was read may be lost when the reading is interrupted.
    reserved: Option<OwnedSemaphorePermit>,
}

/// Room for requests of a server.
#[derive(Debug)]
struct Room {
    free: Arc<Semaphore>,
    taken: Mutex<HashSet<RequestId>>,
}

impl Room {
    /// A request takes the room that was reserved for it. One with the id of another that waits gets none: it could not be answered.
    fn take(&self, id: &RequestId, reserved: &mut Option<OwnedSemaphorePermit>) -> bool {
        let new = self.lock().insert(id.clone());
        if let Some(reserved) = reserved.take_if(|_| new) {
            reserved.forget();
        }
        new
    }

    /// The answer is about to be sent, and needs the room of its request until then. From here on the request cannot be taken back.
    fn answering(&self, id: Option<&RequestId>) -> bool {
        id.is_some_and(|id| self.lock().remove(id))
    }

    /// The server does not wait for the answer any more, and there will be none.
    fn taken_back(&self, id: Option<&RequestId>) {
        if self.answering(id) {
            self.free.add_permits(1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interceptor {
    pub(super) fn new(transport: AnyTransport, wire: Arc<Wire>) -> Self {
        let room = Room { free: Arc::new(Semaphore::new(ASKED_MAX)), taken: Mutex::default() };
        Self { transport, wire, room, reserved: None }
    }
}

impl Transport<RoleClient> for Interceptor {
    type Error = TransportError;

    fn send(
        &mut self,
        mut message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &mut message {
            JsonRpcMessage::Request(request) => {
                leaving(&self.wire, &request.id, &mut request.request);
                None
            }
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Notification(_) => None,
        };
        let has_room = self.room.answering(answered.as_ref());
        let free = Arc::clone(&self.room.free);
        let sending = self.transport.send(message);
        async move {
            let sent = sending.await;
            if has_room {
                free.add_permits(1);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if self.reserved.is_none() {
                self.reserved = Arc::clone(&self.room.free).acquire_owned().await.ok();
            }
            let Some(message) = self.transport.receive().await else {
                self.wire.closed.cancel();
                return None;
            };
            let notification = match message {
                JsonRpcMessage::Notification(notification) => notification,
                JsonRpcMessage::Request(request) => {
                    if self.room.take(&request.id, &mut self.reserved) {
                        return Some(JsonRpcMessage::Request(request));
                    }
                    continue;
                }
                answer => return Some(answer),
            };
            if let ServerNotification::CancelledNotification(cancelled) = &notification.notification {
                self.room.taken_back(cancelled.params.request_id.as_ref());
                return Some(JsonRpcMessage::Notification(notification));
            }
            // The subscriber waits for this one, and it comes once.
            if matches!(notification.notification, ServerNotification::SubscriptionsAcknowledgedNotification(_)) {
                return Some(JsonRpcMessage::Notification(notification));
            }
            self.wire.arrived(notification.notification);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.wire.closed.cancel();
        self.transport.close().await
    }
}

/// Lists a call before its first byte is sent. rmcp gives every request a token; a server whose client did not ask for progress need not
/// make any.
fn leaving<R>(wire: &Wire, id: &RequestId, request: &mut R)
where
    R: GetExtensions + GetMeta<Metadata = RequestMetaObject>,
{
    let call = request.extensions_mut().remove::<Marked>();
    let token: Option<ProgressToken> = request.get_meta().get_progress_token();
    let wanted = call.as_ref().is_some_and(|Marked(call)| call.wants_progress);
    if let (Some(Marked(call)), Some(token)) = (call, token) {
        wire.calls.list(id, token, &call);
    }
    if !wanted {
        request.get_meta_mut().0.0.remove(PROGRESS_TOKEN);
    }
    if request.get_meta().0.0.is_empty() {
        request.extensions_mut().remove::<RequestMetaObject>();
    }
}
