//! What of a head goes through: nothing that is about one connection only, and nothing that opens our doors.

use axum::extract::Request;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::auth;
use crate::gate::{Peer, Scheme};

/// About one connection only, besides what `Connection` names.
const OF_ONE_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    // Both ends of the proxy answer it by themselves.
    header::EXPECT,
];

/// Headers by which the doors recognize sandboxes and their credentials.
const OF_OUR_DOORS: [HeaderName; 4] = [
    HeaderName::from_static("x-access-token"),
    HeaderName::from_static("e2b-traffic-access-token"),
    HeaderName::from_static("e2b-sandbox-id"),
    HeaderName::from_static("e2b-sandbox-port"),
];

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The protocol that a request asks to change to.
pub(super) fn asked_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_named = listed(headers, &header::CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| is_named).cloned()
}

/// Says that the protocol is changed, or should be.
pub(super) fn ask_for_protocol(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

/// Makes the head of a request fit for a service in a box.
pub(super) fn to_service(request: &mut Request, host: &HeaderValue) {
    let peer = request.extensions().get::<Peer>().copied();
    let scheme = request.extensions().get::<Scheme>().copied().unwrap_or_default();
    let headers = request.headers_mut();
    drop_of_one_connection(headers);
    drop_credentials(headers);
    let asked_host = headers.insert(header::HOST, host.clone());
    if let Some(asked_host) = asked_host {
        headers.entry(FORWARDED_HOST).or_insert(asked_host);
    }
    headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static(scheme.as_str()));
    if let Some(Peer::Tcp { remote, .. }) = peer {
        let address = remote.ip().to_canonical().to_string();
        let before: Vec<String> = listed(headers, &FORWARDED_FOR).map(str::to_owned).collect();
        let all = before.into_iter().chain([address]).collect::<Vec<_>>().join(", ");
        if let Ok(all) = HeaderValue::try_from(all) {
            headers.insert(FORWARDED_FOR, all);
        }
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
}

/// Removes from the response what concerns only the connection to the service.
pub(super) fn from_service(headers: &mut HeaderMap) {
    drop_of_one_connection(headers);
}

fn drop_of_one_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = listed(headers, &header::CONNECTION).filter_map(|name| name.parse().ok()).collect();
    for name in OF_ONE_CONNECTION.into_iter().chain(named) {
        headers.remove(name);
    }
}

/// Takes out what opens our doors. A service may have keys of its own under the same names, and those are its own matter.
fn drop_credentials(headers: &mut HeaderMap) {
    for name in OF_OUR_DOORS {
        headers.remove(name);
    }
    for name in [header::AUTHORIZATION, API_KEY] {
        if headers.get_all(&name).iter().any(auth::is_like_ours) {
            headers.remove(name);
        }
    }
}

/// The members of a header that is a list.
fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|member| !member.is_empty())
}
