//! The line relay of a managed process, as LangBot's clients and callers of the older REST form open it.

use axum::extract::State;
use axum::extract::ws::WebSocket;
use axum::response::{IntoResponse, Response};
use box_core::call::Target;
use door_http::body::{self, Fields, FromFields, Params};
use door_http::failure::Failure;
use door_http::feed::{Line, OpenLine};
use door_http::socket::{self, Ends, Upgrade};
use serde::Deserialize;

use crate::LangBot;
use crate::limits::RELAY_MESSAGE_BYTES_MAX;
use crate::relay::Visit;

/// The session in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct SessionPath {
    /// Your name for the session.
    session_id: String,
}

/// The managed process in the path. Only for the document.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path; RawPathParams reads it")]
pub(crate) struct ProcessPath {
    /// Your name for the session.
    session_id: String,
    /// Your name for the managed process.
    process_id: String,
}

/// Whether to take over.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RelayQuery {
    /// Whether to take the relay over from the attached client.
    #[serde(default, deserialize_with = "body::yes_or_no")]
    takeover: Option<bool>,
}

impl FromFields for RelayQuery {
    fn take_from(fields: &mut Fields) -> Result<Self, Failure> {
        fields.take()
    }
}

/// Attaches to the managed process that is called `default`, line by line
///
/// For MCP over stdio: each message is one line. The server accepts the subprotocol `mcp` when it is offered. A new
/// client continues where the last one stopped. While another client is attached, the answer is a conflict, unless
/// `?takeover=true` asks to take over; clients
/// without a token wait until it is their turn.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/ws", tag = "managed-process",
    params(SessionPath, RelayQuery), responses((status = 101, description = "A WebSocket")))]
pub(crate) async fn relay(
    State(door): State<LangBot>,
    visit: Visit,
    Params(query): Params<RelayQuery>,
    upgrade: Upgrade,
) -> Result<Response, Response> {
    let upgrade = upgrade.map(|upgrade| upgrade.protocols(["mcp"]));
    // A client that cannot be upgraded must neither wait in line nor take over.
    if upgrade.is_err() {
        let never = |_: WebSocket| std::future::ready(());
        return socket::open(door.state(), upgrade, RELAY_MESSAGE_BYTES_MAX, never)
            .map_err(IntoResponse::into_response);
    }
    let place = visit.join(door.relays(), query.takeover == Some(true)).map_err(IntoResponse::into_response)?;
    let ends = Ends { closing: door.state().closing().clone(), withdrawn: visit.withdrawn };
    let target = Target::Process(visit.info.process_id.clone());
    let line = Line { service: door.service().clone(), caller: visit.caller, session: visit.session, target };
    let ours = door.clone();
    let talk = async move |socket| socket::relay(socket, ours.relays(), place, OpenLine(line), ends).await;
    socket::open(door.state(), upgrade, RELAY_MESSAGE_BYTES_MAX, talk).map_err(IntoResponse::into_response)
}

/// Attaches to a managed process, line by line
#[utoipa::path(get, path = "/v1/sessions/{session_id}/managed-process/{process_id}/ws", tag = "managed-process",
    params(ProcessPath, RelayQuery), responses((status = 101, description = "A WebSocket")))]
pub(crate) async fn relay_named(
    state: State<LangBot>,
    visit: Visit,
    query: Params<RelayQuery>,
    upgrade: Upgrade,
) -> Result<Response, Response> {
    relay(state, visit, query, upgrade).await
}
