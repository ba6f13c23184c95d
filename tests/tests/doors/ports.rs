//! Services in boxes, reached from outside: over HTTP, by WebSocket, and byte by byte.

mod forward;
mod hostile;
mod raw;

use anyhow::{Context, Result, ensure};
use box_tests::http::{Answer, Client};
use box_tests::suite::skip;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::socket::{Refused, Socket, refused};
use crate::{Door, DoorCase, case, cases, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    let mut cases = cases![
        a_service_is_asked_with_any_method_path_and_body,
        an_answer_comes_while_it_is_made,
        a_websocket_to_a_service_is_carried,
        a_service_never_sees_what_opens_our_doors,
        a_page_of_a_box_is_nobodys_page,
        an_error_of_a_service_is_its_own,
        what_cannot_be_reached_is_told_apart,
        a_paused_session_is_woken,
    ];
    cases.push(
        case!(a_page_that_is_allowed_may_ask_a_service).configured("allowed_origins = ['https://page.example']\n"),
    );
    cases.extend(hostile::cases());
    cases.extend(raw::cases());
    cases.extend(forward::cases());
    cases
}

/// What runs in the box.
const SERVICES: &str = include_str!("ports/services.py");

const BASE: &str = "/v1/sessions/one/ports";

/// Makes the session and starts its services.
pub(crate) async fn serve(client: &Client) -> Result<()> {
    client.create("one", &json!({})).await?;
    let process = json!({ "command": "python3", "args": ["-c", SERVICES] });
    client.post("/v1/sessions/one/managed-process/web", &process).await?.must(201)?;
    eventually("the services", || async {
        Ok((client.get(&format!("{BASE}/8000/")).await?.status == 200).then_some(()))
    })
    .await
}

/// The values of a header that a service saw.
fn seen<'a>(told: &'a Value, name: &str) -> Vec<&'a str> {
    let headers = told["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
    headers.iter().filter(|pair| pair[0] == name).filter_map(|pair| pair[1].as_str()).collect()
}

async fn a_service_is_asked_with_any_method_path_and_body(door: &mut Door) -> Result<()> {
    let client = &door.client;
    serve(client).await?;
    for (path, asked) in [("", "/"), ("/", "/"), ("/a%2Fb//c/?q=%20&r", "/a%2Fb//c/?q=%20&r"), ("/x?", "/x?")] {
        let told = client.get(&format!("{BASE}/8000{path}")).await?.must(200)?;
        ensure!(told["path"] == asked && told["method"] == "GET", "{path}: {told}");
        ensure!(seen(&told, "host") == ["localhost:8000"], "{told}");
        ensure!(seen(&told, "x-forwarded-prefix") == [format!("{BASE}/8000")], "{told}");
        ensure!(seen(&told, "x-forwarded-for") == ["127.0.0.1"] && seen(&told, "x-forwarded-proto") == ["http"]);
    }
    let body: Vec<u8> = (0..=255).cycle().take(20 << 20).collect();
    let digest = box_core::hexadecimal::sha256(&body);
    for method in ["POST", "PUT", "PATCH", "DELETE", "PROPFIND"] {
        let told = client.request(method, &format!("{BASE}/8000/x")).body(body.clone()).send().await?.must(200)?;
        ensure!(told["method"] == method && told["sha256"] == digest, "{method}: {told}");
    }
    let head = client.request("HEAD", &format!("{BASE}/8000/x")).send().await?;
    ensure!(head.status == 200 && head.bytes.is_empty() && !head.header("content-length").is_empty());
    let options = client.request("OPTIONS", &format!("{BASE}/8000/x")).send().await?.must(200)?;
    ensure!(options["method"] == "OPTIONS");
    Ok(())
}

async fn an_answer_comes_while_it_is_made(door: &mut Door) -> Result<()> {
    let client = &door.client;
    serve(client).await?;
    let mut answer = client.request("GET", &format!("{BASE}/8000/stream")).open().await?;
    let first = answer.frame().await.context("no answer")??;
    ensure!(first.data_ref().is_some_and(|bytes| bytes == "first"), "{first:?}");
    client.get(&format!("{BASE}/8000/go")).await?.must(200)?;
    ensure!(answer.into_body().collect().await?.to_bytes() == "second");
    Ok(())
}

async fn a_websocket_to_a_service_is_carried(door: &mut Door) -> Result<()> {
    serve(&door.client).await?;
    let url = door.server.url()?.to_owned();
    let path = format!("{BASE}/8000/chat?room=1");
    let mut socket = Socket::open(&url, &path, &[("sec-websocket-protocol", "chat, other")]).await?;
    ensure!(socket.protocol == "chat", "{}", socket.protocol);
    let told: Value = serde_json::from_str(&socket.line().await?)?;
    ensure!(told["path"] == "/chat?room=1", "{told}");
    for text in ["hello", &"x".repeat(10_000)] {
        socket.text(text).await?;
        ensure!(socket.line().await? == format!("echo {text}"));
    }
    let own = [("origin", url.as_str())];
    let mut page = Socket::open(&url, &path, &own).await?;
    let told: Value = serde_json::from_str(&page.line().await?)?;
    ensure!(seen(&told, "origin") == ["http://localhost:8000"], "the service would refuse another page: {told}");
    for origin in ["null", "https://evil.example"] {
        ensure!(refused(&url, &path, &[("origin", origin)]).await? == Refused(403), "{origin}");
    }
    ensure!(refused(&url, &format!("{BASE}/9999/"), &[]).await? == Refused(502));
    Ok(())
}

async fn a_service_never_sees_what_opens_our_doors(door: &mut Door) -> Result<()> {
    serve(&door.client).await?;
    let token = door.server.token(&["--name", "me"])?;
    let path = format!("{BASE}/8000/x");
    eventually("the token", || async { Ok((door.client.get(&path).await?.status == 401).then_some(())) }).await?;
    let known = door.client.with_token(&token);
    let request = known.request("GET", &path);
    let request = request.header("x-api-key", "e2b_0011").header("x-access-token", "secret-1");
    let request =
        request.header("e2b-traffic-access-token", "secret-2").header("proxy-authorization", "Basic secret-3");
    let answer = request.header("cookie", "jupyter=secret-4; box.own=1").send().await?;
    let (told, text) = (answer.json.clone(), answer.text());
    ensure!(answer.status == 200 && seen(&told, "cookie") == ["own=1"], "{text}");
    ensure!(!text.contains(&token) && !text.contains("secret-") && !text.contains("e2b_"), "{text}");
    let url = door.server.url()?.to_owned();
    let offered = format!("chat, bearer.{token}");
    let mut socket = Socket::open(&url, &path, &[("sec-websocket-protocol", &offered)]).await?;
    let text = socket.line().await?;
    ensure!(socket.protocol == "chat" && !text.contains("bearer") && !text.contains(&token), "{text}");
    Ok(())
}

async fn a_page_of_a_box_is_nobodys_page(door: &mut Door) -> Result<()> {
    let client = &door.client;
    serve(client).await?;
    let answer = client.get(&format!("{BASE}/8000/rules")).await?;
    ensure!(answer.status == 302 && answer.text() == "<script>page()</script>", "{answer:?}");
    let policies: Vec<_> =
        answer.headers.get_all("content-security-policy").iter().filter_map(|one| one.to_str().ok()).collect();
    ensure!(policies.contains(&"script-src 'none'"), "the service's own policy holds too: {policies:?}");
    let sandbox = policies.iter().find(|policy| policy.starts_with("sandbox ")).context("no sandbox")?;
    ensure!(!sandbox.contains("allow-same-origin") && !sandbox.contains("allow-top-navigation"), "{sandbox}");
    ensure!(answer.header("x-content-type-options") == "nosniff");
    ensure!(answer.header("set-cookie") == format!("box.a=1; HttpOnly; Path={BASE}/8000"), "{:?}", answer.headers);
    ensure!(answer.header("location") == format!("{BASE}/8000/there"));
    for gone in ["strict-transport-security", "clear-site-data", "access-control-allow-origin", "x-hop"] {
        ensure!(!answer.headers.contains_key(gone), "{gone} came through");
    }
    ensure!(answer.header("x-end") == "1");
    // Such a page sends an opaque origin, which is refused by this server's own routes and by those of the box.
    for path in ["/v1/sessions", &format!("{BASE}/8000/x")] {
        let answer = client.request("POST", path).header("origin", "null").send().await?;
        ensure!(answer.status == 403, "{path}: {answer:?}");
    }
    Ok(())
}

async fn a_page_that_is_allowed_may_ask_a_service(door: &mut Door) -> Result<()> {
    let client = &door.client;
    serve(client).await?;
    let request = client.request("GET", &format!("{BASE}/8000/rules")).header("origin", "https://page.example");
    let answer = request.send().await?;
    ensure!(answer.header("access-control-allow-origin") == "https://page.example", "{:?}", answer.headers);
    Ok(())
}

async fn an_error_of_a_service_is_its_own(door: &mut Door) -> Result<()> {
    serve(&door.client).await?;
    let answer = door.client.get(&format!("{BASE}/8000/missing")).await?;
    ensure!(answer.status == 404 && answer.text() == "no such thing of mine", "{answer:?}");
    Ok(())
}

async fn what_cannot_be_reached_is_told_apart(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let closed = client.get(&format!("{BASE}/9999/x")).await?.refused(502, "port_closed")?;
    ensure!(closed["message"].as_str().is_some_and(|text| text.matches("9999").count() == 1), "{closed}");
    client.get("/v1/sessions/missing/ports/80/").await?.refused(404, "session_not_found")?;
    for bad in ["0", "65536", "http", "%20"] {
        let error = client.get(&format!("{BASE}/{bad}/")).await?.refused(400, "validation_error")?;
        ensure!(error["field"] == "port", "{error}");
    }
    let errors = client.get("/v1/errors").await?.must(200)?;
    ensure!(!errors.to_string().contains("9999"), "closed ports do not fill the list: {errors}");
    Ok(())
}

async fn a_paused_session_is_woken(door: &mut Door) -> Result<()> {
    let client = &door.client;
    serve(client).await?;
    client.delete("/v1/sessions/one/managed-process/web").await?;
    client.start("one", "timeout 60 python3 -m http.server 8080").await?;
    let path = format!("{BASE}/8080/");
    eventually("the service", || async { Ok((client.get(&path).await?.status == 200).then_some(())) }).await?;
    let paused = client.post_empty("/v1/sessions/one/pause").await?;
    if paused.status == 503 {
        return skip(format!("a box cannot be paused here: {}", paused.json["error"]["message"]));
    }
    paused.must(200)?;
    ensure!(client.get(&path).await?.status == 200);
    let state = |answer: Answer| answer.must(200).map(|session| session["state"].clone());
    ensure!(state(client.get("/v1/sessions/one").await?)? == "running");
    Ok(())
}
