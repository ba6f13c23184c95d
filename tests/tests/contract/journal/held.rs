//! Execs that last as long as a process holds their output open, and whose output waits for paced readers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use box_core::link::{self, Pacer, Step};
use box_tests::ground::{marker, shell};
use box_tests::{Ground, host};
use box_wire::limits::{JOURNAL_BYTES_MIN, PACERS_PER_EXEC_MAX};
use box_wire::{Ending, ExecRequest, Exit, Output, ReadPosition, SignalScope, StreamName};

use super::kept::{Kept, exit_of, follow, progress, started, until};

pub(super) fn cases() -> Vec<crate::ContractCase> {
    crate::cases![
        a_held_exec_lasts_as_long_as_its_output,
        what_a_held_exec_leaves_behind_lives_on,
        a_signal_to_a_held_exec_ends_it_at_once_and_nobody_else,
        the_deadline_of_a_held_exec_is_for_its_main_process,
        a_deadline_ends_the_wait_for_those_left_behind,
        output_waits_for_who_takes_all_of_it,
        output_waits_a_while_for_the_first_who_does,
        a_killed_exec_waits_for_nobody,
    ]
}

fn held(line: &str) -> ExecRequest {
    ExecRequest { output: Output::Held { bytes_max: 4 * JOURNAL_BYTES_MIN }, ..shell(line) }
}

async fn pace(kept: &Kept, request: &ExecRequest, stdout_bytes: u64) -> Result<Pacer> {
    let taken = ReadPosition { stdout_bytes, stderr_bytes: 0 };
    Ok(link::pace(kept.one.backend.dial(&kept.one.handle).await?, request.id.clone(), taken).await?)
}

async fn a_held_exec_lasts_as_long_as_its_output(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    // A process can be signaled until it is reaped.
    let orphaned = "while kill -0 $$ 2>/dev/null; do sleep 0.02; done; echo orphaned";
    let request = held(&format!("({orphaned}; {}; echo later) & echo first; exit 5", until("go")));
    let (mut reader, _writer) = kept.start(&request).await?;
    progress(&mut reader, 15).await?;
    // The agent completes another exec after the main process ended.
    kept.one.check("true").await?;
    ensure!(kept.journal.end(&request.id)?.is_none(), "it ended with its main process");
    kept.one.check("touch /workspace/go").await?;
    let ((bytes, _), outcome) = follow(&mut reader).await?;
    ensure!(bytes == 21 && outcome.exit == Exit::Code(5), "{bytes} {outcome:?}");
    ensure!(kept.stdout(&request.id).await? == "first\norphaned\nlater\n");
    Ok(())
}

/// Whether one process with this marker is there. A process that is being executed has no command line for a moment, so several looks are taken.
async fn lives_on(marker: &str) -> bool {
    for _ in 0..100 {
        if host::processes_with(marker).len() == 1 {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    false
}

async fn what_a_held_exec_leaves_behind_lives_on(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let marker = marker();
    let request = held(&format!("nohup sleep {marker} >/dev/null 2>&1 & echo started"));
    kept.start_and_leave(&request).await?;
    ensure!(exit_of(&kept.end(&request.id).await?)? == Exit::Code(0));
    kept.one.check("true").await?;
    ensure!(lives_on(&marker).await, "what was left behind is gone, or there is more of it");
    kept.one.destroy().await?;
    ensure!(host::processes_with(&marker).is_empty(), "it outlived its box");
    Ok(())
}

async fn a_signal_to_a_held_exec_ends_it_at_once_and_nobody_else(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let marker = marker();
    let request = held(&format!("sleep {marker} & echo started; wait"));
    let (mut reader, _writer) = kept.start(&request).await?;
    progress(&mut reader, 8).await?;
    let stream = kept.one.backend.dial(&kept.one.handle).await?;
    link::signal(stream, request.id.clone(), 9, SignalScope::Main).await?;
    let (_, outcome) = follow(&mut reader).await?;
    ensure!(outcome.exit == Exit::Signal(9) && !outcome.timed_out, "{outcome:?}");
    ensure!(lives_on(&marker).await, "its child went with it");
    Ok(())
}

async fn the_deadline_of_a_held_exec_is_for_its_main_process(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let marker = marker();
    let mut request = held(&format!("sleep {marker} & sleep 100; echo never"));
    request.timeout_ms = Some(2000);
    kept.start_and_leave(&request).await?;
    match kept.end(&request.id).await?.ending {
        Ending::Exited(outcome) => ensure!(outcome.timed_out && !outcome.tree_gone, "{outcome:?}"),
        Ending::Refused(refusal) => bail!("refused: {refusal}"),
    }
    ensure!(lives_on(&marker).await, "its child went with it");
    ensure!(kept.stdout(&request.id).await?.is_empty());
    Ok(())
}

async fn a_deadline_ends_the_wait_for_those_left_behind(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let mut request = held("sleep 100 & echo started");
    request.timeout_ms = Some(300);
    kept.start_and_leave(&request).await?;
    match kept.end(&request.id).await?.ending {
        Ending::Exited(outcome) => ensure!(outcome.timed_out, "{outcome:?}"),
        Ending::Refused(refusal) => bail!("refused: {refusal}"),
    }
    Ok(())
}

async fn output_waits_for_who_takes_all_of_it(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    // Lines of eight bytes that say where they are: far more than the journal keeps.
    let request = held("seq -w 1000000; seq 10 >&2");
    let (mut reader, _writer) = kept.start(&request).await?;
    started(&mut reader).await?;
    let mut pacer = pace(&kept, &request, 0).await?;
    let (mut from, mut end) = (0, None);
    loop {
        let chunk = kept.journal.read(&request.id, StreamName::Stdout, from, 50_000).await?;
        ensure!(!chunk.gap, "bytes before {} are missing, from {from} on", chunk.start);
        from = chunk.start + chunk.bytes.len() as u64;
        let taken = ReadPosition { stdout_bytes: from, stderr_bytes: 0 };
        // Telling fails when the exec has ended and with it the reason.
        let _ = pacer.tell(taken, if chunk.bytes.is_empty() { Step::Small } else { Step::Large }).await;
        match end {
            Some(()) if chunk.bytes.is_empty() => break,
            None if chunk.bytes.is_empty() => tokio::time::sleep(Duration::from_millis(2)).await,
            _ => {}
        }
        end = kept.journal.end(&request.id)?.map(drop);
    }
    ensure!(from == 8_000_000, "{from} bytes came");
    Ok(())
}

async fn output_waits_a_while_for_the_first_who_does(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let request = held("seq -w 1000000");
    let begun = Instant::now();
    let (mut reader, _writer) = kept.start(&request).await?;
    // Half of what the journal keeps may come, and what is moved at once.
    progress(&mut reader, 2 * JOURNAL_BYTES_MIN).await?;
    // The agent waits five seconds for a reader, counted from a later moment than `begun`.
    loop {
        let kept_bytes = kept.journal.length(&request.id, StreamName::Stdout)?;
        let has_ended = kept.journal.end(&request.id)?.is_some();
        if begun.elapsed() > Duration::from_secs(4) {
            break;
        }
        ensure!(kept_bytes <= 4 * JOURNAL_BYTES_MIN, "the journal has {kept_bytes} bytes although no reader took any");
        ensure!(!has_ended, "the command ended before its reader took the output");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(exit_of(&kept.end(&request.id).await?)? == Exit::Code(0));
    Ok(())
}

async fn a_killed_exec_waits_for_nobody(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let request = held("yes");
    let (mut reader, _writer) = kept.start(&request).await?;
    let mut pacers = Vec::new();
    for _ in 0..=PACERS_PER_EXEC_MAX {
        pacers.push(pace(&kept, &request, 0).await?);
    }
    progress(&mut reader, 2 * JOURNAL_BYTES_MIN).await?;
    link::kill(kept.one.backend.dial(&kept.one.handle).await?, request.id.clone()).await?;
    let (_, outcome) = follow(&mut reader).await?;
    ensure!(outcome.exit == Exit::Signal(9) && outcome.tree_gone, "{outcome:?}");
    Ok(())
}
