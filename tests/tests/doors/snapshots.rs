//! Sessions that are saved, and sessions that begin with what was saved, over REST and by commands.

use anyhow::{Result, ensure};
use box_tests::http::Client;
use box_tests::mcp::Mcp;
use serde_json::json;

use crate::{Door, DoorCase, cases};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        a_session_begins_with_the_files_of_a_snapshot,
        a_snapshot_decides_what_its_sessions_stand_on,
        a_fork_has_the_files_and_the_limits_of_its_session,
        what_cannot_be_saved_or_copied_is_told,
        snapshots_outlive_a_killed_server,
        snapshots_and_forks_by_command,
        snapshots_and_forks_by_tools,
        who_is_bound_to_sessions_sees_their_snapshots_only,
    ]
}

/// Deletes what a case saved: snapshots outlive their server.
async fn clear(client: &Client) -> Result<()> {
    let snapshots = client.get("/v1/snapshots").await?.must(200)?;
    for snapshot in snapshots.as_array().into_iter().flatten() {
        let id = snapshot["snapshot_id"].as_str().unwrap_or_default();
        client.delete(&format!("/v1/snapshots/{id}")).await?.must(200)?;
    }
    Ok(())
}

async fn a_session_begins_with_the_files_of_a_snapshot(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("setup", &json!({ "memory_mb": 128, "env": { "KEY": "then" } })).await?;
    client.exec("setup", "echo saved > /workspace/file").await?;
    let saved = client.post("/v1/sessions/setup/snapshots", &json!({ "name": "deps:v1" })).await?.must(201)?;
    ensure!(saved["name"] == "deps" && saved["tags"] == json!(["v1"]), "{saved}");
    ensure!(
        saved["session_id"] == "setup" && saved["memory_mb"] == 128 && saved["env_keys"] == json!(["KEY"]),
        "{saved}"
    );
    ensure!(saved["bytes"].as_u64() > Some(0) && !saved.to_string().contains("then"), "{saved}");
    client.exec("setup", "echo later > /workspace/file").await?;
    let asked = json!({ "snapshot": "deps:v1", "env": { "MORE": "1" } });
    let made = client.create("job", &asked).await?;
    ensure!(made["memory_mb"] == 128 && made["from_snapshot"] == "deps:v1", "{made}");
    ensure!(!made.to_string().contains("templates/"), "a path of the server: {made}");
    let told = client.exec("job", "cat /workspace/file; echo $KEY $MORE").await?;
    ensure!(told["stdout"] == "saved\nthen 1\n", "{told}");
    let by_exec = json!({ "cmd": "cat /workspace/file", "snapshot": saved["snapshot_id"] });
    let told = client.post("/v1/sessions/by-exec/exec", &by_exec).await?.must(200)?;
    ensure!(told["stdout"] == "saved\n", "{told}");
    client.delete("/v1/sessions/setup").await?.must(200)?;
    for path in ["/v1/snapshots", "/v1/sessions/setup/snapshots"] {
        let listed = client.get(path).await?.must(200)?;
        ensure!(listed.as_array().is_some_and(|all| all.len() == 1 && all[0] == saved), "{path}: {listed}");
    }
    ensure!(client.get("/v1/sessions/job/snapshots").await?.must(200)? == json!([]));
    ensure!(client.get("/v1/snapshots/deps:v1").await?.must(200)? == saved);
    client.get("/v1/snapshots/deps").await?.refused(404, "snapshot_not_found")?;
    client.delete("/v1/snapshots/deps:v1").await?.must(200)?;
    client.delete("/v1/snapshots/deps:v1").await?.refused(404, "snapshot_not_found")?;
    ensure!(client.exec("job", "cat /workspace/file").await?["stdout"] == "saved\n", "it needs the snapshot");
    let again = client.post("/v1/sessions/job", &asked).await?;
    ensure!(again.header("strongbox-created") == "existing", "{again:?}");
    client.post("/v1/sessions/other", &asked).await?.refused(404, "snapshot_not_found")?;
    Ok(())
}

async fn a_snapshot_decides_what_its_sessions_stand_on(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("setup", &json!({ "read_only_rootfs": false, "cpus": 0.5 })).await?;
    client.exec("setup", "echo root > /usr/bin/saved; echo home > ~/saved").await?;
    client.post("/v1/sessions/setup/snapshots", &json!({ "name": "base-1" })).await?.must(201)?;
    for (field, value) in [("image", "alpine"), ("profile", "network_basic")] {
        let error = client.post("/v1/sessions/a", &json!({ "snapshot": "base-1", field: value })).await?;
        let error = error.refused(400, "validation_error")?;
        ensure!(error["field"] == field, "{error}");
    }
    let made = client.create("a", &json!({ "snapshot": "base-1", "memory_mb": 96 })).await?;
    ensure!(made["memory_mb"] == 96 && made["cpus"] == 0.5 && made["read_only_rootfs"] == false, "{made}");
    ensure!(client.exec("a", "cat /usr/bin/saved ~/saved").await?["stdout"] == "root\nhome\n");
    client.create("plain", &json!({})).await?;
    let error = client.post("/v1/sessions/plain", &json!({ "snapshot": "base-1" })).await?;
    let error = error.refused(409, "session_conflict")?;
    ensure!(error.to_string().contains("snapshot"), "{error}");
    clear(client).await
}

async fn a_fork_has_the_files_and_the_limits_of_its_session(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let asked = json!({ "memory_mb": 96, "network": "off", "ttl_sec": 77, "env": { "KEY": "value" } });
    client.create("one", &asked).await?;
    client.exec("one", "echo one > /workspace/file").await?;
    let forked = client.post("/v1/sessions/one/fork", &json!({ "session_id": "two" })).await?.must(201)?;
    ensure!(forked["session_id"] == "two" && forked["memory_mb"] == 96 && forked["ttl_sec"] == 77, "{forked}");
    ensure!(!forked.to_string().contains("fork-"), "a path of the server: {forked}");
    client.exec("two", "echo two > /workspace/file").await?;
    ensure!(client.exec("one", "cat /workspace/file").await?["stdout"] == "one\n");
    ensure!(client.exec("two", "cat /workspace/file; echo $KEY").await?["stdout"] == "two\nvalue\n");
    let unnamed = client.post("/v1/sessions/two/fork", &json!({})).await?.must(201)?;
    let third = unnamed["session_id"].as_str().unwrap_or_default();
    ensure!(client.exec(third, "cat /workspace/file").await?["stdout"] == "two\n", "{unnamed}");
    ensure!(client.get("/v1/snapshots").await?.must(200)? == json!([]), "a fork makes no snapshot");
    let archives = door.server.state().join("e2b/templates");
    ensure!(!archives.exists() || archives.read_dir()?.count() == 0, "an archive was left");
    Ok(())
}

async fn what_cannot_be_saved_or_copied_is_told(door: &mut Door) -> Result<()> {
    let client = &door.client;
    for name in ["one", "two"] {
        client.create(name, &json!({})).await?;
    }
    let save = |body: serde_json::Value| async move { client.post("/v1/sessions/one/snapshots", &body).await };
    for (body, field) in [
        (json!({ "name": "Bad Name" }), "name"),
        (json!({ "name": "ok:bad tag" }), "tag"),
        (json!({ "name": "base" }), "name"),
        (json!({ "label": "x" }), "label"),
    ] {
        let error = save(body).await?.refused(400, "validation_error")?;
        ensure!(error["field"] == field, "{error}");
    }
    client.post("/v1/sessions/none/snapshots", &json!({})).await?.refused(404, "session_not_found")?;
    client.post("/v1/sessions/none/fork", &json!({})).await?.refused(404, "session_not_found")?;
    client.post("/v1/sessions/one/fork", &json!({ "session_id": "two" })).await?.refused(409, "conflict")?;
    client.post("/v1/sessions/one/fork", &json!({ "session_id": "a\nb" })).await?.refused(400, "validation_error")?;
    let paused = client.post_empty("/v1/sessions/one/pause").await?;
    // An ordinary user without cgroups can pause no box.
    if paused.status != 503 {
        paused.must(200)?;
        save(json!({})).await?.refused(409, "conflict")?;
        client.post("/v1/sessions/one/fork", &json!({})).await?.refused(409, "conflict")?;
    }
    client.get("/v1/templates/none").await?.refused(404, "template_not_found")?;
    client.delete("/v1/templates/none").await?.refused(404, "template_not_found")?;
    ensure!(client.get("/v1/templates").await?.must(200)? == json!([]));
    ensure!(client.get("/v1/snapshots").await?.must(200)? == json!([]));
    Ok(())
}

async fn snapshots_outlive_a_killed_server(door: &mut Door) -> Result<()> {
    door.client.exec("one", "echo kept > /workspace/file").await?;
    let saved = door.client.post("/v1/sessions/one/snapshots", &json!({})).await?.must(201)?;
    let archives = door.server.state().join("e2b/templates");
    std::fs::write(archives.join("half.tar.part"), "half")?;
    door.server.restart().await?;
    let client = door.server.client()?;
    ensure!(client.get("/v1/snapshots").await?.must(200)? == json!([saved]));
    ensure!(archives.read_dir()?.count() == 1, "what was half written is still there");
    client.create("two", &json!({ "snapshot": saved["snapshot_id"] })).await?;
    ensure!(client.exec("two", "cat /workspace/file").await?["stdout"] == "kept\n");
    clear(&client).await
}

async fn snapshots_and_forks_by_command(door: &mut Door) -> Result<()> {
    let server = &door.server;
    door.client.exec("one", "echo one > /workspace/file").await?;
    let id = server.verb(&["snapshot", "create"], &["one", "deps"])?;
    ensure!(id.ends_with(":default"), "{id}");
    let listed = server.verb(&["snapshot", "ls"], &["--session", "one"])?;
    ensure!(listed.contains(&id) && listed.contains("deps"), "{listed}");
    ensure!(server.verb(&["snapshot", "show"], &["deps"])?.contains(&id));
    server.verb(&["session", "create"], &["two", "--snapshot", "deps"])?;
    ensure!(server.verb(&["session", "show"], &["two"])?.contains("deps:default"));
    ensure!(server.verb(&["fork"], &["two", "three"])? == "three");
    ensure!(door.client.exec("three", "cat /workspace/file").await?["stdout"] == "one\n");
    ensure!(server.verb(&["snapshot", "rm"], &["deps"])? == "deps");
    ensure!(server.verb(&["snapshot", "ls"], &["--json"])? == "[]");
    let error = server.verb(&["snapshot", "rm"], &["deps"]).map_err(|error| error.to_string());
    ensure!(error.as_ref().is_err_and(|error| error.contains("not found")), "{error:?}");
    ensure!(server.verb(&["template", "ls"], &["--json"])? == "[]");
    let error = server.verb(&["template", "rm"], &["mine"]).map_err(|error| error.to_string());
    ensure!(error.as_ref().is_err_and(|error| error.contains("template ls")), "{error:?}");
    Ok(())
}

async fn snapshots_and_forks_by_tools(door: &mut Door) -> Result<()> {
    let mcp = Mcp::connect(&door.server, "/mcp/box").await?;
    let told =
        async |tool, arguments| Ok::<_, anyhow::Error>(mcp.result(tool, arguments).await?["structuredContent"].clone());
    told("exec", json!({ "session_id": "one", "command": "echo one > /workspace/file" })).await?;
    let saved = told("snapshot", json!({ "session_id": "one", "name": "deps" })).await?;
    ensure!(saved["name"] == "deps" && saved["snapshot_id"].is_string(), "{saved}");
    told("exec", json!({ "session_id": "one", "command": "echo later > /workspace/file" })).await?;
    for (name, snapshot, expected) in [("now", json!(null), "later\n"), ("then", json!("deps"), "one\n")] {
        let fork = json!({ "session_id": "one", "new_session_id": name, "snapshot": snapshot });
        let forked = told("fork", fork).await?;
        ensure!(forked["session_id"] == name && !forked.to_string().contains(".tar"), "{forked}");
        ensure!(door.client.exec(name, "cat /workspace/file").await?["stdout"] == expected, "{name}");
    }
    let again = told("fork", json!({ "session_id": "one", "new_session_id": "now" })).await?;
    ensure!(again["error"]["code"] == "conflict", "{again}");
    let missing = told("fork", json!({ "new_session_id": "new", "snapshot": "none" })).await?;
    ensure!(missing["error"]["code"] == "snapshot_not_found", "{missing}");
    clear(&door.client).await
}

async fn who_is_bound_to_sessions_sees_their_snapshots_only(door: &mut Door) -> Result<()> {
    let admin = door.client.with_token(&door.server.token(&["--name", "admin", "--scope", "exec,files,admin"])?);
    let bound =
        door.client.with_token(&door.server.token(&["--name", "bound", "--scope", "exec", "--session", "chat-*"])?);
    for session in ["chat-1", "other"] {
        admin.exec(session, "echo secret > /workspace/file").await?;
        let body = json!({ "name": format!("of-{session}") });
        admin.post(&format!("/v1/sessions/{session}/snapshots"), &body).await?.must(201)?;
    }
    let listed = bound.get("/v1/snapshots").await?.must(200)?;
    ensure!(listed.as_array().is_some_and(|all| all.len() == 1 && all[0]["session_id"] == "chat-1"), "{listed}");
    bound.get("/v1/snapshots/of-other").await?.refused(404, "snapshot_not_found")?;
    bound.delete("/v1/snapshots/of-other").await?.refused(404, "snapshot_not_found")?;
    bound.post("/v1/sessions/chat-2", &json!({ "snapshot": "of-other" })).await?.refused(404, "snapshot_not_found")?;
    bound.create("chat-2", &json!({ "snapshot": "of-chat-1" })).await?;
    bound
        .post("/v1/sessions/chat-2/fork", &json!({ "session_id": "elsewhere" }))
        .await?
        .refused(400, "validation_error")?;
    let forked = bound.post("/v1/sessions/chat-2/fork", &json!({})).await?.must(201)?;
    ensure!(forked["session_id"].as_str().is_some_and(|id| id.starts_with("chat-")), "{forked}");
    clear(&admin).await
}
