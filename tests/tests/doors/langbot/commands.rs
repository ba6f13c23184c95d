//! Commands.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::{Rpc, has_exactly, spec, with};
use crate::locks::LOCKED;
use crate::{Door, DoorCase, case, cases};

pub(super) fn cases() -> Vec<DoorCase> {
    let mut all = cases![
        a_command_runs_and_its_result_has_every_field,
        files_stay_and_the_environment_does_not,
        codes_are_those_of_a_shell,
        a_passed_deadline_takes_the_session_with_it,
        commands_of_one_session_run_one_after_another,
        long_output_ends_with_a_notice_and_fits_the_client,
        a_command_can_be_longer_than_the_system_takes,
        fifty_sessions_work_at_once_through_one_connection,
        a_command_without_a_network_reaches_nobody,
        bad_commands_are_refused_before_anything_is_made,
    ];
    all.push(case!(a_locked_deadline_is_nobodys_to_lengthen).configured(LOCKED));
    all
}

async fn a_locked_deadline_is_nobodys_to_lengthen(door: &mut Door) -> Result<()> {
    for mut rpc in Rpc::both(door).await? {
        let slow = with(spec("s", "sleep 1000"), json!({ "timeout_sec": 600, "persistent": true }));
        let result = rpc.ask("box_exec", &slow).await?;
        ensure!(result["status"] == "timed_out", "{result}");
        let told =
            "Command timed out after 1 seconds.\nThe deadline cannot be longer: profile locked locks timeout_sec to 1;";
        ensure!(result["stderr"].as_str().is_some_and(|stderr| stderr.starts_with(told)), "{result}");
    }
    Ok(())
}

async fn a_command_runs_and_its_result_has_every_field(door: &mut Door) -> Result<()> {
    for mut rpc in Rpc::both(door).await? {
        let result = rpc.exec("s1", "echo; echo \" $A \"; pwd; echo err >&2; exit 3").await?;
        has_exactly(
            &result,
            &["session_id", "backend_name", "status", "exit_code", "stdout", "stderr", "duration_ms"],
        )?;
        ensure!(result["session_id"] == "s1" && result["backend_name"] == "native", "{result}");
        ensure!(result["status"] == "completed" && result["exit_code"] == 3, "{result}");
        ensure!(result["stdout"] == "1 \n/tmp" && result["stderr"] == "err", "blanks at the ends go: {result}");
        ensure!(result["duration_ms"].is_u64(), "{result}");
        let made = with(spec("s1", "pwd"), json!({ "workdir": "/tmp/not there/yet" }));
        ensure!(rpc.ask("box_exec", &made).await?["stdout"] == "/tmp/not there/yet", "its directory is made");
        ensure!(rpc.exec("s1", "cat; echo end").await?["stdout"] == "end", "nothing is there to be read");
    }
    Ok(())
}

async fn files_stay_and_the_environment_does_not(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    rpc.exec("s", "echo kept > /tmp/f; export X=1; cd /").await?;
    ensure!(rpc.exec("s", "cat /tmp/f; echo \"[$X]\"; pwd").await?["stdout"] == "kept\n[]\n/tmp");
    ensure!(rpc.exec("other", "cat /tmp/f").await?["exit_code"] == 1, "another session has other files");
    let mut other = Rpc::tenant(door, "other workspace").await?;
    ensure!(other.exec("s", "cat /tmp/f").await?["exit_code"] == 1, "and so has another workspace");
    ensure!(other.session_ids().await? == ["s"]);
    Ok(())
}

async fn codes_are_those_of_a_shell(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::legacy(door).await?;
    for (cmd, code) in [("true", 0), ("false", 1), ("not-a-program", 127), ("kill -9 $$", 137), ("exit 200", 200)] {
        let result = rpc.exec("s", cmd).await?;
        ensure!(result["exit_code"] == code && result["status"] == "completed", "{cmd}: {result}");
    }
    Ok(())
}

async fn a_passed_deadline_takes_the_session_with_it(door: &mut Door) -> Result<()> {
    for mut rpc in Rpc::both(door).await? {
        let slow = with(spec("s", "echo partial; sleep 100"), json!({ "timeout_sec": 2 }));
        let result = rpc.ask("box_exec", &slow).await?;
        ensure!(result["status"] == "timed_out" && result["exit_code"].is_null(), "{result}");
        ensure!(result["stdout"] == "partial", "{result}");
        ensure!(result["stderr"] == "Command timed out after 2 seconds.", "{result}");
        ensure!(rpc.session_ids().await?.is_empty(), "the session is gone when the answer comes");
        let slow = with(spec("s", "echo why >&2; sleep 100"), json!({ "timeout_sec": "2" }));
        ensure!(rpc.ask("box_exec", &slow).await?["stderr"] == "why");
    }
    Ok(())
}

async fn commands_of_one_session_run_one_after_another(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    rpc.exec("s", "true").await?;
    let alone = "mkdir /tmp/alone && sleep 0.1 && rmdir /tmp/alone";
    let mut asked = Vec::new();
    for _ in 0..8 {
        asked.push(rpc.send("box_exec", &spec("s", alone)).await?);
    }
    // A delete waits too, so that no command loses its box.
    let deleted = rpc.send("box_delete_session", &json!({ "session_id": "s" })).await?;
    for asked in asked {
        let result = rpc.done(asked).await?;
        ensure!(result["exit_code"] == 0, "two ran at once: {result}");
    }
    rpc.done(deleted).await?;
    Ok(())
}

async fn long_output_ends_with_a_notice_and_fits_the_client(door: &mut Door) -> Result<()> {
    let cmd = "head -c 3000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' '\\001' >&2";
    let notice = "\n... [raw output clipped at 1048576 bytes, 1951424 bytes discarded]";
    for mut rpc in Rpc::both(door).await? {
        let result = rpc.exec("s", cmd).await?;
        for stream in ["stdout", "stderr"] {
            let text = result[stream].as_str().context("no text")?;
            ensure!(text.len() == (1 << 20) + notice.len() && text.ends_with(notice), "{stream}: {}", text.len());
        }
        ensure!(rpc.exec("s", "echo alive").await?["stdout"] == "alive");
    }
    Ok(())
}

async fn a_command_can_be_longer_than_the_system_takes(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    let cmd = format!("x={}; echo ${{#x}}; cat; echo \"it's\" $A; exit 4", "y".repeat(300_000));
    let result = rpc.exec("s", &cmd).await?;
    ensure!(result["stdout"] == "300000\nit's 1" && result["exit_code"] == 4, "{result}");
    Ok(())
}

async fn fifty_sessions_work_at_once_through_one_connection(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    let small =
        |number: usize| with(spec(&format!("s{number}"), &format!("echo {number}")), json!({ "memory_mb": 64 }));
    let mut asked = Vec::new();
    for number in 0..50 {
        asked.push(rpc.send("box_exec", &small(number)).await?);
    }
    for (number, asked) in asked.into_iter().enumerate() {
        let result = rpc.done(asked).await?;
        ensure!(result["stdout"] == number.to_string().as_str(), "{number}: {result}");
    }
    ensure!(rpc.session_ids().await?.len() == 50);
    Ok(())
}

async fn a_command_without_a_network_reaches_nobody(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::legacy(door).await?;
    let result = rpc.exec("s", "tail -n +3 /proc/net/dev | cut -d : -f 1 | tr -d ' '").await?;
    ensure!(result["stdout"] == "lo", "{result}");
    Ok(())
}

async fn bad_commands_are_refused_before_anything_is_made(door: &mut Door) -> Result<()> {
    for mut rpc in Rpc::both(door).await? {
        for (changes, says) in [
            (json!({ "cmd": "  " }), "BoxValidationError: cmd must not be empty"),
            (
                json!({ "timeout_sec": 0 }),
                "BoxValidationError: 1 validation error for BoxSpec\ntimeout_sec\n  Value error, ",
            ),
            (json!({ "memory_mb": 31, "network": "x" }), "BoxValidationError: 2 validation errors for BoxSpec\n"),
            (json!({ "session_id": "" }), "BoxValidationError: 1 validation error for BoxSpec\nsession_id\n"),
            (json!({ "env": { "A=B": "1" } }), "BoxValidationError: "),
            (json!({ "host_path": "C:\\x" }), "BoxValidationError: 1 validation error for BoxSpec\nhost_path\n"),
            (json!({ "cpus": "1.0e9" }), "BoxValidationError: "),
        ] {
            let refused = rpc.refused("box_exec", &with(spec("s", "true"), changes.clone())).await?;
            ensure!(refused.starts_with(says), "{changes}: {refused}");
        }
        let missing: Value = json!({ "cmd": "true" });
        ensure!(rpc.refused("box_exec", &missing).await?.contains("\nsession_id\n"));
        ensure!(rpc.session_ids().await?.is_empty());
    }
    Ok(())
}
