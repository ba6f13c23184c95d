//! Services in a session's box, reached from outside: over HTTP, and by bytes as they are.

mod cookies;
mod manners;

use std::num::NonZeroU16;

use axum::extract::{Request, State};
use axum::response::Response;
use http::uri::PathAndQuery;

use super::views::Binary;
use crate::app::App;
use crate::extract::{OfPort, PortPath, Who};
use crate::limits;
use door_http::failure::Failure;
use door_http::observe::OfBox;
use door_http::proxy::{self, Target};
use door_http::socket::{self, Upgrade};

/// How many slashes a path has before what the service is asked for: `/v1/sessions/{session_id}/ports/{port}`.
const SLASHES_BEFORE: usize = 5;

/// Asks a service in the session's box
///
/// Every method is passed on, with what stands behind the port as its path and with its query, and so are WebSockets. The service must listen on
/// 127.0.0.1 or 0.0.0.0 of the box. Your token does not reach it; it sees `Host: localhost:PORT` and `X-Forwarded-*`. Pages get
/// an origin of their own, and cookies of the service a name that begins with `box.`; see docs/ports.md.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/ports/{port}/{path}", tag = "ports",
    params(PortPath, ("path" = String, Path, description = "What the service is asked for; may hold slashes, and be empty")),
    responses((status = 200, description = "What the service answers, whatever its status", content_type = "*/*", body = inline(Binary))))]
pub(crate) async fn reach(
    State(app): State<App>,
    Who(caller): Who,
    OfPort(session, port): OfPort,
    mut request: Request,
) -> Result<Response, Failure> {
    let path = request.uri().path().to_owned();
    let (own, behind) = split(&path);
    let asked = asked_for(behind, request.uri().query())?;
    manners::to_service(request.headers_mut(), own, port);
    let target = Target { caller, session, port, path: asked, host: proxy::local_name(port) };
    let mut response = proxy::forward(&app, target, request).await?;
    manners::from_service(response.headers_mut(), own, port);
    Ok(OfBox::OfOurOrigin.wrap(response))
}

/// Connects to a port of the session's box by WebSocket
///
/// A binary message is bytes as they are, in both directions. The text message `{"type":"end"}` says that its sender will send
/// no more; the other direction goes on. `strongbox port-forward` speaks this.
#[utoipa::path(get, path = "/v1/sessions/{session_id}/tcp/{port}", tag = "ports", params(PortPath),
    responses((status = 101, description = "A WebSocket")))]
pub(crate) async fn connect(
    State(app): State<App>,
    Who(caller): Who,
    OfPort(session, port): OfPort,
    upgrade: Upgrade,
) -> Result<Response, Failure> {
    // Nobody is connected who cannot be upgraded.
    if upgrade.is_err() {
        return socket::open(&app, upgrade, limits::SOCKET_MESSAGE_BYTES_MAX, |_| std::future::ready(()));
    }
    let stream = app.service().dial_port(&caller, &session, port).await?;
    let closing = app.closing().clone();
    super::streams::open(&app, upgrade, |socket| socket::carry(socket, stream, closing))
}

/// The path of a port, and what stands behind it, both as they were sent.
fn split(path: &str) -> (&str, &str) {
    let end = path.match_indices('/').nth(SLASHES_BEFORE).map_or(path.len(), |(at, _)| at);
    path.split_at(end)
}

fn asked_for(behind: &str, query: Option<&str>) -> Result<PathAndQuery, Failure> {
    let path = if behind.is_empty() { "/" } else { behind };
    let asked = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    let refuse = |_| Failure::invalid("path", "what the service is asked for is not a path");
    PathAndQuery::try_from(asked).map_err(refuse)
}

/// The port that a path names.
pub(crate) fn port_number(text: &str) -> Result<NonZeroU16, Failure> {
    text.parse().map_err(|_| Failure::invalid("port", format!("invalid port: {text:.16} (a number from 1 to 65535)")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_http::testing::field_of;

    #[test]
    fn a_service_is_asked_for_what_stands_behind_its_port() {
        let table = [
            ("/v1/sessions/s/ports/8000", None, "/v1/sessions/s/ports/8000", "/"),
            ("/v1/sessions/s/ports/8000/", None, "/v1/sessions/s/ports/8000", "/"),
            ("/v1/sessions/s/ports/80/a/b%2Fc/", Some("x=1&y=/"), "/v1/sessions/s/ports/80", "/a/b%2Fc/?x=1&y=/"),
            ("/v1/sessions/a%2Fb/ports/80//x", Some(""), "/v1/sessions/a%2Fb/ports/80", "//x?"),
        ];
        for (path, query, own, asked) in table {
            let (found, behind) = split(path);
            assert_eq!((found, asked_for(behind, query).unwrap().as_str()), (own, asked), "{path}");
        }
    }

    #[test]
    fn what_is_no_port_is_refused() {
        for bad in ["0", "65536", "http", "", "-1", "80 "] {
            assert_eq!(field_of(port_number(bad)), "port", "{bad}");
        }
        assert_eq!(port_number("65535").unwrap().get(), 65535);
    }
}
