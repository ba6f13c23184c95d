//! A stranger's HTTP client: what it asked, and what it was answered.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{HeaderMap, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Every method and path that any client asked, so that a suite can hold that it forgot no route.
static ASKED: Mutex<BTreeSet<(String, String)>> = Mutex::new(BTreeSet::new());

/// Notes that a path was asked.
pub fn note(method: &str, path: &str) {
    let path = path.split('?').next().unwrap_or_default();
    ASKED.lock().unwrap_or_else(PoisonError::into_inner).insert((method.to_owned(), path.to_owned()));
}

/// Every method and path that was asked so far.
pub fn asked() -> BTreeSet<(String, String)> {
    ASKED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A client of one server, with a token or without. Each request has a connection of its own.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    tls: Option<TlsConnector>,
    socket: Option<PathBuf>,
    token: Option<String>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A request that is not sent yet.
#[derive(Debug, Clone)]
pub struct Request {
    client: Client,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// What was answered.
#[derive(Clone)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub bytes: Vec<u8>,
    /// The body as JSON, or null when it is none.
    pub json: Value,
}

impl Request {
    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a body as it is.
    #[must_use]
    pub fn body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// Takes a body of JSON.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").body(body.to_string())
    }

    /// Sends it and returns the answer before its body was read.
    pub async fn open(self) -> Result<Response<Incoming>> {
        note(&self.method, &self.path);
        let mut request = hyper::Request::builder().method(self.method.as_str()).uri(&self.path);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header("host", self.client.address.to_string());
        }
        if let Some(token) = &self.client.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(self.body)))?;
        if let Some(socket) = &self.client.socket {
            return exchange(UnixStream::connect(socket).await?, request).await;
        }
        let stream = TcpStream::connect(self.client.address).await?;
        match &self.client.tls {
            None => exchange(stream, request).await,
            Some(tls) => {
                let name = ServerName::try_from("localhost")?;
                exchange(tls.connect(name, stream).await.context("the TLS handshake")?, request).await
            }
        }
    }

    /// Sends it and reads the whole answer.
    pub async fn send(self) -> Result<Answer> {
        let what = format!("{} {}", self.method, self.path.chars().take(200).collect::<String>());
        let answer = async {
            let response = self.open().await?;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let bytes = response.into_body().collect().await?.to_bytes().to_vec();
            let json = serde_json::from_slice(&bytes).unwrap_or_default();
            anyhow::Ok(Answer { status, headers, bytes, json })
        };
        answer.await.context(what)
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: hyper::Request<Full<Bytes>>,
) -> Result<Response<Incoming>> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the response, or when the response is dropped.
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

impl Client {
    /// A client without a token.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, tls: None, socket: None, token: None }
    }

    /// A client that speaks TLS and trusts this certificate and no other.
    pub fn trusting(address: SocketAddr, certificate: &Path) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate)?)?;
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { address, tls: Some(TlsConnector::from(Arc::new(config))), socket: None, token: None })
    }

    /// The same client by a Unix socket.
    #[must_use]
    pub fn by_socket(&self, socket: PathBuf) -> Self {
        Self { socket: Some(socket), ..self.clone() }
    }

    /// The same client with a token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    /// A request that is not sent yet.
    pub fn request(&self, method: &str, path: &str) -> Request {
        let (method, path) = (method.to_owned(), path.to_owned());
        Request { client: self.clone(), method, path, headers: Vec::new(), body: Vec::new() }
    }

    /// Asks for something.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.request("GET", path).send().await
    }

    /// Sends JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.request("POST", path).json(body).send().await
    }

    /// Sends nothing.
    pub async fn post_empty(&self, path: &str) -> Result<Answer> {
        self.request("POST", path).send().await
    }

    /// Sends a body as it is, and says that it is JSON.
    pub async fn post_raw(&self, path: &str, body: impl Into<Vec<u8>>) -> Result<Answer> {
        self.request("POST", path).header("content-type", "application/json").body(body).send().await
    }

    /// Changes something.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Answer> {
        self.request("PATCH", path).json(body).send().await
    }

    /// Removes something.
    pub async fn delete(&self, path: &str) -> Result<Answer> {
        self.request("DELETE", path).send().await
    }

    /// Runs a shell line in a session to its end, and returns the result.
    pub async fn exec(&self, session: &str, line: &str) -> Result<Value> {
        let path = format!("/v1/sessions/{session}/exec");
        self.post(&path, &serde_json::json!({ "cmd": line })).await?.must(200)
    }

    /// Starts a shell line in a session, and returns the id of the exec.
    pub async fn start(&self, session: &str, line: &str) -> Result<String> {
        let path = format!("/v1/sessions/{session}/exec?wait=false");
        let info = self.post(&path, &serde_json::json!({ "cmd": line })).await?.must(202)?;
        Ok(info["exec_id"].as_str().context("an exec without an id")?.to_owned())
    }

    /// Makes a session.
    pub async fn create(&self, session: &str, body: &Value) -> Result<Value> {
        self.post(&format!("/v1/sessions/{session}"), body).await?.must(201)
    }

    /// The sessions that the client sees.
    pub async fn sessions(&self) -> Result<Vec<Value>> {
        let listed = self.get("/v1/sessions").await?.must(200)?;
        Ok(listed.as_array().context("the list of sessions is not an array")?.clone())
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: String = self.text().chars().take(500).collect();
        write!(f, "{} {text}", self.status)
    }
}

impl Answer {
    /// The body as JSON, if the status is the one that must be.
    pub fn must(self, status: u16) -> Result<Value> {
        ensure!(self.status == status, "status {} instead of {status}: {}", self.status, self.text());
        Ok(self.json)
    }

    /// The body of an error with this status and code.
    pub fn refused(self, status: u16, code: &str) -> Result<Value> {
        let error = self.must(status)?["error"].clone();
        ensure!(error["code"] == code, "code {} instead of {code}: {error}", error["code"]);
        ensure!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "an error without a message: {error}");
        Ok(error)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// A header as text; empty when it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}
