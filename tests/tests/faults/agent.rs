//! The agent of a box dies by a hand from outside.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use box_core::Liveness;
use box_tests::{Ground, host, system};

fn agents() -> BTreeSet<i32> {
    let agents = host::processes().into_iter().filter(|process| process.name.starts_with("strongbox-agent"));
    agents.map(|process| process.pid).collect()
}

/// The box is reported as gone, to a running exec and to later callers, and what it was made of is removed.
pub(crate) async fn killed_from_outside() -> Result<()> {
    let ground = Ground::native().await?;
    let (leaks, before) = (ground.leaks(), agents());
    let one = ground.plain().await?;
    let runner = one.clone();
    let running = tokio::spawn(async move { runner.shell("sleep 25").await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let ours: Vec<i32> = agents().difference(&before).copied().collect();
    ensure!(!ours.is_empty(), "no process of the host is called strongbox-agent");
    for pid in ours {
        // One of them may be the parent of another, which is then gone already.
        let _ = system::kill(pid);
    }
    let error = running.await?.err().context("an exec without an agent ended well")?;
    ensure!(error.code() == "box_gone", "a running exec is told {error:?}");
    let error = one.shell("true").await.err().context("a box without an agent runs commands")?;
    ensure!(error.code() == "box_gone", "a later caller is told {error:?}");
    ensure!(matches!(one.backend.adopt(&one.handle).await?, Liveness::Lost(reason) if !reason.is_empty()));
    one.destroy().await?;
    ground.settled(&leaks).await
}
