//! Connections to an engine. Each request has one of its own, as some are upgraded and others broken off.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bollard::errors::Error as EngineError;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker};
use box_core::{Error, Result};
use box_http_client::{ClientCertificate, Io, Tls, USER_AGENT};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Response, Uri};
use tokio::net::{TcpStream, UnixStream};

use crate::address::Endpoint;
use crate::client::unavailable;
use crate::config::EngineKind;

/// The port of engines without TLS and with it, where an address names none.
const PORTS: (u16, u16) = (80, 443);

/// Where an engine listens.
#[derive(Debug)]
enum Transport {
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: Option<Tls> },
}

/// A client for the engine at an address. Connects with the first request.
pub(crate) fn connect(kind: EngineKind, endpoint: &Endpoint, answer_sec_max: u64) -> Result<Docker> {
    let address = &endpoint.address;
    let bad = || -> Error {
        let allowed = "unix:///path/to.sock, tcp://host:port or https://host:port";
        box_wire::Invalid::new("address", address, allowed).into()
    };
    let (transport, authority) = match address.split_once("://").ok_or_else(bad)? {
        ("unix", path) => (Transport::Unix(path.into()), "localhost".to_owned()),
        // TLS is for `https://` alone: DOCKER_TLS_VERIFY was read with the address.
        ("tcp" | "http", rest) => Transport::tcp(rest, None).ok_or_else(bad)?,
        ("https", rest) => {
            let tls = endpoint.certificates.as_deref().map_or_else(|| Err(no_certificates()), with_certificates);
            let tls = tls.map_err(|error| unavailable(kind, endpoint, &error.into()))?;
            Transport::tcp(rest, Some(tls)).ok_or_else(bad)?
        }
        _ => return Err(bad()),
    };
    let transport = Arc::new(transport);
    let send = move |request| send(Arc::clone(&transport), request);
    let base = format!("http://{authority}");
    let docker = Docker::connect_with_custom_transport(send, Some(base), answer_sec_max, API_DEFAULT_VERSION);
    docker.map_err(|error| unavailable(kind, endpoint, &error))
}

impl Transport {
    /// A host, and perhaps a port, with what is sent as `Host`.
    fn tcp(rest: &str, tls: Option<Tls>) -> Option<(Self, String)> {
        let authority = rest.trim_end_matches('/');
        let uri: Uri = format!("http://{authority}/").parse().ok()?;
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if tls.is_some() { PORTS.1 } else { PORTS.0 });
        Some((Self::Tcp { host, port, tls }, authority.to_owned()))
    }

    async fn connect(&self) -> io::Result<Box<dyn Io>> {
        match self {
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Self::Tcp { host, port, tls } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                match tls {
                    Some(tls) => tls.connect(host, stream).await,
                    None => Ok(Box::new(stream)),
                }
            }
        }
    }
}

/// The files that Docker's own programs use.
fn with_certificates(directory: &Path) -> io::Result<Tls> {
    let [authority, certificate, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| directory.join(name));
    Tls::with_certificate(&ClientCertificate { authority, certificate, key })
}

fn no_certificates() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        "no certificates: set DOCKER_CERT_PATH to the directory with ca.pem, cert.pem and key.pem",
    )
}

async fn send(
    transport: Arc<Transport>,
    request: BollardRequest,
) -> std::result::Result<Response<Incoming>, EngineError> {
    let stream = transport.connect().await?;
    let (mut head, body) = request.into_parts();
    if let Some(host) = head.uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok()) {
        head.headers.insert(header::HOST, host);
    }
    head.headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    head.uri = head.uri.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()));
    let request = hyper::Request::from_parts(head, box_http_client::body(body));
    Ok(box_http_client::send(stream, request).await?.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_engines_are_parsed() {
        let tcp = |rest, tls| match Transport::tcp(rest, tls) {
            Some((Transport::Tcp { host, port, .. }, authority)) => Some((host, port, authority)),
            _ => None,
        };
        let found = |host: &str, port, authority: &str| Some((host.to_owned(), port, authority.to_owned()));
        assert_eq!(tcp("engine:2375", None), found("engine", 2375, "engine:2375"));
        assert_eq!(tcp("[::1]:2375/", None), found("::1", 2375, "[::1]:2375"));
        assert_eq!(tcp("engine", Tls::of_machine().ok()), found("engine", 443, "engine"));
        assert_eq!(tcp("", None), None);
    }

    #[test]
    fn an_address_that_cannot_be_used_names_what_can() {
        for bad in ["", "engine", "ssh://engine", "tcp://", "npipe:////./pipe/docker"] {
            let error = connect(EngineKind::Docker, &Endpoint::new(bad, "a test"), 1).unwrap_err();
            assert!(error.to_string().contains("unix:///path/to.sock"), "{bad}: {error}");
        }
        let error = connect(EngineKind::Docker, &Endpoint::new("https://engine:2376", "a test"), 1).unwrap_err();
        assert!(error.to_string().contains("certificates"), "{error}");
    }
}
