//! Standard streams, environment and working directory.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use box_tests::Ground;
use box_tests::ground::{marker, request, shell, with_stdin};
use box_wire::{Program, RefusalCode};

use crate::deadlines::one_inside;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        every_byte_passes_unchanged_in_both_directions,
        stdout_and_stderr_stay_apart,
        stdin_ends_where_the_input_ends,
        stdin_is_empty_when_not_streamed,
        unread_stdin_does_not_hold_up_the_command,
        the_environment_is_exactly_what_was_given,
        the_working_directory_is_where_it_was_asked_to_be,
        a_working_directory_that_is_not_there_is_refused,
        a_grandchild_that_keeps_stdout_open_does_not_delay_the_result,
        output_before_the_end_is_complete,
    ]
}

async fn every_byte_passes_unchanged_in_both_directions(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let bytes: Vec<u8> = (0..=255).cycle().take(256 * 4000).collect();
    let cat = with_stdin(request(Program::Argv(vec!["cat".to_owned()])));
    let output = one.run_with(&cat, bytes.as_slice()).await?;
    ensure!(output.stdout == bytes, "{} bytes came back of {}", output.stdout.len(), bytes.len());
    let cat = with_stdin(shell("cat >&2"));
    let output = one.run_with(&cat, bytes.as_slice()).await?;
    ensure!(output.stderr == bytes && output.stdout.is_empty(), "standard error was changed");
    Ok(())
}

async fn stdout_and_stderr_stay_apart(ground: Arc<Ground>) -> Result<()> {
    let output = ground.plain().await?.shell("echo out; echo err >&2; echo out; echo err >&2").await?;
    ensure!(output.stdout == b"out\nout\n" && output.stderr == b"err\nerr\n", "{output:?}");
    Ok(())
}

async fn stdin_ends_where_the_input_ends(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let output = one.run_with(&with_stdin(shell("wc -c; echo after")), b"12345".as_slice()).await?;
    ensure!(output.text() == "5\nafter", "{output:?}");
    let empty = one.run_with(&with_stdin(shell("cat; echo end")), tokio::io::empty()).await?;
    ensure!(empty.text() == "end");
    Ok(())
}

async fn stdin_is_empty_when_not_streamed(ground: Arc<Ground>) -> Result<()> {
    ensure!(ground.plain().await?.check("cat | wc -c").await? == "0");
    Ok(())
}

async fn unread_stdin_does_not_hold_up_the_command(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let endless = tokio::io::repeat(b'x');
    let output = one.run_with(&with_stdin(shell("head -c 3; exec 0<&-; exit 5")), endless).await?;
    ensure!(output.text() == "xxx" && output.outcome.exit == box_wire::Exit::Code(5), "{:?}", output.outcome);
    Ok(())
}

async fn the_environment_is_exactly_what_was_given(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let mut request = request(Program::Argv(vec!["/usr/bin/env".to_owned(), "-0".to_owned()]));
    let given = [("B", "two words\nand a line"), ("A", "ä=ö"), ("EMPTY", "")];
    request.env = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let expected: String = given.map(|(name, value)| format!("{name}={value}\0")).concat();
    let output = one.run(&request).await?;
    ensure!(output.stdout == expected.as_bytes(), "{:?}", output.text());
    request.env.clear();
    ensure!(one.run(&request).await?.stdout.is_empty(), "an empty environment is not empty");
    Ok(())
}

async fn the_working_directory_is_where_it_was_asked_to_be(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    for directory in ["/", "/workspace", "/usr/bin", "/tmp"] {
        let mut request = shell("pwd");
        request.cwd = directory.parse()?;
        ensure!(one.run(&request).await?.text() == directory, "{directory}");
    }
    Ok(())
}

async fn a_working_directory_that_is_not_there_is_refused(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("echo file > /workspace/file").await?;
    for directory in ["/nowhere", "/workspace/file"] {
        let mut request = shell("pwd");
        request.cwd = directory.parse()?;
        match one.run(&request).await {
            Err(box_core::Error::Refused(refusal)) if refusal.code == RefusalCode::BadWorkdir => {
                ensure!(refusal.message.contains(directory), "the message does not name it: {}", refusal.message);
            }
            other => bail!("{directory}: {other:?}"),
        }
    }
    Ok(())
}

async fn a_grandchild_that_keeps_stdout_open_does_not_delay_the_result(ground: Arc<Ground>) -> Result<()> {
    let (one, marker) = (ground.plain().await?, marker());
    let output = one.shell(&format!("(sleep {marker} &); echo done")).await?;
    ensure!(output.text() == "done" && output.succeeded() && !output.outcome.timed_out, "{output:?}");
    one_inside(&one, &marker).await.context("the result came after the end of the grandchild")
}

async fn output_before_the_end_is_complete(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    for round in 0..20 {
        let output = one.shell("head -c 300000 /dev/zero; echo end >&2").await?;
        ensure!(output.stdout.len() == 300_000, "round {round}: {} bytes", output.stdout.len());
        ensure!(output.errors() == "end");
    }
    Ok(())
}
