//! Files of a session: whole, in parts, as archives, and watched.

mod attacks;
mod transfers;
mod trees;

use anyhow::Result;
use box_tests::http::{Answer, Client, Request};

use crate::DoorCase;

pub(crate) fn cases() -> Vec<DoorCase> {
    [transfers::cases(), trees::cases(), attacks::cases()].into_iter().flatten().collect()
}

/// The address of what is asked of the files of the session `one`.
fn of(what: &str, path: &str) -> String {
    let coded: Vec<String> = path.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/v1/sessions/one/files{what}?path={}", coded.concat())
}

async fn read(client: &Client, path: &str) -> Result<Answer> {
    client.get(&of("", path)).await
}

/// An upload, to which more can be added.
fn upload(client: &Client, path: &str, more: &str, bytes: impl Into<Vec<u8>>) -> Request {
    client.request("PUT", &(of("", path) + more)).body(bytes)
}

async fn write(client: &Client, path: &str, bytes: impl Into<Vec<u8>>) -> Result<Answer> {
    upload(client, path, "", bytes).send().await
}
