//! What makes no sense is refused with 4xx and the name of the field; the server lives, and nothing is half made.

use anyhow::{Context, Result, ensure};
use box_tests::http::Answer;
use serde_json::{Value, json};

use crate::{Door, DoorCase, cases};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        malformed_json_is_refused,
        a_wrong_value_is_refused_by_the_name_of_its_field,
        every_field_survives_every_type,
        an_odd_id_is_refused_or_is_only_a_name,
        unknown_paths_and_methods_are_answered_in_the_same_form,
        wrong_queries_and_cursors_are_refused_by_name,
        what_cannot_be_started_is_told_and_leaves_nothing,
    ]
}

/// Holds that an answer is a refusal in the form of this door, and reveals nothing internal.
pub(crate) fn refused(what: &str, answer: &Answer) -> Result<()> {
    ensure!((400..500).contains(&answer.status), "{what}: {answer:?}");
    let error = &answer.json["error"];
    ensure!(error["code"].is_string() && error["message"].is_string(), "{what}: {answer:?}");
    let text = answer.text();
    let inside = ["panicked", ".rs:", "/home/", "/root/", "0x"].iter().find(|part| text.contains(**part));
    ensure!(inside.is_none(), "{what}: {text}");
    Ok(())
}

/// Holds that nothing was created, and that other callers are served.
pub(crate) async fn unharmed(door: &Door, what: &str) -> Result<()> {
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
        // A directory that exists, and that any caller could read if it were taken.
        (json!({ "image": "dir:/etc" }), "image"),
        (json!({ "mount_path": "/elsewhere" }), "mount_path"),
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
    let logged = door.server.log();
    ensure!(
        !logged.contains('\u{202e}') && !logged.chars().any(|letter| letter.is_control() && letter != '\n'),
        "raw characters in the log"
    );
    for process in ["a%00", "%0A", &"p".repeat(100)] {
        refused(process, &door.client.get(&format!("/v1/sessions/one/processes/{process}")).await?)?;
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
