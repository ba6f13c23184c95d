//! Who may come in: tokens, scopes, tenants, names and pages.

use anyhow::{Context, Result, ensure};
use box_tests::http::{Answer, Client};
use box_tests::server::ServerOptions;
use box_tests::{Case, TestServer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::socket::{self, Refused};
use crate::{Door, DoorCase, case, cases, eventually};

/// Connections without a token in all, and at once: far more than a server has places for.
const STRANGERS: usize = 5000;
const STRANGERS_AT_ONCE: usize = 1000;

pub(crate) fn cases() -> Vec<DoorCase> {
    let page = "allowed_origins = ['https://page.example']\nallowed_hosts = ['box.example']\n";
    let mut cases = cases![
        without_tokens_the_loopback_needs_none,
        as_soon_as_there_is_a_token_everybody_needs_one,
        a_wrong_token_is_answered_like_none,
        an_expired_and_a_revoked_token_open_nothing,
        only_who_says_so_opens_a_server_by_revoking_its_last_token,
        another_tenants_sessions_do_not_exist,
        a_scope_opens_its_routes_only,
        a_foreign_host_is_refused_before_the_token,
        a_websocket_is_refused_before_its_upgrade,
        a_token_is_never_logged,
        idle_strangers_lock_no_caller_out,
    ];
    cases.push(case!(a_foreign_page_is_refused_and_an_allowed_one_is_told_so).configured(page));
    let sandboxes = "[e2b_door]\ndomain = 'sand.example'\n";
    cases.push(case!(what_leads_a_request_is_what_lets_it_in).configured(sandboxes));
    cases
}

/// Cases whose server is not the usual one from its start on.
pub(crate) fn own_servers() -> Vec<Case> {
    vec![
        Case::new("auth/beyond_the_loopback_a_server_without_a_token_does_not_start", beyond_the_loopback),
        Case::new("auth/a_server_with_a_certificate_speaks_tls_only", tls),
    ]
}

/// Waits until a running server knows of a change to its tokens.
async fn until_status(client: &Client, status: u16) -> Result<()> {
    eventually("the change of the tokens", || async {
        Ok((client.get("/v1/status").await?.status == status).then_some(()))
    })
    .await
}

async fn without_tokens_the_loopback_needs_none(door: &mut Door) -> Result<()> {
    door.client.get("/v1/status").await?.must(200)?;
    door.client.with_token("invented").get("/v1/status").await?.refused(401, "unauthorized")?;
    Ok(())
}

async fn as_soon_as_there_is_a_token_everybody_needs_one(door: &mut Door) -> Result<()> {
    door.client.create("one", &json!({})).await?;
    let token = door.server.token(&["--name", "first"])?;
    // The command returns after the server has reloaded.
    door.client.get("/v1/status").await?.refused(401, "unauthorized")?;
    let known = door.client.with_token(&token);
    ensure!(known.sessions().await?.len() == 1, "the default tenant is the earlier one");
    for (method, path) in [
        ("GET", "/v1/health"),
        ("GET", "/v1/backend"),
        ("GET", "/v1/backends"),
        ("GET", "/v1/errors"),
        ("GET", "/v1/profiles"),
        ("GET", "/v1/sessions"),
        ("GET", "/v1/sessions/one"),
        ("POST", "/v1/sessions/one"),
        ("DELETE", "/v1/sessions/one"),
        ("POST", "/v1/sessions/one/exec"),
        ("GET", "/v1/sessions/one/execs/x/events"),
        ("GET", "/v1/sessions/one/managed-process/ws"),
        ("GET", "/metrics"),
    ] {
        let refused = door.client.request(method, path).send().await?;
        ensure!(
            refused.status == 401 && refused.json["error"]["code"] == "unauthorized",
            "{method} {path}: {refused:?}"
        );
    }
    for path in ["/", "/healthz", "/readyz", "/openapi.json"] {
        ensure!(door.client.get(path).await?.status == 200, "{path} needs no token");
    }
    known.get("/v1/sessions/one").await?.must(200)?;
    Ok(())
}

async fn a_wrong_token_is_answered_like_none(door: &mut Door) -> Result<()> {
    let token = door.server.token(&["--name", "first"])?;
    until_status(&door.client, 401).await?;
    let none = door.client.get("/v1/status").await?;
    let short = &token[..token.len() - 1];
    let values = [
        String::new(),
        "Bearer ".to_owned(),
        "Bearer x".to_owned(),
        format!("Bearer {token}x"),
        format!("Bearer {short}"),
        format!("Basic {token}"),
        token.clone(),
    ];
    for value in values {
        let answer = door.client.request("GET", "/v1/status").header("authorization", &value).send().await?;
        ensure!(answer.status == 401 && answer.bytes == none.bytes, "{value:?}: {answer:?}");
    }
    let both = format!("Bearer {token}");
    let doubled =
        door.client.request("GET", "/v1/status").header("authorization", "Bearer x").header("authorization", &both);
    ensure!(doubled.send().await?.status == 401, "two tokens are none");
    ensure!(door.client.get(&format!("/v1/status?token={token}")).await?.status == 401);
    let cookie = door.client.request("GET", "/v1/status").header("cookie", &format!("token={token}")).send().await?;
    ensure!(cookie.status == 401);
    let lower =
        door.client.request("GET", "/v1/status").header("authorization", &format!("bearer {token}")).send().await?;
    ensure!(lower.status == 200, "the scheme has no case");
    Ok(())
}

async fn an_expired_and_a_revoked_token_open_nothing(door: &mut Door) -> Result<()> {
    let short = door.client.with_token(&door.server.token(&["--name", "short", "--expires", "6s"])?);
    let long = door.client.with_token(&door.server.token(&["--name", "long"])?);
    until_status(&short, 200).await?;
    until_status(&long, 200).await?;
    until_status(&short, 401).await?;
    door.server.verb(&["token", "revoke"], &[&id_of_token(door, "long")?])?;
    until_status(&long, 401).await?;
    Ok(())
}

fn id_of_token(door: &Door, name: &str) -> Result<String> {
    let listed = door.server.verb(&["token", "list"], &["--json"])?;
    let listed: serde_json::Value = serde_json::from_str(&listed)?;
    let row = listed.as_array().context("a list")?.iter().find(|row| row["name"] == name).context("the token")?;
    Ok(row["id"].as_str().context("an id")?.to_owned())
}

async fn only_who_says_so_opens_a_server_by_revoking_its_last_token(door: &mut Door) -> Result<()> {
    let first = door.client.with_token(&door.server.token(&["--name", "first"])?);
    until_status(&first, 200).await?;
    let id = id_of_token(door, "first")?;
    let said = door.server.verb(&["token", "revoke"], &[&id]).map_err(|error| error.to_string());
    ensure!(said.as_ref().is_err_and(|said| said.contains("--reopen")), "{said:?}");
    // A later token comes into force, so the server has looked at its tokens since the refusal.
    let second = door.client.with_token(&door.server.token(&["--name", "second"])?);
    until_status(&second, 200).await?;
    door.client.get("/v1/status").await?.refused(401, "unauthorized")?;
    first.get("/v1/status").await?.must(200)?;
    door.server.verb(&["token", "revoke"], &[&id_of_token(door, "second")?])?;
    until_status(&second, 401).await?;
    door.client.get("/v1/status").await?.refused(401, "unauthorized")?;
    door.server.verb(&["token", "revoke"], &["--reopen", &id])?;
    until_status(&door.client, 200).await
}

async fn another_tenants_sessions_do_not_exist(door: &mut Door) -> Result<()> {
    let ours = door.client.with_token(&door.server.token(&["--name", "a", "--tenant", "a"])?);
    let theirs = door.client.with_token(&door.server.token(&["--name", "b", "--tenant", "b"])?);
    until_status(&theirs, 200).await?;
    ours.create("secret-name", &json!({})).await?;
    let exec = ours.start("secret-name", "sleep 1000").await?;
    ours.post("/v1/sessions/secret-name/processes", &json!({ "command": "cat", "process_id": "p" }))
        .await?
        .must(201)?;
    let base = "/v1/sessions/secret-name";
    let mut paths = vec![("GET", base.to_owned()), ("DELETE", base.to_owned()), ("PATCH", base.to_owned())];
    paths.extend(["/pause", "/resume", "/managed-process"].map(|end| ("POST", format!("{base}{end}"))));
    paths.extend(
        ["/stats", "/execs", "/processes", "/processes/p", "/processes/p/output", "/processes/p/events"]
            .map(|end| ("GET", format!("{base}{end}"))),
    );
    paths.extend(["", "/result", "/output", "/events"].map(|end| ("GET", format!("{base}/execs/{exec}{end}"))));
    paths.extend(["/cancel", "/stdin", "/signal", "/resize"].map(|end| ("POST", format!("{base}/execs/{exec}{end}"))));
    paths.push(("DELETE", format!("{base}/processes/p")));
    for (method, path) in paths {
        let body = match (method, path.rsplit('/').next().unwrap_or_default()) {
            ("PATCH", _) => json!({ "ttl_sec": 5 }),
            (_, "signal") => json!({ "signal": 15 }),
            (_, "resize") => json!({ "rows": 1, "columns": 1 }),
            (_, "managed-process") => json!({ "command": "cat" }),
            _ => json!(null),
        };
        let ask = |path: &str| {
            let request = theirs.request(method, path);
            if body.is_null() { request } else { request.json(&body) }
        };
        let there = ask(&path).send().await?;
        let nowhere = ask(&path.replace("secret-name", "never-there")).send().await?;
        ensure!(there.status == 404, "{method} {path}: {there:?}");
        let same = there.text().replace("secret-name", "never-there") == nowhere.text();
        ensure!(same, "{method} {path}: {} and {}", there.text(), nowhere.text());
    }
    for path in ["/v1/sessions", "/v1/errors", "/v1/status"] {
        let told = theirs.get(path).await?;
        ensure!(!told.text().contains("secret-name"), "{path}: {}", told.text());
    }
    let status = theirs.get("/v1/status").await?.must(200)?;
    ensure!(status["active_sessions"] == 0 && status["managed_processes"] == 0, "{status}");
    // The same id is another session for another tenant.
    let own = theirs.create("secret-name", &json!({ "memory_mb": 64 })).await?;
    let first = ours.get(base).await?.must(200)?;
    ensure!(own["backend_session_id"] != first["backend_session_id"]);
    theirs.delete(base).await?.must(200)?;
    ours.get(base).await?.must(200)?;
    Ok(())
}

async fn a_scope_opens_its_routes_only(door: &mut Door) -> Result<()> {
    let exec = door.client.with_token(&door.server.token(&["--name", "exec"])?);
    let admin = door.client.with_token(&door.server.token(&["--name", "admin", "--scope", "admin"])?);
    let files = door.client.with_token(&door.server.token(&["--name", "files", "--scope", "files"])?);
    until_status(&files, 403).await?;
    exec.create("one", &json!({})).await?;
    let refused = exec.get("/metrics").await?.refused(403, "forbidden")?;
    ensure!(refused["message"].as_str().is_some_and(|text| text.contains("admin")), "{refused}");
    let metrics = admin.get("/metrics").await?;
    ensure!(metrics.status == 200 && metrics.text().contains("# EOF"), "{metrics:?}");
    for client in [&admin, &files] {
        client.get("/v1/sessions").await?.refused(403, "forbidden")?;
        client.post("/v1/sessions/two/exec", &json!({ "cmd": "true" })).await?.refused(403, "forbidden")?;
    }
    ensure!(exec.sessions().await?.len() == 1, "nothing was made");
    Ok(())
}

async fn a_foreign_host_is_refused_before_the_token(door: &mut Door) -> Result<()> {
    let token = door.server.token(&["--name", "first"])?;
    until_status(&door.client, 401).await?;
    let port = door.server.address()?.port();
    let long = "a".repeat(300);
    let bad = [
        "evil.example",
        "evil.example:5410",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "[::1].evil",
        "0.0.0.0",
        "box.example",
        "127.0.0.1@evil.example",
        &long,
    ];
    for host in bad {
        for path in ["/v1/status", "/healthz", "/openapi.json"] {
            let ask = door.client.request("GET", path).header("host", host);
            let told = ask.header("authorization", &format!("Bearer {token}")).send().await?;
            ensure!(matches!(told.status, 400 | 403 | 421), "{host} {path}: {told:?}");
        }
        let told = door.client.request("GET", "/v1/status").header("host", host).send().await?;
        ensure!(matches!(told.status, 400 | 403 | 421), "{host} without a token: {told:?}");
    }
    for host in
        [format!("127.0.0.1:{port}"), "localhost".to_owned(), format!("LOCALHOST:{port}"), format!("[::1]:{port}")]
    {
        let told = door.client.with_token(&token).request("GET", "/v1/status").header("host", &host).send().await?;
        ensure!(told.status == 200, "{host}: {told:?}");
    }
    Ok(())
}

async fn idle_strangers_lock_no_caller_out(door: &mut Door) -> Result<()> {
    let token = door.server.token(&["--name", "holder"])?;
    until_status(&door.client, 401).await?;
    let (address, known) = (door.server.address()?, door.client.with_token(&token));
    let strangers = async {
        let mut held = std::collections::VecDeque::new();
        for _ in 0..STRANGERS {
            let mut stranger = TcpStream::connect(address).await?;
            stranger.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
            ensure!(stranger.read(&mut [0; 512]).await? > 0, "the health route answers a stranger");
            held.push_back(stranger);
            if held.len() > STRANGERS_AT_ONCE {
                held.pop_front();
            }
        }
        Ok(held)
    };
    let mut strangers = std::pin::pin!(strangers);
    // Each request on a connection of its own: it is a stranger's until the token was seen.
    let held = loop {
        let asked = async { known.get("/v1/status").await?.must(200).map(drop) };
        tokio::select! {
            held = &mut strangers => break held?,
            asked = asked => asked?,
        }
    };
    for _ in 0..20 {
        known.get("/v1/status").await?.must(200)?;
    }
    drop(held);
    Ok(())
}

async fn a_foreign_page_is_refused_and_an_allowed_one_is_told_so(door: &mut Door) -> Result<()> {
    let address = door.server.address()?;
    let ask = |origin: &str| door.client.request("GET", "/v1/status").header("origin", origin).send();
    for origin in ["https://evil.example", "null", "http://127.0.0.1:1", "https://page.example.evil.example", ""] {
        let told: Answer = ask(origin).await?;
        let error = told.refused(403, "forbidden")?;
        ensure!(error["detail_code"] == "origin_not_allowed", "{origin}: {error}");
    }
    let own = ask(&format!("http://{address}")).await?;
    ensure!(own.status == 200 && own.header("access-control-allow-origin").is_empty(), "{own:?}");
    let allowed = ask("https://page.example").await?;
    ensure!(
        allowed.status == 200 && allowed.header("access-control-allow-origin") == "https://page.example",
        "{allowed:?}"
    );
    let question = door.client.request("OPTIONS", "/v1/sessions/x/exec").header("origin", "https://page.example");
    let answer = question.header("access-control-request-method", "POST").send().await?;
    ensure!(answer.status == 204 && answer.header("access-control-allow-methods").contains("POST"), "{answer:?}");
    let named = door.client.request("GET", "/v1/status").header("host", "box.example").send().await?;
    ensure!(named.status == 200, "an allowed name: {named:?}");
    Ok(())
}

/// Requests of which one part names a sandbox, or another server, and another part names this one.
async fn what_leads_a_request_is_what_lets_it_in(door: &mut Door) -> Result<()> {
    let own = door.server.address()?;
    let page = "Host: 3000-abc.sand.example\r\nOrigin: http://3000-abc.sand.example\r\n";
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let refused = [
        // The name of one sandbox, and headers for the API or for another sandbox.
        format!("GET /sandboxes HTTP/1.1\r\n{page}E2b-Sandbox-Id: x\r\nE2b-Sandbox-Port: 49983\r\n\r\n"),
        format!("GET /v2/sandboxes HTTP/1.1\r\n{page}E2b-Sandbox-Id: abc\r\nE2b-Sandbox-Port: 49983\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{page}E2b-Sandbox-Id: def\r\nE2b-Sandbox-Port: 3000\r\n\r\n"),
        // A target and a Host that are both allowed, and differ.
        format!("GET http://{own}/v1/sessions HTTP/1.1\r\n{page}\r\n"),
        format!("GET http://3000-abc.sand.example/v1/sessions HTTP/1.1\r\nHost: {own}\r\n\r\n"),
        // A path that LangBot's programs may call by any name, led to a sandbox.
        format!(
            "GET /rpc/ws HTTP/1.1\r\nHost: evil.example\r\n{upgrade}E2b-Sandbox-Id: abc\r\nE2b-Sandbox-Port: 3000\r\n\r\n"
        ),
        format!("GET /rpc/ws HTTP/1.1\r\nHost: 3000-abc.evil.example\r\n{upgrade}\r\n"),
        // Headers of a proxy in front decide nothing.
        format!("GET /v1/sessions HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: {own}\r\n\r\n"),
        format!(
            "GET /v1/sessions HTTP/1.1\r\n{page}X-Forwarded-Host: {own}\r\nE2b-Sandbox-Id: x\r\nE2b-Sandbox-Port: 49983\r\n\r\n"
        ),
    ];
    for request in refused {
        let said = exchange(door, &request).await?;
        ensure!(said.starts_with("HTTP/1.1 403 "), "{request}\n{said}");
    }
    let same = format!("GET http://{own}/v1/sessions HTTP/1.1\r\nHost: {own}\r\n\r\n");
    ensure!(exchange(door, &same).await?.starts_with("HTTP/1.1 200 "), "a target that is the Host");
    Ok(())
}

async fn exchange(door: &Door, request: &str) -> Result<String> {
    let mut stream = TcpStream::connect(door.server.address()?).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut said = vec![0; 4096];
    let count = stream.read(&mut said).await?;
    Ok(String::from_utf8_lossy(&said[..count]).into_owned())
}

async fn a_websocket_is_refused_before_its_upgrade(door: &mut Door) -> Result<()> {
    let token = door.server.token(&["--name", "first"])?;
    until_status(&door.client, 401).await?;
    let known = door.client.with_token(&token);
    known.post("/v1/sessions/one/processes", &json!({ "command": "cat" })).await?.must(201)?;
    let url = door.server.url()?.to_owned();
    for path in
        ["/v1/sessions/one/exec/ws", "/v1/sessions/one/managed-process/ws", "/v1/sessions/one/processes/default/ws"]
    {
        let good = format!("Bearer {token}");
        let table: [(&[(&str, &str)], u16); 5] = [
            (&[], 401),
            (&[("authorization", "Bearer wrong")], 401),
            (&[("sec-websocket-protocol", "bearer.wrong, strongbox.v1")], 401),
            (&[("authorization", &good), ("origin", "https://evil.example")], 403),
            (&[("authorization", &good), ("origin", "null")], 403),
        ];
        for (headers, status) in table {
            let refused = socket::refused(&url, path, headers).await?;
            ensure!(refused == Refused(status), "{path} {headers:?}: {refused:?}");
        }
        // Programs may call the relay by any name, as LangBot does; a browser would say from which page it comes.
        if !path.contains("managed-process") {
            let headers = [("authorization", good.as_str()), ("host", "evil.example")];
            ensure!(socket::refused(&url, path, &headers).await? == Refused(403), "{path}");
        }
        ensure!(socket::refused(&url, &format!("{path}?token={token}"), &[]).await? == Refused(401));
        // Browsers can say it in the subprotocol only.
        let offered = format!("bearer.{token}, strongbox.v1, mcp");
        socket::Socket::open(&url, path, &[("sec-websocket-protocol", &offered)]).await.context(path)?;
    }
    Ok(())
}

async fn a_token_is_never_logged(door: &mut Door) -> Result<()> {
    let token = door.server.token(&["--name", "first"])?;
    until_status(&door.client, 401).await?;
    let known = door.client.with_token(&token);
    known.exec("one", "true").await?;
    door.client.get(&format!("/v1/status?token={token}")).await?;
    door.client.request("GET", "/v1/status").header("authorization", &token).send().await?;
    ensure!(!door.server.log().contains(&token), "the log holds a token");
    for name in box_tests::leaks::files(door.server.state()) {
        let path = door.server.state().join(&name);
        let holds =
            std::fs::read(&path).is_ok_and(|bytes| bytes.windows(token.len()).any(|part| part == token.as_bytes()));
        ensure!(!holds, "{name} holds a token");
    }
    Ok(())
}

async fn beyond_the_loopback() -> Result<()> {
    let options = ServerOptions { listen: Some("0.0.0.0:0".to_owned()), ..ServerOptions::default() };
    let mut server = TestServer::prepare(options)?;
    let said = server.fails_to_start().await?;
    ensure!(said.contains("strongbox token create"), "{said}");
    let token = server.token(&["--name", "first"])?;
    server.launch().await?;
    let client = server.client()?;
    client.get("/v1/status").await?.refused(401, "unauthorized")?;
    client.with_token(&token).get("/v1/status").await?.must(200)?;
    server.sigterm().await?;
    Ok(())
}

async fn tls() -> Result<()> {
    let server = TestServer::start_with(ServerOptions { tls: true, ..ServerOptions::default() }).await?;
    ensure!(server.url()?.starts_with("https://"), "{}", server.url()?);
    let client = server.client()?;
    ensure!(client.exec("one", "echo encrypted").await?["stdout"] == "encrypted\n");
    let plain = Client::new(server.address()?).get("/healthz").await?;
    ensure!(plain.status == 400 && plain.json["error"]["code"] == "https_required", "{plain:?}");
    let stranger = TestServer::prepare(ServerOptions { tls: true, ..ServerOptions::default() })?;
    let trusts_another = Client::trusting(server.address()?, &stranger.certificate())?.get("/healthz").await;
    ensure!(trusts_another.is_err(), "a client that trusts another certificate was content");
    server.finish().await
}
