//! Connections to an engine. Each request has one of its own, as some are upgraded and others broken off.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bollard::errors::Error as EngineError;
use bollard::{API_DEFAULT_VERSION, Docker};
use box_core::{Error, Result};
use box_http_client::{Answer, BoxError, ClientCertificate, Io, Tls, USER_AGENT};
use bytes::Bytes;
use hyper::Uri;
use hyper::header::{self, HeaderValue};
use serde::Deserialize;
use tokio::net::{TcpStream, UnixStream};

use crate::address::Endpoint;
use crate::client::unavailable;
use crate::config::EngineKind;

/// Most bytes of an answer: a list of all containers or images of an engine.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The port of engines without TLS and with it, where an address names none.
const PORTS: (u16, u16) = (80, 443);

/// How an engine is reached.
#[derive(Debug)]
pub(crate) struct Transport {
    place: Place,
    /// What is sent as `Host`.
    authority: String,
}

/// Where an engine listens.
#[derive(Debug)]
enum Place {
    Unix(PathBuf),
    Tcp { host: String, port: u16, tls: Option<Tls> },
}

impl Transport {
    /// The way to an address. Nothing is connected yet.
    pub(crate) fn of(kind: EngineKind, endpoint: &Endpoint) -> Result<Self> {
        let address = &endpoint.address;
        let bad = || -> Error {
            let allowed = "unix:///path/to.sock, tcp://host:port or https://host:port";
            box_wire::Invalid::new("address", address, allowed).into()
        };
        match address.split_once("://").ok_or_else(bad)? {
            ("unix", path) => Ok(Self { place: Place::Unix(path.into()), authority: "localhost".to_owned() }),
            // TLS is for `https://` alone: DOCKER_TLS_VERIFY was read with the address.
            ("tcp" | "http", rest) => Self::tcp(rest, None).ok_or_else(bad),
            ("https", rest) => {
                let tls = endpoint.certificates.as_deref().map_or_else(|| Err(no_certificates()), with_certificates);
                let tls = tls.map_err(|error| unavailable(kind, endpoint, &error.into()))?;
                Self::tcp(rest, Some(tls)).ok_or_else(bad)
            }
            _ => Err(bad()),
        }
    }

    /// A client that sends over it.
    pub(crate) fn docker(self: &Arc<Self>, answer_sec_max: u64) -> std::result::Result<Docker, EngineError> {
        let transport = Arc::clone(self);
        let send = move |request| {
            let transport = Arc::clone(&transport);
            async move { Ok(transport.send(request).await?.into_response()) }
        };
        let base = format!("http://{}", self.authority);
        Docker::connect_with_custom_transport(send, Some(base), answer_sec_max, API_DEFAULT_VERSION)
    }

    /// The body of the answer to `GET`; the engine's message of a refusal.
    pub(crate) async fn get(&self, path: String) -> std::result::Result<Vec<u8>, EngineError> {
        let request = hyper::Request::get(path).body(box_http_client::empty())?;
        let mut answer = self.send(request).await?;
        let read = answer.read(ANSWER_BYTES_MAX, None).await;
        let bytes = read.map_err(io::Error::other)?;
        if answer.status().is_success() {
            return Ok(bytes);
        }
        let told = serde_json::from_slice::<Refusal>(&bytes).map(|refusal| refusal.message);
        let message = told.unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned());
        Err(EngineError::DockerResponseServerError { status_code: answer.status().as_u16(), message })
    }

    async fn send<B>(&self, request: hyper::Request<B>) -> std::result::Result<Answer, EngineError>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let stream = self.place.connect().await?;
        let (mut head, body) = request.into_parts();
        if let Ok(host) = HeaderValue::from_str(&self.authority) {
            head.headers.insert(header::HOST, host);
        }
        head.headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        head.uri = head.uri.path_and_query().map_or_else(Uri::default, |path| Uri::from(path.clone()));
        let request = hyper::Request::from_parts(head, box_http_client::body(body));
        Ok(box_http_client::send(stream, request).await?)
    }

    /// A host, and perhaps a port, with what is sent as `Host`.
    fn tcp(rest: &str, tls: Option<Tls>) -> Option<Self> {
        let authority = rest.trim_end_matches('/');
        let uri: Uri = format!("http://{authority}/").parse().ok()?;
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if tls.is_some() { PORTS.1 } else { PORTS.0 });
        Some(Self { place: Place::Tcp { host, port, tls }, authority: authority.to_owned() })
    }
}

impl Place {
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

/// How an engine refuses.
#[derive(Deserialize)]
struct Refusal {
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_engines_are_parsed() {
        let tcp = |rest, tls| match Transport::tcp(rest, tls) {
            Some(Transport { place: Place::Tcp { host, port, .. }, authority }) => Some((host, port, authority)),
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
            let error = Transport::of(EngineKind::Docker, &Endpoint::new(bad, "a test")).unwrap_err();
            assert!(error.to_string().contains("unix:///path/to.sock"), "{bad}: {error}");
        }
        let error = Transport::of(EngineKind::Docker, &Endpoint::new("https://engine:2376", "a test")).unwrap_err();
        assert!(error.to_string().contains("certificates"), "{error}");
    }
}
