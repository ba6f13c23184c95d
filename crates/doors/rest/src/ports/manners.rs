//! What a head has to lose when a service in a box is served from our own address.
//!
//! To a browser, whatever comes from our address is ours: a page of a box could read our API's answers, speak for the operator
//! where no token is needed, and set rules for the whole address. So its pages get an origin that is nobody's (the policy
//! `sandbox`, which [`door_http::observe`] adds), which the gate refuses wherever it is told; headers that rule the whole address are
//! dropped; cookies are bound to the path; and what is ours never reaches the service.

use std::num::NonZeroU16;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use super::cookies;
use door_http::auth;

/// What rules a whole address in a browser, or makes it ask its user for something in our name.
const OF_THE_ADDRESS: [HeaderName; 14] = [
    header::ALT_SVC,
    header::STRICT_TRANSPORT_SECURITY,
    header::PUBLIC_KEY_PINS,
    header::WWW_AUTHENTICATE,
    HeaderName::from_static("accept-ch"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("critical-ch"),
    HeaderName::from_static("expect-ct"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("origin-agent-cluster"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("set-login"),
];

/// Which pages may read an answer is for the operator to say.
const READERS_PREFIX: &str = "access-control-";

const FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// Takes out of a request what is between its sender and us. `path` is where the service begins.
pub(super) fn to_service(headers: &mut HeaderMap, path: &str, port: NonZeroU16) {
    headers.remove(header::AUTHORIZATION);
    cookies::to_service(headers);
    auth::drop_token_protocols(headers);
    // The gate has looked at it. The service is told a name of its own as `Host`, and would refuse any other page.
    if headers.contains_key(header::ORIGIN)
        && let Ok(own) = HeaderValue::try_from(format!("http://localhost:{port}"))
    {
        headers.insert(header::ORIGIN, own);
    }
    if let Ok(path) = HeaderValue::try_from(path) {
        headers.insert(FORWARDED_PREFIX, path);
    }
}

/// Takes out of an answer what is not for the service to say.
pub(super) fn from_service(headers: &mut HeaderMap, path: &str, port: NonZeroU16) {
    for name in OF_THE_ADDRESS {
        headers.remove(name);
    }
    let of_readers: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(READERS_PREFIX)).cloned().collect();
    for name in of_readers {
        headers.remove(name);
    }
    cookies::from_service(headers, path);
    let location = headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
    if let Some(location) = location.and_then(|location| relocated(location, path, port))
        && let Ok(location) = HeaderValue::try_from(location)
    {
        headers.insert(header::LOCATION, location);
    }
}

/// Where a redirection leads, seen from outside; nothing where it leads elsewhere, or on from where it stands.
fn relocated(location: &str, path: &str, port: NonZeroU16) -> Option<String> {
    if location.starts_with('/') && !location.starts_with("//") && !location.starts_with("/\\") {
        return Some(format!("{path}{location}"));
    }
    let own = ["localhost", "127.0.0.1", "[::1]"].map(|name| format!("http://{name}:{port}"));
    let rest = own.iter().find_map(|own| location.strip_prefix(own.as_str()))?;
    let is_whole = rest.is_empty() || rest.starts_with(['/', '?', '#']);
    is_whole.then(|| format!("{path}{}{rest}", if rest.starts_with('/') { "" } else { "/" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: NonZeroU16 = NonZeroU16::new(8000).unwrap();

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn nothing_that_is_ours_reaches_a_service() {
        let mut head = headers(&[
            ("authorization", "Bearer sbx_1_2"),
            ("cookie", "session=other"),
            ("sec-websocket-protocol", "chat, bearer.sbx_1_2, graphql-ws"),
            ("origin", "http://127.0.0.1:5410"),
            ("accept", "*/*"),
        ]);
        to_service(&mut head, "/v1/sessions/s/ports/8000", PORT);
        let expected = headers(&[
            ("sec-websocket-protocol", "chat, graphql-ws"),
            ("origin", "http://localhost:8000"),
            ("accept", "*/*"),
            ("x-forwarded-prefix", "/v1/sessions/s/ports/8000"),
        ]);
        assert_eq!(head, expected);
        let mut head = headers(&[("sec-websocket-protocol", "bearer.sbx_1_2")]);
        to_service(&mut head, "/p", PORT);
        assert!(!head.contains_key("sec-websocket-protocol"));
    }

    #[test]
    fn a_service_sets_no_rules_for_our_address() {
        let mut head = headers(&[
            ("strict-transport-security", "max-age=9"),
            ("clear-site-data", "\"*\""),
            ("access-control-allow-origin", "*"),
            ("access-control-allow-credentials", "true"),
            ("www-authenticate", "Basic realm=x"),
            ("content-type", "text/html"),
            ("etag", "\"1\""),
        ]);
        from_service(&mut head, "/p", PORT);
        assert_eq!(head, headers(&[("content-type", "text/html"), ("etag", "\"1\"")]));
    }

    #[test]
    fn a_redirection_within_the_service_stays_within_it() {
        let table = [
            ("/login?x=/y", Some("/p/login?x=/y")),
            ("http://localhost:8000/a", Some("/p/a")),
            ("http://127.0.0.1:8000", Some("/p/")),
            ("http://[::1]:8000?q", Some("/p/?q")),
            ("http://localhost:80001/a", None),
            ("//evil.example/", None),
            ("/\\evil.example/", None),
            ("next", None),
            ("https://elsewhere.example/", None),
        ];
        for (given, expected) in table {
            assert_eq!(relocated(given, "/p", PORT).as_deref(), expected, "{given}");
        }
    }
}
