//! The server is killed again and again at random moments under load.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use box_tests::restart_server::{Client, StateDirectory, boxes_on_file, on_place};
use box_tests::{Case, eventually};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::random::Random;

/// Deaths, unless the variable says another number. A full run has 200.
const ROUNDS: u64 = 40;
const ROUNDS_VARIABLE: &str = "STRONGBOX_TEST_KILLS";

/// Who asks at the same time.
const CALLERS: u64 = 4;

/// Answers that every other round waits for. If callers got nothing done, nothing would be held.
const ANSWERS_MIN: u64 = 8;

/// The whole case.
pub(crate) fn case() -> Case {
    Case::new("killed_at_any_moment_under_load", || on_place(killed_again_and_again)).within(Duration::from_mins(18))
}

/// What was acknowledged of one session.
#[derive(Debug, Clone, Default)]
struct Known {
    box_id: Value,
    /// Finished commands and the digest of what each said.
    execs: Vec<(String, Vec<u8>)>,
    /// A delete was requested and not answered.
    doubtful: bool,
}

type Ledger = Arc<Mutex<BTreeMap<String, Known>>>;

async fn killed_again_and_again(place: Arc<StateDirectory>) -> Result<()> {
    let rounds = std::env::var(ROUNDS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let ledger = Ledger::default();
    for round in 0..rounds {
        let server = place.start().await.with_context(|| format!("the start of round {round}"))?;
        hold(&place, &server.client, &ledger).await.with_context(|| format!("before round {round}"))?;
        let answered = Arc::new(AtomicU64::new(0));
        let callers = (0..CALLERS).map(|caller| {
            let (client, ledger, answered) = (server.client.clone(), Arc::clone(&ledger), Arc::clone(&answered));
            tokio::spawn(async move { call(&client, &ledger, caller, round, &answered).await })
        });
        let callers: Vec<_> = callers.collect();
        let waited = match round % 2 {
            0 => {
                eventually("answers", || async { Ok((answered.load(Ordering::Relaxed) >= ANSWERS_MIN).then_some(())) })
                    .await
            }
            _ => Ok(()),
        };
        // Never the same moment.
        tokio::time::sleep(Duration::from_millis(20 + Random::new(round + 1).below(250))).await;
        server.kill().await?;
        for caller in callers {
            caller.await?.with_context(|| format!("in round {round}"))?;
        }
        waited.with_context(|| format!("in round {round}"))?;
    }
    let server = place.start().await?;
    hold(&place, &server.client, &ledger).await.context("after the last round")?;
    server.kill().await
}

fn with<T>(ledger: &Ledger, change: impl FnOnce(&mut BTreeMap<String, Known>) -> T) -> T {
    change(&mut ledger.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Asks until the server dies, and counts the answers. One that is not the expected one is an error; none is the end.
async fn call(client: &Client, ledger: &Ledger, caller: u64, round: u64, answered: &AtomicU64) -> Result<()> {
    let mut random = Random::new(1 + caller + round * CALLERS);
    let mut number = 0;
    loop {
        let session = format!("s{caller}-{}", random.below(3));
        let answer = match random.below(6) {
            0 => delete(client, ledger, &session).await?,
            1 => create(client, ledger, &session).await?,
            _ => exec(client, ledger, &session, random.below(20_000), number).await?,
        };
        if answer.is_none() {
            return Ok(());
        }
        number += 1;
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

async fn create(client: &Client, ledger: &Ledger, session: &str) -> Result<Option<()>> {
    let Ok(answer) = client.post(&format!("sessions/{session}"), &json!({})).await else { return Ok(None) };
    let info = answer.good()?;
    with(ledger, |known| known.entry(session.to_owned()).or_default().box_id = info["backend_session_id"].clone());
    Ok(Some(()))
}

async fn delete(client: &Client, ledger: &Ledger, session: &str) -> Result<Option<()>> {
    let known = with(ledger, |known| known.get_mut(session).map(|known| known.doubtful = true).is_some());
    let Ok(answer) = client.send(Method::DELETE, &format!("sessions/{session}"), None).await else { return Ok(None) };
    ensure!(answer.status.is_success() || (!known && answer.status == StatusCode::NOT_FOUND), "{answer:?}");
    with(ledger, |known| known.remove(session));
    Ok(Some(()))
}

async fn exec(client: &Client, ledger: &Ledger, session: &str, bytes: u64, number: u64) -> Result<Option<()>> {
    let line = format!("yes 'line {number} of {session}' | head -c {bytes}");
    let path = format!("sessions/{session}/exec");
    let Ok(answer) = client.post(&path, &json!({ "cmd": line })).await else { return Ok(None) };
    let result = answer.good()?;
    ensure!(result["status"] == "completed" && result["stdout_bytes"] == bytes, "{result}");
    let expected: Vec<u8> =
        format!("line {number} of {session}\n").bytes().cycle().take(usize::try_from(bytes)?).collect();
    let id = result["exec_id"].as_str().unwrap_or_default().to_owned();
    with(ledger, |known| known.entry(session.to_owned()).or_default().execs.push((id, digest(&expected))));
    Ok(Some(()))
}

fn digest(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

/// Every acknowledged session is there and whole, every acknowledged command with every byte, and no box is there for nothing.
async fn hold(place: &StateDirectory, client: &Client, ledger: &Ledger) -> Result<()> {
    for (session, known) in with(ledger, |known| known.clone()) {
        let found = client.get(&format!("sessions/{session}")).await?;
        if found.status == StatusCode::NOT_FOUND && known.doubtful {
            with(ledger, |known| known.remove(&session));
            continue;
        }
        let info = found.good().with_context(|| format!("{session} was acknowledged"))?;
        ensure!(info["state"] == "running", "{session} was acknowledged: {info}");
        ensure!(known.box_id.is_null() || known.box_id == info["backend_session_id"], "{session} has another box");
        for (exec, expected) in &known.execs {
            let output = client.output(&session, &format!("execs/{exec}")).await;
            let output = output.with_context(|| format!("output of {exec} in {session}"))?;
            ensure!(digest(&output) == *expected, "{exec} in {session} said something else: {} bytes", output.len());
        }
        with(ledger, |ledger| {
            ledger.entry(session).and_modify(|known| known.doubtful = false);
        });
    }
    let listed = client.get("sessions").await?.good()?;
    let sessions = listed.as_array().map_or(0, Vec::len);
    let boxes = boxes_on_file(&place.state());
    ensure!(boxes.len() == sessions, "{sessions} sessions and {} boxes", boxes.len());
    Ok(())
}
