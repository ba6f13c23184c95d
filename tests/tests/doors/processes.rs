//! Managed processes: started, watched, attached to, stopped; and the line relay.

use anyhow::{Context, Result, ensure};
use box_tests::events::Events;
use box_tests::http::Client;
use serde_json::{Value, json};

use crate::socket::{Refused, Said, Socket, refused};
use crate::{Door, DoorCase, cases, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    cases![
        a_process_is_started_shown_listed_and_stopped,
        a_process_that_ignores_sigterm_is_killed_with_its_whole_tree,
        a_process_starts_again_as_its_policy_says,
        a_process_that_is_out_of_memory_says_so,
        the_end_of_standard_error_is_shown,
        a_process_is_fed_by_attach_and_replayed_from_a_cursor,
        a_process_without_a_reader_never_stands_still,
        one_id_is_one_process_unless_it_is_replaced,
        events_of_a_process_go_on_over_a_restart,
        the_relay_is_one_line_for_one_message,
        a_second_relay_that_takes_over_goes_on_where_the_first_stopped,
        a_relay_to_nothing_is_refused_before_the_upgrade,
    ]
}

const PROCESSES: &str = "/v1/sessions/one/processes";

async fn shown(client: &Client, id: &str) -> Result<Value> {
    client.get(&format!("{PROCESSES}/{id}")).await?.must(200)
}

async fn exited(client: &Client, id: &str) -> Result<Value> {
    eventually("the end of the process", || async {
        let info = shown(client, id).await?;
        Ok((info["status"] == "exited").then_some(info))
    })
    .await
}

async fn a_process_is_started_shown_listed_and_stopped(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let body = json!({ "process_id": "p", "command": "sh", "args": ["-c", "echo $KEY $PWD; cat"], "env": { "KEY": "value-of-key" }, "cwd": "/tmp", "memory_mb": 64 });
    let started = client.post(PROCESSES, &body).await?.must(201)?;
    ensure!(
        started["process_id"] == "p" && started["status"] == "running" && started["session_id"] == "one",
        "{started}"
    );
    ensure!(
        started["command"] == "sh" && started["cwd"] == "/tmp" && started["env_keys"] == json!(["KEY"]),
        "{started}"
    );
    ensure!(started["attached"] == false && started["restarts"] == 0 && started["restart"] == "never", "{started}");
    ensure!(started["pid"].as_u64() > Some(1) && started["exited_at"].is_null(), "{started}");
    ensure!(client.get("/v1/sessions/one").await?.must(200)?["memory_mb"] == 64, "it made the session");
    client.post(PROCESSES, &json!({ "process_id": "q", "command": "true" })).await?.must(201)?;
    let ended = exited(client, "q").await?;
    ensure!(ended["exit_code"] == 0 && ended["exited_at"].is_string() && ended["pid"].is_null(), "{ended}");
    let listed = client.get(PROCESSES).await?;
    ensure!(
        listed.json.as_array().is_some_and(|list| list.len() == 2) && !listed.text().contains("value-of-key"),
        "{listed:?}"
    );
    let session = client.get("/v1/sessions/one").await?.must(200)?;
    ensure!(session["managed_processes"]["p"]["status"] == "running" && session["processes_running"] == 1, "{session}");
    let out = client.get(&format!("{PROCESSES}/p/output")).await?;
    ensure!(out.text() == "value-of-key /tmp\n", "{out:?}");
    let fed = client.request("POST", &format!("{PROCESSES}/p/stdin")).body("fed\n").send().await?;
    ensure!(fed.status == 204, "{fed:?}");
    eventually("the echo", || async {
        Ok(client.get(&format!("{PROCESSES}/p/output")).await?.text().ends_with("fed\n").then_some(()))
    })
    .await?;
    let stopped = client.delete(&format!("{PROCESSES}/p")).await?.must(200)?;
    ensure!(stopped["status"] == "exited" && stopped["exit_code"].is_number(), "{stopped}");
    client.get(&format!("{PROCESSES}/p")).await?.refused(404, "managed_process_not_found")?;
    client.delete(&format!("{PROCESSES}/p")).await?.refused(404, "managed_process_not_found")?;
    client.post(PROCESSES, &json!({ "process_id": "r", "command": "sleep", "args": ["1000"] })).await?.must(201)?;
    let sent = client.post(&format!("{PROCESSES}/r/signal"), &json!({ "signal": "KILL" })).await?;
    ensure!(sent.status == 204, "{sent:?}");
    ensure!(exited(client, "r").await?["exit_code"] == 137);
    Ok(())
}

/// Takes all memory of a small box.
const GREEDY: &str = "x = b'x' * (1 << 30)";

async fn a_process_that_is_out_of_memory_says_so(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let made = client.create("one", &json!({ "memory_mb": 64 })).await?;
    let memory = made["guarantees"].as_array().and_then(|all| all.iter().find(|one| one["dimension"] == "memory"));
    if memory.is_none_or(|memory| memory["level"] != "hard") {
        return box_tests::suite::skip("nothing holds the memory of a box here".to_owned());
    }
    let greedy = |restart: &str| json!({ "process_id": restart, "command": "python3", "args": ["-c", GREEDY], "restart": restart });
    let started = client.post(PROCESSES, &greedy("never")).await?.must(201)?;
    ensure!(started["oom_killed"] == false, "{started}");
    let ended = exited(client, "never").await?;
    ensure!(ended["oom_killed"] == true && ended["exit_code"] == 137, "{ended}");
    let listed = client.get(PROCESSES).await?.must(200)?;
    ensure!(listed[0]["oom_killed"] == true, "{listed}");
    // A restarted process shows it for its last end.
    client.post(PROCESSES, &greedy("always")).await?.must(201)?;
    eventually("a restart", || async {
        let info = shown(client, "always").await?;
        Ok((info["restarts"].as_u64() > Some(0) && info["oom_killed"] == true).then_some(()))
    })
    .await?;
    client.delete(&format!("{PROCESSES}/always")).await?.must(200)?;
    let stopped = client.post(PROCESSES, &json!({ "process_id": "calm", "command": "cat" })).await?.must(201)?;
    ensure!(stopped["oom_killed"] == false, "{stopped}");
    let stopped = client.delete(&format!("{PROCESSES}/calm")).await?.must(200)?;
    ensure!(stopped["oom_killed"] == false, "{stopped}");
    Ok(())
}

async fn a_process_that_ignores_sigterm_is_killed_with_its_whole_tree(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let line = "trap '' TERM; (trap '' TERM; setsid sleep 1234) & sleep 1234 & echo ready; while :; do sleep 0.1; done";
    client.post(PROCESSES, &json!({ "command": "sh", "args": ["-c", line] })).await?.must(201)?;
    eventually("readiness", || async {
        Ok((client.get(&format!("{PROCESSES}/default/output")).await?.text() == "ready\n").then_some(()))
    })
    .await?;
    // The other calls of the session go on meanwhile.
    let path = format!("{PROCESSES}/default");
    let stopping = tokio::spawn(client.request("DELETE", &path).send());
    ensure!(client.exec("one", "echo meanwhile").await?["stdout"] == "meanwhile\n");
    ensure!(!stopping.is_finished(), "it was killed before it was given time");
    let stopped = stopping.await??.must(200)?;
    ensure!(stopped["exit_code"] == 137, "{stopped}");
    let left = client.exec("one", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 1234'").await?;
    ensure!(left["stdout"] == "0\n", "{left}");
    Ok(())
}

async fn a_process_starts_again_as_its_policy_says(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let start = |id: &str, restart: &str, code: u8| {
        let line = format!("echo run >> /workspace/{id}; exit {code}");
        let body = json!({ "process_id": id, "command": "sh", "args": ["-c", line], "restart": restart });
        async move { client.post(PROCESSES, &body).await?.must(201) }
    };
    start("never", "never", 3).await?;
    start("well", "on-failure", 0).await?;
    start("failing", "on-failure", 4).await?;
    start("always", "always", 0).await?;
    for id in ["failing", "always"] {
        let info = eventually("a restart", || async {
            let info = shown(client, id).await?;
            Ok((info["restarts"].as_u64() >= Some(2)).then_some(info))
        })
        .await?;
        ensure!(info["status"] == "running", "{info}");
        let runs = client.exec("one", &format!("wc -l < /workspace/{id}")).await?;
        ensure!(
            runs["stdout"].as_str().is_some_and(|count| count.trim().parse::<u64>().is_ok_and(|count| count >= 2)),
            "{runs}"
        );
        let stopped = client.delete(&format!("{PROCESSES}/{id}")).await?.must(200)?;
        ensure!(stopped["status"] == "exited", "{stopped}");
    }
    // These had as much time as those, and were not started again.
    ensure!(exited(client, "never").await?["exit_code"] == 3);
    ensure!(exited(client, "well").await?["exit_code"] == 0);
    ensure!(client.exec("one", "cat /workspace/never /workspace/well").await?["stdout"] == "run\nrun\n");
    Ok(())
}

async fn the_end_of_standard_error_is_shown(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let line = "i=0; while [ $i -lt 3000 ]; do echo line-$i >&2; i=$((i+1)); done; exit 1";
    client.post(PROCESSES, &json!({ "command": "sh", "args": ["-c", line] })).await?.must(201)?;
    let info = exited(client, "default").await?;
    let preview = info["stderr_preview"].as_str().context("a text")?;
    ensure!(
        preview.ends_with("line-2999\n") && preview.chars().count() == 4000,
        "{} characters",
        preview.chars().count()
    );
    Ok(())
}

async fn a_process_is_fed_by_attach_and_replayed_from_a_cursor(door: &mut Door) -> Result<()> {
    let client = door.client.clone();
    let url = door.server.url()?.to_owned();
    client.post(PROCESSES, &json!({ "command": "cat" })).await?.must(201)?;
    let attach = |cursor: usize| {
        let path = format!("{PROCESSES}/default/ws?cursor=0.{cursor}.0");
        let url = url.clone();
        async move { Socket::open(&url, &path, &[]).await }
    };
    let mut socket = attach(0).await?;
    let first = socket.told("started").await?;
    ensure!(first["process"]["process_id"] == "default", "{first}");
    socket.bytes("one\n").await?;
    socket.until("one\n").await?;
    ensure!(shown(&client, "default").await?["attached"] == true);
    socket.vanish();
    eventually("detaching", || async { Ok((shown(&client, "default").await?["attached"] == false).then_some(())) })
        .await?;
    let fed = client.request("POST", &format!("{PROCESSES}/default/stdin")).body("two\n").send().await?;
    ensure!(fed.status == 204);
    let mut again = attach(4).await?;
    again.told("started").await?;
    ensure!(again.until("two\n").await? == "two\n", "only what was missed");
    let mut replay = attach(0).await?;
    replay.told("started").await?;
    ensure!(replay.until("two\n").await? == "one\ntwo\n", "everything");
    let cursor = shown(&client, "default").await?["cursor"].as_str().context("a cursor")?.to_owned();
    ensure!(cursor == "0.8.0", "{cursor}");
    again.text(json!({ "type": "stdin_end" }).to_string()).await?;
    let (_, _, end) = again.drain().await?;
    ensure!(end["exec"]["exit_code"] == 0, "{end}");
    Ok(())
}

/// Much more output than any pipe holds, and no reader.
async fn a_process_without_a_reader_never_stands_still(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let line = "head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2; echo over > /workspace/over";
    client.post(PROCESSES, &json!({ "command": "sh", "args": ["-c", line] })).await?.must(201)?;
    ensure!(exited(client, "default").await?["exit_code"] == 0);
    ensure!(client.exec("one", "cat /workspace/over").await?["stdout"] == "over\n");
    Ok(())
}

async fn one_id_is_one_process_unless_it_is_replaced(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let first = client.post(PROCESSES, &json!({ "command": "sleep", "args": ["1000"] })).await?.must(201)?;
    client.post(PROCESSES, &json!({ "command": "cat" })).await?.refused(409, "managed_process_conflict")?;
    let both = futures_util::future::try_join_all(
        (0..4).map(|_| async { client.post(PROCESSES, &json!({ "command": "cat", "process_id": "x" })).await }),
    )
    .await?;
    ensure!(both.iter().filter(|answer| answer.status == 201).count() == 1, "{both:?}");
    let second = client.post(PROCESSES, &json!({ "command": "cat", "replace": true })).await?.must(201)?;
    ensure!(second["command"] == "cat" && second["pid"] != first["pid"], "{second}");
    let exit = client.post(PROCESSES, &json!({ "command": "true", "process_id": "y" })).await?;
    exit.must(201)?;
    exited(client, "y").await?;
    client.post(PROCESSES, &json!({ "command": "cat", "process_id": "y" })).await?.must(201)?;
    Ok(())
}

async fn events_of_a_process_go_on_over_a_restart(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let line = "echo run-$(cat /workspace/n 2>/dev/null | wc -l); echo x >> /workspace/n; [ $(wc -l < /workspace/n) -ge 3 ] && sleep 1000; exit 1";
    client
        .post(PROCESSES, &json!({ "command": "sh", "args": ["-c", line], "restart": "on-failure" }))
        .await?
        .must(201)?;
    let mut events = Events::open(client.request("GET", &format!("{PROCESSES}/default/events"))).await?;
    let mut told = Vec::new();
    while !told.iter().any(|text: &String| text.contains("run-2")) {
        let event = events.next().await?.context("the stream ended")?;
        told.push(match event.name.as_str() {
            "output" => String::from_utf8(event.output()?)?,
            name => name.to_owned(),
        });
    }
    ensure!(told == ["run-0\n", "restarted", "run-1\n", "restarted", "run-2\n"], "{told:?}");
    Ok(())
}

async fn the_relay_is_one_line_for_one_message(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let line =
        "echo '{\"ready\":1}'; echo noise >&2; while read -r line; do echo \"echo:$line\"; done; printf unfinished";
    let start = json!({ "command": "sh", "args": ["-c", line] });
    client.post("/v1/sessions/one/managed-process/mcp", &start).await?.must(201)?;
    let path = "/v1/sessions/one/managed-process/mcp/ws";
    let mut socket = Socket::open(door.server.url()?, path, &[("sec-websocket-protocol", "mcp")]).await?;
    ensure!(socket.protocol == "mcp");
    ensure!(socket.line().await? == "{\"ready\":1}");
    socket.text("{\"id\":1}").await?;
    ensure!(socket.line().await? == "echo:{\"id\":1}");
    socket.text("two\nlines").await?;
    ensure!(socket.line().await? == "echo:two" && socket.line().await? == "echo:lines");
    let long = "y".repeat(1_500_000);
    socket.text(long.clone()).await?;
    ensure!(socket.line().await? == format!("echo:{long}"), "a long line is one message");
    let ended = client.request("POST", "/v1/sessions/one/processes/mcp/stdin?end=true").send().await?;
    ensure!(ended.status == 204, "{ended:?}");
    ensure!(socket.line().await? == "unfinished");
    ensure!(socket.next().await? == Said::Closed(Some(1000)));
    Ok(())
}

async fn a_second_relay_that_takes_over_goes_on_where_the_first_stopped(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    client.post("/v1/sessions/one/managed-process", &json!({ "command": "cat" })).await?.must(201)?;
    let url = door.server.url()?.to_owned();
    let path = "/v1/sessions/one/managed-process/ws";
    let mut first = Socket::open(&url, path, &[]).await?;
    first.text("a").await?;
    ensure!(first.line().await? == "a");
    let mut second = Socket::open(&url, &format!("{path}?takeover=true"), &[]).await?;
    ensure!(first.next().await? == Said::Closed(Some(4409)), "the first is closed with a reason");
    second.text("b").await?;
    ensure!(second.line().await? == "b", "and nothing is repeated");
    second.vanish();
    client.request("POST", "/v1/sessions/one/processes/default/stdin").body("missed\n").send().await?;
    let mut third = Socket::open(&url, path, &[]).await?;
    ensure!(third.line().await? == "missed");
    Ok(())
}

async fn a_relay_to_nothing_is_refused_before_the_upgrade(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let url = door.server.url()?.to_owned();
    ensure!(refused(&url, "/v1/sessions/none/managed-process/ws", &[]).await? == Refused(404));
    client.create("one", &json!({})).await?;
    ensure!(refused(&url, "/v1/sessions/one/managed-process/ws", &[]).await? == Refused(404));
    client.post("/v1/sessions/one/managed-process", &json!({ "command": "true" })).await?.must(201)?;
    exited(client, "default").await?;
    ensure!(refused(&url, "/v1/sessions/one/managed-process/ws", &[]).await? == Refused(409));
    ensure!(refused(&url, "/v1/sessions/one/execs/none/ws", &[]).await? == Refused(404));
    Ok(())
}
