//! Requests that a browser may have been tricked into are refused: `Host` must name this server, and `Origin` must be
//! its own page or an allowed one.
//!
//! A page can resolve its own name to this server's address (DNS rebinding) and then send requests from the browser of
//! a user who can reach the server; `Host` still has the page's name. And a browser opens WebSockets to any server, but
//! names the page in `Origin`. So both are checked first, for every request.

use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use crate::failure::Failure;
use crate::state::ServerState;

/// How a request arrived. The acceptor of the connection puts it into the extensions; a request without it is refused.
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
    /// Whether the other end can only be a user of this machine.
    pub fn is_local(self) -> bool {
        match self {
            Self::Tcp { remote, .. } => remote.ip().to_canonical().is_loopback(),
            Self::Unix => true,
        }
    }
}

/// The scheme of a request. The acceptor of the connection puts it into the extensions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scheme {
    /// Without TLS.
    #[default]
    Http,
    /// Encrypted.
    Https,
}

impl Scheme {
    /// As URLs begin.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Requests to which a door applies rules of its own for `Host` and `Origin`. The rules see only the head of a request,
/// before its token is checked.
pub trait OwnRules: Debug + Send + Sync {
    /// Whether a host name belongs to this door.
    fn is_own_host(&self, _host: &str) -> bool {
        false
    }

    /// Checks a request to such a name, and says whether the gate looks at its `Origin`.
    fn check_own_host(&self, _host: &str, _request: &Request) -> Result<OriginCheck, Failure> {
        Ok(OriginCheck::ByGate)
    }

    /// Whether the door takes a request away from the routes of the server.
    fn takes(&self, _request: &Request) -> bool {
        false
    }

    /// Whether only programs, and no web pages, can send a request to this path of the door.
    fn is_for_programs(&self, _path: &str) -> bool {
        false
    }
}

/// Which code checks the `Origin` of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginCheck {
    /// The gate, as for every request.
    ByGate,
    /// The service that the request is for.
    ByService,
}

/// The names of the server, and the pages that may use it.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    hosts: Vec<Authority>,
    origins: Vec<String>,
    rules: Vec<Arc<dyn OwnRules>>,
}

/// A host, and the port if one was written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Authority {
    host: String,
    port: Option<u16>,
}

impl Gate {
    /// Takes what the operator allowed. The error is the entry that makes no sense, and why.
    pub fn new(hosts: &[String], origins: &[String]) -> Result<Self, String> {
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
            rules: Vec::new(),
        })
    }

    /// The same, with the rules of a door.
    #[must_use]
    pub fn with_rules(mut self, rules: Arc<dyn OwnRules>) -> Self {
        self.rules.push(rules);
        self
    }

    /// Lets a request in or says why not.
    pub fn check(&self, request: &Request) -> Result<(), Failure> {
        let peer =
            request.extensions().get::<Peer>().copied().ok_or_else(|| Failure::internal("a request without a peer"))?;
        if self.is_from_program(request) {
            return Ok(());
        }
        let host = self.check_host(peer, request)?;
        for rules in &self.rules {
            let Some(own) = host.as_ref().filter(|host| rules.is_own_host(&host.host)) else { continue };
            if rules.check_own_host(&own.host, request)? == OriginCheck::ByService {
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
        own || authority.host == "localhost" || self.hosts.iter().any(allowed) || self.is_own_host(&authority.host)
    }

    fn is_own_host(&self, host: &str) -> bool {
        self.rules.iter().any(|rules| rules.is_own_host(host))
    }

    /// A page is the server's own if it was loaded from the address to which its request goes.
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

    /// Whether a program opens a WebSocket of a door that serves programs only. It reaches the server by the name that its
    /// operator chose, such as that of a container. That name is of no use to an attacker here: a browser sends `Origin`
    /// whenever it opens a WebSocket. With `Origin` both headers are checked as everywhere.
    fn is_from_program(&self, request: &Request) -> bool {
        let headers = request.headers();
        let is_upgrade =
            headers.get(header::UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
        let is_for_programs = |path| self.rules.iter().any(|rules| rules.is_for_programs(path));
        is_upgrade
            && !headers.contains_key(header::ORIGIN)
            && is_for_programs(request.uri().path())
            && !self.rules.iter().any(|rules| rules.takes(request))
    }

    /// The origin of a request, if it is an allowed foreign page and its browser needs CORS headers.
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

/// How a client reached this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// The URL of the server that the client used, without a path.
    pub url: String,
    /// Whether only clients on this machine can use that URL.
    pub by_loopback: bool,
}

/// How the client of an admitted request reached this server. Clients of the Unix socket use no URL.
pub fn reached(request: &Request) -> Option<Reached> {
    request.extensions().get::<Peer>().filter(|peer| matches!(peer, Peer::Tcp { .. }))?;
    let scheme = request.extensions().get::<Scheme>().copied().unwrap_or_default();
    let named = request.headers().get(header::HOST)?.to_str().ok()?;
    let Authority { host, .. } = Authority::parse(named)?;
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    let url = format!("{}://{}", scheme.as_str(), named.to_ascii_lowercase());
    Some(Reached { url, by_loopback: is_loopback || host == "localhost" })
}

/// Host and port of an origin, the port only where it is not the usual one of its scheme.
fn origin_authority(origin: &str) -> Option<Authority> {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
    Authority::parse(rest)
}

/// Checks `Host` and `Origin` before anything else, and adds CORS headers for allowed pages.
pub async fn guard(State(state): State<ServerState>, request: Request, next: Next) -> Response {
    if let Err(failure) = state.gate().check(&request) {
        return failure.into_response();
    }
    let page = state.gate().allowed_page(request.headers());
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

    /// A door with names, paths and requests of its own.
    #[derive(Debug)]
    struct Own;

    impl OwnRules for Own {
        fn is_own_host(&self, host: &str) -> bool {
            host.ends_with(".own.example")
        }

        fn check_own_host(&self, host: &str, request: &Request) -> Result<OriginCheck, Failure> {
            match request.uri().path() {
                "/elsewhere" => Err(Failure::new(StatusCode::FORBIDDEN, "forbidden", "elsewhere")),
                _ if host.starts_with("program.") => Ok(OriginCheck::ByService),
                _ => Ok(OriginCheck::ByGate),
            }
        }

        fn takes(&self, request: &Request) -> bool {
            request.headers().contains_key("x-taken")
        }

        fn is_for_programs(&self, path: &str) -> bool {
            path == "/rpc/ws"
        }
    }

    fn is_let_in(path: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(axum::body::Body::empty()).unwrap();
        request.extensions_mut().insert(tcp());
        gate().with_rules(Arc::new(Own)).check(&request).is_ok()
    }

    #[test]
    fn a_door_decides_about_its_own_names() {
        let page = ("origin", "https://elsewhere.example");
        assert!(is_let_in("/", &[("host", "a.own.example")]));
        assert!(!is_let_in("/elsewhere", &[("host", "a.own.example")]));
        assert!(!is_let_in("/", &[("host", "a.own.example"), page]));
        assert!(is_let_in("/", &[("host", "program.own.example"), page]));
        assert!(!is_let_in("/", &[("host", "a.evil.example")]));
    }

    #[test]
    fn a_program_is_let_in_by_any_name_only_where_its_request_stays_with_the_server() {
        let upgrade = ("upgrade", "websocket");
        let host = ("host", "langbot_box:5410");
        assert!(is_let_in("/rpc/ws", &[host, upgrade]));
        assert!(!is_let_in("/rpc/ws", &[host]), "a request that opens no WebSocket");
        assert!(!is_let_in("/other/ws", &[host, upgrade]));
        assert!(!is_let_in("/rpc/ws", &[host, upgrade, ("origin", "https://evil.example")]));
        assert!(!is_let_in("/rpc/ws", &[host, upgrade, ("x-taken", "1")]));
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
    fn entries_that_mean_nothing_are_refused_at_the_start() {
        assert!(Gate::new(&["http://box.example".to_owned()], &[]).unwrap_err().contains("http://box.example"));
        assert!(Gate::new(&[], &["page.example".to_owned()]).unwrap_err().contains("page.example"));
        assert!(Gate::new(&[], &["*".to_owned()]).is_err());
    }
}
