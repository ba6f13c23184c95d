//! What the sweep at a start must not touch.

use std::fs;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use box_tests::ground::{marker, private_directory};
use box_tests::{eventually, host};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Child;

use crate::program::{Program, directories, wait, was_killed};

/// A run whose command sleeps in its box.
async fn sleeping(program: &Program) -> Result<Child> {
    let marker = marker();
    let child = program.command(&[], &["sleep", &marker]).spawn().context("starting the program")?;
    eventually("the command", || async { Ok(host::sleeper(&marker)) }).await?;
    Ok(child)
}

/// Links to a foreign tree lie everywhere in the state directory of a killed run; the tree stays unchanged.
pub(crate) async fn links_are_not_followed() -> Result<()> {
    let program = Program::fresh().await?;
    let canary = private_directory()?;
    fs::create_dir_all(canary.path().join("deep/er"))?;
    fs::write(canary.path().join("deep/er/kept"), "kept")?;
    let before = host::tree(canary.path())?;
    let mut child = sleeping(&program).await?;
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
    // It lives until its input ends.
    let line = "echo kept > /workspace/f; echo ready; read -r line; cat /workspace/f";
    let mut living = program.command(&[], &["sh", "-c", line]).stdin(Stdio::piped()).spawn()?;
    let mut stdout = BufReader::new(living.stdout.take().context("no output")?);
    let mut said = String::new();
    stdout.read_line(&mut said).await?;
    let mut dying = sleeping(&program).await?;
    dying.start_kill()?;
    wait(&mut dying).await?;
    program.succeeds().await.context("a start next to a living one")?;
    drop(living.stdin.take());
    stdout.read_to_string(&mut said).await?;
    let output = living.wait_with_output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && said == "ready\nkept\n",
        "the living run was harmed: {} {errors}",
        output.status
    );
    program.next_start_leaves_nothing().await
}
