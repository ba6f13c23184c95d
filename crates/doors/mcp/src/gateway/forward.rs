//! One request from a client to a server and its answer back, with all that is said in between.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    ClientRequest, ClientResult, ErrorCode, GetExtensions, InputRequest, InputRequiredResult, InputResponses,
    ListRootsResult, ProgressNotificationParam, RequestMetaObject, ServerRequest, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestContext};
use rmcp::{ErrorData, RoleServer, ServiceError};
use serde_json::Value;
use tokio::sync::oneshot;

use super::parking::{AnswerTo, Question};
use super::shown::ClientView;
use crate::upstream::{Event, Failure, InFlight, Upstream};

/// Longest that a call may take. Clients give up long before; this is for those that never do.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_hours(1);
/// Names in a request's metadata that concern only the connection on which it came.
const CONNECTION_KEYS: &str = "io.modelcontextprotocol/";
/// How often one call may need input.
const ROUNDS_MAX: usize = 10;
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
enum QuestionRoute {
    /// As a request.
    Request,
    /// The result says that input is needed, and the client calls again with it.
    Return,
    /// Not at all.
    Closed,
}

/// Sends a request that is only answered, never interrupted for input, and waits for its answer.
pub(super) async fn forward(
    upstream: &Upstream,
    request: ClientRequest,
    shown: &ClientView,
    context: &RequestContext<RoleServer>,
) -> Result<ServerResult, Failure> {
    let upstream = upstream.for_client(is_new(context));
    let call = begin(upstream, request, shown, context).await?;
    let way = if is_new(context) || upstream.is_new() { QuestionRoute::Closed } else { QuestionRoute::Request };
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
    shown: &ClientView,
    context: &RequestContext<RoleServer>,
) -> Result<Ended, Failure> {
    let upstream = upstream.for_client(is_new(context));
    if upstream.is_new() {
        return if is_new(context) {
            pass(upstream, request, back, shown, context).await
        } else {
            ask_for(upstream, request, shown, context).await.map(Ended::Answer)
        };
    }
    if !is_new(context) {
        return forward(upstream, request, shown, context).await.map(Ended::Answer);
    }
    let call = match back.state {
        Some(state) => {
            shown.parking.take(&shown.caller, upstream.name(), &state, back.responses).ok_or_else(not_parked)?
        }
        None => begin(upstream, request, shown, context).await?,
    };
    drive(call, upstream, shown, context, QuestionRoute::Return).await
}

/// Client and server speak 2026-07-28: input requests and their responses pass unchanged.
async fn pass(
    upstream: &Upstream,
    mut request: ClientRequest,
    back: Return,
    shown: &ClientView,
    context: &RequestContext<RoleServer>,
) -> Result<Ended, Failure> {
    bring(&mut request, back);
    let call = begin(upstream, request, shown, context).await?;
    drive(call, upstream, shown, context, QuestionRoute::Closed).await
}

/// The server needs input, and the client is an older one that can be asked: its answers go to the server.
async fn ask_for(
    upstream: &Upstream,
    request: ClientRequest,
    shown: &ClientView,
    context: &RequestContext<RoleServer>,
) -> Result<ServerResult, Failure> {
    let mut back = Return { state: None, responses: None };
    for _ in 0..ROUNDS_MAX {
        let mut request = request.clone();
        bring(&mut request, back);
        let call = begin(upstream, request, shown, context).await?;
        let needed = match drive(call, upstream, shown, context, QuestionRoute::Closed).await? {
            Ended::Answer(answer) => return Ok(answer),
            Ended::Input(needed) => needed,
        };
        let mut responses = InputResponses::new();
        for (name, question) in needed.input_requests.into_iter().flatten().take(ASKED_MAX) {
            if let Some(answer) = answered(question, context).await? {
                responses.insert(name, answer);
            }
        }
        back = Return { state: needed.request_state, responses: Some(responses).filter(|all| !all.is_empty()) };
    }
    let message = format!("the call was ended: the server requested input {ROUNDS_MAX} times");
    Err(Failure::Refused(ErrorData::internal_error(message, None)))
}

/// An older client's answer to one input request. A refusal by the client ends the call.
async fn answered(question: InputRequest, context: &RequestContext<RoleServer>) -> Result<Option<Value>, Failure> {
    let request = match question {
        InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
        InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
        InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
        _ => return Ok(None),
    };
    let told = if let Err(told) = offered(&request, context) {
        told
    } else {
        let (answer, told) = oneshot::channel();
        tokio::select! {
            () = ask(request, answer, context) => {}
            () = context.ct.cancelled() => return Err(Failure::Cancelled),
        }
        told.await.map_err(|_| Failure::Cancelled)?
    };
    let told = told.map_err(Failure::Refused)?;
    serde_json::to_value(told).map(Some).map_err(|_| Failure::Unexpected)
}

/// Puts the client's input responses into its request.
fn bring(request: &mut ClientRequest, back: Return) {
    let (state, responses) = match request {
        ClientRequest::CallToolRequest(request) => {
            (&mut request.params.request_state, &mut request.params.input_responses)
        }
        ClientRequest::GetPromptRequest(request) => {
            (&mut request.params.request_state, &mut request.params.input_responses)
        }
        ClientRequest::ReadResourceRequest(request) => {
            (&mut request.params.request_state, &mut request.params.input_responses)
        }
        _ => return,
    };
    (*state, *responses) = (back.state, back.responses);
}

async fn begin(
    upstream: &Upstream,
    request: ClientRequest,
    shown: &ClientView,
    context: &RequestContext<RoleServer>,
) -> Result<InFlight, Failure> {
    let client = if is_new(context) { shown.parking.client_of(&shown.caller) } else { shown.client };
    tokio::select! {
        call = upstream.begin(request, client, passed_meta(upstream, context)) => call,
        () = context.ct.cancelled() => Err(Failure::Cancelled),
    }
}

/// Waits for the end of a call. Everything happens in the task of the client's request, so that what a server asks reaches the client
/// on the stream of that request, and progress before the answer.
async fn drive(
    mut call: InFlight,
    upstream: &Upstream,
    shown: &ClientView,
    context: &RequestContext<RoleServer>,
    way: QuestionRoute,
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
                        if way == QuestionRoute::Request && asked.len() < ASKED_MAX {
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
            answer = call.answer.wait() => return Ok(match answer? {
                ServerResult::InputRequiredResult(needed) => Ended::Input(needed),
                answer => Ended::Answer(answer),
            }),
        }
    }
}

/// Whether the client is of 2026-07-28 or later, and cannot be asked.
fn is_new(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| !version.has_initialize())
}

/// A question that is returned to the client as a result. Questions that cannot be returned so are refused.
fn returned(request: ServerRequest, answer: AnswerTo, way: QuestionRoute) -> Option<Question> {
    let answer = match way {
        QuestionRoute::Return => match Question::new(without_extensions(request), answer) {
            Ok(question) => return Some(question),
            Err(answer) => answer,
        },
        QuestionRoute::Request | QuestionRoute::Closed => answer,
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

/// Metadata forwarded with a request: all but that of the client's own connection. A server of 2026-07-28 requests only input that the
/// client of this call supports, and sends it the requested log level.
fn passed_meta(upstream: &Upstream, context: &RequestContext<RoleServer>) -> RequestMetaObject {
    let mut meta = context.meta.clone();
    meta.0.0.retain(|name, _| !name.starts_with(CONNECTION_KEYS));
    if upstream.is_new() {
        meta.set_client_capabilities(context.client_capabilities().unwrap_or_default());
        if let Some(level) = context.meta.log_level() {
            meta.set_log_level(level);
        }
    }
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

/// Whether the client offers the capability; if not, the immediate answer to the server.
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
