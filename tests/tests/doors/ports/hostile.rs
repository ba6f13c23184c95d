//! Services that answer with whatever hurts.

use anyhow::{Result, ensure};

use super::{BASE, serve};
use crate::{Door, DoorCase, cases, eventually};

pub(super) fn cases() -> Vec<DoorCase> {
    cases![answers_that_are_none_are_the_fault_of_the_service, services_that_say_nothing_hold_up_nobody]
}

/// How much the server may grow over it.
const GROWTH_KB_MAX: u64 = 32 << 10;

async fn answers_that_are_none_are_the_fault_of_the_service(door: &mut Door) -> Result<()> {
    let client = &door.client;
    serve(client).await?;
    let before = door.server.resident_kb()?;
    for port in [8101, 8102, 8103, 8104, 8105] {
        let error = client.get(&format!("{BASE}/{port}/")).await?.refused(502, "bad_answer")?;
        ensure!(error["message"].as_str().is_some_and(|text| text.contains(&port.to_string())), "{error}");
    }
    for port in [8106, 8108] {
        let broken = client.get(&format!("{BASE}/{port}/")).await;
        ensure!(!broken.as_ref().is_ok_and(|answer| answer.status == 200), "{port} ended well: {broken:?}");
    }
    ensure!(client.get(&format!("{BASE}/8000/x")).await?.status == 200, "the good one is still served");
    let grown = door.server.resident_kb()?.saturating_sub(before);
    ensure!(grown < GROWTH_KB_MAX, "the server grew by {grown} kB");
    Ok(())
}

async fn services_that_say_nothing_hold_up_nobody(door: &mut Door) -> Result<()> {
    let client = &door.client;
    serve(client).await?;
    let silent: Vec<_> = (0..30)
        .map(|_| {
            let request = client.request("GET", &format!("{BASE}/8107/"));
            tokio::spawn(async move { drop(request.send().await) })
        })
        .collect();
    eventually("the last of the silent ones", || async {
        let told = client.get(&format!("{BASE}/8000/x")).await?.must(200)?;
        Ok((told["silent"] == silent.len()).then_some(()))
    })
    .await?;
    for _ in 0..5 {
        ensure!(client.get(&format!("{BASE}/8000/x")).await?.status == 200);
    }
    // Those who wait leave; the server, which ends after this, is not kept by them.
    for waiting in silent {
        waiting.abort();
    }
    Ok(())
}
