//! The contract of a session: one id, one box, until it ends.

use anyhow::{Context, Result, ensure};
use box_tests::suite::skip;
use serde_json::{Value, json};

use crate::{Door, DoorCase, cases, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        the_first_exec_makes_the_box_and_the_next_reuses_it,
        a_session_without_an_id_is_made_once_for_one_key,
        an_exec_that_asks_for_nothing_fits_every_session,
        a_conflict_names_every_field_that_differs,
        nothing_that_is_asked_of_a_session_is_ignored,
        execs_of_one_session_run_at_the_same_time,
        concurrent_creates_of_one_id_make_one_box,
        ids_that_look_alike_are_different_boxes,
        a_box_killed_from_outside_is_lost_and_made_anew,
        pausing_stops_everything_and_an_exec_wakes_it,
        a_deadline_kills_the_command_and_keeps_the_session,
        a_deadline_can_destroy_the_session,
        a_deleted_session_is_gone_with_everything_in_it,
        sessions_are_listed_page_by_page,
        the_environment_is_kept_and_never_shown,
        a_session_tells_what_it_guarantees,
    ]
}

async fn the_first_exec_makes_the_box_and_the_next_reuses_it(door: &mut Door) -> Result<()> {
    let client = &door.client;
    ensure!(client.sessions().await?.is_empty());
    client.get("/v1/sessions/one").await?.refused(404, "session_not_found")?;
    let first = client.exec("one", "echo left-behind > /workspace/file; echo out; echo err >&2; exit 3").await?;
    ensure!(first["status"] == "completed" && first["exit_code"] == 3, "{first}");
    ensure!(first["stdout"] == "out\n" && first["stderr"] == "err\n", "{first}");
    ensure!(first["session_id"] == "one" && first["stdout_truncated"] == false, "{first}");
    ensure!(first["receipt"]["memory_peak_bytes"].as_u64() > Some(0), "no receipt: {first}");
    let second = client.exec("one", "cat /workspace/file").await?;
    ensure!(second["stdout"] == "left-behind\n", "{second}");
    let session = client.get("/v1/sessions/one").await?.must(200)?;
    let again = client.post("/v1/sessions/one", &json!({})).await?;
    ensure!(again.header("strongbox-created") == "existing", "{again:?}");
    ensure!(again.must(201)?["backend_session_id"] == session["backend_session_id"]);
    ensure!(client.sessions().await?.len() == 1);
    Ok(())
}

async fn a_session_without_an_id_is_made_once_for_one_key(door: &mut Door) -> Result<()> {
    let make = || door.client.request("POST", "/v1/sessions").header("idempotency-key", "k 1").json(&json!({})).send();
    let (first, second) = (make().await?, make().await?);
    ensure!(first.header("strongbox-created") == "new" && second.header("strongbox-created") == "existing");
    ensure!(first.must(201)?["backend_session_id"] == second.must(201)?["backend_session_id"]);
    let other = door.client.post("/v1/sessions", &json!({})).await?;
    ensure!(other.header("strongbox-created") == "new", "without a key every call makes one");
    Ok(())
}

async fn an_exec_that_asks_for_nothing_fits_every_session(door: &mut Door) -> Result<()> {
    let asked = json!({ "memory_mb": 64, "pids_limit": 33, "cpus": 0.5, "read_only_rootfs": false });
    let made = door.client.post("/v1/sessions/small", &asked).await?;
    ensure!(made.header("strongbox-created") == "new", "{made:?}");
    ensure!(made.must(201)?["memory_mb"] == 64);
    ensure!(door.client.exec("small", "true").await?["exit_code"] == 0);
    door.client.post("/v1/sessions/small/exec", &json!({ "cmd": "true", "memory_mb": 64 })).await?.must(200)?;
    Ok(())
}

async fn a_conflict_names_every_field_that_differs(door: &mut Door) -> Result<()> {
    let mounts = door.server.mounts()?;
    let other = json!({
        "network": "on", "image": "dir:/nowhere", "host_path": mounts, "host_path_mode": "ro", "mount_path": "/elsewhere",
        "persistent": true, "cpus": 0.25, "memory_mb": 65, "pids_limit": 65, "read_only_rootfs": false,
        "workspace_quota_mb": 65, "extra_mounts": [{ "host_path": mounts, "mount_path": "/extra" }],
    });
    door.client.create("one", &json!({})).await?;
    let mut body = other.clone();
    body["cmd"] = "true".into();
    for (path, body) in [("/v1/sessions/one", &other), ("/v1/sessions/one/exec", &body)] {
        let error = door.client.post(path, body).await?.refused(409, "session_conflict")?;
        let differing = error["differences"].as_array().context("no differences")?;
        let mut named: Vec<&str> = differing.iter().filter_map(|one| one["field"].as_str()).collect();
        let mut expected: Vec<&str> = other.as_object().context("an object")?.keys().map(String::as_str).collect();
        named.sort_unstable();
        expected.sort_unstable();
        ensure!(named == expected, "{named:?} instead of {expected:?}");
        let message = error["message"].as_str().unwrap_or_default();
        ensure!(expected.iter().all(|field| message.contains(field)), "{message}");
        let memory = differing.iter().find(|one| one["field"] == "memory_mb").context("memory_mb")?;
        ensure!(memory["existing"] == "512" && memory["asked"] == "65", "{memory}");
    }
    // Each field alone is a conflict too: none hides behind another.
    for (field, value) in other.as_object().context("an object")? {
        let error =
            door.client.post("/v1/sessions/one", &json!({ field: value })).await?.refused(409, "session_conflict")?;
        let only: Vec<&Value> = error["differences"].as_array().context("no differences")?.iter().collect();
        ensure!(only.len() == 1 && only[0]["field"] == *field, "{field}: {error}");
    }
    ensure!(door.client.exec("one", "true").await?["exit_code"] == 0, "the session is unchanged");
    Ok(())
}

async fn nothing_that_is_asked_of_a_session_is_ignored(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let asked = json!({ "env": { "A": "1", "B": "secret" }, "ttl_sec": 300 });
    client.post("/v1/sessions/one", &asked).await?.must(201)?;
    for (field, value) in [
        ("profile", json!("network_basic")),
        ("on_timeout", json!("destroy")),
        ("env", json!({ "A": "1" })),
        ("env", json!({ "A": "1", "B": "another" })),
        ("env", json!({ "A": "1", "B": "secret", "C": "3" })),
    ] {
        let error =
            client.post("/v1/sessions/one", &json!({ field: value })).await?.refused(409, "session_conflict")?;
        let named = error["differences"].as_array().context("no differences")?;
        ensure!(named.len() == 1 && named[0]["field"] == field, "{field}: {error}");
        ensure!(error["message"].as_str().is_some_and(|message| message.contains(field)), "{error}");
        ensure!(!error.to_string().contains("secret") && !error.to_string().contains("another\""), "{error}");
    }
    let same = json!({ "profile": "default", "on_timeout": "keep", "env": { "B": "secret", "A": "1" } });
    client.post("/v1/sessions/one", &same).await?.must(201)?;
    client.post("/v1/sessions/one", &json!({ "env": {} })).await?.must(201)?;
    // The idle time is not fixed, so it changes.
    let changed = client.post("/v1/sessions/one", &json!({ "ttl_sec": 600 })).await?.must(201)?;
    ensure!(changed["ttl_sec"] == 600, "{changed}");
    client.post("/v1/sessions/one/exec", &json!({ "cmd": "true", "ttl_sec": 601 })).await?.must(200)?;
    ensure!(client.get("/v1/sessions/one").await?.must(200)?["ttl_sec"] == 601);
    client.post("/v1/sessions/one", &json!({ "ttl_sec": 0 })).await?.refused(400, "validation_error").map(drop)
}

/// Each waits for what the other does: one after the other, neither could end.
async fn execs_of_one_session_run_at_the_same_time(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let wait = |file: &str| format!("until [ -e /workspace/{file} ]; do sleep 0.01; done");
    let left = format!("touch /workspace/left; {}", wait("right"));
    let right = format!("{}; touch /workspace/right", wait("left"));
    let (left, right) = tokio::try_join!(client.exec("one", &left), client.exec("one", &right))?;
    ensure!(left["exit_code"] == 0 && right["exit_code"] == 0, "{left} {right}");
    Ok(())
}

async fn concurrent_creates_of_one_id_make_one_box(door: &mut Door) -> Result<()> {
    for round in 0..3 {
        let path = format!("/v1/sessions/race-{round}");
        let body = json!({});
        let made = futures_util::future::try_join_all((0..8).map(|_| door.client.post(&path, &body))).await?;
        let new = made.iter().filter(|answer| answer.header("strongbox-created") == "new").count();
        ensure!(new == 1, "{new} of 8 made something");
        let box_of = |answer: &box_tests::http::Answer| answer.json["backend_session_id"].clone();
        ensure!(made.iter().all(|answer| answer.status == 201 && box_of(answer) == box_of(&made[0])), "{made:?}");
    }
    let boxes = records(door)?;
    ensure!(boxes.len() == 3, "{} boxes for 3 sessions", boxes.len());
    Ok(())
}

/// Names that a file system, a browser or a reader would take for one another.
async fn ids_that_look_alike_are_different_boxes(door: &mut Door) -> Result<()> {
    let ids = ["a", "A", "a%2Fb", "a_b", "a:b", "..%2Fa", "%C3%A9", "e%CC%81", "-rf", "%24(id)", "a%20b", "CON"];
    let mut boxes = Vec::new();
    for id in ids {
        let made = door.client.create(id, &json!({})).await.with_context(|| id.to_owned())?;
        boxes.push(made["backend_session_id"].as_str().unwrap_or_default().to_owned());
        ensure!(
            door.client.exec(id, &format!("ls /workspace; echo '{id}' > /workspace/mine")).await?["stdout"] == "",
            "{id}"
        );
    }
    boxes.sort();
    boxes.dedup();
    ensure!(boxes.len() == ids.len());
    for id in ids {
        ensure!(door.client.exec(id, "cat /workspace/mine").await?["stdout"] == format!("{id}\n"), "{id}");
    }
    Ok(())
}

/// What the server's instance remembers of its boxes.
fn records(door: &Door) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for place in box_tests::leaks::places(door.server.state()) {
        for name in box_tests::leaks::files(&place).into_iter().filter(|name| name.ends_with("record.json")) {
            found.push(serde_json::from_slice(&std::fs::read(place.join(name))?)?);
        }
    }
    Ok(found)
}

/// The process id of the agent of a session's box.
pub(crate) fn agent_of(door: &Door, session: &Value) -> Result<i32> {
    let record = records(door)?.into_iter().find(|record| record["id"] == session["backend_session_id"]);
    let pid = record.context("the box has no record")?["agent"]["pid"].as_i64().context("the record has no agent")?;
    Ok(i32::try_from(pid)?)
}

async fn a_box_killed_from_outside_is_lost_and_made_anew(door: &mut Door) -> Result<()> {
    let client = door.client.clone();
    let session = client.create("one", &json!({ "memory_mb": 64 })).await?;
    let other = client.create("other", &json!({})).await?;
    let running = client.start("one", "sleep 1000").await?;
    box_tests::system::kill(agent_of(door, &session)?)?;
    // The running command ends by itself, before any request to the session.
    let end = client.get(&format!("/v1/sessions/one/execs/{running}/result")).await?.refused(410, "box_gone")?;
    ensure!(end["hint"].as_str().is_some(), "{end}");
    let lost = client.get("/v1/sessions/one").await?.must(200)?;
    ensure!(lost["state"] == "lost" && lost["status"] == "closing", "{lost}");
    ensure!(lost["lost_reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{lost}");
    let refused = client.post("/v1/sessions/one/exec", &json!({ "cmd": "true" })).await?.refused(410, "box_gone")?;
    ensure!(refused["message"].as_str().is_some_and(|text| text.len() > 15), "{refused}");
    let listed = client.get("/v1/sessions?state=lost").await?.must(200)?;
    ensure!(listed.as_array().is_some_and(|list| list.len() == 1), "{listed}");
    let again = client.post("/v1/sessions/one", &json!({ "memory_mb": 128 })).await?;
    ensure!(again.header("strongbox-created") == "new", "{again:?}");
    let again = again.must(201)?;
    ensure!(again["backend_session_id"] != session["backend_session_id"] && again["state"] == "running", "{again}");
    ensure!(client.exec("one", "true").await?["exit_code"] == 0);
    ensure!(client.get("/v1/sessions/other").await?.must(200)?["backend_session_id"] == other["backend_session_id"]);
    ensure!(client.exec("other", "true").await?["exit_code"] == 0);
    Ok(())
}

async fn pausing_stops_everything_and_an_exec_wakes_it(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let tick = "while :; do echo tick; sleep 0.01; done";
    let (counting, beside) = (client.start("one", tick).await?, client.start("other", tick).await?);
    let written = || async {
        let info = client.get(&format!("/v1/sessions/one/execs/{counting}")).await?.must(200)?;
        Ok::<u64, anyhow::Error>(info["stdout_bytes"].as_u64().unwrap_or_default())
    };
    eventually("output", || async { Ok((written().await? > 0).then_some(())) }).await?;
    let paused = client.post_empty("/v1/sessions/one/pause").await?;
    if paused.status == 503 {
        return skip(format!("a box cannot be paused here: {}", paused.json["error"]["message"]));
    }
    let paused = paused.must(200)?;
    ensure!(paused["state"] == "paused", "{paused}");
    client.post_empty("/v1/sessions/one/pause").await?.must(200)?;
    // What was said before is on its way for a moment. Then nothing follows, while a session that runs says much.
    let size_of = |path: String| async move { Ok::<usize, anyhow::Error>(client.get(&path).await?.bytes.len()) };
    let size = || size_of(format!("/v1/sessions/one/execs/{counting}/output"));
    let size_beside = || size_of(format!("/v1/sessions/other/execs/{beside}/output"));
    let still = eventually("silence", || async {
        let (first, other) = (size().await?, size_beside().await?);
        eventually("output of the other", || async { Ok((size_beside().await? > other + 100).then_some(())) }).await?;
        Ok((size().await? == first).then_some(first))
    })
    .await?;
    ensure!(client.exec("one", "echo awake").await?["stdout"] == "awake\n");
    ensure!(client.get("/v1/sessions/one").await?.must(200)?["state"] == "running");
    eventually("more output", || async { Ok((size().await? > still).then_some(())) }).await?;
    client.post_empty("/v1/sessions/one/pause").await?.must(200)?;
    let resumed = client.post_empty("/v1/sessions/one/resume").await?.must(200)?;
    ensure!(resumed["state"] == "running", "{resumed}");
    client.post_empty("/v1/sessions/one/resume").await?.must(200)?;
    Ok(())
}

async fn a_deadline_kills_the_command_and_keeps_the_session(door: &mut Door) -> Result<()> {
    let line = "echo before; (setsid sh -c 'sleep 1000' &) ; sleep 1000";
    let body = json!({ "cmd": line, "timeout_sec": 2 });
    let result = door.client.post("/v1/sessions/one/exec", &body).await?.must(200)?;
    ensure!(result["status"] == "timed_out" && result["exit_code"].is_null(), "{result}");
    ensure!(result["stdout"] == "before\n", "{result}");
    let count = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o '[s]leep 1[0-9]*' | sort -u";
    let left = door.client.exec("one", &format!("sleep 1234 & {count}")).await?;
    ensure!(left["stdout"] == "sleep 1234\n", "only what was started now is there: {left}");
    Ok(())
}

async fn a_deadline_can_destroy_the_session(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let body = json!({ "cmd": "echo before; sleep 1000", "timeout_sec": 2, "on_timeout": "destroy" });
    let result = client.post("/v1/sessions/by-call/exec", &body).await?.must(200)?;
    ensure!(result["status"] == "timed_out" && result["stdout"] == "before\n", "{result}");
    client.create("by-session", &json!({ "on_timeout": "destroy" })).await?;
    let result =
        client.post("/v1/sessions/by-session/exec", &json!({ "cmd": "sleep 1000", "timeout_sec": 0.3 })).await?;
    ensure!(result.must(200)?["status"] == "timed_out");
    for session in ["by-call", "by-session"] {
        eventually("the end of the session", || async {
            Ok((client.get(&format!("/v1/sessions/{session}")).await?.status == 404).then_some(()))
        })
        .await?;
    }
    // A call can also keep what its session would destroy.
    client.create("kept", &json!({ "on_timeout": "destroy" })).await?;
    let body = json!({ "cmd": "sleep 1000", "timeout_sec": 0.3, "on_timeout": "keep" });
    client.post("/v1/sessions/kept/exec", &body).await?.must(200)?;
    ensure!(client.exec("kept", "true").await?["exit_code"] == 0);
    Ok(())
}

async fn a_deleted_session_is_gone_with_everything_in_it(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let running = client.start("one", "sleep 1000").await?;
    let path = format!("/v1/sessions/one/execs/{running}/result");
    let waiting = client.get(&path);
    let deleting = async {
        let deleted = client.delete("/v1/sessions/one").await?.must(200)?;
        ensure!(deleted == json!({ "deleted": "one" }), "{deleted}");
        Ok(())
    };
    let (told, ()) = tokio::try_join!(waiting, deleting)?;
    ensure!(told.status == 410 || told.status == 404, "the waiting client got {told:?}");
    client.get("/v1/sessions/one").await?.refused(404, "session_not_found")?;
    client.delete("/v1/sessions/one").await?.refused(404, "session_not_found")?;
    client.get(&path).await?.refused(404, "session_not_found")?;
    ensure!(client.exec("one", "ls /workspace").await?["stdout"] == "", "a new box is empty");
    Ok(())
}

async fn sessions_are_listed_page_by_page(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let names = ["a-1", "a-2", "a%20%263", "b-1"];
    for name in names {
        client.create(name, &json!({})).await?;
    }
    let mut seen = Vec::new();
    let mut path = "/v1/sessions?prefix=a&limit=2".to_owned();
    loop {
        let page = client.get(&path).await?;
        let list = page.json.as_array().context("no list")?.clone();
        ensure!(list.len() <= 2);
        seen.extend(list.iter().filter_map(|one| one["session_id"].as_str()).map(str::to_owned));
        let link = page.header("link").to_owned();
        ensure!(link.is_empty() == page.header("strongbox-next").is_empty());
        if link.is_empty() {
            break;
        }
        link.trim_start_matches('<').split('>').next().unwrap_or_default().clone_into(&mut path);
    }
    ensure!(seen == ["a &3", "a-1", "a-2"], "{seen:?}");
    Ok(())
}

async fn the_environment_is_kept_and_never_shown(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let made = client.post("/v1/sessions/one", &json!({ "env": { "API_KEY": "value-of-key", "PLAIN": "x" } })).await?;
    let said = client
        .post("/v1/sessions/one/exec", &json!({ "cmd": "echo $API_KEY $PLAIN", "env": { "PLAIN": "y" } }))
        .await?;
    ensure!(said.json["stdout"] == "value-of-key y\n", "{said:?}");
    let shown = client.get("/v1/sessions/one").await?;
    let listed = client.get("/v1/sessions").await?;
    for answer in [&made, &shown, &listed] {
        ensure!(!answer.text().contains("value-of-key"), "{}", answer.text());
    }
    ensure!(shown.json["env_keys"] == json!(["API_KEY", "PLAIN"]), "{}", shown.json);
    ensure!(!door.server.log().contains("value-of-key"));
    Ok(())
}

async fn a_session_tells_what_it_guarantees(door: &mut Door) -> Result<()> {
    let session = door.client.create("one", &json!({})).await?;
    let text = session["guarantees"].to_string();
    for dimension in ["cpu", "memory", "pids", "disk_bytes", "inodes", "network", "rootfs", "syscalls"] {
        ensure!(text.contains(dimension), "{dimension} is missing in {text}");
    }
    Ok(())
}
