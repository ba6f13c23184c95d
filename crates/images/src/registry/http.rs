//! One question, one answer: a connection of its own, with bounds on time and size.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use box_core::public_address::Reach;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio_util::task::AbortOnDropHandle;

use super::address::Address;
use super::broken_off;
use crate::failure::Failure;
use crate::limits::{CONNECT_TIME_MAX, SILENCE_TIME_MAX};

/// Asks web servers.
#[derive(Default)]
pub(super) struct Client {
    trust: OnceCell<Arc<ClientConfig>>,
}

/// An answer that is still coming.
pub(super) struct Answer {
    response: Response<Incoming>,
    _connection: AbortOnDropHandle<()>,
}

impl Client {
    /// Asks for what is at an address, whatever the answer is. The connection goes to an address that was found for it.
    pub(super) async fn get(
        &self,
        address: &Address,
        found: &[SocketAddr],
        authorization: Option<&HeaderValue>,
        accept: Option<&'static str>,
    ) -> Result<Answer, Failure> {
        let agent = HeaderValue::from_static(concat!("strongbox/", env!("CARGO_PKG_VERSION")));
        let mut request = Request::get(address.path())
            .header(header::HOST, address.authority())
            .header(header::USER_AGENT, agent)
            .header(header::ACCEPT, accept.unwrap_or("*/*"));
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
        let stream = timeout(CONNECT_TIME_MAX, self.connect(address, found)).await;
        let stream = stream.map_err(|_| unreachable(address, &"it does not answer"))??;
        let asked = timeout(SILENCE_TIME_MAX, exchange(stream, request)).await;
        let asked = asked.map_err(|_| unreachable(address, &"it does not answer"))?;
        asked.map_err(|error| unreachable(address, &error))
    }

    async fn connect(&self, address: &Address, found: &[SocketAddr]) -> Result<Box<dyn Stream>, Failure> {
        let failed = |error: &dyn std::fmt::Display| unreachable(address, error);
        let stream = TcpStream::connect(found).await.map_err(|error| failed(&error))?;
        if !address.is_encrypted() {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(address.host().to_owned()).map_err(|error| failed(&error))?;
        let trust = self.trust.get_or_try_init(|| async { trust() }).await.map_err(|error| failed(&error))?;
        let connector = TlsConnector::from(Arc::clone(trust));
        Ok(Box::new(connector.connect(name, stream).await.map_err(|error| failed(&error))?))
    }
}

/// Resolves the name in an address, within the time for a connection.
pub(super) async fn resolve(address: &Address, reach: Reach) -> Result<Vec<SocketAddr>, Failure> {
    let found = timeout(CONNECT_TIME_MAX, reach.resolve(address.host(), address.port())).await;
    let found = found.map_err(|_| unreachable(address, &"the name service does not answer"))?;
    found.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let fix =
                "name a registry on a private network in full in allowed_images or [images], and restart the server";
            Failure::Image(format!("{error}; {fix}"))
        }
        _ => unreachable(address, &error),
    })
}

/// A connection to a server.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn exchange(stream: Box<dyn Stream>, request: Request<Empty<Bytes>>) -> hyper::Result<Answer> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Errors of the connection also fail the request, so they are ignored here.
    let connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await?;
    Ok(Answer { response, _connection: connection })
}

fn trust() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this machine has no certificates of authorities; install the package ca-certificates".to_owned());
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn unreachable(address: &Address, error: &dyn std::fmt::Display) -> Failure {
    let reason = format!("{} cannot be asked: {error}", address.authority());
    Failure::Unavailable(
        reason,
        "check its name and the network, or import it from a file with `strongbox image import`",
    )
}

impl Answer {
    pub(super) fn response(&self) -> &Response<Incoming> {
        &self.response
    }

    /// The next piece of the body; nothing at its end.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = timeout(SILENCE_TIME_MAX, self.response.body_mut().frame()).await.map_err(|_| broken_off())?;
            match frame.transpose().map_err(|_| broken_off())? {
                None => return Ok(None),
                Some(frame) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                    _ => {}
                },
            }
        }
    }

    /// The whole body, of at most `bytes_max`.
    pub(super) async fn read(mut self, bytes_max: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece().await? {
            if (bytes.len() + piece.len()) as u64 > bytes_max {
                return Err(
                    format!("its registry sends more than {bytes_max} bytes where less was to be expected").into()
                );
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}
