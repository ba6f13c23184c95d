//! Calls that are on their way to a server: to whom its progress belongs, and who is to answer when it asks something.
//!
//! One server serves many clients over one connection, and the protocol does not say for which call it asks. So a question goes to a
//! client only when it is certain that it is the right one: when the transport tells (HTTP does), or when all calls on their way are that
//! client's. In doubt the server is refused: an answer of the wrong person is worse than none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rmcp::ErrorData;
use rmcp::model::{ClientResult, ProgressNotificationParam, ProgressToken, RequestId, ServerRequest};
use tokio::sync::{mpsc, oneshot};

use crate::text::clean_option;

/// Most messages that wait for the client of one call. Progress beyond it is dropped; only the newest matters.
const WAITING_MAX: usize = 64;

/// Longest message that goes with progress, in characters.
const MESSAGE_CHARS_MAX: usize = 4096;

/// One client of the gateway: one session, or one request of a client that has no sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientId(u64);

impl ClientId {
    /// One that nobody had before.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a server says to the client of a call before it answers.
#[derive(Debug)]
pub(crate) enum Event {
    /// How far it is.
    Progress(ProgressNotificationParam),
    /// It asks for something: a completion, an input, the roots.
    Ask {
        /// What it asks.
        request: Box<ServerRequest>,
        /// Where the answer goes.
        answer: oneshot::Sender<Result<ClientResult, ErrorData>>,
    },
}

/// A call, as the server's side of the gateway knows it.
#[derive(Debug)]
pub(super) struct Call {
    client: ClientId,
    pub(super) wants_progress: bool,
    events: mpsc::Sender<Event>,
    /// Under which names it is on the list, once it was sent.
    names: OnceLock<(RequestId, ProgressToken)>,
    ended: AtomicBool,
}

/// Marks a request with its call, on the way to the transport. Never sent.
#[derive(Debug, Clone)]
pub(super) struct Marked(pub(super) Arc<Call>);

/// All calls on their way to one server.
#[derive(Debug, Default)]
pub(super) struct Calls {
    listed: Mutex<Listed>,
}

#[derive(Debug, Default)]
struct Listed {
    calls: HashMap<RequestId, Arc<Call>>,
    tokens: HashMap<ProgressToken, Arc<Call>>,
}

/// Why nobody can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nobody {
    /// No call is on its way.
    Idle,
    /// Calls of several clients are.
    Several,
}

impl Calls {
    /// A new call, which is listed when it is sent and until what is returned here is dropped.
    pub(super) fn enter(self: &Arc<Self>, client: ClientId, wants_progress: bool) -> (Entered, mpsc::Receiver<Event>) {
        let (events, receiver) = mpsc::channel(WAITING_MAX);
        let call = Call { client, wants_progress, events, names: OnceLock::new(), ended: AtomicBool::new(false) };
        (Entered { calls: Arc::clone(self), call: Arc::new(call) }, receiver)
    }

    /// Lists a call that is about to be sent. One that was given up meanwhile is not: nobody would take it off again.
    pub(super) fn list(&self, id: &RequestId, token: ProgressToken, call: &Arc<Call>) {
        let mut listed = self.lock();
        if call.ended.load(Ordering::Relaxed) || call.names.set((id.clone(), token.clone())).is_err() {
            return;
        }
        listed.calls.insert(id.clone(), Arc::clone(call));
        if call.wants_progress {
            listed.tokens.insert(token, Arc::clone(call));
        }
    }

    /// Hands progress to the call that it belongs to, if that still wants it and keeps up.
    pub(super) fn progress(&self, mut progress: ProgressNotificationParam) {
        progress.message = clean_option(progress.message, MESSAGE_CHARS_MAX);
        progress.meta = None;
        if let Some(call) = self.lock().tokens.get(&progress.progress_token) {
            // Full means that the client is slow: later progress says more than this one.
            let _ = call.events.try_send(Event::Progress(progress));
        }
    }

    /// Whom to ask, when a server asks. The transport may know for which call it does.
    pub(super) fn whom(&self, asked_for: Option<&RequestId>) -> Result<mpsc::Sender<Event>, Nobody> {
        let listed = self.lock();
        if let Some(call) = asked_for.and_then(|id| listed.calls.get(id)) {
            return Ok(call.events.clone());
        }
        let mut calls = listed.calls.values();
        let first = calls.next().ok_or(Nobody::Idle)?;
        if calls.all(|call| call.client == first.client) { Ok(first.events.clone()) } else { Err(Nobody::Several) }
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is on its way until this is dropped.
#[derive(Debug)]
pub(super) struct Entered {
    calls: Arc<Calls>,
    call: Arc<Call>,
}

impl Entered {
    /// What to mark the request with.
    pub(super) fn mark(&self) -> Marked {
        Marked(Arc::clone(&self.call))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut listed = self.calls.lock();
        self.call.ended.store(true, Ordering::Relaxed);
        if let Some((id, token)) = self.call.names.get() {
            listed.calls.remove(id);
            listed.tokens.remove(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;

    use super::*;

    fn id(number: i64) -> RequestId {
        RequestId::Number(number)
    }

    fn token(number: i64) -> ProgressToken {
        ProgressToken(NumberOrString::Number(number))
    }

    #[test]
    fn a_question_goes_to_a_client_only_without_doubt() {
        let calls = Arc::new(Calls::default());
        assert_eq!(calls.whom(None).err(), Some(Nobody::Idle));
        let (one, two) = (ClientId::next(), ClientId::next());
        let (first, mut asked_first) = calls.enter(one, false);
        let (second, _asked) = calls.enter(one, false);
        let (other, mut asked_other) = calls.enter(two, false);
        calls.list(&id(1), token(1), &first.call);
        calls.list(&id(2), token(2), &second.call);
        assert!(calls.whom(None).is_ok());
        calls.list(&id(3), token(3), &other.call);
        assert_eq!(calls.whom(None).err(), Some(Nobody::Several));
        let progress = || Event::Progress(ProgressNotificationParam::new(token(1), 1.0));
        calls.whom(Some(&id(3))).unwrap().try_send(progress()).unwrap();
        assert!(asked_other.try_recv().is_ok() && asked_first.try_recv().is_err());
        drop(other);
        assert!(calls.whom(Some(&id(3))).is_ok());
    }

    #[test]
    fn a_call_that_was_given_up_before_it_was_sent_is_never_listed() {
        let calls = Arc::new(Calls::default());
        let (entered, _events) = calls.enter(ClientId::next(), true);
        let call = Arc::clone(&entered.call);
        drop(entered);
        calls.list(&id(1), token(1), &call);
        assert_eq!(calls.whom(None).err(), Some(Nobody::Idle));
    }

    #[test]
    fn progress_that_nobody_takes_is_dropped() {
        let calls = Arc::new(Calls::default());
        let (entered, mut events) = calls.enter(ClientId::next(), true);
        calls.list(&id(1), token(9), &entered.call);
        for step in 0..100 {
            calls.progress(ProgressNotificationParam::new(token(9), f64::from(step)));
            calls.progress(ProgressNotificationParam::new(token(8), 0.0));
        }
        let mut taken = 0;
        while let Ok(Event::Progress(progress)) = events.try_recv() {
            assert_eq!(progress.progress_token, token(9));
            taken += 1;
        }
        assert_eq!(taken, WAITING_MAX);
    }
}
