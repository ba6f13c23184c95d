//! Volumes over REST: created, shared by sessions, bounded, and removed when no session mounts them.

use anyhow::{Context, Result, ensure};
use box_tests::http::Client;
use serde_json::{Value, json};

use crate::{Door, DoorCase, case, cases};

pub(crate) fn cases() -> Vec<DoorCase> {
    let mut all = cases![
        sessions_share_a_volume_that_outlives_them,
        a_read_only_volume_is_not_written,
        a_volume_that_a_session_mounts_is_not_removed,
        a_volume_is_mounted_where_nothing_is_hidden,
        other_volumes_are_a_conflict,
        tenants_and_bound_tokens_reach_no_other_volumes,
        volumes_have_plain_names_and_a_limit,
    ];
    all.push(case!(a_full_volume_stops_who_fills_it).configured("[e2b_door]\nvolume_mb = 1\n"));
    all
}

fn mounting(name: &str, mode: &str) -> Value {
    json!({ "volumes": [{ "name": name, "path": "/mnt/data", "mode": mode }] })
}

/// Removes what a case made: volumes outlive their server.
async fn clear(client: &Client) -> Result<()> {
    for session in client.sessions().await? {
        let id = session["session_id"].as_str().unwrap_or_default();
        client.delete(&format!("/v1/sessions/{id}")).await?.must(200)?;
    }
    let volumes = client.get("/v1/volumes").await?.must(200)?;
    for volume in volumes.as_array().into_iter().flatten() {
        let name = volume["name"].as_str().unwrap_or_default();
        client.delete(&format!("/v1/volumes/{name}")).await?.must(200)?;
    }
    Ok(())
}

async fn volume(door: &Door, name: &str) -> Result<Value> {
    door.client.post("/v1/volumes", &json!({ "name": name })).await?.must(201)
}

async fn sessions_share_a_volume_that_outlives_them(door: &mut Door) -> Result<()> {
    let client = &door.client;
    ensure!(client.get("/v1/volumes").await?.must(200)? == json!([]));
    let created = volume(door, "data").await?;
    ensure!(created["name"] == "data" && created["quota_mb"] == 1024 && created["sessions"] == json!([]), "{created}");
    let made = client.create("one", &mounting("data", "rw")).await?;
    let shown = json!([{ "name": "data", "path": "/mnt/data", "mode": "rw", "quota_mb": 1024 }]);
    ensure!(made["volumes"] == shown, "{made}");
    // The mode is rw unless it is said.
    client.create("two", &json!({ "volumes": [{ "name": "data", "path": "/mnt/other" }] })).await?;
    client.exec("one", "mkdir /mnt/data/d; echo words > /mnt/data/d/f").await?;
    ensure!(client.exec("two", "cat /mnt/other/d/f; echo more >> /mnt/other/d/f").await?["stdout"] == "words\n");
    ensure!(client.exec("one", "cat /mnt/data/d/f").await?["stdout"] == "words\nmore\n");
    let shown = client.get("/v1/volumes/data").await?.must(200)?;
    ensure!(shown["sessions"] == json!(["one", "two"]), "{shown}");
    for session in ["one", "two"] {
        client.delete(&format!("/v1/sessions/{session}")).await?.must(200)?;
    }
    // An exec that creates its session mounts, too.
    let body = json!({ "cmd": "cat /mnt/data/d/f", "volumes": [{ "name": "data", "path": "/mnt/data" }] });
    let result = client.post("/v1/sessions/three/exec", &body).await?.must(200)?;
    ensure!(result["stdout"] == "words\nmore\n", "{result}");
    client.delete("/v1/sessions/three").await?.must(200)?;
    ensure!(client.delete("/v1/volumes/data").await?.must(200)? == json!({ "deleted": "data" }));
    client.get("/v1/volumes/data").await?.refused(404, "volume_not_found").map(drop)
}

async fn a_read_only_volume_is_not_written(door: &mut Door) -> Result<()> {
    let client = &door.client;
    volume(door, "data").await?;
    client.create("writer", &mounting("data", "rw")).await?;
    client.exec("writer", "echo words > /mnt/data/f").await?;
    client.create("reader", &mounting("data", "ro")).await?;
    let result = client.exec("reader", "cat /mnt/data/f; echo x > /mnt/data/f || echo x > /mnt/data/g").await?;
    ensure!(result["stdout"] == "words\n" && result["exit_code"] != 0, "{result}");
    ensure!(client.exec("writer", "ls /mnt/data; cat /mnt/data/f").await?["stdout"] == "f\nwords\n");
    clear(&door.client).await
}

async fn a_volume_that_a_session_mounts_is_not_removed(door: &mut Door) -> Result<()> {
    let client = &door.client;
    volume(door, "data").await?;
    client.create("holder", &mounting("data", "ro")).await?;
    let error = client.delete("/v1/volumes/data").await?.refused(409, "conflict")?;
    ensure!(error["message"].as_str().is_some_and(|text| text.contains("in session holder")), "{error}");
    // A stopped session still has it.
    if client.post("/v1/sessions/holder/pause", &json!({})).await?.status == 200 {
        client.delete("/v1/volumes/data").await?.refused(409, "conflict")?;
    }
    client.delete("/v1/sessions/holder").await?.must(200)?;
    client.delete("/v1/volumes/data").await?.must(200)?;
    client.delete("/v1/volumes/data").await?.refused(404, "volume_not_found")?;
    ensure!(volume(door, "data").await?["sessions"] == json!([]), "the name is free again");
    client.create("holder", &mounting("data", "rw")).await?;
    ensure!(client.exec("holder", "ls -A /mnt/data").await?["stdout"] == "", "and the volume is another one");
    clear(&door.client).await
}

async fn a_volume_is_mounted_where_nothing_is_hidden(door: &mut Door) -> Result<()> {
    let client = &door.client;
    volume(door, "data").await?;
    for path in ["/", "/etc/x", "/usr", "/workspace", "relative", "/a:b", "/mnt/../x"] {
        let body = json!({ "volumes": [{ "name": "data", "path": path }] });
        client.post("/v1/sessions/one", &body).await?.refused(400, "validation_error").context(path)?;
    }
    let twice = json!([{ "name": "data", "path": "/mnt/a" }, { "name": "data", "path": "/mnt/a/b" }]);
    client.post("/v1/sessions/one", &json!({ "volumes": twice })).await?.refused(400, "validation_error")?;
    let many: Vec<_> = (0..9).map(|number| json!({ "name": "data", "path": format!("/mnt/{number}") })).collect();
    let error = client.post("/v1/sessions/one", &json!({ "volumes": many })).await?.refused(400, "validation_error")?;
    ensure!(error["message"].as_str().is_some_and(|text| text.contains("at most 8")), "{error}");
    let none = json!({ "volumes": [{ "name": "data", "path": "/mnt/a", "mode": "none" }] });
    client.post("/v1/sessions/one", &none).await?.refused(400, "validation_error")?;
    client.post("/v1/sessions/one", &mounting("absent", "rw")).await?.refused(404, "volume_not_found")?;
    ensure!(client.sessions().await?.is_empty(), "something was made");
    let below = json!({ "volumes": [{ "name": "data", "path": "/workspace/data" }] });
    client.create("one", &below).await?;
    ensure!(client.exec("one", "echo x > data/f && cat /workspace/data/f").await?["stdout"] == "x\n");
    clear(&door.client).await
}

async fn other_volumes_are_a_conflict(door: &mut Door) -> Result<()> {
    let client = &door.client;
    for name in ["data", "other"] {
        volume(door, name).await?;
    }
    client.create("one", &mounting("data", "rw")).await?;
    ensure!(client.create("one", &mounting("data", "rw")).await?["volumes"][0]["name"] == "data");
    ensure!(client.exec("one", "true").await?["exit_code"] == 0, "an exec need not repeat them");
    let differs = async |body: &Value, asked: &str| {
        let error = client.post("/v1/sessions/one", body).await?.refused(409, "session_conflict")?;
        let differences = &error["differences"];
        let expected = json!([{ "field": "volumes", "existing": "data:/mnt/data:rw", "asked": asked }]);
        ensure!(*differences == expected, "{differences}");
        anyhow::Ok(())
    };
    differs(&mounting("data", "ro"), "data:/mnt/data:ro").await?;
    differs(&mounting("other", "rw"), "other:/mnt/data:rw").await?;
    differs(&json!({ "volumes": [{ "name": "data", "path": "/mnt/x" }] }), "data:/mnt/x:rw").await?;
    differs(&json!({ "volumes": [] }), "none").await?;
    clear(&door.client).await
}

async fn tenants_and_bound_tokens_reach_no_other_volumes(door: &mut Door) -> Result<()> {
    volume(door, "data").await?;
    let with = |options: &[&str]| {
        let token = door.server.token(&[&["--scope", "exec,files"], options].concat())?;
        anyhow::Ok(door.client.with_token(&token))
    };
    let stranger = with(&["--name", "stranger", "--tenant", "other"])?;
    ensure!(stranger.get("/v1/volumes").await?.must(200)? == json!([]));
    stranger.get("/v1/volumes/data").await?.refused(404, "volume_not_found")?;
    stranger.delete("/v1/volumes/data").await?.refused(404, "volume_not_found")?;
    stranger.post("/v1/sessions/one", &mounting("data", "rw")).await?.refused(404, "volume_not_found")?;
    // A token that is bound to one session would reach what others keep.
    let bound = with(&["--name", "bound", "--session", "one"])?;
    bound.get("/v1/volumes").await?.refused(400, "validation_error")?;
    bound.post("/v1/sessions/one", &mounting("data", "rw")).await?.refused(400, "validation_error")?;
    let files = with(&["--name", "files"])?;
    files.get("/v1/volumes/data").await?.must(200)?;
    let careful = with(&["--name", "careful", "--profile", "offline_readonly"])?;
    let made = careful.post("/v1/sessions/two", &mounting("data", "rw")).await?.must(201)?;
    ensure!(made["volumes"][0]["mode"] == "ro", "its profile locks the mode: {made}");
    careful.post("/v1/sessions/two", &mounting("data", "rw")).await?.must(201)?;
    clear(&with(&["--name", "end"])?).await
}

async fn volumes_have_plain_names_and_a_limit(door: &mut Door) -> Result<()> {
    let client = &door.client;
    for body in
        [json!({}), json!({ "name": "" }), json!({ "name": "a b" }), json!({ "name": "../x" }), json!({ "name": 1 })]
    {
        client.post("/v1/volumes", &body).await?.refused(400, "validation_error").context(body.to_string())?;
    }
    client.get("/v1/volumes/a%20b").await?.refused(404, "volume_not_found")?;
    client.post("/v1/volumes", &json!({ "name": "v", "size": 1 })).await?.refused(400, "validation_error")?;
    for number in 0..64 {
        volume(door, &format!("v{number}")).await?;
    }
    client.post("/v1/volumes", &json!({ "name": "v0" })).await?.refused(409, "conflict")?;
    let error = client.post("/v1/volumes", &json!({ "name": "more" })).await?.refused(429, "capacity_exceeded")?;
    ensure!(error["hint"].as_str().is_some_and(|hint| hint.contains("remove")), "{error}");
    let listed = client.get("/v1/volumes").await?.must(200)?;
    ensure!(listed.as_array().map(Vec::len) == Some(64) && listed[0]["name"] == "v0", "{listed}");
    clear(&door.client).await
}

async fn a_full_volume_stops_who_fills_it(door: &mut Door) -> Result<()> {
    let client = &door.client;
    volume(door, "data").await?;
    client.create("one", &mounting("data", "rw")).await?;
    client.create("two", &mounting("data", "rw")).await?;
    let fill = json!({ "cmd": "head -c 4194304 /dev/zero > /mnt/data/f; sleep 60" });
    client.post("/v1/sessions/one/exec", &fill).await?.refused(507, "quota_exceeded")?;
    client.post("/v1/sessions/two/exec", &json!({ "cmd": "true" })).await?.refused(507, "quota_exceeded")?;
    client.delete("/v1/sessions/two/files?path=/mnt/data/f").await?.must(204)?;
    ensure!(client.exec("two", "true").await?["exit_code"] == 0);
    clear(&door.client).await
}
