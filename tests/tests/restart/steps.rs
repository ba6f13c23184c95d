//! Death at each step of the service and of the backend: what was acknowledged is there, what was not is not there by half.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use box_tests::restart_server::{Answer, Client, Orders, Server, StateDirectory, boxes_on_file, on_place};
use box_tests::suite::skip;
use box_tests::{Case, isolation};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

/// Where the server dies that leaves something for a recovery to do, and to die in.
const BEFORE_RECOVERY: &str = "destroy_intent_written";

/// One case for each step.
pub(crate) fn cases() -> Vec<Case> {
    let steps = box_core::fault::STEPS.iter().chain(box_native::fault::STEPS).copied();
    let case = |step: &'static str| {
        let run = move || on_place(move |place| killed_at(place, step));
        Case::new(format!("killed_at/{step}"), run).within(Duration::from_mins(2))
    };
    steps.map(case).collect()
}

async fn killed_at(place: Arc<StateDirectory>, step: &'static str) -> Result<()> {
    let in_recovery = step.starts_with("recovery_");
    let first = if in_recovery { BEFORE_RECOVERY } else { step };
    let mut story = Story { second: second_session(step), ..Story::default() };
    match place.start_with(&Orders::dying_at(first)).await {
        Ok(server) => {
            story.tell(&server, patience(first)).await?;
            server.kill().await?;
        }
        // It died while it started, before anything could be acknowledged.
        Err(_) => story.died = true,
    }
    if !story.died {
        return match unreachable_here(step) {
            Some(reason) => skip(reason),
            None => bail!("no server reaches the step {step}"),
        };
    }
    if in_recovery {
        let second = place.start_with(&Orders::dying_at(step)).await;
        ensure!(second.is_err(), "no recovery reaches the step {step}");
    }
    let server = place.start().await.context("the next start")?;
    story.hold(&server.client).await?;
    let left: Vec<_> = std::fs::read_dir(place.state().join("e2b/volumes"))?.flatten().collect();
    ensure!(left.is_empty(), "directories of no volume: {left:?}");
    let listed = server.client.get("sessions").await?.good()?;
    let sessions = listed.as_array().map_or(0, Vec::len);
    let boxes = boxes_on_file(&place.state());
    ensure!(boxes.len() == sessions, "{sessions} sessions and the boxes {boxes:?}");
    server.kill().await
}

/// Some steps require a network, or more storage than fits in memory.
fn second_session(step: &str) -> Value {
    if step == "disk_made" && rustix::process::geteuid().is_root() {
        return json!({ "memory_mb": 64, "workspace_quota_mb": 64 });
    }
    let on = step == "network_attached" && rustix::process::geteuid().is_root() && isolation::network_is_isolated();
    if on { json!({ "network": "on" }) } else { json!({}) }
}

/// Why no server may come to a step on this machine.
fn unreachable_here(step: &str) -> Option<&'static str> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    match step {
        "network_attached" => Some("an ordinary user has no network here; `strongbox doctor` says why"),
        "disk_made" => Some("only root can mount a file system image"),
        "range_claimed" => Some("only root has ranges of ids to claim"),
        "session_paused" | "session_pause_written" | "session_resumed" => {
            Some("boxes cannot be stopped where an ordinary user has no cgroup")
        }
        _ => None,
    }
}

/// How long a death may take after the last answer. One that must come has a guard against hanging only.
fn patience(step: &str) -> Duration {
    if unreachable_here(step).is_some() { Duration::from_secs(1) } else { Duration::from_mins(1) }
}

/// What was asked of something, and whether it was acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Ack {
    #[default]
    Never,
    /// The server died before it answered.
    Open,
    Acknowledged,
}

/// A life of two sessions, and how far it came.
#[derive(Debug, Default)]
struct Story {
    /// What the second session is to be like.
    second: Value,
    died: bool,
    created: [Ack; 2],
    deleted: Ack,
    box_id: Option<Value>,
    written: Ack,
    paused: Ack,
    resumed: Ack,
    ttl: Ack,
    process: Ack,
    pid: Option<Value>,
    stopped: Ack,
    volume: Ack,
    volume_deleted: Ack,
    /// Results that were told.
    results: Vec<Value>,
    /// Commands that were begun, with what each will say.
    begun: Vec<(String, &'static str)>,
}

/// Marks what is asked and whether it was answered. Nothing is returned when the server died of it.
async fn ask(mark: &mut Ack, call: impl Future<Output = Result<Answer>>) -> Result<Option<Value>> {
    *mark = Ack::Open;
    let Ok(answer) = call.await else { return Ok(None) };
    let body = answer.good()?;
    *mark = Ack::Acknowledged;
    Ok(Some(body))
}

impl Story {
    async fn tell(&mut self, server: &Server, patience: Duration) -> Result<()> {
        self.live(&server.client).await?;
        // A death that came after the last answer is a death, too.
        let deadline = Instant::now() + patience;
        while !self.died && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.died = server.client.get("status").await.is_err();
        }
        Ok(())
    }

    async fn live(&mut self, client: &Client) -> Result<()> {
        let nothing = json!({});
        let Some(info) = ask(&mut self.created[0], client.post("sessions/a", &nothing)).await? else { return Ok(()) };
        self.box_id = Some(info["backend_session_id"].clone());
        let line = json!({ "cmd": "echo hello > /workspace/f; echo out; echo err >&2" });
        let Some(result) = ask(&mut self.written, client.post("sessions/a/exec", &line)).await? else { return Ok(()) };
        self.results.push(result);
        let mut mark = Ack::Never;
        let Some(info) =
            ask(&mut mark, client.post("sessions/a/exec?wait=false", &json!({ "cmd": "sleep 0.1; echo slow" })))
                .await?
        else {
            return Ok(());
        };
        self.begun.push((text(&info["exec_id"]), "slow\n"));
        let late = json!({ "cmd": "echo late; sleep 30", "timeout_sec": 0.2 });
        let Some(result) = ask(&mut mark, client.post("sessions/a/exec", &late)).await? else { return Ok(()) };
        self.results.push(result);
        let process = json!({ "process_id": "p", "command": "sh", "args": ["-c", "echo up; sleep 1000"] });
        let Some(info) = ask(&mut self.process, client.post("sessions/a/processes", &process)).await? else {
            return Ok(());
        };
        self.pid = Some(info["pid"].clone());
        let ttl = json!({ "ttl_sec": 99 });
        let Some(_) = ask(&mut self.ttl, client.send(Method::PATCH, "sessions/a", Some(&ttl))).await? else {
            return Ok(());
        };
        self.paused = Ack::Open;
        match client.pause("a").await {
            Ok(Some(_)) => self.paused = Ack::Acknowledged,
            // Boxes cannot be stopped here.
            Ok(None) => self.paused = Ack::Never,
            Err(_) => return Ok(()),
        }
        let Some(_) = ask(&mut self.resumed, client.post("sessions/a/resume", &nothing)).await? else { return Ok(()) };
        let long = json!({ "cmd": "sleep 1; echo over" });
        let Some(info) = ask(&mut mark, client.post("sessions/a/exec?wait=false", &long)).await? else { return Ok(()) };
        self.begun.push((text(&info["exec_id"]), "over\n"));
        let Some(_) = ask(&mut self.stopped, client.send(Method::DELETE, "sessions/a/processes/p", None)).await? else {
            return Ok(());
        };
        let Some(_) = ask(&mut self.created[1], client.post("sessions/b", &self.second)).await? else { return Ok(()) };
        let Some(_) = ask(&mut self.deleted, client.send(Method::DELETE, "sessions/b", None)).await? else {
            return Ok(());
        };
        let volume = json!({ "name": "v" });
        let Some(_) = ask(&mut self.volume, client.post("volumes", &volume)).await? else { return Ok(()) };
        ask(&mut self.volume_deleted, client.send(Method::DELETE, "volumes/v", None)).await.map(drop)
    }

    /// Holds what was acknowledged against what the next server says.
    async fn hold(&self, client: &Client) -> Result<()> {
        let first = is_whole(client, "a").await?;
        ensure!(first.is_some() || self.created[0] != Ack::Acknowledged, "an acknowledged session is gone");
        ensure!(first.is_none() || self.created[0] != Ack::Never, "a session that was never requested");
        if let Some(info) = &first {
            self.hold_session(client, info).await?;
        }
        let second = is_whole(client, "b").await?;
        match (self.created[1], self.deleted) {
            (Ack::Acknowledged, Ack::Never) => ensure!(second.is_some(), "an acknowledged session is gone"),
            (_, Ack::Acknowledged) | (Ack::Never, _) => ensure!(second.is_none(), "it was deleted: {second:?}"),
            _ => {}
        }
        self.hold_volume(client).await
    }

    async fn hold_volume(&self, client: &Client) -> Result<()> {
        let is_there = client.get("volumes/v").await?.status == StatusCode::OK;
        match (self.volume, self.volume_deleted) {
            (Ack::Acknowledged, Ack::Never) => ensure!(is_there, "an acknowledged volume is gone"),
            (_, Ack::Acknowledged) | (Ack::Never, _) => ensure!(!is_there, "a volume that was deleted"),
            _ => {}
        }
        if is_there {
            let mounts = json!({ "volumes": [{ "name": "v", "path": "/mnt/v" }] });
            client.post("sessions/v", &mounts).await?.good().context("a volume that is there by half")?;
            client.send(Method::DELETE, "sessions/v", None).await?.good()?;
            client.send(Method::DELETE, "volumes/v", None).await?.good()?;
        }
        Ok(())
    }

    async fn hold_session(&self, client: &Client, info: &Value) -> Result<()> {
        if let Some(id) = &self.box_id {
            ensure!(info["backend_session_id"] == *id, "another box: {info}");
        }
        ensure!(self.ttl != Ack::Acknowledged || info["ttl_sec"] == 99, "another idle time: {info}");
        let still = (self.paused, self.resumed) == (Ack::Acknowledged, Ack::Never);
        ensure!(!still || info["state"] == "paused", "it was paused: {info}");
        ensure!(self.paused != Ack::Never || info["state"] == "running", "it was never paused: {info}");
        if self.written == Ack::Acknowledged {
            ensure!(client.said("a", "cat /workspace/f").await? == "hello", "another file");
        }
        for result in &self.results {
            let again = client.result("a", &text(&result["exec_id"])).await.context("a told result")?;
            for field in ["status", "exit_code", "stdout", "stderr", "stdout_bytes"] {
                ensure!(again[field] == result[field], "told {result}, then {again}");
            }
        }
        for (exec, said) in &self.begun {
            let result = client.result("a", exec).await.context("a begun command")?;
            ensure!(result["exit_code"] == 0 && result["stdout"] == *said, "{result}");
        }
        self.hold_all_ended(client).await?;
        self.hold_process(client).await
    }

    /// A command that was never acknowledged has ended, too, or was never there.
    async fn hold_all_ended(&self, client: &Client) -> Result<()> {
        let listed = client.get("sessions/a/execs").await?.good()?;
        for info in listed.as_array().into_iter().flatten() {
            let id = text(&info["exec_id"]);
            let ended = client.get(&format!("sessions/a/execs/{id}/result?timeout_sec=20")).await?;
            let open = ended.status == StatusCode::ACCEPTED || ended.body["status"] == "running";
            ensure!(!open, "a command runs without a waiting client: {info}");
        }
        Ok(())
    }

    async fn hold_process(&self, client: &Client) -> Result<()> {
        let found = client.get("sessions/a/processes/p").await?;
        let there = found.status == StatusCode::OK;
        match (self.process, self.stopped) {
            (Ack::Acknowledged, Ack::Never) => {
                let same = there && found.body["status"] == "running" && Some(&found.body["pid"]) == self.pid.as_ref();
                ensure!(same, "an acknowledged process, pid {:?}: {found:?}", self.pid);
            }
            (_, Ack::Acknowledged) | (Ack::Never, _) => ensure!(!there, "a process that was stopped: {found:?}"),
            _ => {}
        }
        Ok(())
    }
}

/// The session, if it is there; and then all of it is: its box answers.
async fn is_whole(client: &Client, session: &str) -> Result<Option<Value>> {
    let found = client.get(&format!("sessions/{session}")).await?;
    if found.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let info = found.good()?;
    ensure!(info["state"] == "running" || info["state"] == "paused", "{session} is there by half: {info}");
    client.exec(session, "true").await.with_context(|| format!("in {session}, which is {}", info["state"]))?;
    Ok(Some(info))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
