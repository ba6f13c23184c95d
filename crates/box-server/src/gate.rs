//! Who may knock at all: requests that name us as we are called, from pages that are ours or were allowed.
//!
//! A web page can make its name mean our address, and then talk to us from the browser of somebody who can reach us. The header
//! `Host` then still has the page's name. And a browser opens WebSockets to anybody, but tells from which page in `Origin`. So
//! both are looked at first, for every request.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use box_e2b_wire::{ENVD_PORT, INTERPRETER_PORT, SandboxHost};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::app::App;
use crate::failure::Failure;

/// How a request came to us. Put into its extensions by whoever accepted the connection; without it nobody is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// By TCP.
    Tcp {
        /// Our end.
        local: SocketAddr,
        /// Theirs.
        remote: SocketAddr,
    },
    /// By the Unix socket, which only its owner can open.
    Unix,
}

impl Peer {
    /// Whether nobody but users of this machine can be at the other end.
    pub(crate) fn is_local(self) -> bool {
        match self {
            Self::Tcp { remote, .. } => remote.ip().to_canonical().is_loopback(),
            Self::Unix => true,
        }
    }
}

/// How a request was written on its way to us. Put into its extensions by whoever accepted the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// As it is.
    #[default]
    Http,
    /// Encrypted.
    Https,
}

impl Scheme {
    /// As URLs begin.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// What we are called, and which pages may talk to us.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate {
    hosts: Vec<Authority>,
    origins: Vec<String>,
    /// The domain below which sandboxes have names.
    sandboxes: Option<String>,
}

/// A host, and the port if one was written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Authority {
    host: String,
    port: Option<u16>,
}

impl Gate {
    /// Takes what the operator allowed. The error is the entry that makes no sense, and why.
    pub(crate) fn new(hosts: &[String], origins: &[String]) -> Result<Self, String> {
        let host = |text: &String| {
            Authority::parse(text)
                .ok_or_else(|| format!("allowed host {text:?} is not a name or address, such as box.example"))
        };
        let origin = |text: &String| {
            let plain = text.trim_end_matches('/').to_ascii_lowercase();
            match origin_authority(&plain) {
                Some(_) => Ok(plain),
                None => Err(format!("allowed origin {text:?} is not like https://box.example")),
            }
        };
        Ok(Self {
            hosts: hosts.iter().map(host).collect::<Result<_, _>>()?,
            origins: origins.iter().map(origin).collect::<Result<_, _>>()?,
            sandboxes: None,
        })
    }

    /// The same, and names of sandboxes below a domain are ours too.
    pub(crate) fn with_sandboxes(self, domain: Option<&str>) -> Self {
        Self { sandboxes: domain.map(str::to_owned), ..self }
    }

    /// Lets a request in or says why not.
    fn check(&self, request: &Request) -> Result<(), Failure> {
        let peer =
            request.extensions().get::<Peer>().copied().ok_or_else(|| Failure::internal("a request without a peer"))?;
        if is_from_program(request) {
            return Ok(());
        }
        let host = self.check_host(peer, request)?;
        if let Some(named) = host.as_ref().and_then(|host| self.sandbox(&host.host)) {
            // A page of a sandbox has this name as its origin. Whatever headers it adds, it must reach nothing but that sandbox.
            if !crate::e2b::is_meant_for(request, &named) {
                let message = "this name is for one port of one sandbox, and the request is for something else";
                let failure = Failure::new(StatusCode::FORBIDDEN, "forbidden", message).detail("host_not_allowed");
                return Err(
                    failure.hint("send it to the address of the API, or without E2b-Sandbox-Id and E2b-Sandbox-Port")
                );
            }
            // Which pages may use a program's own port is that program's decision.
            if !matches!(named.port, ENVD_PORT | INTERPRETER_PORT) {
                return Ok(());
            }
        }
        self.check_origin(host.as_ref(), request.headers())
    }

    fn check_host(&self, peer: Peer, request: &Request) -> Result<Option<Authority>, Failure> {
        let Peer::Tcp { local, .. } = peer else { return Ok(None) };
        let mut named: Vec<&str> = Vec::new();
        for value in request.headers().get_all(header::HOST) {
            named.push(value.to_str().unwrap_or_default());
        }
        let once = named.len() == 1;
        // Routing reads one of the two and a proxy before us may read the other, so they must be the same.
        named.extend(request.uri().authority().map(http::uri::Authority::as_str));
        let parsed: Option<Vec<Authority>> = named.into_iter().map(Authority::parse).collect();
        let is_one = |all: &Vec<Authority>| once && all.iter().all(|authority| *authority == all[0]);
        let ours = parsed.filter(|all| is_one(all) && self.is_ours(&all[0], local.ip()));
        let refuse = || {
            let message = "the header Host must be an address of this server, localhost, or an allowed host";
            let failure = Failure::new(StatusCode::FORBIDDEN, "forbidden", message).detail("host_not_allowed");
            failure.hint("the operator can add a name to allowed_hosts")
        };
        ours.ok_or_else(refuse).map(|mut all| Some(all.swap_remove(0)))
    }

    fn is_ours(&self, authority: &Authority, local: IpAddr) -> bool {
        let address = authority.host.parse::<IpAddr>().ok();
        let own =
            address.is_some_and(|ip| ip.to_canonical().is_loopback() || ip.to_canonical() == local.to_canonical());
        let allowed =
            |known: &Authority| known.host == authority.host && (known.port.is_none() || known.port == authority.port);
        own || authority.host == "localhost" || self.hosts.iter().any(allowed) || self.is_sandbox(&authority.host)
    }

    /// Whether a name is one of those that E2B's clients make of our domain: that of a sandbox, or what all of them share.
    fn is_sandbox(&self, host: &str) -> bool {
        let Some(domain) = self.sandboxes.as_deref() else { return false };
        let label = host.strip_suffix(domain).and_then(|start| start.strip_suffix('.'));
        label.is_some_and(|label| {
            matches!(label, "api" | "sandbox") || (!label.contains('.') && SandboxHost::parse(host).is_some())
        })
    }

    /// The sandbox and port that a name below our domain stands for.
    fn sandbox(&self, host: &str) -> Option<SandboxHost> {
        SandboxHost::parse(host).filter(|_| self.is_sandbox(host))
    }

    /// A page is ours when it was loaded from where its request goes now.
    fn check_origin(&self, host: Option<&Authority>, headers: &HeaderMap) -> Result<(), Failure> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let once = headers.get_all(header::ORIGIN).iter().count() == 1;
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        let own = origin_authority(&origin).is_some_and(|page| host.is_some_and(|host| *host == page));
        if once && (own || self.origins.contains(&origin)) {
            return Ok(());
        }
        let message = "this web page may not use the server";
        let failure = Failure::new(StatusCode::FORBIDDEN, "forbidden", message).detail("origin_not_allowed");
        Err(failure.hint("the operator can add its origin to allowed_origins"))
    }

    /// The origin of a request, if it is a page that was allowed from outside and whose browser wants to be told so.
    fn allowed_page(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let text = origin.to_str().ok()?.to_ascii_lowercase();
        self.origins.contains(&text).then(|| origin.clone())
    }
}

impl Authority {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']')?;
                address.parse::<std::net::Ipv6Addr>().ok()?;
                (address, rest.strip_prefix(':').map(Some).or_else(|| rest.is_empty().then_some(None))?)
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map(str::parse).transpose().ok()?;
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        let fits = !host.is_empty() && host.len() <= 253 && host.bytes().all(good);
        fits.then(|| Self { host: host.to_ascii_lowercase(), port })
    }
}

/// Whether a WebSocket of LangBot is opened by a program. It reaches us by whatever name its operator gave us, such as that of
/// a container, and that name is no use to an attacker here: a browser tells the page in `Origin` whenever it opens a
/// WebSocket, and no page can make it open one without. With `Origin` both headers are looked at as everywhere.
fn is_from_program(request: &Request) -> bool {
    let headers = request.headers();
    let is_upgrade =
        headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let parts: Vec<&str> = request.uri().path().split('/').skip(1).take(8).collect();
    let is_ours = matches!(
        parts.as_slice(),
        ["rpc", "ws"]
            | ["v1", "sessions", _, "managed-process", "ws"]
            | ["v1", "sessions", _, "managed-process", _, "ws"]
    );
    // What is led to a sandbox is not for LangBot's door, whatever its path is.
    is_upgrade && is_ours && !headers.contains_key(header::ORIGIN) && crate::e2b::is_for_server(request)
}

/// Host and port of an origin, the port only where it is not the usual one of its scheme.
fn origin_authority(origin: &str) -> Option<Authority> {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
    Authority::parse(rest)
}

/// Looks at `Host` and `Origin` before anything else, and tells browsers of allowed pages that they may read the answer.
pub(crate) async fn guard(State(app): State<App>, request: Request, next: Next) -> Response {
    if let Err(failure) = app.gate().check(&request) {
        return failure.into_response();
    }
    let page = app.gate().allowed_page(request.headers());
    let is_question = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && page.is_some();
    let mut response = if is_question { StatusCode::NO_CONTENT.into_response() } else { next.run(request).await };
    if let Some(page) = page {
        tell_browser(response.headers_mut(), page);
    }
    response
}

fn tell_browser(headers: &mut HeaderMap, page: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, page);
    headers.insert(header::VARY, HeaderValue::from_static("Origin"));
    let told = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "Authorization, Content-Type, Idempotency-Key, If-Range, Last-Event-ID, Range",
        ),
        (
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            "Accept-Ranges, Content-Range, ETag, Link, Location, Strongbox-Created, Strongbox-Exec-Id, Strongbox-Gap, Strongbox-Mode, \
             Strongbox-Next, Strongbox-Offset, Strongbox-Request-Id, Strongbox-Running, Strongbox-Total",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    for (name, value) in told {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> Gate {
        let hosts = ["box.example".to_owned(), "other.example:8443".to_owned()];
        Gate::new(&hosts, &["https://page.example".to_owned(), "http://localhost:5173/".to_owned()]).unwrap()
    }

    fn status(peer: Option<Peer>, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::builder().uri("/v1/status");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(axum::body::Body::empty()).unwrap();
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        gate().check(&request).err().map(|failure| failure.status().as_u16())
    }

    fn tcp() -> Peer {
        Peer::Tcp { local: "192.0.2.1:5410".parse().unwrap(), remote: "192.0.2.9:1".parse().unwrap() }
    }

    #[test]
    fn a_host_that_is_not_us_is_refused() {
        let long = "a".repeat(10_000);
        for bad in [
            "evil.example",
            "evil.example:5410",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "[::1].evil",
            "0.0.0.0",
            "[::]",
            "192.0.2.2",
            "",
            ":5410",
            "localhost:x",
            "localhost:99999",
            "other.example",
            "a@localhost",
            &long,
        ] {
            assert_eq!(status(Some(tcp()), &[("host", bad)]), Some(403), "{bad}");
        }
        assert_eq!(status(Some(tcp()), &[]), Some(403), "no host at all");
        assert_eq!(status(Some(tcp()), &[("host", "localhost"), ("host", "evil.example")]), Some(403), "two");
    }

    #[test]
    fn our_own_names_are_taken_with_any_port() {
        for good in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:5410",
            "[::1]:5410",
            "192.0.2.1:5410",
            "box.example",
            "other.example:8443",
        ] {
            assert_eq!(status(Some(tcp()), &[("host", good)]), None, "{good}");
        }
    }

    #[test]
    fn names_of_sandboxes_are_ours_below_their_domain_only() {
        let status = |gate: &Gate, host: &str| {
            let mut request = Request::builder().header("host", host).body(axum::body::Body::empty()).unwrap();
            request.extensions_mut().insert(tcp());
            gate.check(&request).err().map(|failure| failure.status().as_u16())
        };
        let with = gate().with_sandboxes(Some("sand.example"));
        let good = ["49983-abc.sand.example", "3000-abc.sand.example:443", "api.sand.example", "SANDBOX.sand.example"];
        for host in good {
            assert_eq!(status(&with, host), None, "{host}");
            assert_eq!(status(&gate(), host), Some(403), "{host}");
        }
        let from_page = |host: &str| {
            let request = Request::builder().header("host", host).header("origin", "https://elsewhere.example");
            let mut request = request.body(axum::body::Body::empty()).unwrap();
            request.extensions_mut().insert(tcp());
            with.check(&request).is_ok()
        };
        let forged = |host: &str, path: &str, id: &str, port: &str| {
            let request = Request::builder().uri(path).header("host", host);
            let request = request.header("e2b-sandbox-id", id).header("e2b-sandbox-port", port);
            let mut request = request.body(axum::body::Body::empty()).unwrap();
            request.extensions_mut().insert(tcp());
            with.check(&request).is_ok()
        };
        for (path, id, port) in [("/sandboxes", "x", "49983"), ("/sandboxes", "abc", "49983"), ("/", "def", "3000")] {
            assert!(
                !forged("3000-abc.sand.example", path, id, port),
                "{path} of {id} at {port}, asked by a page of a sandbox"
            );
            assert!(forged("localhost", path, id, port), "{path} of {id} at {port}, asked by a client");
        }
        assert!(
            !forged("49983-abc.sand.example", "/sandboxes", "abc", "49983"),
            "a page of envd is no page of the server"
        );
        assert!(forged("49983-abc.sand.example", "/files", "abc", "49983"), "what clients send");
        assert!(forged("3000-abc.sand.example", "/", "abc", "3000"));
        assert!(from_page("3000-abc.sand.example"), "a program of a sandbox decides itself who may use it");
        assert!(!from_page("49983-abc.sand.example") && !from_page("api.sand.example"));
        for host in ["49983-abc.evil.example", "49983-abc.x.sand.example", "49983-abcsand.example", "www.sand.example"]
        {
            assert_eq!(status(&with, host), Some(403), "{host}");
        }
    }

    #[test]
    fn a_target_with_a_name_of_its_own_is_checked_too() {
        let is_let_in = |target: &str| {
            let request = Request::builder().uri(format!("http://{target}/v1/status")).header("host", "localhost");
            let mut request = request.body(axum::body::Body::empty()).unwrap();
            request.extensions_mut().insert(tcp());
            gate().check(&request).is_ok()
        };
        assert!(!is_let_in("evil.example"));
        assert!(!is_let_in("box.example"), "an allowed host, but not the one in Host");
        assert!(is_let_in("localhost"));
    }

    #[test]
    fn a_program_is_let_in_by_any_name_only_where_its_request_stays_with_the_server() {
        let is_let_in = |headers: &[(&str, &str)]| {
            let mut request = Request::builder().uri("/rpc/ws").header("upgrade", "websocket");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let mut request = request.body(axum::body::Body::empty()).unwrap();
            request.extensions_mut().insert(tcp());
            gate().check(&request).is_ok()
        };
        assert!(is_let_in(&[("host", "langbot_box:5410")]));
        assert!(!is_let_in(&[("host", "3000-abc.evil.example")]));
        let led = [("host", "evil.example"), ("e2b-sandbox-id", "abc"), ("e2b-sandbox-port", "3000")];
        assert!(!is_let_in(&led));
    }

    #[test]
    fn only_our_own_and_allowed_pages_come_in() {
        let origin = |origin| status(Some(tcp()), &[("host", "localhost:5410"), ("origin", origin)]);
        for good in ["http://localhost:5410", "https://localhost:5410", "https://page.example", "HTTPS://Page.Example"]
        {
            assert_eq!(origin(good), None, "{good}");
        }
        for bad in [
            "null",
            "",
            "http://localhost:3000",
            "http://localhost",
            "http://page.example",
            "https://evil.example",
            "file://",
        ] {
            assert_eq!(origin(bad), Some(403), "{bad}");
        }
    }

    #[test]
    fn the_unix_socket_has_no_host_but_may_not_be_used_by_strange_pages() {
        assert_eq!(status(Some(Peer::Unix), &[]), None);
        assert_eq!(status(Some(Peer::Unix), &[("host", "whatever")]), None);
        assert_eq!(status(Some(Peer::Unix), &[("origin", "http://evil.example")]), Some(403));
    }

    #[test]
    fn who_came_nobody_knows_how_is_not_let_in() {
        assert_eq!(status(None, &[("host", "localhost")]), Some(500));
    }

    #[test]
    fn programs_may_call_langbots_sockets_by_any_name_and_pages_may_not() {
        let status = |path: &str, headers: &[(&str, &str)]| {
            let mut request = Request::builder().uri(path).header("host", "langbot_box:5410");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let mut request = request.body(axum::body::Body::empty()).unwrap();
            request.extensions_mut().insert(tcp());
            gate().check(&request).err().map(|failure| failure.status().as_u16())
        };
        let upgrade = ("upgrade", "WebSocket");
        for path in
            ["/rpc/ws", "/v1/sessions/s/managed-process/ws", "/v1/sessions/s/managed-process/p/ws", "/rpc/ws?x=1"]
        {
            assert_eq!(status(path, &[upgrade]), None, "{path}");
            assert_eq!(status(path, &[]), Some(403), "{path}: any page can ask without upgrade");
            for origin in ["http://langbot_box:5410", "https://page.example", "null"] {
                assert_eq!(status(path, &[upgrade, ("origin", origin)]), Some(403), "{path} {origin}");
            }
        }
        for path in ["/rpc", "/rpc/ws/", "/v1/sessions/s/exec/ws", "/v1/sessions/s/managed-process", "/v1/sessions/ws"]
        {
            assert_eq!(status(path, &[upgrade]), Some(403), "{path}");
        }
    }

    #[test]
    fn entries_that_mean_nothing_are_refused_at_the_start() {
        assert!(Gate::new(&["http://box.example".to_owned()], &[]).unwrap_err().contains("http://box.example"));
        assert!(Gate::new(&[], &["page.example".to_owned()]).unwrap_err().contains("page.example"));
        assert!(Gate::new(&[], &["*".to_owned()]).is_err());
    }
}
