//! Archives from addresses that callers name. Whoever names an address makes us knock there, so it is looked at closely: at every
//! redirection anew, and what was looked at is what is connected to.

mod address;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use box_core::public_address::Reach;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use tokio_util::task::AbortOnDropHandle;

use self::address::Address;
use crate::limits::{FETCH_REDIRECTS_MAX, FETCH_TIME_MAX};
use crate::skill_door::SkillsConfig;
use door_http::failure::Failure;

/// Fetches an archive, and says what it is called where it is.
pub(crate) async fn archive(config: &SkillsConfig, url: &str) -> Result<(Vec<u8>, String), Failure> {
    if !config.allow_urls {
        let message = "skills are not installed from addresses here";
        let failure = Failure::new(StatusCode::FORBIDDEN, "urls_not_allowed", message);
        return Err(failure.hint("send the archive itself, or have the operator set skills.allow_urls"));
    }
    let address = Address::parse(url).map_err(|why| refused(url, why))?;
    let filename = address.filename();
    let fetched = timeout(FETCH_TIME_MAX, follow(config, address)).await;
    let bytes = fetched.unwrap_or_else(|_| Err(failed("it took too long")))?;
    Ok((bytes, filename))
}

async fn follow(config: &SkillsConfig, mut address: Address) -> Result<Vec<u8>, Failure> {
    for _ in 0..=FETCH_REDIRECTS_MAX {
        let reached = reachable(config, &address).await?;
        let (response, _connection) = ask(&address, &reached).await?;
        match response.status() {
            StatusCode::OK => return read(response).await,
            status if status.is_redirection() => address = next(&address, response.headers())?,
            status => return Err(failed(&format!("{} answers with {status}", address.shown()))),
        }
    }
    Err(failed("it leads from one address to the next without end"))
}

fn next(address: &Address, headers: &HeaderMap) -> Result<Address, Failure> {
    let location = headers.get(header::LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
    address.join(location).map_err(|why| refused(location, why))
}

/// The machines behind an address that may be asked.
async fn reachable(config: &SkillsConfig, address: &Address) -> Result<Vec<SocketAddr>, Failure> {
    // Only this machine is asked without encryption.
    let reach = match (config.allow_loopback_urls, address.is_encrypted()) {
        (false, false) => return Err(not_public(address)),
        (false, true) => Reach::Public,
        (true, true) => Reach::PublicOrLoopback,
        (true, false) => Reach::Loopback,
    };
    reach.resolve(address.host(), address.port()).await.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => not_public(address),
        _ => failed(&format!("{} is not known: {error}", address.host())),
    })
}

fn not_public(address: &Address) -> Failure {
    refused(&address.shown(), "it must be an https address of a machine on the public internet")
}

type Answered = (Response<Incoming>, AbortOnDropHandle<()>);

async fn ask(address: &Address, reached: &[SocketAddr]) -> Result<Answered, Failure> {
    let broken = |error: &dyn std::fmt::Display| failed(&format!("{} cannot be asked: {error}", address.shown()));
    let stream = TcpStream::connect(reached).await.map_err(|error| broken(&error))?;
    if !address.is_encrypted() {
        return exchange(address, stream).await.map_err(|error| broken(&error));
    }
    let name = ServerName::try_from(address.host().to_owned()).map_err(|error| broken(&error))?;
    let connector = TlsConnector::from(Arc::new(trust().map_err(|error| broken(&error))?));
    let stream = connector.connect(name, stream).await.map_err(|error| broken(&error))?;
    exchange(address, stream).await.map_err(|error| broken(&error))
}

fn trust() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this machine has no certificates of authorities; install the package ca-certificates".to_owned());
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

async fn exchange(
    address: &Address,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Answered, String> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // What goes wrong on the connection is told to whoever waits for the answer.
    let connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    let agent = HeaderValue::from_static(concat!("strongbox/", env!("CARGO_PKG_VERSION")));
    let request = Request::get(address.path())
        .header(header::HOST, address.authority())
        .header(header::USER_AGENT, agent)
        .header(header::ACCEPT, "application/zip, application/octet-stream")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    Ok((response, connection))
}

async fn read(response: Response<Incoming>) -> Result<Vec<u8>, Failure> {
    let limit = box_skills::limits::ZIP_BYTES_MAX;
    let body = Limited::new(response.into_body(), limit).collect().await;
    let broken = |error| failed(&format!("the archive broke off, or has more than {limit} bytes: {error}"));
    Ok(body.map_err(broken)?.to_bytes().into())
}

fn refused(url: &str, why: &str) -> Failure {
    let shown: String = url.chars().take(200).flat_map(char::escape_debug).collect();
    Failure::invalid("url", format!("{shown} is not fetched: {why}"))
}

fn failed(why: &str) -> Failure {
    Failure::new(StatusCode::BAD_GATEWAY, "fetch_failed", format!("the archive could not be fetched: {why}"))
}

#[cfg(test)]
mod tests;
