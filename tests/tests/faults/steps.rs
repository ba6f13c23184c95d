//! Death at a named step, and death at any moment.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use box_native::fault::VARIABLE;
use box_tests::suite::skip;
use box_tests::{isolation, leaks};

use crate::maker;
use crate::program::{Program, wait, was_killed};

/// Rounds of [`killed_at_any_moment`].
const ROUNDS: u64 = 40;

/// Kills the program at `step` in a run that reaches it, and holds that the next start leaves nothing.
pub(crate) async fn killed_at(step: &'static str) -> Result<()> {
    let program = Program::fresh().await?;
    let mount = program.mount_option("/mnt/data")?;
    let mut ways = vec![
        program.command(&[], &["true"]),
        program.command(&["--mount", &mount], &["true"]),
        program.command(&["--timeout", "1"], &["sleep", "30"]),
        maker::with_storage(program.state.path())?,
    ];
    if isolation::network_is_isolated() {
        ways.push(program.command(&["--network", "on"], &["true"]));
    }
    for mut way in ways {
        let mut child = way.env(VARIABLE, step).spawn().context("starting the program")?;
        if was_killed(wait(&mut child).await?) {
            return program.next_start_leaves_nothing().await;
        }
    }
    match unreachable_here(step) {
        Some(reason) => skip(reason),
        None => bail!("no run reaches the step {step}"),
    }
}

/// Why an ordinary user's boxes never come to some steps. Root's come to all of them.
fn unreachable_here(step: &str) -> Option<&'static str> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    match step {
        "range_claimed" => Some("only root has ranges of ids to claim"),
        "disk_made" => Some("only root can mount a disk"),
        "network_attached" => Some("an ordinary user has no network here; `strongbox doctor` says why"),
        _ => None,
    }
}

/// Kills the program again and again at random moments.
pub(crate) async fn killed_at_any_moment() -> Result<()> {
    let program = Program::fresh().await?;
    for round in 0..ROUNDS {
        let mut child = program.command(&[], &["sleep", "5"]).spawn().context("starting the program")?;
        // Spread over the first 80 ms, where a box is made, in an order that is not a ramp.
        tokio::time::sleep(Duration::from_millis(round * 37 % 80)).await;
        child.start_kill()?;
        wait(&mut child).await?;
        leaks::remember(program.state.path());
        if round % 10 == 9 {
            program.next_start_leaves_nothing().await.with_context(|| format!("after round {round}"))?;
        }
    }
    Ok(())
}
