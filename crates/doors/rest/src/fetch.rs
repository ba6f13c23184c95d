//! Archives from addresses that callers name. Whoever names an address makes us knock there, so it is looked at closely: at every
//! redirection anew, and what was looked at is what is connected to.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;

use box_core::public_address::Reach;
use box_http_client::{Address, Answer, Client, Limits};
use http::{HeaderMap, Request, StatusCode, header};
use tokio::time::timeout;

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
    let address = Address::parse(url.trim()).map_err(|why| refused(url, &why))?;
    let filename = address.filename().to_owned();
    let fetched = timeout(FETCH_TIME_MAX, follow(config, address)).await;
    let bytes = fetched.unwrap_or_else(|_| Err(failed("it took too long")))?;
    Ok((bytes, filename))
}

async fn follow(config: &SkillsConfig, mut address: Address) -> Result<Vec<u8>, Failure> {
    let client = Client::new(Limits { connect: FETCH_TIME_MAX, answer: FETCH_TIME_MAX });
    for _ in 0..=FETCH_REDIRECTS_MAX {
        let reached = reachable(config, &address).await?;
        let answer = ask(&client, &address, &reached).await?;
        match answer.status() {
            StatusCode::OK => return read(answer).await,
            status if status.is_redirection() => address = next(&address, answer.headers())?,
            status => return Err(failed(&format!("{} answers with {status}", address.origin()))),
        }
    }
    Err(failed("it leads from one address to the next without end"))
}

fn next(address: &Address, headers: &HeaderMap) -> Result<Address, Failure> {
    let location = headers.get(header::LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
    address.join(location.trim()).map_err(|why| refused(location, &why))
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
    refused(&address.origin(), &"it must be an https address of a machine on the public internet")
}

async fn ask(client: &Client, address: &Address, reached: &[SocketAddr]) -> Result<Answer, Failure> {
    let broken = |error: &dyn Display| failed(&format!("{} cannot be asked: {error}", address.origin()));
    let request = Request::get(address.path())
        .header(header::ACCEPT, "application/zip, application/octet-stream")
        .body(box_http_client::empty())
        .map_err(|error| broken(&error))?;
    client.send(address, reached, request).await.map_err(|error| broken(&error))
}

async fn read(mut answer: Answer) -> Result<Vec<u8>, Failure> {
    let limit = box_skills::limits::ZIP_BYTES_MAX;
    let broken = |error| failed(&format!("the archive broke off, or has more than {limit} bytes: {error}"));
    answer.read(limit as u64, None).await.map_err(broken)
}

fn refused(url: &str, why: &dyn Display) -> Failure {
    let shown: String = url.chars().take(200).flat_map(char::escape_debug).collect();
    Failure::invalid("url", format!("{shown} is not fetched: {why}"))
}

fn failed(why: &str) -> Failure {
    Failure::new(StatusCode::BAD_GATEWAY, "fetch_failed", format!("the archive could not be fetched: {why}"))
}

#[cfg(test)]
mod tests;
