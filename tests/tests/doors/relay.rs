//! The line relay with several clients: who waits, who is refused, who takes over, and how it ends.

use anyhow::{Context, Result, ensure};
use box_tests::http::Client;
use serde_json::{Value, json};

use crate::socket::{Refused, Said, Socket, refused};
use crate::{Door, DoorCase, cases, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        a_second_client_waits_and_is_heard_when_it_is_its_turn,
        those_who_wait_come_in_order_and_leave_when_they_like,
        a_client_that_waits_cannot_fill_the_server,
        a_caller_with_a_token_is_told_and_may_take_over,
        whatever_ends_the_process_ends_all_relays_alike,
        nothing_is_lost_or_told_twice_when_clients_change,
        large_messages_and_characters_of_many_bytes_stay_whole,
        who_names_the_process_is_refused_in_langbots_words,
        an_instance_that_is_not_known_is_told_nothing,
    ]
}

const PATH: &str = "/v1/sessions/one/managed-process/mcp/ws";
const PROCESS: &str = "/v1/sessions/one/managed-process/mcp";

async fn start(client: &Client, line: &str) -> Result<()> {
    client.create("one", &json!({})).await?;
    client.post(PROCESS, &json!({ "command": "sh", "args": ["-c", line] })).await?.must(201)?;
    Ok(())
}

/// Waits until a client is attached, or none.
async fn attached(client: &Client, is_attached: bool) -> Result<()> {
    eventually("the wanted state of attachment", || async {
        let info = client.get(PROCESS).await?.must(200)?;
        Ok((info["attached"] == is_attached).then_some(()))
    })
    .await
}

async fn a_second_client_waits_and_is_heard_when_it_is_its_turn(door: &mut Door) -> Result<()> {
    let url = door.server.url()?.to_owned();
    start(&door.client, "exec cat").await?;
    attached(&door.client, false).await?;
    let mut first = Socket::open(&url, PATH, &[]).await?;
    first.text("one").await?;
    ensure!(first.line().await? == "one");
    attached(&door.client, true).await?;
    let mut second = Socket::open(&url, PATH, &[("sec-websocket-protocol", "mcp")]).await?;
    ensure!(second.protocol == "mcp", "it is upgraded like the first");
    second.text("early").await?;
    first.text("two").await?;
    ensure!(first.line().await? == "two", "the second took nothing away, and was not heard yet");
    first.vanish();
    ensure!(second.line().await? == "early");
    attached(&door.client, true).await?;
    second.vanish();
    attached(&door.client, false).await
}

async fn those_who_wait_come_in_order_and_leave_when_they_like(door: &mut Door) -> Result<()> {
    let url = door.server.url()?.to_owned();
    start(&door.client, "exec cat").await?;
    let mut first = Socket::open(&url, PATH, &[]).await?;
    first.text("a").await?;
    ensure!(first.line().await? == "a");
    let mut line = Vec::new();
    for _ in 0..16 {
        line.push(Socket::open(&url, PATH, &[]).await?);
    }
    ensure!(refused(&url, PATH, &[]).await? == Refused(400), "only so many wait");
    let third = line.remove(1);
    third.vanish();
    for (number, socket) in line.iter_mut().enumerate() {
        socket.text(format!("from-{number}")).await?;
    }
    first.vanish();
    for (number, mut socket) in line.drain(..3).enumerate() {
        ensure!(socket.line().await? == format!("from-{number}"), "in order");
        socket.vanish();
    }
    Ok(())
}

async fn a_client_that_waits_cannot_fill_the_server(door: &mut Door) -> Result<()> {
    let url = door.server.url()?.to_owned();
    start(&door.client, "exec cat").await?;
    let mut first = Socket::open(&url, PATH, &[]).await?;
    first.text("a").await?;
    ensure!(first.line().await? == "a");
    let mut much = Socket::open(&url, PATH, &[]).await?;
    much.text("x".repeat(2 << 20)).await?;
    ensure!(much.next().await? == Said::Closed(Some(1009)));
    let mut many = Socket::open(&url, PATH, &[]).await?;
    for _ in 0..65 {
        many.text("x").await?;
    }
    ensure!(many.next().await? == Said::Closed(Some(1013)));
    first.text("b").await?;
    ensure!(first.line().await? == "b", "the first noticed nothing");
    Ok(())
}

async fn a_caller_with_a_token_is_told_and_may_take_over(door: &mut Door) -> Result<()> {
    let url = door.server.url()?.to_owned();
    start(&door.client, "exec cat").await?;
    let token = door.server.token(&["--name", "me"])?;
    let known = door.client.with_token(&token);
    eventually("the token", || async { Ok((door.client.get("/v1/status").await?.status == 401).then_some(())) })
        .await?;
    let bearer = format!("Bearer {token}");
    let shown = [("authorization", bearer.as_str())];
    let mut first = Socket::open(&url, PATH, &shown).await?;
    first.text("a").await?;
    ensure!(first.line().await? == "a");
    ensure!(refused(&url, PATH, &shown).await? == Refused(409));
    let upgrade = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let asking = upgrade.iter().fold(known.request("GET", PATH), |request, (name, value)| request.header(name, value));
    let told = asking.send().await?.refused(409, "managed_process_conflict")?;
    let message = told["message"].as_str().context("no message")?;
    ensure!(message.contains("attached") && message.contains("?takeover=true"), "{message}");
    let mut second = Socket::open(&url, &format!("{PATH}?takeover=true"), &shown).await?;
    ensure!(first.next().await? == Said::Closed(Some(4409)));
    second.text("b").await?;
    ensure!(second.line().await? == "b", "and nothing is repeated");
    ensure!(refused(&url, PATH, &[]).await? == Refused(401), "a client without a token is refused from now on");
    known.delete("/v1/sessions/one").await?.must(200)?;
    Ok(())
}

async fn whatever_ends_the_process_ends_all_relays_alike(door: &mut Door) -> Result<()> {
    let url = door.server.url()?.to_owned();
    let client = &door.client;
    for end in ["itself", "stop", "delete"] {
        start(client, "read -r line; echo last; printf rest").await?;
        let (mut first, mut second) = (Socket::open(&url, PATH, &[]).await?, Socket::open(&url, PATH, &[]).await?);
        match end {
            "itself" => {
                first.text("go").await?;
                ensure!(first.line().await? == "last" && first.line().await? == "rest");
            }
            "stop" => {
                client.delete(PROCESS).await?.must(200)?;
            }
            _ => {
                client.delete("/v1/sessions/one").await?.must(200)?;
            }
        }
        for socket in [&mut first, &mut second] {
            let said = last(socket).await?;
            ensure!(said == Said::Closed(Some(1000)), "{end}: {said:?}");
        }
    }
    Ok(())
}

/// What is said last. A process whose input ends may still say something.
async fn last(socket: &mut Socket) -> Result<Said> {
    loop {
        match socket.next().await? {
            Said::Text(_) => {}
            said => return Ok(said),
        }
    }
}

async fn nothing_is_lost_or_told_twice_when_clients_change(door: &mut Door) -> Result<()> {
    let url = door.server.url()?.to_owned();
    start(&door.client, "while read -r line; do echo \"$line-1\"; echo \"$line-2\"; done").await?;
    let mut told: Vec<String> = Vec::new();
    let mut expected = Vec::new();
    for round in 0..5 {
        let mut socket = Socket::open(&url, PATH, &[]).await?;
        socket.text(round.to_string()).await?;
        expected.extend([format!("{round}-1"), format!("{round}-2")]);
        let body = format!("by-hand-{round}\n");
        while told.len() < expected.len() {
            told.push(socket.line().await?);
        }
        socket.vanish();
        attached(&door.client, false).await?;
        door.client.request("POST", "/v1/sessions/one/processes/mcp/stdin").body(body).send().await?;
        expected.extend([format!("by-hand-{round}-1"), format!("by-hand-{round}-2")]);
    }
    let mut socket = Socket::open(&url, PATH, &[]).await?;
    while told.len() < expected.len() {
        told.push(socket.line().await?);
    }
    ensure!(told == expected, "{told:?}");
    Ok(())
}

async fn large_messages_and_characters_of_many_bytes_stay_whole(door: &mut Door) -> Result<()> {
    let url = door.server.url()?.to_owned();
    start(&door.client, "exec cat").await?;
    let mut socket = Socket::open(&url, PATH, &[]).await?;
    for size in [1, 65_535, 65_536, 300_000, 5_000_000] {
        let text = "€".repeat(size / 3 + 1);
        socket.text(text.clone()).await?;
        ensure!(socket.line().await? == text, "{size} bytes");
    }
    socket.text("a\n\nb").await?;
    ensure!(socket.line().await? == "a" && socket.line().await?.is_empty() && socket.line().await? == "b");
    Ok(())
}

fn error(body: &Value) -> (&str, &str) {
    let text = |name: &str| body["error"][name].as_str().unwrap_or_default();
    (text("code"), text("message"))
}

async fn who_names_the_process_is_refused_in_langbots_words(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let named = client.get("/v1/sessions/none/managed-process/p/ws").await?.must(400)?;
    ensure!(error(&named) == ("BoxSessionNotFoundError", "session none not found"), "{named}");
    client.get("/v1/sessions/none/managed-process/ws").await?.refused(404, "session_not_found")?;
    client.create("one", &json!({})).await?;
    let named = client.get(PATH).await?.must(400)?;
    let text = "session one has no managed process with process_id=mcp";
    ensure!(error(&named) == ("BoxManagedProcessNotFoundError", text), "{named}");
    client.get("/v1/sessions/one/managed-process/ws").await?.refused(404, "managed_process_not_found")?;
    client.post(PROCESS, &json!({ "command": "true" })).await?.must(201)?;
    eventually("its end", || async { Ok((client.get(PROCESS).await?.must(200)?["status"] == "exited").then_some(())) })
        .await?;
    let named = client.get(PATH).await?.must(400)?;
    let text = "managed process mcp in session one is not running";
    ensure!(error(&named) == ("BoxManagedProcessConflictError", text), "{named}");
    for bad in ["/v1/sessions/%20/managed-process/p/ws", "/v1/sessions/one/managed-process/a%0Ab/ws"] {
        client.get(bad).await?.must(400)?;
    }
    Ok(())
}

async fn an_instance_that_is_not_known_is_told_nothing(door: &mut Door) -> Result<()> {
    start(&door.client, "exec cat").await?;
    let instance = ("x-langbot-instance-id", "unknown");
    let workspace = ("x-langbot-workspace-id", "workspace");
    let generation = ("x-langbot-placement-generation", "1");
    let full = [instance, workspace, generation];
    for path in [PATH, "/v1/sessions/none/managed-process/p/ws", "/v1/sessions/one/managed-process/ws"] {
        for headers in [&full[..1], &full[..2], &full[..]] {
            let asking = door.client.request("GET", path);
            let asking = headers.iter().fold(asking, |request, (name, value)| request.header(name, value));
            let answer = asking.send().await?;
            ensure!(answer.status == 401 && answer.text() == "Unauthorized", "{path}: {answer:?}");
            ensure!(answer.header("content-type") == "text/plain; charset=utf-8", "{answer:?}");
        }
    }
    Ok(())
}
