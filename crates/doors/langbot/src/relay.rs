//! Who may attach to a managed process by its line relay, and to which one.
//!
//! Three kinds of clients use the same paths. Clients that name their instance belong to a workspace of LangBot, and
//! the session in the path is a physical id. Clients with a token are callers of the REST interface. Clients with
//! neither are older ones of LangBot, or callers of the REST interface on this machine; the name of the session decides
//! which.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::response::{IntoResponse, Response};
use box_core::call::{ProcessId, ProcessInfo, ProcessStatus};
use box_core::{Caller, Error, Scope, Service, SessionId};
use http::{HeaderMap, StatusCode, request::Parts};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fault::{Class, Fault};
use super::handshake::{self, Newcomer, Unauthorized};
use super::tenancy::{InstanceId, TenancyScope as Sessions};
use super::{Client, LangBot, held};
use door_http::auth;
use door_http::failure::Failure;
use door_http::gate::Peer;
use door_http::observe::Verbatim;
use door_http::socket::{Busy, Entry, RelaySlot, Relays};

/// Which workspace.
const WORKSPACE: &str = "x-langbot-workspace-id";
/// Which generation of it.
const GENERATION: &str = "x-langbot-placement-generation";
/// Longest id of a workspace.
const WORKSPACE_CHARS_MAX: usize = 256;
/// Most characters of a name from a path that are repeated in an answer.
const SHOWN_CHARS_MAX: usize = 256;

/// A client that may attach, and the session it may attach to.
#[derive(Debug)]
pub(crate) struct Visit {
    /// The caller.
    pub(crate) caller: Caller,
    /// To a process of which session.
    pub(crate) session: SessionId,
    /// To which.
    pub(crate) info: ProcessInfo,
    /// Fires when the right to be attached is gone.
    pub(crate) withdrawn: CancellationToken,
    entry: Entry,
    form: Form,
}

/// How a client reads that it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As by all of the REST interface.
    Rest,
    /// Status 400, and the name of LangBot's class.
    Langbot,
}

/// Why a client may not attach.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Without a reason.
    Unauthorized,
    /// In LangBot's words.
    Langbot(Fault),
    /// In the words of the REST interface.
    Rest(Failure),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Unauthorized => Unauthorized.into_response(),
            Self::Langbot(fault) => {
                let error = json!({ "error": { "code": fault.class.name(), "message": fault.text } });
                Verbatim::wrap((StatusCode::BAD_REQUEST, axum::Json(error)).into_response())
            }
            Self::Rest(failure) => failure.into_response(),
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Rest(failure)
    }
}

/// The names in the path, as they were written.
struct RelayPath {
    session: String,
    /// Nothing in the short form of the path, which means the process that is called `default`.
    process: Option<String>,
}

impl RelayPath {
    fn process_id(&self) -> Option<ProcessId> {
        self.process.as_deref().map_or_else(|| Some(ProcessId::default()), |text| text.parse().ok())
    }

    fn process_text(&self) -> String {
        self.process.as_deref().map_or_else(|| ProcessId::default().to_string(), shown)
    }

    /// How one who shows nothing is refused: LangBot's older clients name the process, those of the REST form do not.
    fn form(&self) -> Form {
        if self.process.is_some() { Form::Langbot } else { Form::Rest }
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

impl FromRequestParts<LangBot> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, door: &LangBot) -> Result<Self, Response> {
        let unreadable = |_| Failure::invalid("path", "the path is not UTF-8").into_response();
        let raw = RawPathParams::from_request_parts(parts, door).await.map_err(unreadable)?;
        let named = |name: &str| raw.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned());
        let asked = RelayPath { session: named("session_id").unwrap_or_default(), process: named("process_id") };
        let visit = admit(door, parts, &asked).await.map_err(IntoResponse::into_response)?;
        tracing::Span::current().record("caller.subject", visit.caller.subject.as_str());
        Ok(visit)
    }
}

async fn admit(door: &LangBot, head: &Parts, asked: &RelayPath) -> Result<Visit, Refusal> {
    let peer = head.extensions.get::<Peer>().copied().ok_or_else(Failure::unauthorized)?;
    let is_of_workspace = head.headers.contains_key(handshake::INSTANCE);
    if !is_of_workspace && auth::shows_token(&head.headers) {
        let caller = auth::identify(door.state(), Scope::Exec, head).await?;
        return find(door.service(), caller, asked, Form::Rest, Entry::Refuse).await;
    }
    let client = handshake::identify(door, peer, &head.headers, Newcomer::Refuse).await;
    match client {
        Ok(Client::Tenant(instance)) => of_workspace(door.service(), door, &instance, &head.headers, asked).await,
        Err(_) if is_of_workspace => Err(Refusal::Unauthorized),
        Ok(Client::Legacy) | Err(_) => of_nobody(door, head, asked, client.is_ok()).await,
    }
}

/// A client that shows nothing.
async fn of_nobody(door: &LangBot, head: &Parts, asked: &RelayPath, is_served: bool) -> Result<Visit, Refusal> {
    let form = asked.form();
    if is_served {
        let caller = Sessions::Legacy.caller().map_err(Refusal::Langbot)?;
        if is_there(door.service(), &caller, asked).await {
            return find(door.service(), caller, asked, form, Entry::Wait).await;
        }
    }
    let caller = auth::identify(door.state(), Scope::Exec, head).await?;
    let found = find(door.service(), caller, asked, form, Entry::Wait).await;
    // Only clients of LangBot get its error texts.
    found.map_err(|refusal| match refusal {
        Refusal::Langbot(_) if !is_served => Refusal::Unauthorized,
        other => other,
    })
}

async fn is_there(service: &Service, caller: &Caller, asked: &RelayPath) -> bool {
    match asked.session.parse() {
        Ok(session) => service.get_session(caller, &session).await.is_ok(),
        Err(_) => false,
    }
}

/// A process of the session that is literally called what the path says.
async fn find(
    service: &Service,
    caller: Caller,
    asked: &RelayPath,
    form: Form,
    entry: Entry,
) -> Result<Visit, Refusal> {
    let found = match form {
        Form::Rest => find_plainly(service, &caller, asked).await?,
        Form::Langbot => {
            let session = asked.session.parse().map_err(|_| no_session(asked))?;
            let process = asked.process_id().ok_or_else(|| no_process(asked))?;
            let found = service.get_process(&caller, &session, &process).await;
            (session, found.map_err(|error| told(error, asked))?)
        }
    };
    let (session, info) = found;
    must_run(asked, &session, &info, form)?;
    Ok(Visit { caller, session, info, withdrawn: CancellationToken::new(), entry, form })
}

async fn find_plainly(
    service: &Service,
    caller: &Caller,
    asked: &RelayPath,
) -> Result<(SessionId, ProcessInfo), Failure> {
    let session = asked.session.parse()?;
    let process = asked.process.as_deref().map(str::parse).transpose()?.unwrap_or_default();
    let info = service.get_process(caller, &session, &process).await?;
    Ok((session, info))
}

fn must_run(asked: &RelayPath, session: &SessionId, info: &ProcessInfo, form: Form) -> Result<(), Refusal> {
    if info.status == ProcessStatus::Running {
        return Ok(());
    }
    Err(conflict(form, asked, (session, &info.process_id), "is not running", "; start it first"))
}

/// The refusal for a process in the wrong state. Only callers of the REST interface learn how to fix it.
fn conflict(
    form: Form,
    asked: &RelayPath,
    (session, process): (&SessionId, &ProcessId),
    what: &str,
    help: &str,
) -> Refusal {
    match form {
        Form::Langbot => {
            let text = format!("managed process {process} in session {} {what}", shown(&asked.session));
            Refusal::Langbot(Fault::new(Class::ProcessConflict, text))
        }
        Form::Rest => {
            let (session, process) = (session.clone(), process.clone());
            let failure: Failure = Error::ProcessConflict { session, process, what: format!("{what}{help}") }.into();
            failure.into()
        }
    }
}

fn no_session(asked: &RelayPath) -> Refusal {
    Refusal::Langbot(Fault::new(Class::SessionNotFound, format!("session {} not found", shown(&asked.session))))
}

fn no_process(asked: &RelayPath) -> Refusal {
    let (session, process) = (shown(&asked.session), asked.process_text());
    let text = format!("session {session} has no managed process with process_id={process}");
    Refusal::Langbot(Fault::new(Class::ProcessNotFound, text))
}

/// An error of the service, in LangBot's words if it has some.
fn told(error: Error, asked: &RelayPath) -> Refusal {
    match error {
        Error::SessionNotFound { .. } => no_session(asked),
        Error::ProcessNotFound { .. } => no_process(asked),
        other => Refusal::Rest(other.into()),
    }
}

/// The headers of a client of a workspace, besides its instance.
#[derive(Debug, PartialEq, Eq)]
struct Placement {
    workspace: String,
    generation: u64,
}

impl Placement {
    fn read(headers: &HeaderMap) -> Option<Self> {
        let workspace = one(headers, WORKSPACE)?.trim();
        let fits = (1..=WORKSPACE_CHARS_MAX).contains(&workspace.chars().count());
        let generation = one(headers, GENERATION)?;
        // Only one way to write a number is taken: no sign, no zeros in front.
        let number = generation.parse().ok().filter(|number: &u64| *number > 0 && number.to_string() == generation)?;
        fits.then(|| Self { workspace: workspace.to_owned(), generation: number })
    }
}

/// A header that is there exactly once.
fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(first)
}

/// State of the door that a relay needs.
pub(super) trait Placements: Sync {
    /// The generation of a workspace that counts now.
    fn current(&self, namespace: &str) -> Option<u64>;
    /// Fires when that generation does not count any more.
    fn watch(&self, namespace: &str, generation: u64) -> CancellationToken;
    /// Whether the workspace may use processes at all.
    fn admit(&self, sessions: &Sessions) -> impl Future<Output = Result<(), Fault>> + Send;
}

/// A client of a workspace. The order of the checks is part of the protocol.
async fn of_workspace(
    service: &Service,
    door: &impl Placements,
    instance: &InstanceId,
    headers: &HeaderMap,
    asked: &RelayPath,
) -> Result<Visit, Refusal> {
    let Placement { workspace, generation } = Placement::read(headers).ok_or(Refusal::Unauthorized)?;
    let sessions = Sessions::workspace(instance, &workspace, generation);
    let caller = sessions.caller().map_err(Refusal::Langbot)?;
    let namespace = caller.tenant.as_str();
    // Subscribe before checking, so that no change is missed in between.
    let withdrawn = door.watch(namespace, generation);
    if door.current(namespace) != Some(generation) {
        return Err(Refusal::Unauthorized);
    }
    door.admit(&sessions).await.map_err(Refusal::Langbot)?;
    let name = asked.session.strip_prefix(&sessions.physical_prefix()).ok_or(Refusal::Unauthorized)?;
    let (session, info) = find_clean(service, &caller, &sessions, name, asked).await?;
    must_run(asked, &session, &info, Form::Langbot)?;
    Ok(Visit { caller, session, info, withdrawn, entry: Entry::Wait, form: Form::Langbot })
}

/// The session that a physical id means. Several can have one: first comes what is literally called that, then what was used last,
/// and what has no such process does not count.
async fn find_clean(
    service: &Service,
    caller: &Caller,
    sessions: &Sessions,
    name: &str,
    asked: &RelayPath,
) -> Result<(SessionId, ProcessInfo), Refusal> {
    let process = asked.process_id().ok_or_else(|| no_process(asked))?;
    let candidates = held::called(service, caller, sessions, name).await.map_err(|error| told(error, asked))?;
    let is_any = !candidates.is_empty();
    for session in candidates {
        if let Ok(info) = service.get_process(caller, &session, &process).await {
            return Ok((session, info));
        }
    }
    Err(if is_any { no_process(asked) } else { no_session(asked) })
}

impl Visit {
    /// Stands in line for the relay.
    pub(crate) fn join(&self, relays: &Relays, takes_over: bool) -> Result<RelaySlot, Refusal> {
        let key = (self.caller.tenant.clone(), self.session.clone(), self.info.process_id.clone());
        let entry = if takes_over { Entry::TakeOver } else { self.entry };
        RelaySlot::join(relays, key, self.info.clone(), entry).map_err(|busy| self.refuse(busy))
    }

    fn refuse(&self, busy: Busy) -> Refusal {
        let (what, help) = match busy {
            Busy::Attached => {
                ("has a client attached already", "; detach it first, or take over from it with ?takeover=true")
            }
            Busy::Crowded => ("has too many clients waiting to attach", "; try again later"),
        };
        let asked = RelayPath { session: self.session.to_string(), process: None };
        conflict(self.form, &asked, (&self.session, &self.info.process_id), what, help)
    }
}

impl Placements for LangBot {
    fn current(&self, namespace: &str) -> Option<u64> {
        self.generation_guard().current(namespace)
    }

    fn watch(&self, namespace: &str, generation: u64) -> CancellationToken {
        self.generation_guard().watch(namespace, generation)
    }

    async fn admit(&self, sessions: &Sessions) -> Result<(), Fault> {
        self.admit_relay(sessions).await
    }
}

#[cfg(test)]
mod tests;
