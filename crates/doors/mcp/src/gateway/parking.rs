//! Calls that wait for their client to come back.
//!
//! Since 2026-07-28 a server sends no requests: its result says that it needs input, and the client calls again with
//! that. Older servers ask in the middle of a call and wait. To answer such a call to a newer client, the gateway parks
//! it under an unguessable name and resumes it when the client brings the answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use box_core::mcp::McpServerName;
use box_core::tasks::Start as _;
use box_core::{Caller, TenantId};
use rmcp::ErrorData;
use rmcp::model::{ClientResult, InputRequest, InputRequests, InputRequiredResult, InputResponses, ServerRequest};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::random::unguessable;
use crate::upstream::{ClientId, InFlight};

/// Most calls that are parked at once.
const PARKED_MAX: usize = 1024;
/// Longest that a call is parked. Its client may have to ask a person.
const PARKED_TIMEOUT: Duration = Duration::from_mins(10);
/// Most callers that are remembered. To be forgotten means no more than to be another client for calls that are on their way.
const CLIENTS_MAX: usize = 10_000;
/// What the one question of a call is called.
const QUESTION: &str = "1";

/// Where the answer to a question of a server goes.
pub(super) type AnswerTo = oneshot::Sender<Result<ClientResult, ErrorData>>;

/// Calls that wait for their client to come back. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Parking {
    calls: Arc<Mutex<HashMap<String, Parked>>>,
    clients: Arc<Mutex<HashMap<(TenantId, String), ClientId>>>,
    tasks: TaskTracker,
}

/// A call, and the question that it waits for.
#[derive(Debug)]
pub(super) struct Parked {
    caller: Caller,
    server: McpServerName,
    call: InFlight,
    question: Question,
    /// Ends the waiting when the call is taken.
    _waiting: DropGuard,
}

/// A question of a server.
#[derive(Debug)]
pub(super) struct Question {
    /// The question.
    request: InputRequest,
    /// Where the answer goes.
    answer: AnswerTo,
}

impl Question {
    /// What can be asked by answering; everything else is given back.
    pub(super) fn new(request: ServerRequest, answer: AnswerTo) -> Result<Self, AnswerTo> {
        let request = match request {
            ServerRequest::CreateMessageRequest(request) => InputRequest::CreateMessage(request),
            ServerRequest::ElicitRequest(request) => InputRequest::Elicitation(request),
            ServerRequest::ListRootsRequest(request) => InputRequest::ListRoots(request),
            _ => return Err(answer),
        };
        Ok(Self { request, answer })
    }

    /// Passes on what the client brought.
    fn answer(self, responses: Option<InputResponses>) {
        let brought = responses.and_then(|mut responses| responses.remove(QUESTION));
        let parsed =
            brought.ok_or("inputResponses has no answer to the question").and_then(|value| parse(&self.request, value));
        let _ = self.answer.send(parsed.map_err(|reason| ErrorData::invalid_params(reason, None)));
    }
}

fn parse(request: &InputRequest, value: Value) -> Result<ClientResult, &'static str> {
    let parsed = match request {
        InputRequest::CreateMessage(_) => serde_json::from_value(value).map(ClientResult::CreateMessageResult),
        InputRequest::Elicitation(_) => serde_json::from_value(value).map(ClientResult::ElicitResult),
        _ => serde_json::from_value(value).map(ClientResult::ListRootsResult),
    };
    parsed.map_err(|_| "the answer in inputResponses is none to the question")
}

impl Parking {
    pub(crate) fn new(tasks: TaskTracker) -> Self {
        Self { calls: Arc::default(), clients: Arc::default(), tasks }
    }

    /// Identifies a client without a session by its caller. Calls of one caller cannot be distinguished, and need not
    /// be: whichever of them brings a question, the same caller answers it.
    pub(super) fn client_of(&self, caller: &Caller) -> ClientId {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= CLIENTS_MAX {
            clients.clear();
        }
        *clients.entry((caller.tenant.clone(), caller.subject.clone())).or_insert_with(ClientId::next)
    }

    /// Parks a call until its client brings the answer. Refused, it is cancelled.
    pub(super) async fn park(
        &self,
        caller: &Caller,
        server: &McpServerName,
        call: InFlight,
        question: Question,
    ) -> Result<InputRequiredResult, ErrorData> {
        let requests = InputRequests::from([(QUESTION.to_owned(), question.request.clone())]);
        let state = match unguessable() {
            Ok(state) if self.lock().len() < PARKED_MAX => state,
            _ => {
                call.cancel("too many calls wait for their clients").await;
                return Err(ErrorData::internal_error("too many calls wait for their clients; try again later", None));
            }
        };
        let taken = CancellationToken::new();
        let (caller, server) = (caller.clone(), server.clone());
        let parked = Parked { caller, server, call, question, _waiting: taken.clone().drop_guard() };
        self.lock().insert(state.clone(), parked);
        self.tasks.start(self.clone().wait(state.clone(), taken));
        Ok(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// The call that a client comes back for, which goes on with what it brought.
    pub(super) fn take(
        &self,
        caller: &Caller,
        server: &McpServerName,
        state: &str,
        responses: Option<InputResponses>,
    ) -> Option<InFlight> {
        let parked = {
            let mut calls = self.lock();
            let same = |parked: &Parked| parked.server == *server && is_same(&parked.caller, caller);
            calls.get(state).is_some_and(same).then(|| calls.remove(state))??
        };
        parked.question.answer(responses);
        Some(parked.call)
    }

    /// Cancels a call whose client does not come back.
    async fn wait(self, state: String, taken: CancellationToken) {
        if taken.run_until_cancelled(tokio::time::sleep(PARKED_TIMEOUT)).await.is_none() {
            return;
        }
        let parked = self.lock().remove(&state);
        if let Some(parked) = parked {
            parked.call.cancel("the client did not come back").await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Parked>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether both are one caller. Which of its queries they are for does not matter.
fn is_same(one: &Caller, other: &Caller) -> bool {
    one.subject == other.subject && one.tenant == other.tenant && one.scopes == other.scopes
}
