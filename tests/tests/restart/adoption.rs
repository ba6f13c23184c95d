//! The server is killed while sessions live, and the next one finds them.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use box_tests::ground::marker;
use box_tests::restart_server::{Client, StateDirectory};
use box_tests::suite::skip;
use box_tests::{eventually, host, leaks};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

/// Asks again and again until the answer is the wanted one.
pub(crate) async fn until<F>(what: &str, mut look: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    eventually(what, || {
        let looking = look();
        async move { Ok(looking.await?.then_some(())) }
    })
    .await
}

/// A sleep that no other process of the machine sleeps.
pub(crate) fn marked_sleep() -> String {
    format!("sleep {}", marker())
}

/// The process of the host that runs a marked sleep.
pub(crate) fn pid_on_host(marker: &str) -> Result<i32> {
    host::sleeper(marker).with_context(|| format!("no process of the host is {marker:?}"))
}

/// The files of all journals and their sizes: without a server, the activity of boxes shows only here.
fn journals(place: &StateDirectory) -> BTreeMap<String, u64> {
    let state = place.state();
    let names = leaks::files(&state).into_iter().filter(|name| name.contains("journals/"));
    let with_size = |name: String| {
        let data = std::fs::metadata(state.join(&name)).ok().filter(std::fs::Metadata::is_file)?;
        Some((name, data.len()))
    };
    names.filter_map(with_size).collect()
}

/// Whether a journal holds the end of `exec`; of any exec when it is empty.
fn has_end(place: &StateDirectory, exec: &str) -> bool {
    let end = format!("{exec}.end");
    journals(place).keys().any(|name| name.ends_with(&end))
}

pub(crate) async fn a_volume_outlives_killed_servers(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    server.client.post("volumes", &json!({ "name": "data" })).await?.good()?;
    let mounts = json!({ "volumes": [{ "name": "data", "path": "/mnt/data" }] });
    server.client.post("sessions/a", &mounts).await?.good()?;
    server.client.exec("a", "echo before > /mnt/data/f").await?;
    server.kill().await?;
    let server = place.start().await?;
    let client = &server.client;
    ensure!(client.said("a", "cat /mnt/data/f; echo after > /mnt/data/f").await? == "before");
    ensure!(client.post("sessions/a", &mounts).await?.good()?["volumes"][0]["name"] == "data", "the same volumes");
    let refused = client.send(Method::DELETE, "volumes/data", None).await?;
    ensure!(refused.status == StatusCode::CONFLICT && refused.body.to_string().contains("session a"), "{refused:?}");
    client.post("sessions/b", &mounts).await?.good()?;
    ensure!(client.said("b", "cat /mnt/data/f").await? == "after");
    for session in ["a", "b"] {
        client.send(Method::DELETE, &format!("sessions/{session}"), None).await?.good()?;
    }
    server.kill().await?;
    let server = place.start().await?;
    server.client.send(Method::DELETE, "volumes/data", None).await?.good()?;
    ensure!(std::fs::read_dir(place.state().join("e2b/volumes"))?.next().is_none(), "its directory is left");
    server.kill().await
}

async fn process_said(client: &Client, session: &str, process: &str, text: &str) -> Result<()> {
    let target = format!("processes/{process}");
    until(&format!("{text:?} of {process}"), || async {
        Ok(String::from_utf8_lossy(&client.output(session, &target).await?).contains(text))
    })
    .await
}

/// Same boxes, same files, same processes by the pids of both sides, and their output from the time without a server.
pub(crate) async fn boxes_and_processes_go_on(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    let (client, marker) = (server.client.clone(), marked_sleep());
    for session in ["one", "two"] {
        client.exec(session, &format!("echo {session} > /workspace/name")).await?;
    }
    client.start_process("one", "ticker", "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.1; done").await?;
    let line = format!("echo ready; {marker} & wait");
    client.start_process("two", "sleeper", &line).await?;
    process_said(&client, "two", "sleeper", "ready").await?;
    until("the sleeper", || async { Ok(pid_on_host(&marker).is_ok()) }).await?;
    let before = look(&client, &marker).await?;
    let ticks_before = String::from_utf8(client.output("one", "processes/ticker").await?)?.lines().count();
    server.kill().await?;
    let written = || journals(&place).values().sum::<u64>();
    let (written_before, late) = (written(), format!("tick {}\n", ticks_before + 3));
    // At least four ticks, each of less than ten bytes.
    until("ticks without a server", || async { Ok(written() > written_before + 40) }).await?;
    ensure!(pid_on_host(&marker)? == before.2, "the sleeper did not outlive the server");
    let server = place.start().await?;
    let client = server.client.clone();
    let after = look(&client, &marker).await?;
    ensure!(before == after, "before {before:?}, after {after:?}");
    for session in ["one", "two"] {
        ensure!(client.said(session, "cat /workspace/name").await? == session, "{session} has other files");
    }
    let output = String::from_utf8(client.output("one", "processes/ticker").await?)?;
    ensure!(output.contains(&late), "{late:?} is missing, which was said without a server: {output:?}");
    let in_order = output.lines().zip(1..).all(|(line, number)| line == format!("tick {number}"));
    ensure!(in_order, "ticks are missing or came twice: {output:?}");
    server.kill().await
}

/// What must not change: ids of the boxes, pids inside, the pid outside.
async fn look(client: &Client, marker: &str) -> Result<(Vec<Value>, Vec<Value>, i32)> {
    let mut ids = Vec::new();
    for session in ["one", "two"] {
        let info = client.session(session).await?;
        ensure!(info["state"] == "running", "{session} is {info}");
        ids.push(info["backend_session_id"].clone());
        ids.push(info["created_at"].clone());
    }
    let mut pids = Vec::new();
    for (session, process) in [("one", "ticker"), ("two", "sleeper")] {
        let info = client.process(session, process).await?;
        ensure!(info["status"] == "running" && info["restarts"] == 0 && info["pid"].is_u64(), "{process} is {info}");
        pids.push(info["pid"].clone());
        pids.push(info["started_at"].clone());
    }
    Ok((ids, pids, pid_on_host(marker)?))
}

/// A client that lost its stream attaches again behind the last event that it saw.
pub(crate) async fn a_follower_sees_every_byte_once(place: Arc<StateDirectory>) -> Result<()> {
    const LINES: u32 = 3000;
    let mut server = place.start().await?;
    let line =
        format!("for i in $(seq {LINES}); do echo line $i; echo error $i >&2; [ $((i%20)) = 0 ] && sleep 0.02; done");
    let exec = server.client.begin("a", &json!({ "cmd": line, "timeout_sec": 60 })).await?;
    let (mut stdout, mut stderr, mut cursor, mut kills) = (String::new(), String::new(), "0.0.0".to_owned(), 0);
    loop {
        let mut events = server.client.follow("a", &format!("execs/{exec}"), &cursor).await?;
        let mut ended = false;
        let mut seen = 0;
        while let Some(event) = events.next().await? {
            cursor = event.id;
            ended = event.name == "ended";
            ensure!(matches!(event.name.as_str(), "output" | "ended"), "{} {}", event.name, event.data);
            let text = event.data["text"].as_str().unwrap_or_default();
            match event.data["stream"].as_str() {
                Some("stdout") => stdout.push_str(text),
                Some("stderr") => stderr.push_str(text),
                _ => {}
            }
            seen += 1;
            if seen > 20 && kills < 3 {
                kills += 1;
                server.kill().await?;
                server = place.start().await?;
                break;
            }
        }
        if ended {
            break;
        }
    }
    ensure!(kills == 3, "it ended before the server was killed three times: {kills}");
    let expected =
        |word: &str| (1..=LINES).map(|number| format!("{word} {number}")).collect::<Vec<_>>().join("\n") + "\n";
    ensure!(stdout == expected("line"), "standard output is not whole: {} bytes", stdout.len());
    ensure!(stderr == expected("error"), "standard error is not whole: {} bytes", stderr.len());
    server.kill().await
}

/// What ended while there was no server has its result: a good end, a bad one, and a deadline.
pub(crate) async fn ends_that_nobody_heard_are_told(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    let client = server.client.clone();
    let go = "while [ ! -e /workspace/go ]; do sleep 0.02; done; echo at last";
    let living = client.begin("a", &json!({ "cmd": go })).await?;
    let good = client.begin("a", &json!({ "cmd": "echo begun; sleep 2; echo done" })).await?;
    let bad = client.begin("a", &json!({ "cmd": "sleep 2; echo oh >&2; exit 7" })).await?;
    let late = client.begin("a", &json!({ "cmd": "echo waits; sleep 1000", "timeout_sec": 2 })).await?;
    server.kill().await?;
    for exec in [&good, &bad, &late] {
        until("an end", || async { Ok(has_end(&place, exec)) }).await?;
    }
    let server = place.start().await?;
    let client = server.client.clone();
    client.exec("a", "touch /workspace/go").await?;
    let told = client.result("a", &good).await?;
    ensure!(told["status"] == "completed" && told["exit_code"] == 0 && told["stdout"] == "begun\ndone\n", "{told}");
    let told = client.result("a", &bad).await?;
    ensure!(told["exit_code"] == 7 && told["stderr"] == "oh\n" && told["receipt"].is_object(), "{told}");
    let told = client.result("a", &late).await?;
    ensure!(told["status"] == "timed_out" && told["exit_code"].is_null() && told["stdout"] == "waits\n", "{told}");
    let told = client.result("a", &living).await?;
    ensure!(told["exit_code"] == 0 && told["stdout"] == "at last\n", "{told}");
    server.kill().await
}

/// Nothing in a paused box moves while the server is dead, nor after, until a client resumes it.
pub(crate) async fn a_paused_session_stays_paused(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    let client = server.client.clone();
    for session in ["a", "running"] {
        client.start_process(session, "ticker", "while :; do echo tick; sleep 0.02; done").await?;
        process_said(&client, session, "ticker", "tick").await?;
    }
    if client.pause("a").await?.is_none() {
        return skip("boxes cannot be stopped where an ordinary user has no cgroup");
    }
    let before = silence(&client).await?;
    server.kill().await?;
    let server = place.start().await?;
    let client = server.client.clone();
    ensure!(client.session("a").await?["state"] == "paused", "it is {}", client.session("a").await?);
    let paused = silence(&client).await?;
    ensure!(paused == before, "a paused box went on: {before} bytes, then {paused}");
    client.post("sessions/a/resume", &json!({})).await?.good()?;
    until("more ticks", || async { Ok(ticked(&client, "a").await? > paused + 50) }).await?;
    server.kill().await
}

async fn ticked(client: &Client, session: &str) -> Result<usize> {
    Ok(client.output(session, "processes/ticker").await?.len())
}

/// How much the ticker of the paused session has said, when no more comes while the other one says much. What was in the
/// pipe when it was stopped may still come at first.
async fn silence(client: &Client) -> Result<usize> {
    eventually("silence of the paused session", || async {
        let (paused, running) = (ticked(client, "a").await?, ticked(client, "running").await?);
        until("ticks of the other", || async { Ok(ticked(client, "running").await? > running + 60) }).await?;
        Ok((ticked(client, "a").await? == paused).then_some(paused))
    })
    .await
}

/// Who may come in, and how long a session may be idle.
pub(crate) async fn tokens_and_idle_times_are_kept(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    server.client.exec("a", "true").await?;
    let patched = server.client.send(Method::PATCH, "sessions/a", Some(&json!({ "ttl_sec": 77 }))).await?.good()?;
    ensure!(patched["ttl_sec"] == 77, "{patched}");
    let made = place.command("token create").args(["--name", "test"]).output().await?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let token = String::from_utf8(made.stdout)?.trim().to_owned();
    server.kill().await?;
    let server = place.start().await?;
    let refused = server.client.get("sessions/a").await?;
    ensure!(refused.status == StatusCode::UNAUTHORIZED, "without a token: {refused:?}");
    let info = server.client.with_token(&token).session("a").await?;
    ensure!(info["ttl_sec"] == 77 && info["state"] == "running", "{info}");
    server.kill().await
}

/// A process that is to be started again is, also when it ended while there was no server.
pub(crate) async fn a_process_is_still_supervised(place: Arc<StateDirectory>) -> Result<()> {
    let server = place.start().await?;
    // The first run ends, the second one stays.
    let line = "[ -e /workspace/again ] && exec sleep 1000; touch /workspace/again; sleep 1";
    let body = json!({ "process_id": "p", "command": "sh", "args": ["-c", line], "restart": "always" });
    server.client.post("sessions/a/processes", &body).await?.good()?;
    server.kill().await?;
    until("the end of the first run", || async { Ok(has_end(&place, "")) }).await?;
    let server = place.start().await?;
    let client = server.client.clone();
    until("a restart", || async {
        let info = client.process("a", "p").await?;
        Ok(info["restarts"].as_u64() > Some(0) && info["status"] == "running")
    })
    .await?;
    server.kill().await
}
