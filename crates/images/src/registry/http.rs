//! One question, one answer: a connection of its own, with bounds on time and size.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;

use box_core::public_address::Reach;
use box_http_client::{Address, Client, Error, Limits};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use tokio::time::timeout;

use super::broken_off;
use crate::failure::Failure;
use crate::limits::{CONNECT_TIME_MAX, SILENCE_TIME_MAX};

/// An answer that is still coming.
#[derive(Debug)]
pub(super) struct Answer(box_http_client::Answer);

/// A client with the bounds of registries.
pub(super) fn client() -> Client {
    Client::new(Limits { connect: CONNECT_TIME_MAX, answer: SILENCE_TIME_MAX })
}

/// Parses an address that a registry names, perhaps relative to the one that was asked.
pub(super) fn address(asked: Option<&Address>, text: &str) -> Result<Address, Failure> {
    let parsed = asked.map_or_else(|| Address::parse(text), |asked| asked.join(text));
    parsed.map_err(|_| Failure::from("its registry names an address that is none of the web"))
}

/// Asks for what is at an address, whatever the answer is. The connection goes to an address that was found for it.
pub(super) async fn get(
    client: &Client,
    address: &Address,
    found: &[SocketAddr],
    authorization: Option<&HeaderValue>,
    accept: Option<&'static str>,
) -> Result<Answer, Failure> {
    let mut request = Request::get(address.path()).header(header::ACCEPT, accept.unwrap_or("*/*"));
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(box_http_client::empty()).map_err(|error| error.to_string())?;
    client.send(address, found, request).await.map(Answer).map_err(|error| unreachable(address, &error))
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

fn unreachable(address: &Address, error: &dyn Display) -> Failure {
    let reason = format!("{} cannot be asked: {error}", address.authority());
    Failure::Unavailable(
        reason,
        "check its name and the network, or import it from a file with `strongbox image import`",
    )
}

impl Answer {
    pub(super) fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.0.headers()
    }

    /// The next piece of the body; nothing at its end.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        self.0.piece(Some(SILENCE_TIME_MAX)).await.map_err(|_| broken_off())
    }

    /// The whole body, of at most `bytes_max`.
    pub(super) async fn read(mut self, bytes_max: u64) -> Result<Vec<u8>, Failure> {
        self.0.read(bytes_max, Some(SILENCE_TIME_MAX)).await.map_err(|error| match error {
            Error::TooLarge { .. } => {
                format!("its registry sends more than {bytes_max} bytes where less was to be expected").into()
            }
            _ => broken_off(),
        })
    }
}
