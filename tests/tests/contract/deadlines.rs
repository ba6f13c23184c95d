//! Deadlines end whole trees; what was put in the background lives as long as its box.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use box_tests::ground::{marker, shell};
use box_tests::{Ground, TestBox, eventually, host};
use box_wire::Exit;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        a_deadline_ends_descendants_that_hide,
        a_deadline_ends_a_stopped_process,
        a_deadline_leaves_the_box_usable,
        a_dropped_exec_is_killed,
        background_children_survive_the_exec_and_die_with_the_box,
    ]
}

/// Descendants that leave the session, lose their parent and ignore every signal that can be ignored.
fn hiding(marker: &str) -> String {
    format!(
        "trap '' TERM HUP INT; setsid sleep {marker} & \
         (setsid sh -c \"trap '' TERM HUP; sleep {marker}\" > /dev/null 2>&1 &) ; \
         sh -c \"(setsid nohup sleep {marker} > /dev/null 2>&1 < /dev/null &)\" ; sleep {marker}"
    )
}

/// How many processes of the box have `marker` in their command line, seen from inside.
pub(crate) fn count_inside(marker: &str) -> String {
    let (head, tail) = marker.split_at(1);
    format!("grep -l '[{head}]{tail}' /proc/[0-9]*/cmdline 2>/dev/null | wc -l")
}

/// Waits until one process of a box has the marker: one that was just forked may not have executed its program yet.
pub(crate) async fn one_inside(one: &TestBox, marker: &str) -> Result<()> {
    eventually("one process with the marker", || async {
        Ok((one.check(&count_inside(marker)).await? == "1").then_some(()))
    })
    .await
}

async fn a_deadline_ends_descendants_that_hide(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let marker = marker();
    let mut request = shell(&hiding(&marker));
    request.timeout_ms = Some(1500);
    let start = Instant::now();
    let outcome = one.run(&request).await?.outcome;
    let took = start.elapsed();
    ensure!(outcome.timed_out, "{outcome:?}");
    ensure!(outcome.tree_gone, "the agent does not know the tree to be gone: {outcome:?}");
    ensure!(matches!(outcome.exit, Exit::Signal(_)), "{outcome:?}");
    ensure!(host::processes_with(&marker).is_empty(), "on the host: {:?}", host::processes_with(&marker));
    ensure!(one.check(&count_inside(&marker)).await? == "0", "seen from inside");
    ensure!(took >= Duration::from_millis(1400), "killed before its deadline, after {took:?}");
    Ok(())
}

async fn a_deadline_ends_a_stopped_process(ground: Arc<Ground>) -> Result<()> {
    let mut request = shell("kill -STOP $$");
    request.timeout_ms = Some(500);
    let outcome = ground.plain().await?.run(&request).await?.outcome;
    ensure!(outcome.timed_out && outcome.tree_gone, "{outcome:?}");
    Ok(())
}

async fn a_deadline_leaves_the_box_usable(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let mut request = shell("echo started; sleep 60");
    request.timeout_ms = Some(2000);
    let output = one.run(&request).await?;
    ensure!(output.outcome.timed_out && output.text() == "started", "{output:?}");
    let quick = one.shell("echo again").await?;
    ensure!(quick.text() == "again" && !quick.outcome.timed_out, "{quick:?}");
    Ok(())
}

async fn a_dropped_exec_is_killed(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let marker = marker();
    let request = shell(&format!("setsid sh -c 'echo > /tmp/ready; sleep {marker}' & sleep {marker}"));
    let runner = one.clone();
    let running = tokio::spawn(async move { runner.run(&request).await });
    one.wait_for_file("/tmp/ready").await?;
    ensure!(!running.is_finished(), "it ended by itself: {:?}", running.await);
    running.abort();
    eventually("the end of a command whose stream is closed", || async {
        Ok((one.check(&count_inside(&marker)).await? == "0").then_some(()))
    })
    .await
}

async fn background_children_survive_the_exec_and_die_with_the_box(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let marker = marker();
    one.check(&format!("(setsid sleep {marker} > /dev/null 2>&1 < /dev/null &)")).await?;
    // The agent completes another exec first, so it has dealt with the end of the one above.
    one.check("true").await?;
    one_inside(&one, &marker).await.context("it did not survive its exec")?;
    one.destroy().await?;
    ensure!(host::processes_with(&marker).is_empty(), "it survived its box");
    Ok(())
}
