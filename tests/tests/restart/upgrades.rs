//! A server of an earlier release is killed, and the program under test takes over what it left.
//!
//! The earlier servers are builds that were kept: `tests/older/README.md` says how they are made.

use std::fs;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use box_core::Store as _;
use box_store::SqliteStore;
use box_tests::restart_server::{Client, StateDirectory};
use box_tests::server;
use box_wire::version::Hello;
use hyper::{Method, StatusCode};
use rustix::fs::MemfdFlags;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::adoption::until;
use crate::losses::{is_lost, record_agent};

/// A server of each release.
const RELEASES: [(&str, &[u8]); 1] = [("1", include_bytes!("../../older/fixtures/1.zst"))];

/// How long an earlier server may take to leave its work. A guard against hanging.
const LIMIT: Duration = Duration::from_mins(1);

/// Lines that the running command prints to each stream, and its exit code.
const LINES: u32 = 100;
const EXIT: i32 = 4;

/// Files that are written into the older box one by one.
const FILES: u32 = 20;

/// What an earlier server left.
#[derive(Debug, Deserialize)]
struct Left {
    agent: Hello,
    session: String,
    finished: String,
    running: String,
    process: String,
    process_pid: u32,
}

/// Boxes of each release go on under this server, or are lost because their agent is too old.
pub(crate) async fn boxes_of_earlier_releases_go_on(place: Arc<StateDirectory>) -> Result<()> {
    for (release, program) in RELEASES {
        upgrade(&place, program, None).await.with_context(|| format!("release {release}"))?;
    }
    let (_, program) = RELEASES[0];
    upgrade(&place, program, Some(Hello::default())).await.context("an agent from before all versions")
}

/// `recorded` is what the store says of the agent instead of what the earlier server recorded.
async fn upgrade(place: &StateDirectory, program: &[u8], recorded: Option<Hello>) -> Result<()> {
    let (mut older, mut left) = start_older(place, program).await?;
    older.start_kill()?;
    older.wait().await?;
    if let Some(agent) = recorded {
        record_agent(place, &left.session, agent.clone()).await?;
        left.agent = agent;
    }
    let server = place.start().await?;
    if left.agent.check().is_err() {
        too_old(&server.client, &left).await?;
        return server.kill().await;
    }
    work_goes_on(&server.client, &left).await.context("the first server")?;
    server.kill().await?;
    let server = place.start().await?;
    process_goes_on(&server.client, &left).await.context("the second server")?;
    results_are_complete(&server.client, &left).await.context("the second server")?;
    server.client.delete(&left.session).await?;
    server.kill().await
}

/// Starts an earlier server on a new store of the same instance, and waits until it has left its work.
async fn start_older(place: &StateDirectory, program: &[u8]) -> Result<(Child, Left)> {
    let store = place.state().join("strongbox.db");
    let instance = SqliteStore::open(&store)?.instance_id().await?;
    for suffix in ["", "-wal", "-shm"] {
        match fs::remove_file(format!("{}{suffix}", store.display())) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    // In memory: a file that was just written can be busy while other cases start their programs.
    let memory = rustix::fs::memfd_create("older-server", MemfdFlags::CLOEXEC)?;
    let mut unpacked = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(program)?.read_to_end(&mut unpacked)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    fs::write(&path, unpacked)?;
    let mut child = Command::from(server::plain_command(Path::new(&path)));
    let log = fs::OpenOptions::new().create(true).append(true).open(place.log())?;
    child.arg(place.state()).arg(instance).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = child.kill_on_drop(true).spawn().context("starting the earlier server")?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let line = tokio::time::timeout(LIMIT, lines.next_line()).await.context("the earlier server does nothing")??;
    let line = line.with_context(|| format!("the earlier server failed: {}", place.log_tail()))?;
    Ok((child, serde_json::from_str(&line)?))
}

/// The session is lost with the reason, nothing is reported of its commands, and its name can be used again.
async fn too_old(client: &Client, left: &Left) -> Result<()> {
    is_lost(client, &left.session).await?;
    let reason = client.session(&left.session).await?["lost_reason"].to_string();
    ensure!(reason.contains("agent too old"), "lost for another reason: {reason}");
    for exec in [&left.finished, &left.running] {
        let told = client.get(&format!("sessions/{}/execs/{exec}/result", left.session)).await?;
        ensure!(told.status.is_client_error(), "a result of a box that cannot be read: {told:?}");
    }
    client.create(&left.session, &json!({})).await?;
    ensure!(client.said(&left.session, "echo new").await? == "new", "no new box took its place");
    client.delete(&left.session).await.map(drop)
}

async fn work_goes_on(client: &Client, left: &Left) -> Result<()> {
    let session = &left.session;
    let info = client.session(session).await?;
    ensure!(info["state"] == "running", "the session is {info}");
    running_is_followed(client, left).await?;
    process_goes_on(client, left).await?;
    results_are_complete(client, left).await?;
    ensure!(client.said(session, "cat /workspace/f").await? == "kept", "the box has other files");
    let input =
        client.post(&format!("sessions/{session}/exec"), &json!({ "cmd": "cat; exit 7", "stdin": "in" })).await?;
    let input = input.good()?;
    ensure!(input["exit_code"] == 7 && input["stdout"] == "in", "a new command: {input}");
    files_are_written(client, session).await?;
    client.exec("newer", "true").await?;
    client.delete("newer").await.map(drop)
}

/// A follower sees every byte of both streams once, from before, without and with this server.
async fn running_is_followed(client: &Client, left: &Left) -> Result<()> {
    let mut events = client.follow(&left.session, &format!("execs/{}", left.running), "0.0.0").await?;
    let (mut stdout, mut stderr, mut has_ended) = (String::new(), String::new(), false);
    while let Some(event) = events.next().await? {
        has_ended = event.name == "ended";
        ensure!(has_ended || event.name == "output", "{} {}", event.name, event.data);
        let text = event.data["text"].as_str().unwrap_or_default();
        match event.data["stream"].as_str() {
            Some("stdout") => stdout.push_str(text),
            Some("stderr") => stderr.push_str(text),
            _ => {}
        }
    }
    ensure!(has_ended && stdout == lines("line") && stderr == lines("error"), "stdout {stdout:?}, stderr {stderr:?}");
    Ok(())
}

fn lines(word: &str) -> String {
    (1..=LINES).map(|number| format!("{word} {number}\n")).collect::<Vec<_>>().concat()
}

async fn results_are_complete(client: &Client, left: &Left) -> Result<()> {
    let finished = client.result(&left.session, &left.finished).await?;
    let said = (&finished["stdout"], &finished["stderr"]);
    ensure!(finished["exit_code"] == 3 && said == (&json!("finished\n"), &json!("wrong\n")), "{finished}");
    let ended = client.result(&left.session, &left.running).await?;
    ensure!(ended["exit_code"] == EXIT && ended["status"] == "completed", "{ended}");
    let output = client.output(&left.session, &format!("execs/{}", left.running)).await?;
    ensure!(output == lines("line").into_bytes(), "output {:?}", String::from_utf8_lossy(&output));
    Ok(())
}

/// The managed process is the same, and what it says is read.
async fn process_goes_on(client: &Client, left: &Left) -> Result<()> {
    let info = client.process(&left.session, &left.process).await?;
    let is_same = info["status"] == "running" && info["restarts"] == 0 && info["pid"] == left.process_pid;
    ensure!(is_same, "the process is {info}");
    let ticks = || async {
        let output = client.output(&left.session, &format!("processes/{}", left.process)).await?;
        Ok::<_, anyhow::Error>(String::from_utf8(output)?)
    };
    let before = ticks().await?.lines().count();
    until("more ticks", || async { Ok(ticks().await?.lines().count() > before + 3) }).await?;
    let ticks = ticks().await?;
    let in_order = ticks.lines().zip(1..).all(|(line, number)| line == format!("tick {number}"));
    ensure!(in_order, "ticks are missing or came twice: {ticks:?}");
    Ok(())
}

async fn files_are_written(client: &Client, session: &str) -> Result<()> {
    for number in 1..=FILES {
        let path = format!("/v1/sessions/{session}/files?path=/workspace/many/{number}");
        let written = client.http().request("PUT", &path).body(format!("file {number}")).send().await?;
        ensure!((200..300).contains(&written.status), "writing a file: {written:?}");
    }
    let all = client.said(session, "cd /workspace/many && cat $(ls | sort -n)").await?;
    let expected = (1..=FILES).map(|number| format!("file {number}")).collect::<Vec<_>>().concat();
    ensure!(all == expected, "the files hold {all:?}");
    let path = format!("sessions/{session}/files?path=/workspace/many/1");
    let gone = client.send(Method::DELETE, &path, None).await?;
    ensure!(gone.status.is_success(), "removing a file: {gone:?}");
    let missing = client.get(&path).await?;
    ensure!(missing.status == StatusCode::NOT_FOUND, "a file that was removed: {missing:?}");
    Ok(())
}
