//! Random lives of sessions, with deaths of the server in between, held against a model in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use box_tests::Case;
use box_tests::restart_server::{Client, Server, StateDirectory, on_place};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::random::Random;

/// Lives that are tried. Each has its number as its seed, which its failure names.
const LIVES: u64 = 30;

/// Steps of one life.
const STEPS: u32 = 20;

/// Ids that steps choose from; few, so that they meet.
const SESSIONS: [&str; 3] = ["a", "b", "c"];
const PROCESSES: [&str; 2] = ["p", "q"];

/// One case for all lives: they share a place, so that what one leaves would trouble the next.
pub(crate) fn cases() -> Vec<Case> {
    let case = Case::new("random_lives_are_as_the_model_says", || on_place(lives));
    vec![case.within(Duration::from_mins(10))]
}

async fn lives(place: Arc<StateDirectory>) -> Result<()> {
    for seed in 0..LIVES {
        let mut life = Life { random: Random::new(seed + 1), model: BTreeMap::new(), told: Vec::new() };
        let lived = life.live(&place).await;
        lived.with_context(|| format!("seed {seed}, after {}", life.told.join(", ")))?;
    }
    Ok(())
}

/// What a session must look like.
#[derive(Debug, Default)]
struct Model {
    box_id: Value,
    paused: bool,
    /// What is in its file.
    written: String,
    /// Pids of its managed processes.
    processes: BTreeMap<&'static str, Value>,
    /// Commands and what each said.
    execs: Vec<(String, String)>,
}

struct Life {
    random: Random,
    model: BTreeMap<&'static str, Model>,
    told: Vec<String>,
}

impl Life {
    async fn live(&mut self, place: &StateDirectory) -> Result<()> {
        let mut server = place.start().await?;
        for step in 0..STEPS {
            server = self.step(place, server, step).await?;
        }
        self.told.push("the last kill".to_owned());
        server.kill().await?;
        let server = place.start().await?;
        self.hold(&server.client).await?;
        for session in std::mem::take(&mut self.model).into_keys() {
            server.client.delete(session).await?;
        }
        server.kill().await
    }

    async fn step(&mut self, place: &StateDirectory, server: Server, number: u32) -> Result<Server> {
        let session = SESSIONS[usize::try_from(self.random.below(3))?];
        let process = PROCESSES[usize::try_from(self.random.below(2))?];
        let client = server.client.clone();
        match self.random.below(14) {
            0..=1 => self.create(&client, session).await?,
            2..=5 => self.exec(&client, session, number).await?,
            6..=7 => self.start(&client, session, process).await?,
            8 => self.stop(&client, session, process).await?,
            9 => self.delete(&client, session).await?,
            10 => self.pause(&client, session).await?,
            11 => self.resume(&client, session).await?,
            _ => {
                self.told.push("kill".to_owned());
                server.kill().await?;
                let server = place.start().await?;
                self.hold(&server.client).await?;
                return Ok(server);
            }
        }
        Ok(server)
    }

    /// The model of a session that a call makes if there is none.
    async fn obtained(&mut self, client: &Client, session: &'static str) -> Result<&mut Model> {
        let info = client.session(session).await?;
        let model = self.model.entry(session).or_default();
        if model.box_id.is_null() {
            model.box_id = info["backend_session_id"].clone();
        }
        Ok(model)
    }

    async fn create(&mut self, client: &Client, session: &'static str) -> Result<()> {
        self.told.push(format!("create {session}"));
        client.create(session, &json!({})).await?;
        self.obtained(client, session).await?;
        Ok(())
    }

    async fn exec(&mut self, client: &Client, session: &'static str, number: u32) -> Result<()> {
        self.told.push(format!("exec {number} in {session}"));
        let line = format!("echo {number} >> /workspace/f; echo said {number}");
        let result = client.exec(session, &line).await?;
        let model = self.obtained(client, session).await?;
        model.paused = false;
        model.written.extend([number.to_string(), "\n".to_owned()]);
        let id = result["exec_id"].as_str().unwrap_or_default().to_owned();
        model.execs.push((id, format!("said {number}\n")));
        Ok(())
    }

    async fn start(&mut self, client: &Client, session: &'static str, process: &'static str) -> Result<()> {
        self.told.push(format!("start {process} in {session}"));
        let body = json!({ "process_id": process, "command": "sleep", "args": ["1000"] });
        let answer = client.post(&format!("sessions/{session}/processes"), &body).await?;
        let model = self.obtained(client, session).await?;
        model.paused = false;
        if model.processes.contains_key(process) {
            ensure!(answer.status == StatusCode::CONFLICT, "a second {process}: {answer:?}");
            return Ok(());
        }
        model.processes.insert(process, answer.good()?["pid"].clone());
        Ok(())
    }

    async fn stop(&mut self, client: &Client, session: &'static str, process: &'static str) -> Result<()> {
        // A stopped process cannot end, so that one would wait for it to be killed; that is another case.
        if self.model.get(session).is_some_and(|model| model.paused) {
            return Ok(());
        }
        self.told.push(format!("stop {process} in {session}"));
        let answer = client.send(Method::DELETE, &format!("sessions/{session}/processes/{process}"), None).await?;
        let removed = self.model.get_mut(session).and_then(|model| model.processes.remove(process));
        let expected = if removed.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        ensure!(answer.status == expected, "stopping {process} in {session}: {answer:?}");
        Ok(())
    }

    async fn delete(&mut self, client: &Client, session: &'static str) -> Result<()> {
        self.told.push(format!("delete {session}"));
        let answer = client.send(Method::DELETE, &format!("sessions/{session}"), None).await?;
        let expected = if self.model.remove(session).is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        ensure!(answer.status == expected, "deleting {session}: {answer:?}");
        Ok(())
    }

    async fn pause(&mut self, client: &Client, session: &'static str) -> Result<()> {
        self.told.push(format!("pause {session}"));
        let Some(model) = self.model.get_mut(session) else {
            ensure!(client.pause(session).await.is_err(), "{session} is not there and was paused");
            return Ok(());
        };
        // Where boxes cannot be stopped, the model does not stop either.
        model.paused = client.pause(session).await?.is_some();
        Ok(())
    }

    async fn resume(&mut self, client: &Client, session: &'static str) -> Result<()> {
        self.told.push(format!("resume {session}"));
        let answer = client.post(&format!("sessions/{session}/resume"), &json!({})).await?;
        ensure!(answer.status.is_success() == self.model.contains_key(session), "resuming {session}: {answer:?}");
        if let Some(model) = self.model.get_mut(session) {
            model.paused = false;
        }
        Ok(())
    }

    /// Holds that what can be seen is what the model says. Nothing is woken by looking.
    async fn hold(&self, client: &Client) -> Result<()> {
        let listed = client.get("sessions").await?.good()?;
        let ids: Vec<_> = listed.as_array().into_iter().flatten().map(|one| &one["session_id"]).collect();
        let expected: Vec<_> = self.model.keys().collect();
        ensure!(json!(ids) == json!(expected), "sessions are {ids:?}, and should be {expected:?}");
        for (session, model) in &self.model {
            hold_session(client, session, model).await.with_context(|| format!("session {session}"))?;
        }
        Ok(())
    }
}

async fn hold_session(client: &Client, session: &str, model: &Model) -> Result<()> {
    let info = client.session(session).await?;
    let state = if model.paused { "paused" } else { "running" };
    ensure!(info["state"] == state && info["backend_session_id"] == model.box_id, "not {state}: {info}");
    let listed = client.get(&format!("sessions/{session}/processes")).await?.good()?;
    let found: BTreeMap<_, _> = listed
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (one["process_id"].as_str().unwrap_or_default(), one["pid"].clone()))
        .collect();
    ensure!(found == model.processes, "processes are {found:?}, and should be {:?}", model.processes);
    for (exec, said) in &model.execs {
        let result = client.result(session, exec).await?;
        ensure!(result["exit_code"] == 0 && result["stdout"] == said.as_str(), "{result}");
    }
    if !model.paused && !model.written.is_empty() {
        let written = client.exec(session, "cat /workspace/f").await?;
        ensure!(written["stdout"] == model.written.as_str(), "its file is {written}");
    }
    Ok(())
}
