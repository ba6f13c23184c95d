//! Tools for agents: which session a query works in, and what the model gets.

use anyhow::{Context, Result, ensure};
use box_tests::http::Client;
use serde_json::{Value, json};

use crate::{Door, DoorCase, case, cases};

pub(crate) fn cases() -> Vec<DoorCase> {
    let mut cases = cases![
        tools_are_listed_with_their_schemas,
        the_session_is_that_of_who_launched_the_query,
        fields_of_a_query_stand_in_for_its_variables,
        a_query_that_nobody_launched_has_a_session_of_its_own,
        a_command_is_told_as_agents_know_it,
        a_deadline_of_a_tool_is_clamped_to_the_profile,
        a_passed_deadline_of_a_tool_keeps_the_session,
        files_are_written_read_edited_and_found,
        what_is_cut_says_how_to_get_the_rest,
        what_a_model_can_set_right_is_an_answer,
        what_a_model_cannot_set_right_is_an_error,
        the_workspace_is_the_end_of_the_world_for_file_tools,
        each_tool_needs_its_scope,
    ];
    cases.push(
        case!(a_forced_scope_wins_over_the_pipeline_and_makes_one_box)
            .configured("forced_session_template = \"{global}\"\n"),
    );
    cases.push(case!(a_blank_forced_scope_forces_nothing).configured("forced_session_template = \"   \"\n"));
    cases.push(
        case!(a_profile_with_network_gives_its_limits_to_tools).configured("default_profile = \"network_extended\"\n"),
    );
    cases
}

/// The query of a person, as a whole program sends it.
fn person(query_id: u64) -> Value {
    let variables = json!({ "launcher_type": "person", "launcher_id": "test_user", "sender_id": "test_user",
        "query_id": query_id.to_string() });
    json!({ "query_id": query_id, "launcher_type": "person", "launcher_id": "test_user", "sender_id": "test_user",
        "variables": variables })
}

async fn run(client: &Client, tool: &str, parameters: Value, query: Value) -> Result<Value> {
    client.post(&format!("/v1/tools/{tool}"), &json!({ "parameters": parameters, "query": query })).await?.must(200)
}

/// The ids of all sessions.
async fn ids(client: &Client) -> Result<Vec<String>> {
    let sessions = client.sessions().await?;
    Ok(sessions.iter().filter_map(|session| Some(session["session_id"].as_str()?.to_owned())).collect())
}

async fn tools_are_listed_with_their_schemas(door: &mut Door) -> Result<()> {
    let told = door.client.get("/v1/tools").await?.must(200)?;
    let tools = told["tools"].as_array().context("no tools")?;
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    for name in ["exec", "read", "write", "edit", "glob", "grep"] {
        ensure!(names.contains(&name), "{names:?}");
    }
    for tool in tools {
        ensure!(tool["description"].as_str().is_some_and(|text| text.len() > 100), "{tool}");
        ensure!(tool["parameters"]["type"] == "object" && tool["parameters"]["required"].is_array(), "{tool}");
    }
    ensure!(door.client.sessions().await?.is_empty(), "listing makes nothing");
    Ok(())
}

async fn the_session_is_that_of_who_launched_the_query(door: &mut Door) -> Result<()> {
    let result = run(&door.client, "exec", json!({ "command": "pwd" }), person(7)).await?;
    ensure!(result["session_id"] == "person_test_user" && result["ok"] == true, "{result}");
    ensure!(result["stdout"] == "/workspace\n", "{result}");
    run(&door.client, "exec", json!({ "command": "pwd" }), person(8)).await?;
    ensure!(ids(&door.client).await? == ["person_test_user"]);
    Ok(())
}

async fn fields_of_a_query_stand_in_for_its_variables(door: &mut Door) -> Result<()> {
    let query = json!({ "query_id": 7, "launcher_type": "group", "launcher_id": "room-1" });
    let result = run(&door.client, "exec", json!({ "command": "pwd" }), query).await?;
    ensure!(result["session_id"] == "group_room-1" && result["ok"] == true, "{result}");
    ensure!(ids(&door.client).await? == ["group_room-1"]);
    Ok(())
}

async fn a_query_that_nobody_launched_has_a_session_of_its_own(door: &mut Door) -> Result<()> {
    let result = run(&door.client, "exec", json!({ "command": "pwd" }), json!({ "query_id": 7 })).await?;
    ensure!(result["session_id"] == "query_7" && result["ok"] == true, "{result}");
    ensure!(ids(&door.client).await? == ["query_7"]);
    Ok(())
}

async fn a_forced_scope_wins_over_the_pipeline_and_makes_one_box(door: &mut Door) -> Result<()> {
    let template = |template: &str| json!({ "ai": { "local-agent": { "box-session-id-template": template } } });
    for query in [
        json!({ "query_id": 1, "launcher_type": "group", "launcher_id": "room-1" }),
        json!({ "query_id": 2, "launcher_type": "person", "launcher_id": "alice", "pipeline_config": template("{launcher_type}_{launcher_id}_{sender_id}") }),
        json!({ "query_id": 3, "variables": { "global": "mine" } }),
    ] {
        let result = run(&door.client, "exec", json!({ "command": "pwd" }), query).await?;
        ensure!(result["session_id"] == "global" && result["ok"] == true, "{result}");
    }
    ensure!(ids(&door.client).await? == ["global"], "only one box was ever made");
    Ok(())
}

async fn a_blank_forced_scope_forces_nothing(door: &mut Door) -> Result<()> {
    let query = json!({ "query_id": 7, "launcher_type": "group", "launcher_id": "room-1", "sender_id": "bob",
        "pipeline_config": { "ai": { "local-agent": { "box-session-id-template": "{sender_id}" } } } });
    let result = run(&door.client, "exec", json!({ "command": "pwd" }), query).await?;
    ensure!(result["session_id"] == "bob", "{result}");
    Ok(())
}

async fn a_profile_with_network_gives_its_limits_to_tools(door: &mut Door) -> Result<()> {
    run(&door.client, "exec", json!({ "command": "true" }), person(42)).await?;
    let session = door.client.get("/v1/sessions/person_test_user").await?.must(200)?;
    ensure!(session["profile"] == "network_extended" && session["network"] == "on", "{session}");
    ensure!(
        session["cpus"] == 2.0 && session["memory_mb"] == 1024 && session["read_only_rootfs"] == false,
        "{session}"
    );
    Ok(())
}

async fn a_command_is_told_as_agents_know_it(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let parameters =
        json!({ "command": "echo out; echo err >&2; echo $A; exit 3", "env": { "A": "1" }, "cwd": "/tmp" });
    let result = run(client, "exec", parameters, person(1)).await?;
    ensure!(result["ok"] == false && result["status"] == "completed" && result["exit_code"] == 3, "{result}");
    ensure!(result["stdout"] == "out\n1\n" && result["stderr"] == "err\n" && result["backend"] == "native", "{result}");
    ensure!(result["stdout_truncated"] == false && result["stderr_truncated"] == false, "{result}");
    ensure!(result["duration_ms"].is_u64() && result["ignored_parameters"] == json!(["cwd"]), "{result}");
    let long = json!({ "command": "head -c 100000 /dev/zero | tr '\\0' x; echo e >&2" });
    let result = run(client, "exec", long, person(1)).await?;
    let text = result["stdout"].as_str().context("no text")?;
    ensure!(text.len() == 4000 && text.contains("characters truncated"), "{} characters", text.len());
    ensure!(result["stdout_truncated"] == true && result["stderr_truncated"] == false, "{result}");
    run(client, "exec", json!({ "command": "mkdir -p sub" }), person(1)).await?;
    let result = run(client, "exec", json!({ "command": "pwd", "workdir": "sub" }), person(1)).await?;
    ensure!(result["stdout"] == "/workspace/sub\n", "{result}");
    let result = run(client, "exec", json!({ "command": "pwd", "workdir": "nowhere" }), person(1)).await?;
    ensure!(result["ok"] == false && result["error"]["code"] == "bad_workdir", "{result}");
    Ok(())
}

async fn a_deadline_of_a_tool_is_clamped_to_the_profile(door: &mut Door) -> Result<()> {
    for (asked, seconds) in
        [(json!(999), 120), (json!("999"), 120), (json!(999.0), 120), (json!(7), 7), (json!(null), 30)]
    {
        let parameters = json!({ "command": "echo hi", "timeout_sec": asked });
        let result = run(&door.client, "exec", parameters, person(33)).await?;
        ensure!(result["ok"] == true && result["timeout_sec"] == seconds, "{asked}: {result}");
    }
    Ok(())
}

async fn a_passed_deadline_of_a_tool_keeps_the_session(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let parameters = json!({ "command": "echo left > file; sleep 1000", "timeout_sec": 2 });
    let result = run(client, "exec", parameters, person(1)).await?;
    ensure!(result["ok"] == false && result["status"] == "timed_out" && result["exit_code"].is_null(), "{result}");
    ensure!(result["stderr"] == "Command timed out after 2 seconds.", "{result}");
    let read = run(client, "read", json!({ "path": "file" }), person(2)).await?;
    ensure!(read["content"] == "left\n", "{read}");
    Ok(())
}

async fn files_are_written_read_edited_and_found(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let tool = |name: &'static str, parameters: Value| run(client, name, parameters, person(1));
    let text = "one\ntwo\nthree\n";
    let written = tool("write", json!({ "path": "src/a.txt", "content": text })).await?;
    ensure!(
        written["ok"] == true && written["path"] == "/workspace/src/a.txt" && written["bytes"] == text.len(),
        "{written}"
    );
    let read = tool("read", json!({ "path": "/workspace/src/a.txt" })).await?;
    ensure!(read["content"] == text && read["first_line"] == 1 && read["lines"] == 3, "{read}");
    ensure!(read["total_lines"] == 3 && read["truncated"] == false && read.get("notice").is_none(), "{read}");
    let part = tool("read", json!({ "path": "src/a.txt", "offset": "2", "limit": 1.0 })).await?;
    ensure!(part["content"] == "two\n" && part["first_line"] == 2 && part["truncated"] == true, "{part}");
    ensure!(part["notice"].as_str().is_some_and(|notice| notice.contains("offset 3")), "{part}");
    let edited = tool("edit", json!({ "path": "src/a.txt", "old_string": "two", "new_string": "zwei" })).await?;
    ensure!(edited["ok"] == true && edited["replacements"] == 1, "{edited}");
    let all = json!({ "path": "src/a.txt", "old_string": "e", "new_string": "E", "replace_all": "true" });
    ensure!(tool("edit", all).await?["replacements"] == 4);
    let seen = tool("exec", json!({ "command": "cat src/a.txt" })).await?;
    ensure!(seen["stdout"] == "onE\nzwEi\nthrEE\n", "{seen}");
    let found = tool("glob", json!({ "pattern": "**/*.txt" })).await?;
    ensure!(found["paths"] == json!(["/workspace/src/a.txt"]) && found["count"] == 1, "{found}");
    let found = tool("grep", json!({ "pattern": "^ZW", "ignore_case": true, "include": "*.txt" })).await?;
    ensure!(found["matches"] == json!([{ "path": "/workspace/src/a.txt", "line": 2, "text": "zwEi" }]), "{found}");
    ensure!(found["truncated"] == false && found["skipped_files"] == 0, "{found}");
    Ok(())
}

async fn what_is_cut_says_how_to_get_the_rest(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let tool = |name: &'static str, parameters: Value| run(client, name, parameters, person(1));
    tool("exec", json!({ "command": "seq 5000 > long; mkdir m; cd m; seq 150 | xargs touch" })).await?;
    let read = tool("read", json!({ "path": "long" })).await?;
    ensure!(read["lines"] == 2000 && read["total_lines"] == 5000 && read["truncated"] == true, "{read}");
    let read = tool("read", json!({ "path": "long", "offset": 2001, "limit": 9000 })).await?;
    ensure!(read["lines"] == 2000 && read["content"].as_str().is_some_and(|text| text.starts_with("2001\n")), "{read}");
    let beyond = tool("read", json!({ "path": "long", "offset": 9000 })).await?;
    ensure!(beyond["lines"] == 0 && beyond["notice"] == "The file has only 5000 lines.", "{beyond}");
    let found = tool("glob", json!({ "pattern": "*", "path": "m" })).await?;
    ensure!(found["count"] == 100 && found["truncated"] == true && found["notice"].is_string(), "{found}");
    let found = tool("grep", json!({ "pattern": "1", "path": "long" })).await?;
    ensure!(found["count"] == 200 && found["truncated"] == true && found["notice"].is_string(), "{found}");
    tool("exec", json!({ "command": "head -c 1000000 /dev/zero | tr '\\0' a > wide; echo b >> wide" })).await?;
    let wide = tool("read", json!({ "path": "wide" })).await?;
    ensure!(wide["content"].as_str().is_some_and(|text| text.len() == 256 << 10), "{}", wide["lines"]);
    ensure!(
        wide["notice"].as_str().is_some_and(|notice| notice.starts_with("Line 1 is longer than 256 KiB")),
        "{}",
        wide["notice"]
    );
    Ok(())
}

async fn what_a_model_can_set_right_is_an_answer(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let lay = "echo aa > twice; printf 'a\\0b' > binary; mkdir -p dir; mkfifo pipe; ln -s /etc/passwd out";
    run(client, "exec", json!({ "command": lay }), person(1)).await?;
    for (tool, parameters, code) in [
        ("read", json!({ "path": "nowhere" }), "not_found"),
        ("read", json!({ "path": "dir" }), "is_directory"),
        ("read", json!({ "path": "pipe" }), "not_regular"),
        ("read", json!({ "path": "binary" }), "binary"),
        ("read", json!({ "path": "out" }), "path_escapes"),
        ("read", json!({ "path": "../etc/passwd" }), "path_escapes"),
        ("read", json!({ "path": "" }), "invalid_path"),
        ("write", json!({ "path": "dir", "content": "x" }), "is_directory"),
        ("write", json!({ "path": "/tmp/x", "content": "x" }), "path_escapes"),
        ("edit", json!({ "path": "twice", "old_string": "a", "new_string": "b" }), "ambiguous"),
        ("edit", json!({ "path": "twice", "old_string": "c", "new_string": "b" }), "no_match"),
        ("edit", json!({ "path": "nowhere", "old_string": "c", "new_string": "b" }), "not_found"),
        ("glob", json!({ "pattern": "[" }), "invalid_pattern"),
        ("glob", json!({ "pattern": "*", "path": "/etc" }), "path_escapes"),
        ("grep", json!({ "pattern": "(" }), "invalid_pattern"),
        ("grep", json!({ "pattern": "x", "path": "nowhere" }), "not_found"),
    ] {
        let told = run(client, tool, parameters.clone(), person(1)).await?;
        ensure!(told["ok"] == false && told["error"]["code"] == code, "{tool} {parameters}: {told}");
        ensure!(told["session_id"] == "person_test_user" && told["error"]["message"].is_string(), "{told}");
    }
    let same = run(client, "exec", json!({ "command": "cat twice" }), person(1)).await?;
    ensure!(same["stdout"] == "aa\n", "nothing was changed: {same}");
    Ok(())
}

async fn what_a_model_cannot_set_right_is_an_error(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.post("/v1/tools/sudo", &json!({})).await?.refused(404, "tool_not_found")?;
    for (tool, body, field) in [
        ("exec", json!({}), "command"),
        ("exec", json!({ "parameters": { "command": " " } }), "command"),
        ("exec", json!({ "parameters": { "command": "x", "timeout_sec": 1.5 } }), "timeout_sec"),
        ("exec", json!({ "parameters": { "command": "x", "env": { "A=B": "" } } }), "env"),
        ("exec", json!({ "parameters": { "command": "x", "workdir": "../x" } }), "workdir"),
        ("read", json!({ "parameters": { "path": 7 } }), "path"),
        ("edit", json!({ "parameters": { "path": "f", "old_string": "", "new_string": "x" } }), "old_string"),
        ("grep", json!({ "parameters": { "pattern": "" } }), "pattern"),
        ("exec", json!({ "parameters": { "command": "x" }, "query": { "sender_id": [] } }), "query.sender_id"),
        ("exec", json!({ "parameters": { "command": "x" }, "session_id": "mine" }), "session_id"),
    ] {
        let told = client.post(&format!("/v1/tools/{tool}"), &body).await?.refused(400, "validation_error")?;
        ensure!(told["field"] == field, "{tool} {body}: {told}");
    }
    ensure!(client.sessions().await?.is_empty(), "what is refused makes no session");
    Ok(())
}

async fn the_workspace_is_the_end_of_the_world_for_file_tools(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let lay = "mkdir /tmp/out; echo secret-of-the-box > /tmp/out/f; ln -s /tmp/out link; ln -s /proc/self/root root";
    run(client, "exec", json!({ "command": lay }), person(1)).await?;
    for (tool, parameters) in [
        ("read", json!({ "path": "link/f" })),
        ("read", json!({ "path": "root/tmp/out/f" })),
        ("write", json!({ "path": "link/f", "content": "changed" })),
        ("write", json!({ "path": "link/new", "content": "changed" })),
        ("edit", json!({ "path": "link/f", "old_string": "secret", "new_string": "changed" })),
        ("glob", json!({ "pattern": "*", "path": "link" })),
        ("glob", json!({ "pattern": "**/f" })),
        ("grep", json!({ "pattern": "secret", "path": "link" })),
        ("grep", json!({ "pattern": "secret-of" })),
    ] {
        let told = run(client, tool, parameters.clone(), person(1)).await?;
        ensure!(!told.to_string().contains("secret-of-the-box") && !told.to_string().contains("link/f\""), "{told}");
        let nothing = told["ok"] == false || told["count"] == 0;
        ensure!(nothing, "{tool} {parameters}: {told}");
    }
    let same = run(client, "exec", json!({ "command": "ls /tmp/out; cat /tmp/out/f" }), person(1)).await?;
    ensure!(same["stdout"] == "f\nsecret-of-the-box\n", "{same}");
    Ok(())
}

async fn each_tool_needs_its_scope(door: &mut Door) -> Result<()> {
    let token = |scope: &str| door.server.token(&["--name", scope, "--scope", scope]);
    let (exec, files) = (token("exec")?, token("files")?);
    let (exec, files) = (door.client.with_token(&exec), door.client.with_token(&files));
    let body = |parameters: Value| json!({ "parameters": parameters, "query": person(1) });
    let read = body(json!({ "path": "f" }));
    files.post("/v1/tools/read", &read).await?.refused(404, "session_not_found")?;
    files.post("/v1/tools/exec", &body(json!({ "command": "true" }))).await?.refused(403, "forbidden")?;
    exec.post("/v1/tools/read", &read).await?.refused(403, "forbidden")?;
    exec.post("/v1/tools/exec", &body(json!({ "command": "echo text > f" }))).await?.must(200)?;
    let told = files.post("/v1/tools/read", &read).await?.must(200)?;
    ensure!(told["content"] == "text\n", "{told}");
    ensure!(files.get("/v1/tools").await?.must(200)?["tools"].is_array());
    Ok(())
}
