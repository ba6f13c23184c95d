//! Deadlines end whole trees; what was put in the background lives as long as its box.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use box_tests::ground::{shell, unique};
use box_tests::{Ground, host};
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
fn count_inside(marker: &str) -> String {
    let (head, tail) = marker.split_at(1);
    format!("grep -l '[{head}]{tail}' /proc/[0-9]*/cmdline 2>/dev/null | wc -l")
}

async fn a_deadline_ends_descendants_that_hide(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let marker = format!("9{:05}.25", unique());
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
    request.timeout_ms = Some(300);
    let output = one.run(&request).await?;
    ensure!(output.outcome.timed_out && output.text() == "started", "{output:?}");
    let quick = one.shell("echo again").await?;
    ensure!(quick.text() == "again" && !quick.outcome.timed_out, "{quick:?}");
    Ok(())
}

async fn a_dropped_exec_is_killed(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let marker = format!("8{:05}.5", unique());
    let request = shell(&format!("setsid sleep {marker} & sleep {marker}"));
    let dropped = tokio::time::timeout(Duration::from_millis(700), one.run(&request)).await;
    ensure!(dropped.is_err(), "it ended by itself: {dropped:?}");
    for _ in 0..50 {
        if one.check(&count_inside(&marker)).await? == "0" {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("closing the stream did not kill the command")
}

async fn background_children_survive_the_exec_and_die_with_the_box(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let marker = format!("7{:05}.75", unique());
    one.check(&format!("(setsid sleep {marker} > /dev/null 2>&1 < /dev/null &)")).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    ensure!(one.check(&count_inside(&marker)).await? == "1", "it did not survive its exec");
    one.destroy().await?;
    ensure!(host::processes_with(&marker).is_empty(), "it survived its box");
    Ok(())
}
