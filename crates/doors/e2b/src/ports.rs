//! Ports of a sandbox that are its programs' own.

use std::num::NonZeroU16;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use box_e2b_wire::SandboxHost;
use http::header;
use http::uri::PathAndQuery;

use super::failure::E2bFailure;
use super::refusal::Refusal;
use super::sandbox_request::SandboxRequest;
use crate::app::App;
use door_http::failure::Failure;
use door_http::observe::OfBox;
use door_http::proxy::{self, ProxyError, Target};

/// Passes a request on to the program that listens on a port of a sandbox. Who may was looked at before.
pub(super) async fn pass(app: &App, sandbox_request: SandboxRequest, request: Request) -> Response {
    match forward(app, sandbox_request, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn forward(app: &App, sandbox_request: SandboxRequest, request: Request) -> Result<Response, Refusal> {
    let SandboxRequest { caller, session, sandbox, port, .. } = sandbox_request;
    let closed = || Refusal::PortClosed(sandbox.to_string(), port);
    let number = NonZeroU16::new(port).ok_or_else(closed)?;
    let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    // Under a name of its own a service is what it says that it is; otherwise it is one of this machine.
    let own_name = request.headers().get(header::HOST).filter(|host| names_sandbox(host)).cloned();
    let origin = if own_name.is_some() { OfBox::OfItsOwnOrigin } else { OfBox::OfOurOrigin };
    let host = own_name.unwrap_or_else(|| proxy::local_name(number));
    let target = Target { caller, session, port: number, path, host };
    match proxy::forward(app, target, request).await {
        Ok(response) => Ok(origin.wrap(response)),
        Err(ProxyError::PortClosed(_)) => Err(closed()),
        Err(error) => Err(Refusal::Failed(E2bFailure::from(Failure::from(error)))),
    }
}

/// Whether a host is a port of a sandbox by name.
fn names_sandbox(host: &http::HeaderValue) -> bool {
    host.to_str().ok().and_then(SandboxHost::parse).is_some()
}
