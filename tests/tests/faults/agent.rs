//! The agent of a box dies by a hand from outside.

use anyhow::{Context, Result, ensure};
use box_core::Liveness;
use box_tests::ground::shell;
use box_tests::{Ground, host, system};
use box_wire::ExecRequest;

/// The box is reported as gone, to a running exec and to later callers, and what it was made of is removed.
pub(crate) async fn killed_from_outside() -> Result<()> {
    let ground = Ground::native().await?;
    let leaks = ground.leaks();
    let one = ground.plain().await?;
    let (runner, request) = (one.clone(), ExecRequest { timeout_ms: None, ..shell("sleep 25") });
    let exec = request.id.clone();
    let running = tokio::spawn(async move { runner.run(&request).await });
    one.wait_until_running(&exec).await?;
    // Agents of other suites may come and go at the same time, so the record of the box identifies its agent.
    let agents = host::agents_of(ground.state.path(), one.handle.id.as_str());
    ensure!(!agents.is_empty(), "the box has no agent");
    for pid in agents {
        system::kill(pid)?;
    }
    let error = running.await?.err().context("an exec without an agent ended well")?;
    ensure!(error.code() == "box_gone", "a running exec ended with {error:?}");
    let error = one.shell("true").await.err().context("a box without an agent runs commands")?;
    ensure!(error.code() == "box_gone", "a later caller got {error:?}");
    ensure!(matches!(one.backend.adopt(&one.handle).await?, Liveness::Lost(reason) if !reason.is_empty()));
    one.destroy().await?;
    ground.settled(&leaks).await
}
