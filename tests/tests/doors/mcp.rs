//! MCP servers without boxes: definitions, their owners, and views of them. Running servers have a suite of their own.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use box_tests::mcp::Mcp;

use crate::{Door, DoorCase, cases};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        servers_are_defined_listed_switched_and_removed,
        what_is_wrong_with_a_definition_is_told_without_its_secrets,
        a_document_of_a_desktop_client_is_imported,
        a_server_that_is_not_there_is_not_found,
        servers_are_there_for_their_tenant_and_whoever_may_change_them,
        boxes_of_servers_are_for_admins_only,
        tools_without_a_token_name_no_box_of_servers,
        who_is_bound_to_a_session_names_no_other,
    ]
}

const SERVERS: &str = "/v1/mcp/servers";

fn definition() -> Value {
    json!({"command": "python3", "args": ["-c", "1"], "env": {"KEY": "sesame"}, "enabled": false, "box": {"network": "off"}})
}

async fn put(door: &Door, name: &str, definition: &Value) -> Result<box_tests::http::Answer> {
    door.client.request("PUT", &format!("{SERVERS}/{name}")).json(definition).send().await
}

async fn servers_are_defined_listed_switched_and_removed(door: &mut Door) -> Result<()> {
    let made = put(door, "one", &definition()).await?.must(201)?;
    ensure!(made["status"] == "disabled" && made["definition"]["env_keys"] == json!(["KEY"]), "{made}");
    put(door, "one", &definition()).await?.must(200)?;
    let listed = door.client.get(SERVERS).await?.must(200)?;
    ensure!(listed.as_array().is_some_and(|all| all.len() == 1) && !listed.to_string().contains("sesame"), "{listed}");
    door.client.post_empty(&format!("{SERVERS}/one/restart")).await?.refused(409, "conflict")?;
    let unknown = door.client.post(&format!("{SERVERS}/one/approve"), &json!({})).await?.refused(409, "conflict")?;
    ensure!(unknown.to_string().contains("not connected"), "{unknown}");
    let enabled = door.client.post_empty(&format!("{SERVERS}/one/enable")).await?.must(200)?;
    ensure!(enabled["enabled"] == true, "{enabled}");
    door.client.post_empty(&format!("{SERVERS}/one/disable")).await?.must(200)?;
    let logs = door.client.get(&format!("{SERVERS}/one/logs?lines=5")).await?.must(200)?;
    ensure!(logs["lines"].is_array(), "{logs}");
    door.client.delete(&format!("{SERVERS}/one")).await?.must(200)?;
    door.client.get(&format!("{SERVERS}/one")).await?.refused(404, "mcp_server_not_found")?;
    Ok(())
}

async fn what_is_wrong_with_a_definition_is_told_without_its_secrets(door: &mut Door) -> Result<()> {
    for bad in [json!({"command": 7, "env": {"KEY": "sesame"}}), json!({"env": {"KEY": "sesame"}}), json!([])] {
        let refused = put(door, "one", &bad).await?;
        ensure!(refused.status == 400 && !refused.text().contains("sesame"), "{refused:?}");
    }
    let report =
        door.client.post("/v1/mcp/test", &json!({"command": "no-such-program", "box": {"network": "off"}})).await?;
    let report = report.must(200)?;
    ensure!(report["ok"] == false && report["runtime_info"]["error_phase"] == "process_start", "{report}");
    Ok(())
}

async fn a_document_of_a_desktop_client_is_imported(door: &mut Door) -> Result<()> {
    let document = json!({"mcpServers": {
        "my time": {"command": "uvx", "args": ["mcp-server-time"], "disabled": true}, "bad": {"command": 7},
        "image": {"command": "docker", "args": ["run", "--privileged", "org/server:1"], "disabled": true},
    }});
    let told = door.client.post("/v1/mcp/import", &document).await?.must(200)?;
    let is_there = |name: &str| told["servers"].as_array().into_iter().flatten().any(|server| server["name"] == name);
    ensure!(is_there("my-time") && is_there("image") && told["renamed"][0]["from"] == "my time", "{told}");
    let remarks: Vec<_> = told["remarks"].as_array().into_iter().flatten().collect();
    ensure!(remarks.iter().all(|remark| remark["name"] == "image"), "{told}");
    for part in ["box.image = \"org/server:1\"", "--privileged of docker run", "allowed_images"] {
        let has_part = |remark: &&Value| remark["text"].as_str().is_some_and(|text| text.contains(part));
        ensure!(remarks.iter().any(has_part), "{part}: {told}");
    }
    ensure!(told["skipped"][0]["name"] == "bad", "{told}");
    Ok(())
}

async fn a_server_that_is_not_there_is_not_found(door: &mut Door) -> Result<()> {
    for verb in ["restart", "enable", "disable", "test"] {
        let answer = door.client.post_empty(&format!("{SERVERS}/none/{verb}")).await?;
        answer.refused(404, "mcp_server_not_found")?;
    }
    let answer = door.client.post(&format!("{SERVERS}/none/approve"), &json!({"tools": {"a": "b"}})).await?;
    answer.refused(404, "mcp_server_not_found")?;
    door.client.delete(&format!("{SERVERS}/none")).await?.refused(404, "mcp_server_not_found")?;
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
    for path in ["/mcp/none", "/mcp/none/mcp", "/none/mcp"] {
        let unknown = door.client.post(path, &initialize).await?;
        let expected = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32000,
            "message": "no MCP server is called none: none is defined; define one with `strongbox mcp add`"}});
        ensure!(unknown.status == 404 && unknown.json == expected, "{path}: {unknown:?}");
    }
    // The short addresses leave other interfaces alone.
    for path in ["/v1/none", "/sandboxes/mcp"] {
        let other = door.client.get(path).await?;
        ensure!(other.json["jsonrpc"].is_null(), "{path}: {other:?}");
    }
    Ok(())
}

async fn servers_are_there_for_their_tenant_and_whoever_may_change_them(door: &mut Door) -> Result<()> {
    put(door, "one", &definition()).await?.must(201)?;
    let other = door.server.token(&["--name", "other", "--tenant", "other", "--scope", "exec,mcp"])?;
    let reader = door.server.token(&["--name", "reader", "--scope", "exec"])?;
    let (other, reader) = (door.client.with_token(&other), door.client.with_token(&reader));
    // What is known of tokens may be a moment old.
    let noticed = crate::eventually("the first token", || async {
        Ok((door.client.get("/v1/status").await?.status == 401).then_some(()))
    });
    noticed.await?;
    ensure!(other.get(SERVERS).await?.must(200)? == json!([]), "another tenant's servers are shown");
    ensure!(reader.get(SERVERS).await?.must(200)?.as_array().is_some_and(|all| all.len() == 1));
    reader.delete(&format!("{SERVERS}/one")).await?.refused(403, "forbidden")?;
    for path in ["/mcp", "/mcp/one", "/mcp/box"] {
        door.client.get(path).await?.refused(401, "unauthorized")?;
    }
    Ok(())
}

/// The boxes of servers hold the secrets of all of them.
async fn boxes_of_servers_are_for_admins_only(door: &mut Door) -> Result<()> {
    let without_token = door.client.post("/v1/sessions/mcp-shared-0a1b2c3d", &json!({})).await?;
    without_token.refused(409, "conflict")?;
    let worker = door.server.token(&["--name", "worker", "--scope", "exec,files,mcp"])?;
    let admin = door.server.token(&["--name", "admin", "--scope", "exec,files,admin"])?;
    let (worker, admin) = (door.client.with_token(&worker), door.client.with_token(&admin));
    crate::eventually("the tokens", || async { Ok((worker.get("/v1/status").await?.status == 200).then_some(())) })
        .await?;
    admin.create("mcp-shared-0a1b2c3d", &json!({})).await?;
    let path = "/v1/sessions/mcp-shared-0a1b2c3d";
    for tried in [
        worker.get(path).await?,
        worker.post(path, &json!({})).await?,
        worker.post(&format!("{path}/exec"), &json!({ "cmd": "cat /proc/*/environ" })).await?,
        worker.post(&format!("{path}/processes"), &json!({ "command": "cat" })).await?,
        worker.get(&format!("{path}/files?path=/proc/self/environ")).await?,
        worker.delete(path).await?,
        worker.post("/v1/sessions/mcp-test-1", &json!({})).await?,
    ] {
        tried.refused(409, "conflict")?;
    }
    for client in [&worker, &door.server.owner()?] {
        for (tool, query) in tools_in("mcp-shared-0a1b2c3d") {
            client.post(&format!("/v1/tools/{tool}"), &query).await?.refused(409, "conflict")?;
        }
    }
    ensure!(worker.sessions().await?.is_empty(), "they are listed");
    ensure!(admin.sessions().await?.len() == 1);
    ensure!(admin.exec("mcp-shared-0a1b2c3d", "echo seen").await?["stdout"] == "seen\n");
    Ok(())
}

/// Calls of tools over REST that a query, which a program may write freely, leads to this session.
fn tools_in(session: &str) -> [(&'static str, Value); 3] {
    let query = json!({"pipeline_config": {"ai": {"local-agent": {"box-session-id-template": session}}}});
    [
        ("exec", json!({"command": "cat /proc/*/environ"})),
        ("read", json!({"path": "/proc/self/environ"})),
        ("write", json!({"path": "file", "content": "text"})),
    ]
    .map(|(tool, parameters)| (tool, json!({"parameters": parameters, "query": query})))
}

/// The structured result of one of the server's own tools.
async fn told(mcp: &Mcp, tool: &str, arguments: Value) -> Result<Value> {
    Ok(mcp.result(tool, arguments).await?["structuredContent"].clone())
}

async fn tools_without_a_token_name_no_box_of_servers(door: &mut Door) -> Result<()> {
    let mcp = Mcp::connect(&door.server, "/mcp/box").await?;
    for id in ["mcp-shared", "mcp-shared-0a1b2c3d", "mcp-test-1"] {
        let command = json!({"command": "cat /proc/*/environ", "session_id": id});
        for (tool, arguments) in [
            ("exec", command),
            ("read", json!({"path": "/proc/self/environ", "session_id": id})),
            ("session_info", json!({"session_id": id})),
            ("session_end", json!({"session_id": id})),
            ("process_start", json!({"command": "cat", "session_id": id})),
            ("snapshot", json!({"session_id": id})),
            ("fork", json!({"new_session_id": "copy", "session_id": id})),
        ] {
            let told = told(&mcp, tool, arguments).await?;
            ensure!(
                told["error"]["code"] == "conflict" && told.to_string().contains("reserved"),
                "{tool} {id}: {told}"
            );
        }
    }
    let named = Mcp::connect(&door.server, "/mcp/box?session=mcp-shared").await;
    ensure!(named.is_err(), "an address names a box of servers");
    Ok(())
}

async fn who_is_bound_to_a_session_names_no_other(door: &mut Door) -> Result<()> {
    door.client.create("other", &json!({})).await?;
    let mcp = Mcp::connect(&door.server, "/mcp/box?session=own").await?;
    ensure!(told(&mcp, "exec", json!({"command": "echo here"})).await?["ok"] == true);
    for (tool, arguments) in [
        ("session_info", json!({})),
        ("session_end", json!({})),
        ("exec", json!({"command": "touch /workspace/from-elsewhere"})),
        ("read", json!({"path": "/etc/passwd"})),
        ("write", json!({"path": "from-elsewhere", "content": "text"})),
        ("edit", json!({"path": "f", "old_string": "a", "new_string": "b"})),
        ("glob", json!({"pattern": "*"})),
        ("grep", json!({"pattern": "x"})),
        ("process_start", json!({"command": "cat"})),
        ("process_list", json!({})),
        ("snapshot", json!({})),
        ("fork", json!({"new_session_id": "own"})),
        ("process_output", json!({"process_id": "default"})),
        ("process_input", json!({"process_id": "default", "text": "x"})),
        ("process_stop", json!({"process_id": "default"})),
    ] {
        let mut arguments = arguments;
        arguments["session_id"] = "other".into();
        let told = told(&mcp, tool, arguments).await?;
        ensure!(told["error"]["code"] == "invalid" && told.to_string().contains("bound"), "{tool}: {told}");
    }
    ensure!(door.client.exec("other", "ls /workspace").await?["stdout"] == "");
    let listed = mcp.result("session_list", json!({})).await?.to_string();
    ensure!(listed.contains("own") && !listed.contains("other"), "{listed}");

    let bound = door.server.token(&["--name", "own", "--scope", "exec,files", "--session", "own"])?;
    let bound = door.client.with_token(&bound);
    crate::eventually("the token", || async { Ok((bound.get("/v1/status").await?.status == 200).then_some(())) })
        .await?;
    bound.exec("own", "true").await?;
    for tried in [
        bound.get("/v1/sessions/other").await?,
        bound.post("/v1/sessions/third", &json!({})).await?,
        bound.post("/v1/sessions/other/exec", &json!({ "cmd": "true" })).await?,
        bound.get("/v1/sessions/other/files?path=/etc/passwd").await?,
        bound.delete("/v1/sessions/other").await?,
    ] {
        tried.refused(400, "validation_error")?;
    }
    for (tool, query) in tools_in("other") {
        bound.post(&format!("/v1/tools/{tool}"), &query).await?.refused(400, "validation_error")?;
    }
    ensure!(bound.sessions().await?.len() == 1, "it finds others");
    let status = bound.get("/v1/status").await?.must(200)?;
    let held = |resource: &str| {
        let mut limits = status["limits"].as_array().into_iter().flatten();
        limits.find(|limit| limit["resource"] == resource).map(|limit| limit["held"].clone())
    };
    ensure!(status["active_sessions"] == 1 && held("sessions") == Some(json!(1)), "it counts others: {status}");
    let unnamed = bound.post("/v1/sessions", &json!({})).await?.must(201)?;
    ensure!(unnamed["session_id"] == "own", "{unnamed}");
    let chats = door.server.token(&["--name", "chats", "--scope", "exec", "--session", "chat-*"])?;
    let chats = door.client.with_token(&chats);
    let unnamed = chats.post("/v1/sessions", &json!({})).await?.must(201)?;
    ensure!(unnamed["session_id"].as_str().is_some_and(|id| id.starts_with("chat-s-")), "{unnamed}");
    bound.post("/sandboxes", &json!({ "templateID": "base" })).await.map(|answer| {
        ensure!(answer.status == 403, "{answer:?}");
        Ok(())
    })?
}
