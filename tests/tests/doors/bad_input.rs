//! What makes no sense is refused with 4xx and the name of the field; the server lives, and nothing is half made.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use box_tests::http::Answer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::socket::{Said, Socket};
use crate::{Door, DoorCase, cases};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        malformed_json_is_refused,
        a_wrong_value_is_refused_by_the_name_of_its_field,
        every_field_survives_every_type,
        an_odd_id_is_refused_or_is_only_a_name,
        a_body_without_a_kind_or_too_large_is_refused,
        deep_and_wide_bodies_are_refused_without_much_memory,
        a_head_that_is_too_large_is_refused,
        a_head_that_dribbles_is_cut_off,
        what_is_no_http_is_refused,
        unknown_paths_and_methods_are_answered_in_the_same_form,
        wrong_queries_and_cursors_are_refused_by_name,
        frames_that_are_too_large_end_the_conversation,
        frames_that_are_no_text_or_no_protocol_end_the_conversation,
        a_conversation_that_begins_wrongly_is_refused_in_words,
        what_cannot_be_started_is_told_and_leaves_nothing,
    ]
}

/// Holds that an answer is a refusal in the form of this door, and tells nothing of our insides.
fn refused(what: &str, answer: &Answer) -> Result<()> {
    ensure!((400..500).contains(&answer.status), "{what}: {answer:?}");
    let error = &answer.json["error"];
    ensure!(error["code"].is_string() && error["message"].is_string(), "{what}: {answer:?}");
    let text = answer.text();
    let inside = ["panicked", ".rs:", "/home/", "/root/", "0x"].iter().find(|part| text.contains(**part));
    ensure!(inside.is_none(), "{what}: {text}");
    Ok(())
}

/// Holds that nothing was made, and that somebody else is served.
async fn unharmed(door: &Door, what: &str) -> Result<()> {
    ensure!(door.client.sessions().await?.is_empty(), "{what} made a session");
    ensure!(door.client.get("/healthz").await?.status == 200, "{what}");
    Ok(())
}

async fn malformed_json_is_refused(door: &mut Door) -> Result<()> {
    let bodies: [&[u8]; 25] = [
        b"{",
        b"[1,2",
        b"{\"cmd\":}",
        b"nul",
        b"{\"cmd\":\"x\",}",
        b"{\"cmd\":\"x\"}{\"cmd\":\"y\"}",
        b"\xef\xbb\xbf{\"cmd\":\"x\"}",
        b"\"text\"",
        b"[]",
        b"123",
        b"null",
        b"true",
        b"{\"cmd\":\"\\ud800\"}",
        b"{\"cmd\":\"\\u0000\"}",
        b"{\"cpus\":NaN,\"cmd\":\"x\"}",
        b"{\"cpus\":Infinity,\"cmd\":\"x\"}",
        b"{\"cpus\":1e999999,\"cmd\":\"x\"}",
        b"{\"cpus\":0x10,\"cmd\":\"x\"}",
        b"{'cmd':'x'}",
        b"// c\n{\"cmd\":\"x\"}",
        b"\xff\xfe{\x00}\x00",
        b"{\"cmd\":\"\xff\"}",
        b"{\"cmd\":\"a\nb\"}",
        b"",
        b"   ",
    ];
    for body in bodies {
        let what = String::from_utf8_lossy(body).into_owned();
        for path in ["/v1/sessions/one/exec", "/v1/sessions/one/processes"] {
            let answer = door.client.post_raw(path, body).await?;
            refused(&what, &answer)?;
        }
        unharmed(door, &what).await?;
    }
    Ok(())
}

async fn a_wrong_value_is_refused_by_the_name_of_its_field(door: &mut Door) -> Result<()> {
    let long = "x".repeat(200_000);
    let table = [
        (json!({ "cpus": "NaN" }), "cpus"),
        (json!({ "cpus": "-inf" }), "cpus"),
        (json!({ "cpus": -1 }), "cpus"),
        (json!({ "cpus": 0 }), "cpus"),
        (json!({ "cpus": 1e9 }), "cpus"),
        (json!({ "memory_mb": -1 }), "memory_mb"),
        (json!({ "memory_mb": 1 }), "memory_mb"),
        (json!({ "memory_mb": 1.5 }), "memory_mb"),
        (json!({ "memory_mb": u64::MAX }), "memory_mb"),
        (json!({ "memory_mb": true }), "memory_mb"),
        (json!({ "pids_limit": 0 }), "pids_limit"),
        (json!({ "pids_limit": 1u64 << 31 }), "pids_limit"),
        (json!({ "workspace_quota_mb": 9_007_199_254_740_993u64 }), "workspace_quota_mb"),
        (json!({ "ttl_sec": 0 }), "ttl_sec"),
        (json!({ "ttl_sec": 1e18 }), "ttl_sec"),
        (json!({ "network": "maybe" }), "network"),
        (json!({ "profile": "admin" }), "profile"),
        (json!({ "image": "registry/none:1" }), "image"),
        (json!({ "image": "dir:relative" }), "image"),
        (json!({ "image": "dir:/nowhere/at/all" }), "image"),
        (json!({ "host_path": "/etc" }), "host_path"),
        (json!({ "host_path": "relative" }), "host_path"),
        (json!({ "host_path_mode": "RO" }), "host_path_mode"),
        (json!({ "mount_path": "relative" }), "mount_path"),
        (json!({ "mount_path": "/../../x" }), "mount_path"),
        (json!({ "mount_path": "/a\u{0}b" }), "mount_path"),
        (json!({ "extra_mounts": [{ "host_path": "/etc", "mount_path": "/x" }] }), "host_path"),
        (json!({ "extra_mounts": [{ "host_path": "/etc", "mount_path": "/x", "mode": "rw,suid" }] }), "extra_mounts"),
        (json!({ "extra_mounts": [1] }), "extra_mounts"),
        (json!({ "timeout_sec": 0 }), "timeout_sec"),
        (json!({ "timeout_sec": -1 }), "timeout_sec"),
        (json!({ "timeout_sec": 1e308 }), "timeout_sec"),
        (json!({ "timeout_sec": "Infinity" }), "timeout_sec"),
        (json!({ "timeout_sec": true }), "timeout_sec"),
        (json!({ "output_limit_chars": 0 }), "output_limit_chars"),
        (json!({ "output_limit_chars": 1u64 << 40 }), "output_limit_chars"),
        (json!({ "workdir": "relative" }), "workdir"),
        (json!({ "workdir": "/a\u{0}" }), "workdir"),
        (json!({ "env": { "A=B": "x" } }), "env"),
        (json!({ "env": { "": "x" } }), "env"),
        (json!({ "env": { "A": "x\u{0}y" } }), "env"),
        (json!({ "env": { "A": &long } }), "env"),
        (json!({ "cmd": &long }), "command"),
        (json!({ "cmd": "a\u{0}b" }), "command"),
        (json!({ "command": ["a"] }), "command"),
        (json!({ "tty": { "rows": 0, "columns": 1 } }), "tty"),
        (json!({ "user": { "uid": -1 } }), "user"),
        (json!({ "stdin": 5 }), "stdin"),
        (json!({ "on_timeout": "explode" }), "on_timeout"),
        (json!({ "privileged": true }), "privileged"),
        (json!({ "backend": "host" }), "backend"),
        (json!({ "memory": 64 }), "memory"),
    ];
    for (fields, field) in table {
        let mut body = json!({ "cmd": "true" });
        for (name, value) in fields.as_object().context("an object")? {
            body[name] = value.clone();
        }
        let what: String = fields.to_string().chars().take(100).collect();
        let answer = door.client.post("/v1/sessions/one/exec", &body).await?;
        refused(&what, &answer)?;
        ensure!(answer.json["error"]["field"] == field, "{what}: {field} is not named: {answer:?}");
        unharmed(door, &what).await?;
    }
    let twice: [(&str, &str); 3] = [
        (r#"{"cmd":"true","timeout_sec":1,"timeout_sec":100}"#, "timeout_sec"),
        (r#"{"cmd":"true","env":{"A":"1","A":"2"}}"#, "env"),
        (r#"{"cmd":"true","cmd":"false"}"#, "cmd"),
    ];
    for (body, field) in twice {
        let answer = door.client.post_raw("/v1/sessions/one/exec", body).await?;
        refused(body, &answer)?;
        ensure!(answer.json["error"]["field"] == field, "{body}: {answer:?}");
    }
    unharmed(door, "a key twice").await
}

/// Every field of every body of the document, with every kind of value: never 5xx.
async fn every_field_survives_every_type(door: &mut Door) -> Result<()> {
    let document = door.client.get("/openapi.json").await?.must(200)?;
    let schema = |name: &str| document["components"]["schemas"][name].clone();
    let fields = |name: &str| -> Vec<String> {
        let body = schema(name);
        let parts = body["allOf"].as_array().cloned().unwrap_or_else(|| vec![body.clone()]);
        let own = |part: &Value| match part["$ref"].as_str() {
            Some(path) => schema(path.rsplit('/').next().unwrap_or_default()),
            None => part.clone(),
        };
        parts
            .iter()
            .flat_map(|part| own(part)["properties"].as_object().cloned().unwrap_or_default())
            .map(|(name, _)| name)
            .collect()
    };
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1e300),
        json!(0.5),
        json!(u64::MAX),
        json!(""),
        json!("\u{202e}é\u{0}"),
        json!("NaN"),
        json!([]),
        json!([null]),
        json!({}),
        json!({ "a": { "b": [] } }),
        json!("x".repeat(5000)),
    ];
    let bodies = [
        ("POST", "/v1/sessions/one", "CreateBody", json!({})),
        ("PATCH", "/v1/sessions/one", "PatchBody", json!({})),
        ("POST", "/v1/sessions/one/exec", "ExecBody", json!({ "cmd": "true" })),
        ("POST", "/v1/sessions/one/processes", "ProcessBody", json!({ "command": "true" })),
        ("POST", "/v1/sessions/one/managed-process", "ManagedBody", json!({ "command": "true" })),
        ("POST", "/v1/sessions/one/execs/e/signal", "SignalBody", json!({})),
        ("POST", "/v1/sessions/one/execs/e/resize", "SizeBody", json!({})),
    ];
    let mut count = 0;
    for (method, path, name, base) in bodies {
        let names = fields(name);
        ensure!(!names.is_empty(), "{name} has no fields in the document");
        for field in names {
            for value in &values {
                let mut body = base.clone();
                body[&field] = value.clone();
                let answer = door.client.request(method, path).json(&body).send().await?;
                ensure!(answer.status < 500, "{method} {path} {field}={value}: {answer:?}");
                if answer.status >= 400 {
                    refused(&format!("{method} {path} {field}={value}"), &answer)?;
                }
                count += 1;
            }
        }
        door.client.delete("/v1/sessions/one").await?;
    }
    ensure!(count > 500, "only {count} bodies were tried");
    Ok(())
}

async fn an_odd_id_is_refused_or_is_only_a_name(door: &mut Door) -> Result<()> {
    let long = "a".repeat(300);
    let bad = [
        "a%00b",
        "a%0Ab",
        "%20a",
        "a%20",
        "%E2%80%AEevil",
        "a%E2%80%8B",
        "%EF%BB%BF",
        "%20%20",
        "%FF",
        "%C3%28",
        &long,
    ];
    for id in bad {
        for end in ["", "/exec", "/processes", "/execs"] {
            let path = format!("/v1/sessions/{id}{end}");
            let answer = match end {
                "/execs" => door.client.get(&path).await?,
                _ => door.client.post(&path, &json!({ "cmd": "true", "command": "true" })).await?,
            };
            refused(&path, &answer)?;
        }
        unharmed(door, id).await?;
    }
    for id in ["a\u{0}b", "a\nb", "", "\u{202e}evil", &long] {
        let answer = door.client.post("/v1/sessions", &json!({ "session_id": id })).await?;
        if !id.is_empty() {
            refused(id, &answer)?;
            ensure!(answer.json["error"]["field"] == "session_id", "{id:?}: {answer:?}");
            unharmed(door, id).await?;
        } else if answer.status == 201 {
            // Nothing was asked for, so a name was made up.
            let made = answer.json["session_id"].as_str().context("an id")?.to_owned();
            door.client.delete(&format!("/v1/sessions/{made}")).await?.must(200)?;
        }
    }
    // A way out of a directory is a name like any other: no file is called by it.
    for id in ["..%2F..%2Fetc", "..", ".", "%2Fabs", "a%5Cb", "%25s%25n", "%F0%9F%92%A9"] {
        let answer = door.client.post(&format!("/v1/sessions/{id}"), &json!({})).await?;
        ensure!(answer.status == 201 || (400..500).contains(&answer.status), "{id}: {answer:?}");
    }
    let raw = box_tests::leaks::files(door.server.state());
    ensure!(!raw.iter().any(|name| name.contains("etc") || name.contains("abs")), "{raw:?}");
    let log = door.server.log();
    ensure!(
        !log.contains('\u{202e}') && !log.chars().any(|letter| letter.is_control() && letter != '\n'),
        "raw characters in the log"
    );
    for process in ["a%00", "%0A", &"p".repeat(100)] {
        refused(process, &door.client.get(&format!("/v1/sessions/one/processes/{process}")).await?)?;
    }
    Ok(())
}

async fn a_body_without_a_kind_or_too_large_is_refused(door: &mut Door) -> Result<()> {
    let body = r#"{"cmd":"true"}"#;
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
        let answer =
            door.client.request("POST", "/v1/sessions/one/exec").header("content-type", kind).body(body).send().await?;
        ensure!(answer.status == 415, "{kind:?}: {answer:?}");
    }
    // The length alone is enough to refuse: nothing of the body is waited for.
    let head = format!(
        "POST /v1/sessions/one/exec HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        door.server.address()?,
        (8 << 20) + 1
    );
    let said = say(door, head.as_bytes()).await?;
    ensure!(said.starts_with("HTTP/1.1 413") && said.contains("too_large"), "{said}");
    let chunked = format!(
        "POST /v1/sessions/one/exec HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        door.server.address()?
    );
    let mut bytes = chunked.into_bytes();
    for _ in 0..9 {
        bytes.extend_from_slice(b"100000\r\n");
        bytes.extend(std::iter::repeat_n(b' ', 1 << 20));
        bytes.extend_from_slice(b"\r\n");
    }
    let said = say(door, &bytes).await?;
    ensure!(said.starts_with("HTTP/1.1 413"), "{said}");
    unharmed(door, "a large body").await
}

async fn deep_and_wide_bodies_are_refused_without_much_memory(door: &mut Door) -> Result<()> {
    door.client.get("/healthz").await?;
    let before = door.server.resident_kb()?;
    let many: String = (0..100_000).map(|number| format!("\"k{number}\":1,")).collect();
    let digits = "9".repeat(4 << 20);
    let bodies = [
        "[".repeat(200_000),
        "{\"a\":".repeat(100_000),
        format!("{{\"env\":{}", "{\"a\":".repeat(100_000)),
        format!("{{{many}\"cmd\":\"x\"}}"),
        format!("{{\"cmd\":\"x\",\"memory_mb\":{digits}}}"),
        format!("{{\"cmd\":\"{}\"}}", "a".repeat(7 << 20)),
        format!("{{\"command\":[{}\"x\"]}}", "\"x\",".repeat(200_000)),
        format!(
            "{{\"cmd\":\"x\",\"env\":{{{}\"Z\":\"\"}}}}",
            (0..100_000).map(|n| format!("\"A{n}\":\"\",")).collect::<String>()
        ),
    ];
    for body in bodies {
        let what: String = body.chars().take(40).collect();
        refused(&what, &door.client.post_raw("/v1/sessions/one/exec", body).await?)?;
    }
    unharmed(door, "a deep body").await?;
    let grown = door.server.resident_kb()?.saturating_sub(before);
    ensure!(grown < 64 << 10, "the server grew by {grown} kB");
    Ok(())
}

/// Sends bytes and returns what comes back until the server hangs up, or has said all.
async fn say(door: &Door, bytes: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(door.server.address()?).await?;
    // The server may hang up before it has read all; what it said is still there.
    let _ = stream.write_all(bytes).await;
    let mut said = vec![0; 16 << 10];
    let count =
        tokio::time::timeout(Duration::from_secs(20), stream.read(&mut said)).await.context("no answer")?.unwrap_or(0);
    Ok(String::from_utf8_lossy(&said[..count]).into_owned())
}

async fn a_head_that_is_too_large_is_refused(door: &mut Door) -> Result<()> {
    let host = door.server.address()?;
    let heads = [
        format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\nX: {}\r\n\r\n", "a".repeat(100_000)),
        format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\n{}\r\n", "X: a\r\n".repeat(2000)),
        format!("GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "a".repeat(100_000)),
        format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\n\r\n", "A".repeat(100_000)),
    ];
    for head in heads {
        let said = say(door, head.as_bytes()).await?;
        let status = said.split(' ').nth(1).unwrap_or_default();
        ensure!(said.is_empty() || ["400", "414", "431"].contains(&status), "{said}");
        unharmed(door, "a large head").await?;
    }
    Ok(())
}

/// A byte now and then keeps a connection open for as long as a head may take, and no longer.
async fn a_head_that_dribbles_is_cut_off(door: &mut Door) -> Result<()> {
    let mut stream = TcpStream::connect(door.server.address()?).await?;
    stream.set_nodelay(true)?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nX: ").await?;
    let mut said = [0; 1024];
    let cut = async {
        loop {
            tokio::select! {
                read = stream.read(&mut said) => return read.unwrap_or(0),
                () = tokio::time::sleep(Duration::from_millis(200)) => {}
            }
            if stream.write_all(b"a").await.is_err() {
                return 0;
            }
        }
    };
    let count = tokio::time::timeout(Duration::from_secs(30), cut).await.context("the connection stays open")?;
    let said = String::from_utf8_lossy(&said[..count]);
    ensure!(said.is_empty() || said.starts_with("HTTP/1.1 408"), "{said}");
    unharmed(door, "a dribble").await
}

async fn what_is_no_http_is_refused(door: &mut Door) -> Result<()> {
    let host = door.server.address()?;
    let table = [
        "\x16\x03\x01\x02\x00\x01".to_owned(),
        "hello\r\n\r\n".to_owned(),
        "GET /v1/status HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET /v1/status HTTP/1.1\r\nHost: {host}\r\nHost: evil\r\n\r\n"),
        format!("GET http://evil.example/v1/status HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("POST /v1/sessions/one HTTP/1.1\r\nHost: {host}\r\nContent-Length: -1\r\n\r\n"),
        format!("POST /v1/sessions/one HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}"),
        format!(
            "POST /v1/sessions/one HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
        ),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ];
    for bytes in table {
        let said = say(door, bytes.as_bytes()).await?;
        let status = said.split(' ').nth(1).unwrap_or_default();
        ensure!(said.is_empty() || status.starts_with('4'), "{bytes:?}: {said}");
        unharmed(door, &bytes).await?;
    }
    Ok(())
}

async fn unknown_paths_and_methods_are_answered_in_the_same_form(door: &mut Door) -> Result<()> {
    for path in [
        "/nowhere",
        "/v1",
        "/v1/sessions/",
        "/v1/sessions/one/two/three",
        "//v1/sessions",
        "/v1/../v1/status",
        "/v2/status",
    ] {
        door.client.get(path).await?.refused(404, "not_found").context(path)?;
    }
    for (method, path) in
        [("DELETE", "/v1/sessions"), ("PUT", "/v1/sessions/one"), ("POST", "/healthz"), ("TRACE", "/v1/status")]
    {
        let answer = door.client.request(method, path).send().await?;
        ensure!(!answer.header("allow").is_empty(), "{method} {path}: {answer:?}");
        answer.refused(405, "method_not_allowed")?;
    }
    door.client.get("/v1/sessions/one/exec/ws").await?.refused(426, "upgrade_required")?;
    Ok(())
}

async fn wrong_queries_and_cursors_are_refused_by_name(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let exec = client.start("one", "echo hello").await?;
    client.get(&format!("/v1/sessions/one/execs/{exec}/result")).await?.must(200)?;
    let base = format!("/v1/sessions/one/execs/{exec}");
    let table = [
        ("/v1/sessions?limit=0".to_owned(), "limit"),
        ("/v1/sessions?limit=-1".to_owned(), "limit"),
        ("/v1/sessions?state=strange".to_owned(), "state"),
        ("/v1/sessions?page=2".to_owned(), "page"),
        ("/v1/sessions?limit=1&limit=2".to_owned(), "limit"),
        (format!("{base}/output?stream=stdin"), "stream"),
        (format!("{base}/output?from=-1"), "from"),
        (format!("{base}/output?max=many"), "max"),
        (format!("{base}/events?cursor=1"), "cursor"),
        (format!("{base}/events?cursor=0.0.0.0"), "cursor"),
        (format!("{base}/events?cursor=0.-1.0"), "cursor"),
        (format!("{base}/result?timeout_sec=-1"), "timeout_sec"),
        (format!("{base}/result?timeout_sec=NaN"), "timeout_sec"),
    ];
    for (path, field) in table {
        let answer = client.get(&path).await?;
        refused(&path, &answer)?;
        ensure!(answer.json["error"]["field"] == field, "{path}: {answer:?}");
    }
    let last = client.request("GET", &format!("{base}/events")).header("last-event-id", "x").send().await?;
    ensure!(last.status == 400 && last.json["error"]["field"] == "Last-Event-ID", "{last:?}");
    for range in ["bytes=9-2", "bytes=a-b", "bytes=0-1,3-4", "lines=0-1", "bytes=-"] {
        let answer = client.request("GET", &format!("{base}/output")).header("range", range).send().await?;
        ensure!(answer.status < 500, "{range}: {answer:?}");
    }
    let beyond = client.request("GET", &format!("{base}/output")).header("range", "bytes=100-").send().await?;
    ensure!(beyond.status == 416 && beyond.header("content-range") == "bytes */6", "{beyond:?}");
    let key = client.request("POST", "/v1/sessions/one/exec").header("idempotency-key", &"k".repeat(200));
    let answer = key.json(&json!({ "cmd": "true" })).send().await?;
    ensure!(answer.status == 400 && answer.json["error"]["field"] == "Idempotency-Key", "{answer:?}");
    Ok(())
}

/// Opens a conversation with a command that repeats what it is told.
async fn conversation(door: &Door) -> Result<Socket> {
    let mut socket = Socket::open(door.server.url()?, "/v1/sessions/one/exec/ws", &[]).await?;
    socket.text(json!({ "cmd": "cat" }).to_string()).await?;
    socket.told("started").await?;
    Ok(socket)
}

/// Waits until the server closes.
async fn closed(socket: &mut Socket) -> Result<Option<u16>> {
    loop {
        match socket.next().await {
            Ok(Said::Closed(code)) => return Ok(code),
            Ok(_) => {}
            // The server hung up while we were still sending: that is an end, too.
            Err(_) => return Ok(None),
        }
    }
}

async fn frames_that_are_too_large_end_the_conversation(door: &mut Door) -> Result<()> {
    let mut socket = conversation(door).await?;
    let before = door.server.resident_kb()?;
    let _ = socket.bytes(vec![b'x'; (1 << 20) + 1]).await;
    let code = closed(&mut socket).await?;
    ensure!(matches!(code, Some(1009) | None), "{code:?}");
    // A length of 2^63-1, of which nothing follows.
    let mut socket = conversation(door).await?;
    let header = [&[0x82, 0xff], &(u64::MAX >> 1).to_be_bytes()[..], &[0; 4]].concat();
    socket.raw(&header).await?;
    ensure!(closed(&mut socket).await? == Some(1009));
    let mut socket = conversation(door).await?;
    // A message in pieces counts as a whole.
    for piece in 0..40 {
        let first: u8 = if piece == 0 { 0x02 } else { 0x00 };
        let frame = [&[first, 0xff][..], &(64_u64 << 10).to_be_bytes(), &[0; 4], &vec![0; 64 << 10]].concat();
        if socket.raw(&frame).await.is_err() {
            break;
        }
    }
    let code = closed(&mut socket).await?;
    ensure!(matches!(code, Some(1009) | None), "{code:?}");
    let grown = door.server.resident_kb()?.saturating_sub(before);
    ensure!(grown < 32 << 10, "the server grew by {grown} kB");
    ensure!(door.client.exec("one", "true").await?["exit_code"] == 0);
    Ok(())
}

async fn frames_that_are_no_text_or_no_protocol_end_the_conversation(door: &mut Door) -> Result<()> {
    let mask = [0; 4];
    let table: [(&str, Vec<u8>, u16); 6] = [
        ("a text that is no UTF-8", [&[0x81, 0x82][..], &mask, &[0xff, 0xfe]].concat(), 1007),
        ("a reserved opcode", [&[0x83, 0x80][..], &mask].concat(), 1002),
        ("a reserved bit", [&[0xc1, 0x80][..], &mask].concat(), 1002),
        ("a long ping", [&[0x89, 0xfe, 0x00, 0x7e][..], &mask, &[0; 126]].concat(), 1002),
        ("a ping in pieces", [&[0x09, 0x80][..], &mask].concat(), 1002),
        ("a continuation of nothing", [&[0x80, 0x80][..], &mask].concat(), 1002),
    ];
    for (what, frame, code) in table {
        let mut socket = conversation(door).await?;
        socket.raw(&frame).await?;
        let told = closed(&mut socket).await?;
        ensure!(told == Some(code), "{what}: {told:?}");
    }
    let mut socket = conversation(door).await?;
    // Unmasked, which no client may send.
    socket.raw(&[0x81, 0x01, b'x']).await?;
    ensure!(closed(&mut socket).await? == Some(1002));
    // A message that makes no sense is complained about, and the conversation goes on.
    let mut socket = conversation(door).await?;
    for text in [
        "no json",
        "{}",
        r#"{"type":"explode"}"#,
        r#"{"type":"resize","rows":0,"columns":1}"#,
        r#"{"type":"signal","signal":"NOPE"}"#,
        r#"{"type":"stdin_end","more":1}"#,
    ] {
        socket.text(text).await?;
        let complaint = socket.told("error").await.context(text)?;
        ensure!(complaint["error"]["code"] == "validation_error", "{text}: {complaint}");
    }
    socket.bytes("still here\n").await?;
    socket.until("still here\n").await?;
    Ok(())
}

async fn a_conversation_that_begins_wrongly_is_refused_in_words(door: &mut Door) -> Result<()> {
    for first in ["no json", "{}", r#"{"cmd":"x","memory_mb":1}"#, r#"{"cmd":"x","tty":{"rows":1}}"#] {
        let mut socket = Socket::open(door.server.url()?, "/v1/sessions/one/exec/ws", &[]).await?;
        socket.text(first).await?;
        let complaint = socket.told("error").await?;
        ensure!(complaint["error"]["code"] == "validation_error", "{first}: {complaint}");
        ensure!(closed(&mut socket).await? == Some(1008), "{first}");
        unharmed(door, first).await?;
    }
    let mut socket = Socket::open(door.server.url()?, "/v1/sessions/one/exec/ws", &[]).await?;
    socket.bytes("{}").await?;
    socket.told("error").await?;
    unharmed(door, "bytes instead of a text").await
}

async fn what_cannot_be_started_is_told_and_leaves_nothing(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let table = [
        (json!({ "command": ["/no/such/program"] }), "program_not_found", "command"),
        (json!({ "command": ["/etc/passwd"] }), "program_not_executable", "command"),
        (json!({ "cmd": "true", "workdir": "/no/such/directory" }), "bad_workdir", "workdir"),
    ];
    for (body, detail, field) in table {
        let error = client.post("/v1/sessions/one/exec", &body).await?.refused(422, "refused")?;
        ensure!(error["detail_code"] == detail && error["field"] == field, "{body}: {error}");
    }
    ensure!(client.get("/v1/sessions/one/execs").await?.must(200)? == json!([]), "a refused command is remembered");
    let error = client.post("/v1/sessions/one/processes", &json!({ "command": "no-such-program" })).await?;
    error.refused(422, "refused")?;
    ensure!(client.get("/v1/sessions/one/processes").await?.must(200)? == json!([]));
    Ok(())
}
