//! Bytes as they are, by WebSocket.

use anyhow::{Result, bail, ensure};
use box_wire::limits::PORT_STREAMS_PER_BOX_MAX;
use serde_json::Value;

use super::serve;
use crate::socket::{Refused, Said, Socket, refused};
use crate::{Door, DoorCase, cases, eventually};

pub(super) fn cases() -> Vec<DoorCase> {
    cases![
        bytes_are_carried_both_ways_and_each_way_ends_by_itself,
        connections_of_one_session_are_bounded,
        a_session_with_a_connection_is_in_use,
    ]
}

const PATH: &str = "/v1/sessions/one/tcp/8001";
const END: &str = r#"{"type":"end"}"#;

/// Collects bytes until the service says that there are no more.
async fn until_end(socket: &mut Socket) -> Result<Vec<u8>> {
    let mut heard = Vec::new();
    loop {
        match socket.next().await? {
            Said::Output(first, rest) => {
                heard.push(first);
                heard.extend(rest);
            }
            Said::Text(text) if text == END => return Ok(heard),
            other => bail!("{other:?} before the end"),
        }
    }
}

async fn bytes_are_carried_both_ways_and_each_way_ends_by_itself(door: &mut Door) -> Result<()> {
    serve(&door.client).await?;
    let url = door.server.url()?.to_owned();
    let mut socket = Socket::open(&url, PATH, &[]).await?;
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    socket.bytes(bytes.clone()).await?;
    socket.text(END).await?;
    let heard = until_end(&mut socket).await?;
    ensure!(heard == [bytes, b"|100000".to_vec()].concat(), "{} bytes", heard.len());
    ensure!(socket.next().await? == Said::Closed(Some(1000)));
    let mut wrong = Socket::open(&url, PATH, &[]).await?;
    wrong.text("hello").await?;
    ensure!(wrong.next().await? == Said::Closed(Some(1008)));
    ensure!(refused(&url, "/v1/sessions/one/tcp/9999", &[]).await? == Refused(502));
    ensure!(refused(&url, "/v1/sessions/missing/tcp/8001", &[]).await? == Refused(404));
    door.client.get(PATH).await?.refused(426, "upgrade_required")?;
    Ok(())
}

async fn connections_of_one_session_are_bounded(door: &mut Door) -> Result<()> {
    serve(&door.client).await?;
    let url = door.server.url()?.to_owned();
    let path = "/v1/sessions/one/tcp/8002";
    let mut open = Vec::new();
    for _ in 0..PORT_STREAMS_PER_BOX_MAX {
        open.push(Socket::open(&url, path, &[]).await?);
    }
    ensure!(refused(&url, path, &[]).await? == Refused(429));
    door.client.get("/v1/sessions/one/ports/8000/").await?.refused(429, "capacity_exceeded")?;
    ensure!(door.client.exec("one", "echo works").await?["stdout"] == "works\n");
    open.truncate(1);
    eventually("the places", || async {
        Ok((door.client.get("/v1/sessions/one/ports/8000/").await?.status == 200).then_some(()))
    })
    .await
}

async fn a_session_with_a_connection_is_in_use(door: &mut Door) -> Result<()> {
    let client = &door.client;
    serve(client).await?;
    client.delete("/v1/sessions/one/managed-process/web").await?;
    let connect = "import socket; socket.create_connection((\"127.0.0.1\", 8080))";
    let line = "setsid python3 -m http.server 8080 >/dev/null 2>&1 &";
    client.exec("one", &format!("{line} until python3 -c '{connect}' 2>/dev/null; do sleep 0.1; done")).await?;
    let expiry =
        || async { Ok::<Value, anyhow::Error>(client.get("/v1/sessions/one").await?.must(200)?["expires_at"].clone()) };
    ensure!(expiry().await?.is_string(), "nothing uses it");
    let socket = Socket::open(door.server.url()?, "/v1/sessions/one/tcp/8080", &[]).await?;
    ensure!(expiry().await?.is_null(), "a connection uses it");
    socket.vanish();
    eventually("the end of the use", || async { Ok(expiry().await?.is_string().then_some(())) }).await
}
