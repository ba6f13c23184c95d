//! One request from a client to a server and its answer back, with all that is said in between.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    ClientRequest, ClientResult, ErrorCode, GetExtensions, InputRequiredResult, InputResponses, ListRootsResult,
    ProgressNotificationParam, RequestMetaObject, ServerRequest, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestContext};
use rmcp::{ErrorData, RoleServer, ServiceError};

use super::parking::{AnswerTo, Question};
use super::shown::Shown;
use crate::upstream::{Event, Failure, InFlight, Upstream};

/// Longest that a call may take. Clients give up long before; this is for those that never do.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_hours(1);
/// Names in a request's metadata that concern only the connection on which it came.
const CONNECTION_KEYS: &str = "io.modelcontextprotocol/";
/// Most questions of a server to one client that wait for an answer at once.
const ASKED_MAX: usize = 16;

/// How a request ended.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is returned")]
pub(super) enum Ended {
    /// With an answer.
    Answer(ServerResult),
    /// The server needs something first, and waits for the client to come back with it.
    Input(InputRequiredResult),
}

/// With what a client comes back for a call.
#[derive(Debug)]
pub(super) struct Return {
    /// Which call.
    pub(super) state: Option<String>,
    /// What it brings.
    pub(super) responses: Option<InputResponses>,
}

/// How a server's question reaches the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It is asked.
    Request,
    /// It is told that something is needed, and comes back.
    Return,
    /// Not at all.
    Closed,
}

/// Sends a request that is only answered, never interrupted for input, and waits for its answer.
pub(super) async fn forward(
    upstream: &Upstream,
    request: ClientRequest,
    shown: &Shown,
    context: &RequestContext<RoleServer>,
) -> Result<ServerResult, Failure> {
    let call = begin(upstream, request, shown, context).await?;
    let way = if is_new(context) { Way::Closed } else { Way::Request };
    match drive(call, upstream, shown, context, way).await? {
        Ended::Answer(answer) => Ok(answer),
        Ended::Input(_) => Err(Failure::Unexpected),
    }
}

/// Sends a request that a server may need more for, or goes on with one that the client comes back for.
pub(super) async fn converse(
    upstream: &Upstream,
    request: ClientRequest,
    back: Return,
    shown: &Shown,
    context: &RequestContext<RoleServer>,
) -> Result<Ended, Failure> {
    if !is_new(context) {
        return forward(upstream, request, shown, context).await.map(Ended::Answer);
    }
    let call = match back.state {
        Some(state) => {
            shown.parking.take(&shown.caller, upstream.name(), &state, back.responses).ok_or_else(not_parked)?
        }
        None => begin(upstream, request, shown, context).await?,
    };
    drive(call, upstream, shown, context, Way::Return).await
}

async fn begin(
    upstream: &Upstream,
    request: ClientRequest,
    shown: &Shown,
    context: &RequestContext<RoleServer>,
) -> Result<InFlight, Failure> {
    let client = if is_new(context) { shown.parking.client_of(&shown.caller) } else { shown.client };
    tokio::select! {
        call = upstream.begin(request, client, passed_meta(&context.meta)) => call,
        () = context.ct.cancelled() => Err(Failure::Cancelled),
    }
}

/// Waits for the end of a call. Everything happens in the task of the client's request, so that what a server asks reaches the client
/// on the stream of that request, and progress before the answer.
async fn drive(
    mut call: InFlight,
    upstream: &Upstream,
    shown: &Shown,
    context: &RequestContext<RoleServer>,
    way: Way,
) -> Result<Ended, Failure> {
    let mut asked = FuturesUnordered::new();
    let mut deadline = std::pin::pin!(tokio::time::sleep(CALL_TIMEOUT));
    loop {
        tokio::select! {
            biased;
            () = context.ct.cancelled() => {
                call.cancel("the client cancelled the request").await;
                return Err(Failure::Cancelled);
            }
            () = &mut deadline => {
                call.cancel("the answer took too long").await;
                return Err(Failure::TimedOut);
            }
            Some(event) = call.events.recv() => match event {
                Event::Progress(progress) => tell(progress, context).await,
                Event::Ask { request, answer } => {
                    let Err(told) = offered(&request, context) else {
                        if way == Way::Request && asked.len() < ASKED_MAX {
                            asked.push(ask(*request, answer, context));
                        } else if let Some(question) = returned(*request, answer, way) {
                            let parked = shown.parking.park(&shown.caller, upstream.name(), call, question).await;
                            return parked.map(Ended::Input).map_err(Failure::Refused);
                        }
                        continue;
                    };
                    let _ = answer.send(told);
                }
            },
            Some(()) = asked.next() => {}
            answer = call.answer.wait() => return answer.map(Ended::Answer),
        }
    }
}

/// Whether the client is of 2026-07-28 or later, and cannot be asked.
fn is_new(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| !version.has_initialize())
}

/// A question for which the client is told to come back. Whatever cannot be asked so is refused.
fn returned(request: ServerRequest, answer: AnswerTo, way: Way) -> Option<Question> {
    let answer = match way {
        Way::Return => match Question::new(without_extensions(request), answer) {
            Ok(question) => return Some(question),
            Err(answer) => answer,
        },
        Way::Request | Way::Closed => answer,
    };
    let _ = answer.send(Err(ErrorData::invalid_request("the client of this call cannot be asked now", None)));
    None
}

/// What hangs on a request belongs to the connection on which it came.
fn without_extensions(mut request: ServerRequest) -> ServerRequest {
    request.extensions_mut().clear();
    request
}

fn not_parked() -> Failure {
    Failure::Refused(ErrorData::invalid_params("requestState is none that waits; call again without it", None))
}

/// What goes along with a request: all but what concerns the client's own connection.
fn passed_meta(meta: &RequestMetaObject) -> RequestMetaObject {
    let mut meta = meta.clone();
    meta.0.0.retain(|name, _| !name.starts_with(CONNECTION_KEYS));
    meta
}

/// Passes progress on under the client's own token. A client that is gone is noticed elsewhere.
async fn tell(mut progress: ProgressNotificationParam, context: &RequestContext<RoleServer>) {
    let Some(token) = context.meta.get_progress_token() else { return };
    progress.progress_token = token;
    tokio::select! {
        _ = context.peer.notify_progress(progress) => {}
        () = context.ct.cancelled() => {}
    }
}

/// Asks the client what the server asks, until there is an answer or the server does not want one any more.
async fn ask(request: ServerRequest, mut answer: AnswerTo, context: &RequestContext<RoleServer>) {
    let options = PeerRequestOptions::no_options();
    let mut asked = match context.peer.send_request_with_option(without_extensions(request), options).await {
        Ok(asked) => asked,
        Err(error) => {
            let _ = answer.send(Err(refused(error)));
            return;
        }
    };
    tokio::select! {
        told = &mut asked.rx => {
            let _ = answer.send(told.unwrap_or(Err(ServiceError::TransportClosed)).map_err(refused));
        }
        () = answer.closed() => {
            let _ = asked.cancel(Some("the server does not ask any more".to_owned())).await;
        }
    }
}

/// Whether the client offers what is asked for; if not, what the server is told at once.
fn offered(
    request: &ServerRequest,
    context: &RequestContext<RoleServer>,
) -> Result<(), Result<ClientResult, ErrorData>> {
    let offers = context.client_capabilities().unwrap_or_default();
    match request {
        // Having none and not knowing of any is the same to a server.
        ServerRequest::ListRootsRequest(_) if offers.roots.is_none() => {
            Err(Ok(ClientResult::ListRootsResult(ListRootsResult::default())))
        }
        ServerRequest::CreateMessageRequest(_) if offers.sampling.is_none() => Err(Err(not_offered("sampling"))),
        ServerRequest::ElicitRequest(_) if offers.elicitation.is_none() => Err(Err(not_offered("elicitation"))),
        _ => Ok(()),
    }
}

fn not_offered(what: &str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("the client of this call does not offer {what}"), None)
}

fn refused(error: ServiceError) -> ErrorData {
    match error {
        ServiceError::McpError(error) => error,
        _ => ErrorData::internal_error("the client of this call is gone", None),
    }
}
