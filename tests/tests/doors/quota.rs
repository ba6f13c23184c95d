//! How much a workspace of the host may hold: before, while and after something runs.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{Door, DoorCase, case, cases, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    let mut all = cases![
        a_workspace_that_holds_too_much_lets_nothing_start,
        what_fills_the_workspace_is_killed_with_everything_of_the_session,
        what_leaves_too_much_gets_no_result_and_its_session_goes,
        too_many_files_are_too_much,
        what_a_command_left_behind_cannot_fill_the_workspace_either,
        a_workspace_that_is_only_read_is_not_measured,
        a_quota_holds_after_a_restart,
    ];
    all.push(case!(the_operators_quota_is_that_of_who_asks_for_none).configured("workspace_quota_mb = 32\n"));
    all
}

/// A directory of the host, and a session whose workspace it is, with a quota of 1 MiB.
fn place(door: &Door, name: &str) -> Result<(PathBuf, Value)> {
    let path = door.server.mounts()?.join(name);
    std::fs::create_dir_all(&path)?;
    let session = json!({ "host_path": path, "host_path_mode": "rw", "workspace_quota_mb": 1 });
    Ok((path, session))
}

fn with(session: &Value, field: &str, value: impl Into<Value>) -> Value {
    let mut body = session.clone();
    body[field] = value.into();
    body
}

fn told(error: &Value, when: &str) -> Result<()> {
    let start = format!("workspace quota exceeded {when} execution: ");
    ensure!(error["message"].as_str().is_some_and(|text| text.starts_with(&start)), "{error}");
    ensure!(error["detail_code"] == when && error["hint"].is_string(), "{error}");
    Ok(())
}

async fn a_workspace_that_holds_too_much_lets_nothing_start(door: &mut Door) -> Result<()> {
    let (path, session) = place(door, "full")?;
    std::fs::write(path.join("already-too-large"), vec![b'x'; 2 << 20])?;
    let client = &door.client;
    let exec = with(&session, "cmd", "touch /workspace/started");
    told(&client.post("/v1/sessions/one/exec", &exec).await?.refused(507, "quota_exceeded")?, "before")?;
    ensure!(client.sessions().await?.is_empty(), "a box was made for a command that cannot be started");
    // Creating the session runs no command: it is how one gets at the files.
    let made = client.create("one", &session).await?;
    let guarantee = |name: &str| {
        let all = made["guarantees"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|guarantee| guarantee["dimension"] == name).unwrap_or_default()
    };
    for (name, figure) in [("disk_bytes", "held to 1 MiB"), ("disk_inodes", "held to 4096 files")] {
        let found = guarantee(name);
        ensure!(found["level"] == "soft" && found["why"].to_string().contains(figure), "{found}");
    }
    told(&client.post("/v1/sessions/one/exec", &exec).await?.refused(507, "quota_exceeded")?, "before")?;
    let process = json!({ "command": "touch", "args": ["/workspace/started"] });
    told(&client.post("/v1/sessions/one/processes", &process).await?.refused(507, "quota_exceeded")?, "before")?;
    ensure!(!path.join("started").exists(), "something was started");
    let errors = client.get("/v1/errors").await?.must(200)?;
    ensure!(errors[0]["code"] == "quota_exceeded" && errors[0]["session_id"] == "one", "{errors}");
    std::fs::remove_file(path.join("already-too-large"))?;
    ensure!(client.exec("one", "touch /workspace/started").await?["exit_code"] == 0);
    ensure!(path.join("started").exists());
    // A caller that is bound elsewhere does not learn what it holds.
    std::fs::write(path.join("too-large-again"), vec![b'x'; 2 << 20])?;
    for (field, bound, code) in [("--session", "two", "validation_error"), ("--profile", "e2b", "conflict")] {
        let token = door.server.token(&["--name", bound, "--scope", "exec,files", field, bound])?;
        let refused = door.client.with_token(&token).post("/v1/sessions/one/exec", &json!({ "cmd": "true" })).await?;
        ensure!(refused.json["error"]["code"] == code && !refused.text().contains("quota"), "{refused:?}");
    }
    Ok(())
}

async fn what_fills_the_workspace_is_killed_with_everything_of_the_session(door: &mut Door) -> Result<()> {
    let (path, session) = place(door, "filled")?;
    let client = &door.client;
    client.create("one", &session).await?;
    client.post("/v1/sessions/one/processes", &json!({ "command": "sleep", "args": ["1000"] })).await?.must(201)?;
    let other = client.start("one", "sleep 1000").await?;
    let fill = "(sleep 1000 & head -c 3000000 /dev/zero > /workspace/large; sleep 1000)";
    let refused = client.post("/v1/sessions/one/exec", &json!({ "cmd": fill })).await?;
    told(&refused.refused(507, "quota_exceeded")?, "during")?;
    eventually("the end of everything that ran", || async {
        let info = client.get(&format!("/v1/sessions/one/execs/{other}")).await?.must(200)?;
        let process = client.get("/v1/sessions/one/processes/default").await?.must(200)?;
        Ok((info["status"] != "running" && process["status"] == "exited").then_some(()))
    })
    .await?;
    let info = client.get(&format!("/v1/sessions/one/execs/{other}")).await?.must(200)?;
    ensure!(info["quota_exceeded"] == true && info["signal"] == 9, "{info}");
    eventually("a box without processes", || async {
        let pids = client.get("/v1/sessions/one/stats").await?.must(200)?["pids"].clone();
        // Where nothing counts, nothing is known.
        Ok((pids == 0 || pids.is_null()).then_some(()))
    })
    .await?;
    told(
        &client.post("/v1/sessions/one/exec", &json!({ "cmd": "true" })).await?.refused(507, "quota_exceeded")?,
        "before",
    )?;
    std::fs::remove_file(path.join("large"))?;
    ensure!(client.exec("one", "true").await?["quota_exceeded"] == false, "the session stays");
    Ok(())
}

/// The look that comes when a command ends is only seen where none came before it while the command ran, so several are tried.
async fn what_leaves_too_much_gets_no_result_and_its_session_goes(door: &mut Door) -> Result<()> {
    for round in 0..50 {
        let (_, session) = place(door, &format!("left-{round}"))?;
        let client = &door.client;
        let id = format!("s{round}");
        client.create(&id, &session).await?;
        let fill = json!({ "cmd": "head -c 2000000 /dev/zero > /workspace/output.bin" });
        let error = client.post(&format!("/v1/sessions/{id}/exec"), &fill).await?.refused(507, "quota_exceeded")?;
        if error["detail_code"] == "after" {
            told(&error, "after")?;
            client.get(&format!("/v1/sessions/{id}")).await?.refused(404, "session_not_found")?;
            let errors = client.get("/v1/errors").await?.must(200)?;
            ensure!(errors[0]["session_id"] == id.as_str() && errors[0]["operation"] == "exec", "{errors}");
            return Ok(());
        }
        told(&error, "during")?;
        client.delete(&format!("/v1/sessions/{id}")).await?.must(200)?;
    }
    anyhow::bail!("none of fifty commands ended before the first check")
}

async fn too_many_files_are_too_much(door: &mut Door) -> Result<()> {
    let (path, session) = place(door, "many")?;
    let fill = "mkdir /workspace/many && cd /workspace/many && seq 5000 | xargs touch";
    let refused = door.client.post("/v1/sessions/one/exec", &with(&session, "cmd", fill)).await?;
    let error = refused.refused(507, "quota_exceeded")?;
    ensure!(error["message"].as_str().is_some_and(|text| text.contains("files of 4096")), "{error}");
    // As many as there may be are not too many.
    std::fs::remove_dir_all(path.join("many"))?;
    let fill = "mkdir /workspace/many && cd /workspace/many && seq 4095 | xargs touch";
    let done = door.client.post("/v1/sessions/two/exec", &with(&session, "cmd", fill)).await?.must(200)?;
    ensure!(done["exit_code"] == 0, "{done}");
    Ok(())
}

async fn what_a_command_left_behind_cannot_fill_the_workspace_either(door: &mut Door) -> Result<()> {
    let (path, session) = place(door, "stray")?;
    let client = &door.client;
    client.create("one", &session).await?;
    if client.get("/v1/sessions/one/stats").await?.must(200)?["pids"].is_null() {
        return box_tests::suite::skip("processes are not counted here, so a leftover one goes unnoticed");
    }
    let leave = "(while [ ! -e /workspace/go ]; do sleep 0.1; done; head -c 3000000 /dev/zero > /workspace/large; \
                 sleep 1000) > /dev/null 2>&1 &";
    ensure!(client.exec("one", leave).await?["exit_code"] == 0);
    std::fs::write(path.join("go"), "")?;
    eventually("the end of the session", || async {
        Ok((client.get("/v1/sessions/one").await?.status == 404).then_some(()))
    })
    .await?;
    let errors = client.get("/v1/errors").await?.must(200)?;
    ensure!(errors[0]["code"] == "quota_exceeded", "{errors}");
    Ok(())
}

async fn a_workspace_that_is_only_read_is_not_measured(door: &mut Door) -> Result<()> {
    let (path, session) = place(door, "read")?;
    std::fs::write(path.join("large"), vec![b'x'; 2 << 20])?;
    let body = with(&with(&session, "host_path_mode", "ro"), "cmd", "wc -c < /workspace/large");
    let read = door.client.post("/v1/sessions/one/exec", &body).await?.must(200)?;
    ensure!(read["stdout"].as_str().is_some_and(|text| text.trim() == "2097152"), "{read}");
    let guarantees = door.client.get("/v1/sessions/one").await?.must(200)?["guarantees"].clone();
    let bytes = guarantees.as_array().and_then(|all| all.iter().find(|it| it["dimension"] == "disk_bytes").cloned());
    ensure!(bytes.context("no guarantee")?["level"] == "hard", "{guarantees}");
    Ok(())
}

async fn the_operators_quota_is_that_of_who_asks_for_none(door: &mut Door) -> Result<()> {
    let (path, session) = place(door, "operator")?;
    let none = json!({ "host_path": session["host_path"], "host_path_mode": "rw" });
    let made = door.client.create("one", &none).await?;
    ensure!(made["workspace_quota_mb"] == 32, "{made}");
    std::fs::write(path.join("large"), vec![b'x'; 33 << 20])?;
    let refused = door.client.post("/v1/sessions/one/exec", &json!({ "cmd": "true" })).await?;
    told(&refused.refused(507, "quota_exceeded")?, "before")
}

async fn a_quota_holds_after_a_restart(door: &mut Door) -> Result<()> {
    let (path, session) = place(door, "restarted")?;
    door.client.create("one", &session).await?;
    let fill =
        "while [ ! -e /workspace/go ]; do sleep 0.1; done; head -c 3000000 /dev/zero > /workspace/large; sleep 1000";
    let exec = door.client.start("one", fill).await?;
    door.server.restart().await?;
    door.client = door.server.client()?;
    let client = &door.client;
    std::fs::write(path.join("go"), "")?;
    let info = eventually("the end of the command", || async {
        let info = client.get(&format!("/v1/sessions/one/execs/{exec}")).await?.must(200)?;
        Ok((info["status"] != "running").then_some(info))
    })
    .await?;
    ensure!(info["quota_exceeded"] == true && info["signal"] == 9, "{info}");
    Ok(())
}
