//! Many at once, and much at once.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use box_core::{BoxSpec, ExecIo, Profile, link};
use box_tests::ground::shell;
use box_tests::sinks::{Counter, Transcript};
use box_tests::{Difference, Ground, eventually, host};
use box_wire::ExecRequest;
use box_wire::limits::EXECS_PER_BOX_MAX;
use tokio::task::JoinSet;

pub(crate) fn cases() -> Vec<crate::ContractCase> {
    let mut cases = crate::cases![twenty_execs_run_side_by_side, one_exec_too_many_is_refused_clearly];
    cases.extend(crate::cases![a_burst_of_boxes].into_iter().map(|case| case.within_seconds(180)));
    cases.extend(
        crate::cases![a_flood_of_output_does_not_fill_our_memory].into_iter().map(|case| case.within_seconds(180)),
    );
    cases
}

async fn twenty_execs_run_side_by_side(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let one = one.clone();
        // Each waits for all others: they can only end when all of them run at the same time.
        let line = format!(
            "echo > /tmp/r{number}; while [ $(ls /tmp | grep -c '^r') -lt 20 ]; do sleep 0.05; done; echo {number}"
        );
        tasks.spawn(async move { one.shell(&line).await });
    }
    let mut seen = Vec::new();
    while let Some(output) = tasks.join_next().await {
        seen.push(output??.text().parse::<u32>()?);
    }
    seen.sort_unstable();
    ensure!(seen == (0..20).collect::<Vec<_>>(), "{seen:?}");
    Ok(())
}

async fn one_exec_too_many_is_refused_clearly(ground: Arc<Ground>) -> Result<()> {
    ground.unless(Difference::MachineOfProvider)?;
    let one = ground.make(&BoxSpec { pids_limit: 1024, ..Profile::default().spec() }).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..EXECS_PER_BOX_MAX {
        // Without a deadline: none may end before the last one runs.
        let (one, request) = (one.clone(), ExecRequest { timeout_ms: None, ..shell("exec sleep 1000") });
        tasks.spawn(async move { one.run(&request).await });
    }
    // Only when all of them run is the next one too many; asking earlier would take the place of one of them.
    eventually("the last of the commands", || {
        let (one, ended) = (one.clone(), tasks.try_join_next());
        async move {
            ensure!(ended.is_none(), "one of {EXECS_PER_BOX_MAX} commands did not run: {ended:?}");
            let running = link::list(one.backend.dial(&one.handle).await?).await?;
            Ok((running.len() == EXECS_PER_BOX_MAX).then_some(()))
        }
    })
    .await?;
    match one.shell("true").await {
        Err(error) if error.code() == "refused" => {
            ensure!(error.to_string().contains("128"), "the refusal does not name the bound: {error}");
        }
        other => bail!("{EXECS_PER_BOX_MAX} commands run and one more is not refused: {other:?}"),
    }
    tasks.shutdown().await;
    eventually("room after the others have ended", || async { Ok(one.shell("true").await.ok().map(drop)) }).await
}

async fn a_burst_of_boxes(ground: Arc<Ground>) -> Result<()> {
    let mut tasks = JoinSet::new();
    for number in 0..50 {
        let ground = Arc::clone(&ground);
        tasks.spawn(async move {
            let one = ground.plain().await.with_context(|| format!("box {number}"))?;
            ensure!(one.check(&format!("echo {number}")).await? == number.to_string());
            one.destroy().await?;
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

async fn a_flood_of_output_does_not_fill_our_memory(ground: Arc<Ground>) -> Result<()> {
    let one = ground.plain().await?;
    one.check("head -c 50000000 /dev/zero > /dev/null").await?;
    let counter = Counter::default();
    let io =
        ExecIo { stdin: tokio::io::empty(), stdout: counter.clone(), stderr: Transcript::default(), resizes: None };
    let mut request = shell("head -c 1073741824 /dev/zero");
    request.timeout_ms = Some(150_000);
    host::reset_own_peak()?;
    let before_kb = host::own_resident_kb().context("our memory cannot be read")?;
    let outcome = link::exec(one.backend.dial(&one.handle).await?, &request, io).await?;
    let peak_kb = host::own_peak_kb().context("our memory cannot be read")?;
    ensure!(counter.bytes() == 1 << 30, "{} bytes of a GiB came; {outcome:?}", counter.bytes());
    let grown_kb = peak_kb.saturating_sub(before_kb);
    ensure!(grown_kb <= 32 << 10, "our memory grew by {grown_kb} KiB");
    Ok(())
}
