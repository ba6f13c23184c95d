//! How commands start and end: codes, signals, refusals.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use box_core::{Dimension, Profile};
use box_tests::ground::{request, shell};
use box_tests::{Difference, Ground};
use box_wire::{Exit, Program, RefusalCode};

use crate::limits::needs_hard;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        second_exec_reuses_the_box,
        exit_codes_come_through,
        a_signal_is_not_a_code,
        out_of_memory_is_told_apart,
        a_shell_line_and_an_argument_list_differ,
        a_missing_program_is_not_found,
        a_file_without_execute_permission_is_not_executable,
        kill_ends_the_tree_of_one_exec_only,
        a_signal_reaches_the_main_process,
        an_exec_id_is_used_once_at_a_time,
        usage_is_reported,
    ]
}

async fn second_exec_reuses_the_box(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("echo kept > /workspace/note; hostname > /tmp/name").await?;
    ensure!(one.check("cat /workspace/note").await? == "kept");
    let other = ground.plain().await?;
    ensure!(!other.shell("cat /workspace/note").await?.succeeded(), "another box sees the file");
    Ok(())
}

async fn exit_codes_come_through(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    for code in [0, 1, 7, 124, 137, 255] {
        let output = one.shell(&format!("exit {code}")).await?;
        ensure!(output.outcome.exit == Exit::Code(code), "{code}: {:?}", output.outcome);
        ensure!(!output.outcome.timed_out && !output.outcome.oom_killed, "{:?}", output.outcome);
    }
    Ok(())
}

async fn a_signal_is_not_a_code(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11)] {
        let output = one.shell(&format!("kill -{name} $$")).await?;
        ensure!(output.outcome.exit == Exit::Signal(number), "{name}: {:?}", output.outcome);
        ensure!(!output.outcome.oom_killed && !output.outcome.timed_out, "{:?}", output.outcome);
    }
    Ok(())
}

async fn out_of_memory_is_told_apart(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::SizeOfProvider)?;
    let mut spec = Profile::default().spec();
    spec.memory_mb = 64;
    let one = ground.make(&spec).await?;
    needs_hard(&one, Dimension::Memory)?;
    // `tail` keeps the last line, and this line never ends.
    let output = one.argv(&["tail", "/dev/zero"]).await?;
    ensure!(output.outcome.exit == Exit::Signal(9) && output.outcome.oom_killed, "{:?}", output.outcome);
    let plain = one.shell("kill -9 $$").await?;
    ensure!(!plain.outcome.oom_killed, "a later kill is blamed on memory: {:?}", plain.outcome);
    Ok(())
}

async fn a_shell_line_and_an_argument_list_differ(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    ensure!(one.shell("echo $((1 + 1)); echo a | tr a b").await?.text() == "2\nb");
    let literal = one.argv(&["echo", "$HOME", "a;b", "*", ""]).await?;
    ensure!(literal.stdout == b"$HOME a;b * \n", "{:?}", literal.text());
    Ok(())
}

async fn a_missing_program_is_not_found(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    for program in ["no-such-program", "/usr/bin/no-such-program", "/nowhere/at/all"] {
        refused(&one.argv(&[program]).await, RefusalCode::NotFound)?;
    }
    one.check("true").await.map(drop)
}

async fn a_file_without_execute_permission_is_not_executable(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("echo text > /workspace/plain; mkdir /workspace/directory").await?;
    for program in ["/workspace/plain", "/workspace/directory"] {
        refused(&one.argv(&[program]).await, RefusalCode::NotExecutable)?;
    }
    Ok(())
}

async fn kill_ends_the_tree_of_one_exec_only(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let first = shell("setsid sh -c 'echo > /tmp/first; sleep 71.5' & sleep 71.5");
    let second = shell("echo > /tmp/second; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo survived");
    let (victim, bystander) = (one.clone(), one.clone());
    let id = first.id.clone();
    let killed = tokio::spawn(async move { victim.run(&first).await });
    let other = tokio::spawn(async move { bystander.run(&second).await });
    one.wait_for_file("/tmp/first").await?;
    one.wait_for_file("/tmp/second").await?;
    one.kill(&id).await?;
    let outcome = killed.await??.outcome;
    ensure!(outcome.exit == Exit::Signal(9) && outcome.tree_gone && !outcome.timed_out, "{outcome:?}");
    ensure!(one.shell("grep -l '[7]1.5' /proc/[0-9]*/cmdline").await?.text().is_empty(), "the tree lives on");
    one.check("touch /tmp/go").await?;
    ensure!(other.await??.text() == "survived", "the other exec was killed too");
    refused(&one.kill(&id).await, RefusalCode::BadExecId)
}

async fn a_signal_reaches_the_main_process(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let request = shell("trap 'exit 42' TERM; echo > /tmp/ready; while :; do sleep 0.05; done");
    let (runner, id) = (one.clone(), request.id.clone());
    let task = tokio::spawn(async move { runner.run(&request).await });
    one.wait_for_file("/tmp/ready").await?;
    one.signal(&id, 15).await?;
    let outcome = task.await??.outcome;
    ensure!(outcome.exit == Exit::Code(42), "{outcome:?}");
    Ok(())
}

async fn an_exec_id_is_used_once_at_a_time(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let mut first = request(Program::Shell("while [ ! -e /tmp/go ]; do sleep 0.02; done".to_owned()));
    first.id = "same".parse()?;
    let (runner, copy) = (one.clone(), first.clone());
    let task = tokio::spawn(async move { runner.run(&copy).await });
    one.wait_until_running(&first.id).await?;
    refused(&one.run(&first).await, RefusalCode::BadExecId)?;
    one.check("touch /tmp/go").await?;
    ensure!(task.await??.succeeded());
    ensure!(one.run(&first).await?.succeeded(), "the id is free again when its exec has ended");
    Ok(())
}

async fn usage_is_reported(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let usage = one.shell("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done").await?.outcome.usage;
    ensure!(usage.wall_us > 1000 && usage.cpu_user_us > 1000 && usage.memory_peak_bytes > 100_000, "{usage:?}");
    Ok(())
}

/// Holds that a request was refused for the expected reason, with words.
fn refused<T>(result: &box_core::Result<T>, code: RefusalCode) -> Result<()> {
    match result {
        Err(box_core::Error::Refused(refusal)) if refusal.code == code => {
            ensure!(!refusal.message.is_empty(), "the refusal says nothing");
            Ok(())
        }
        Err(other) => bail!("expected {code:?}, got {other:?}"),
        Ok(_) => bail!("expected {code:?}, but it was carried out"),
    }
}
