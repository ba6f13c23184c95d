//! Execs whose output is kept, and which outlive their callers.

mod held;
mod kept;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use box_core::{Handle, Liveness, link};
use box_tests::ground::{fresh_id, marker, private_directory, shell, unique, with_stdin};
use box_tests::{Difference, Ground, TestBox, host};
use box_wire::limits::{JOURNAL_BYTES_MIN, STREAMS_PER_EXEC_MAX};
use box_wire::{
    Ending, ExecId, ExecOutcome, ExecRequest, Exit, Output, RefusalCode, SignalScope, StreamName, WindowSize,
};

use kept::{Kept, exit_of, follow, journalled, progress, refused, request_of, spec, started, until};

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    let mut cases = crate::cases![
        output_is_kept_when_nobody_is_attached,
        a_journalled_exec_goes_on_when_its_starter_hangs_up,
        whoever_attaches_sees_progress_and_the_end,
        all_who_are_attached_see_the_end,
        input_comes_from_anybody_who_is_attached,
        input_of_one_who_hung_up_is_not_lost,
        a_flood_keeps_its_beginning_and_its_end_and_blocks_nobody,
        a_flood_is_read_rightly_while_it_is_written,
        a_flood_of_those_left_behind_does_not_delay_the_end,
        a_deadline_passes_with_nobody_attached,
        running_execs_are_listed,
        a_signal_reaches_the_whole_tree,
        a_silent_command_leaves_only_its_end,
        a_terminal_is_journalled,
        the_workload_cannot_reach_the_journal,
        destroying_removes_the_journal,
        a_journalled_exec_is_found_again_after_a_restart,
        what_cannot_be_journalled_or_followed_is_refused,
    ];
    cases.extend(held::cases());
    cases
}

async fn output_is_kept_when_nobody_is_attached(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let request = journalled(&format!("echo early; {}; seq 100000; seq 50000 >&2; exit 7", until("go")));
    kept.start_and_leave(&request).await?;
    kept.one.check("touch /workspace/go").await?;
    let record = kept.end(&request.id).await?;
    ensure!(exit_of(&record)? == Exit::Code(7), "{record:?}");
    let expected = |last: u32| (1..=last).fold(String::new(), |text, number| text + &number.to_string() + "\n");
    let stdout = kept.read(&request.id, StreamName::Stdout).await?;
    ensure!(stdout == (format!("early\n{}", expected(100_000)).into_bytes(), 0), "stdout was changed");
    let stderr = kept.read(&request.id, StreamName::Stderr).await?;
    ensure!(stderr == (expected(50_000).into_bytes(), 0), "stderr was changed");
    ensure!((record.stdout_bytes, record.stderr_bytes) == (stdout.0.len() as u64, stderr.0.len() as u64));
    let clipped = kept.journal.clipped(&request.id, StreamName::Stdout, 4000).await?;
    ensure!(clipped.truncated && clipped.text.starts_with("early\n1\n") && clipped.text.ends_with("\n100000\n"));
    Ok(())
}

async fn a_journalled_exec_goes_on_when_its_starter_hangs_up(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    // Hung up at once, before the start is known.
    let request = journalled(&format!("{}; echo went on", until("go")));
    drop(kept.start(&request).await?);
    kept.one.check("touch /workspace/go").await?;
    ensure!(exit_of(&kept.end(&request.id).await?)? == Exit::Code(0));
    ensure!(kept.stdout(&request.id).await? == "went on\n");
    Ok(())
}

async fn whoever_attaches_sees_progress_and_the_end(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let request = journalled(&format!("echo 12345; {}; echo 6789; echo error >&2; exit 3", until("go")));
    kept.start_and_leave(&request).await?;
    let (mut reader, _writer) = kept.attach(&request.id).await?;
    ensure!(started(&mut reader).await? > 1, "a start without a process");
    progress(&mut reader, 6).await?;
    ensure!(kept.stdout(&request.id).await? == "12345\n", "told of, but not in the files");
    kept.one.check("touch /workspace/go").await?;
    let (told, outcome) = follow(&mut reader).await?;
    ensure!(told == (11, 6) && outcome.exit == Exit::Code(3), "{told:?} {outcome:?}");
    let record = kept.journal.end(&request.id)?.context("the end was told before it was written")?;
    ensure!(record.ending == Ending::Exited(outcome) && record.stdout_bytes == 11 && record.stderr_bytes == 6);
    ensure!(reader.next().await.is_err_and(|error| error.code() == "box_gone"), "the stream stays open");
    Ok(())
}

async fn all_who_are_attached_see_the_end(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let request = journalled(&format!("echo said; {}", until("go")));
    let mut readers = vec![kept.start(&request).await?];
    started(&mut readers[0].0).await?;
    for _ in 1..STREAMS_PER_EXEC_MAX {
        readers.push(kept.attach(&request.id).await?);
    }
    for (reader, _) in &mut readers {
        progress(reader, 5).await?;
    }
    let (mut reader, _writer) = kept.attach(&request.id).await?;
    refused(reader.next().await, RefusalCode::OutOfProcesses, "16")?;
    // A reader that leaves makes room, and the others go on.
    drop(readers.remove(3));
    readers.push(kept.attach_when_possible(&request.id).await?);
    kept.one.check("touch /workspace/go").await?;
    for (reader, _) in &mut readers {
        ensure!(follow(reader).await?.1.exit == Exit::Code(0));
    }
    Ok(())
}

async fn input_comes_from_anybody_who_is_attached(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let request = with_stdin(ExecRequest { output: Output::JOURNAL, ..request_of(&["cat"]) });
    let (mut first, mut first_keys) = kept.start(&request).await?;
    first_keys.stdin(b"one ").await?;
    progress(&mut first, 4).await?;
    drop((first, first_keys));
    let (mut second, mut second_keys) = kept.attach(&request.id).await?;
    // Sent before anything was heard: it comes with the request.
    second_keys.stdin(b"two ").await?;
    progress(&mut second, 8).await?;
    let (_third, mut third_keys) = kept.attach(&request.id).await?;
    third_keys.stdin(b"three").await?;
    progress(&mut second, 13).await?;
    second_keys.stdin_end().await?;
    ensure!(follow(&mut second).await?.1.exit == Exit::Code(0), "the end of input did not end cat");
    ensure!(kept.stdout(&request.id).await? == "one two three");
    Ok(())
}

async fn input_of_one_who_hung_up_is_not_lost(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let request = with_stdin(journalled(&format!("{}; wc -c", until("go"))));
    let (reader, mut writer) = kept.start(&request).await?;
    // More than a pipe holds and less than pipe, agent and socket do together: it is all on its way when the stream is closed.
    writer.stdin(&vec![b'x'; 200_000]).await?;
    writer.stdin_end().await?;
    drop((reader, writer));
    kept.one.check("touch /workspace/go").await?;
    kept.end(&request.id).await?;
    ensure!(kept.stdout(&request.id).await?.trim() == "200000", "{:?}", kept.stdout(&request.id).await);
    Ok(())
}

async fn a_flood_keeps_its_beginning_and_its_end_and_blocks_nobody(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    // The smaller bound has four segments, the other one sixteen.
    for bytes_max in [JOURNAL_BYTES_MIN, 1 << 20] {
        let mut request = journalled("seq 1000000");
        request.output = Output::Journal { bytes_max };
        kept.start_and_leave(&request).await?;
        let record = kept.end(&request.id).await?;
        ensure!(exit_of(&record)? == Exit::Code(0) && record.stdout_bytes == 6_888_896, "{record:?}");
        let (bytes, missing) = kept.read(&request.id, StreamName::Stdout).await?;
        ensure!(bytes.starts_with(b"1\n2\n3\n4\n") && bytes.ends_with(b"\n999999\n1000000\n"), "not head and tail");
        let length = bytes.len() as u64;
        ensure!(missing > 0 && length + missing == record.stdout_bytes, "{length} kept, {missing} missing");
        ensure!((bytes_max / 2..=bytes_max).contains(&length), "{length} bytes are kept of at most {bytes_max}");
        kept.journal.remove(&request.id)?;
    }
    ensure!(kept.journal.bytes()? == 0 && kept.journal.execs()?.is_empty());
    Ok(())
}

async fn a_flood_is_read_rightly_while_it_is_written(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    // Lines of eight bytes that say where they are.
    let output = Output::Journal { bytes_max: 4 * JOURNAL_BYTES_MIN };
    let request = ExecRequest { output, ..journalled("seq -w 3000000") };
    kept.start_and_leave(&request).await?;
    let mut from = 0;
    let written = loop {
        // Asked before reading: what is there when the end is, is all there is.
        let end = kept.journal.end(&request.id)?;
        let chunk = kept.journal.read(&request.id, StreamName::Stdout, from, 50_000).await?;
        let is_right =
            |(at, byte): (u64, &u8)| format!("{:07}\n", at / 8 + 1).as_bytes().get((at % 8) as usize) == Some(byte);
        ensure!((chunk.start..).zip(&chunk.bytes).step_by(97).all(is_right), "wrong bytes at {}", chunk.start);
        from = chunk.start + chunk.bytes.len() as u64;
        match end {
            Some(record) if chunk.bytes.is_empty() => break record.stdout_bytes,
            _ => tokio::task::yield_now().await,
        }
    };
    ensure!(written == 24_000_000 && from == written, "read to {from} of {written}");
    Ok(())
}

async fn a_flood_of_those_left_behind_does_not_delay_the_end(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let request = journalled(&format!("yes & yes & {}; exit 4", until("go")));
    let (mut reader, _writer) = kept.start(&request).await?;
    progress(&mut reader, 1 << 20).await?;
    kept.one.check("touch /workspace/go").await?;
    ensure!(follow(&mut reader).await?.1.exit == Exit::Code(4));
    Ok(())
}

async fn a_deadline_passes_with_nobody_attached(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let marker = marker();
    let mut request = journalled(&format!("echo started; setsid sleep {marker} & sleep {marker}"));
    request.timeout_ms = Some(2000);
    kept.start_and_leave(&request).await?;
    match kept.end(&request.id).await?.ending {
        Ending::Exited(outcome) => ensure!(outcome.timed_out && outcome.tree_gone, "{outcome:?}"),
        Ending::Refused(refusal) => bail!("refused: {refusal}"),
    }
    ensure!(host::processes_with(&marker).is_empty(), "the tree outlived its deadline");
    ensure!(kept.stdout(&request.id).await? == "started\n");
    Ok(())
}

async fn running_execs_are_listed(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let list = async || link::list(kept.one.backend.dial(&kept.one.handle).await?).await;
    ensure!(list().await?.is_empty());
    let (silent, spoken_to) = (journalled(&until("go")), with_stdin(journalled(&until("go"))));
    let (mut reader, _writer) = kept.start(&silent).await?;
    let pid = started(&mut reader).await?;
    let (mut other, mut keys) = kept.start(&spoken_to).await?;
    started(&mut other).await?;
    let told: BTreeSet<_> = list().await?.into_iter().map(|exec| (exec.id, exec.stdin_open)).collect();
    ensure!(told == BTreeSet::from([(silent.id.clone(), false), (spoken_to.id.clone(), true)]), "{told:?}");
    ensure!(list().await?.iter().any(|exec| exec.id == silent.id && exec.pid == pid), "another process");
    keys.stdin_end().await?;
    while list().await?.iter().any(|exec| exec.stdin_open) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    kept.one.check("touch /workspace/go").await?;
    follow(&mut reader).await?;
    follow(&mut other).await?;
    ensure!(list().await?.is_empty(), "execs are listed that have ended");
    Ok(())
}

async fn a_signal_reaches_the_whole_tree(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let below = "trap 'echo grandchild' USR1; echo ready; while :; do sleep 0.02; done";
    let line = format!(
        "trap 'echo main' USR1; export BELOW=\"{below}\"; sh -c 'sh -c \"$BELOW\"; :' & while :; do sleep 0.02; done"
    );
    let request = journalled(&line);
    let (mut reader, _writer) = kept.start(&request).await?;
    progress(&mut reader, 6).await?;
    let signal =
        async |scope| link::signal(kept.one.backend.dial(&kept.one.handle).await?, request.id.clone(), 10, scope).await;
    signal(SignalScope::Main).await?;
    progress(&mut reader, 11).await?;
    ensure!(kept.stdout(&request.id).await? == "ready\nmain\n", "a signal for the main process went elsewhere");
    signal(SignalScope::Tree).await?;
    progress(&mut reader, 27).await?;
    let seen = kept.stdout(&request.id).await?;
    ensure!(seen.matches("main").count() == 2 && seen.matches("grandchild").count() == 1, "{seen}");
    kept.one.kill(&request.id).await?;
    ensure!(follow(&mut reader).await?.1.exit == Exit::Signal(9));
    Ok(())
}

async fn a_silent_command_leaves_only_its_end(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let request = ExecRequest { output: Output::JOURNAL, ..request_of(&["true"]) };
    let (mut reader, _writer) = kept.start(&request).await?;
    ensure!(follow(&mut reader).await?.0 == (0, 0));
    let missing = ExecRequest { output: Output::JOURNAL, ..request_of(&["no-such-program"]) };
    let (mut reader, _writer) = kept.start(&missing).await?;
    refused(reader.next().await, RefusalCode::NotFound, "no-such-program")?;
    ensure!(files(&ground)? == [format!("{}.end", request.id)], "{:?}", files(&ground)?);
    Ok(())
}

/// Names of all files in the journals of a ground.
fn files(ground: &Ground) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for journal in std::fs::read_dir(ground.journals())? {
        for file in std::fs::read_dir(journal?.path())? {
            names.push(file?.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

async fn a_terminal_is_journalled(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let mut request = with_stdin(journalled("stty size; echo error >&2; read line; stty size; echo got $line"));
    request.terminal = Some(WindowSize { rows: 33, columns: 77 });
    let (mut first, writer) = kept.start(&request).await?;
    progress(&mut first, "33 77\r\nerror\r\n".len() as u64).await?;
    drop((first, writer));
    let (mut reader, mut keyboard) = kept.attach(&request.id).await?;
    keyboard.resize(WindowSize { rows: 50, columns: 132 }).await?;
    keyboard.stdin(b"keys\n").await?;
    ensure!(follow(&mut reader).await?.1.exit == Exit::Code(0));
    let screen = kept.stdout(&request.id).await?;
    ensure!(screen.starts_with("33 77\r\nerror\r\n") && screen.ends_with("50 132\r\ngot keys\r\n"), "{screen:?}");
    ensure!(kept.journal.length(&request.id, StreamName::Stderr)? == 0, "a terminal has one stream");
    Ok(())
}

async fn the_workload_cannot_reach_the_journal(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let marker = format!("mark{}", unique());
    // From inside it is looked for by name and by what is in it, and written to through whatever the agent has open.
    let line = format!(
        "echo {marker}; ls /proc/self/fd | wc -l; cat /proc/self/mountinfo | grep -c journals; \
         for fd in $(seq 3 40); do echo forged > /proc/1/fd/$fd; ls /proc/1/fd/$fd; done 2> /dev/null; \
         find / -xdev -name '*.out.0*' -o -xdev -name '*.end' 2> /dev/null | wc -l"
    );
    let request = journalled(&line);
    let (mut reader, _writer) = kept.start(&request).await?;
    follow(&mut reader).await?;
    let said = kept.stdout(&request.id).await?;
    ensure!(said == format!("{marker}\n4\n0\n0\n"), "{said:?}");
    ensure!(files(&ground)?.len() == 2, "{:?}", files(&ground)?);
    let journal = std::fs::read_dir(ground.journals())?.next().context("no journal")??;
    let open_to_all = std::os::unix::fs::MetadataExt::mode(&journal.metadata()?) & 0o007;
    ensure!(open_to_all == 0, "everybody on the host may enter it");
    Ok(())
}

async fn destroying_removes_the_journal(ground: Arc<Ground>) -> Result<()> {
    let kept = Kept::new(&ground).await?;
    let request = journalled("echo said; echo error >&2; sleep 60");
    let (mut reader, _writer) = kept.start(&request).await?;
    progress(&mut reader, 5).await?;
    ensure!(!files(&ground)?.is_empty());
    kept.one.destroy().await?;
    ensure!(std::fs::read_dir(ground.journals())?.next().is_none(), "the journal is still there");
    let error = kept.one.backend.journal(&kept.one.handle).await.err().context("it can still be opened")?;
    ensure!(error.code() == "box_gone", "{error:?}");
    Ok(())
}

async fn a_journalled_exec_is_found_again_after_a_restart(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::JournalInBox)?;
    let state = private_directory()?;
    let instance = format!("journal-{}", std::process::id());
    let first = ground.persistent(state.path(), &instance).await?;
    let handle = first.create(&fresh_id("journal")?, &spec()).await?;
    let one = TestBox { backend: Arc::clone(&first), handle };
    let kept = Kept::of(one).await?;
    let request = journalled(&format!("echo before; {}; echo after", until("go")));
    kept.start_and_leave(&request).await?;
    let remembered = serde_json::to_string(&kept.one.handle)?;
    drop((kept, first));
    let handle: Handle = serde_json::from_str(&remembered)?;
    let second = ground.persistent(state.path(), &instance).await?;
    ensure!(second.adopt(&handle).await? == Liveness::Running);
    let kept = Kept::of(TestBox { backend: second, handle }).await?;
    let outcome = follow_after_restart(&kept, &request.id).await;
    let text = kept.stdout(&request.id).await;
    kept.one.destroy().await?;
    crate::lifecycle::forget_instance(&instance)?;
    ensure!(outcome?.exit == Exit::Code(0) && text? == "before\nafter\n");
    Ok(())
}

async fn follow_after_restart(kept: &Kept, exec: &ExecId) -> Result<ExecOutcome> {
    let listed = link::list(kept.one.backend.dial(&kept.one.handle).await?).await?;
    ensure!(listed.iter().any(|running| running.id == *exec), "it does not run any more: {listed:?}");
    let (mut reader, _writer) = kept.attach(exec).await?;
    progress(&mut reader, 7).await?;
    kept.one.check("touch /workspace/go").await?;
    Ok(follow(&mut reader).await?.1)
}

async fn what_cannot_be_journalled_or_followed_is_refused(ground: Arc<Ground>) -> Result<()> {
    let plain = ground.plain().await?;
    let (mut reader, _writer) =
        link::start(plain.backend.dial(&plain.handle).await?, &journalled("true")).await?.split();
    refused(reader.next().await, RefusalCode::BadRequest, "keeps_journal")?;
    let error = plain.backend.journal(&plain.handle).await.err().context("a box without a journal has one")?;
    ensure!(error.code() == "box_gone", "{error:?}");
    ensure!(plain.check("echo usable").await? == "usable");

    let kept = Kept::new(&ground).await?;
    let request = journalled("echo once");
    follow(&mut kept.start(&request).await?.0).await?;
    refused(kept.start(&request).await?.0.next().await, RefusalCode::BadExecId, "journal already")?;
    refused(kept.attach(&request.id).await?.0.next().await, RefusalCode::BadExecId, "running")?;
    kept.journal.remove(&request.id)?;
    follow(&mut kept.start(&request).await?.0).await?;

    let streamed = shell(&until("go"));
    let (runner, copy) = (kept.one.clone(), streamed.clone());
    let running = tokio::spawn(async move { runner.run(&copy).await });
    kept.one.wait_until_running(&streamed.id).await?;
    refused(kept.attach(&streamed.id).await?.0.next().await, RefusalCode::BadRequest, "journalled")?;
    kept.one.check("touch /workspace/go").await?;
    ensure!(running.await??.succeeded(), "being asked for harmed it");
    Ok(())
}
