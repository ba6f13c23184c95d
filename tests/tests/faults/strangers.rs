//! What the sweep at a start must not touch.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use box_tests::ground::private_directory;
use box_tests::host;

use crate::program::{Program, directories, wait, was_killed};

/// Links to a tree of somebody else lie everywhere in the state directory of a killed run; the tree stays as it is.
pub(crate) async fn links_are_not_followed() -> Result<()> {
    let program = Program::fresh().await?;
    let canary = private_directory()?;
    fs::create_dir_all(canary.path().join("deep/er"))?;
    fs::write(canary.path().join("deep/er/kept"), "kept")?;
    let before = host::tree(canary.path())?;
    let mut child = program.command(&[], &["sleep", "30"]).spawn()?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    child.start_kill()?;
    ensure!(was_killed(wait(&mut child).await?), "it ended before it was killed");
    let mut planted = 0;
    for directory in directories(program.state.path()) {
        // A directory that vanishes in the meantime is a box on its way out.
        planted += u32::from(std::os::unix::fs::symlink(canary.path(), directory.join("stranger")).is_ok());
    }
    ensure!(planted > 0, "no link could be planted");
    program.succeeds().await.context("the next start")?;
    program.succeeds().await.context("the start after it")?;
    ensure!(host::tree(canary.path())? == before, "the sweep followed a link");
    Ok(())
}

/// A run that lives is not taken for one that died.
pub(crate) async fn live_instance_is_not_touched() -> Result<()> {
    let program = Program::fresh().await?;
    let living = program.command(&[], &["sh", "-c", "echo kept > /workspace/f; sleep 4; cat /workspace/f"]).spawn()?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut dying = program.command(&[], &["sleep", "30"]).spawn()?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    dying.start_kill()?;
    wait(&mut dying).await?;
    program.succeeds().await.context("a start next to a living one")?;
    let output = living.wait_with_output().await?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && said.trim() == "kept", "the living run was harmed: {} {errors}", output.status);
    program.next_start_leaves_nothing().await
}
