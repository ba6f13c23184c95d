//! The audit log of a real server: what cannot be recorded does not run, and what is recorded is sealed.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{Door, DoorCase, case, cases, eventually};

/// Files of the log that are soon full: one entry can have 24 KiB of escaped characters.
const SMALL: &str = "[audit]\nfile_mb = 1\ncommands = \"text\"\n";

/// More entries than one file can have.
const ENTRIES_MAX: usize = 200;

pub(crate) fn cases() -> Vec<DoorCase> {
    let mut cases =
        cases![a_log_is_sealed_with_a_key_that_verifying_needs, the_log_has_no_program_where_commands_are_hashed];
    cases.push(case!(what_the_log_cannot_record_does_not_run).configured(SMALL));
    cases
}

async fn what_the_log_cannot_record_does_not_run(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let (log, aside) = (door.server.state().join("audit"), door.server.state().join("audit.aside"));
    // The file that is open can still be written. The next one cannot be made, as on a disk that is full.
    std::fs::rename(&log, &aside)?;
    let padded = format!("true # {}", "\u{1}".repeat(4000));
    let mut refused = None;
    for _ in 0..ENTRIES_MAX {
        let answer = client.post("/v1/sessions/one/exec", &json!({ "cmd": padded })).await?;
        if answer.status != 200 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.context("the log never failed")?.refused(507, "audit_unavailable")?;
    ensure!(refused["message"].as_str().is_some_and(|text| text.contains("the audit log")), "{refused}");
    let touch = json!({ "cmd": format!("touch /workspace/ran; {padded}") });
    client.post("/v1/sessions/one/exec", &touch).await?.refused(507, "audit_unavailable")?;
    let start = json!({ "command": "/bin/sh", "args": ["-c", format!("touch /workspace/ran; {padded}")] });
    client.post("/v1/sessions/one/processes", &start).await?.refused(507, "audit_unavailable")?;
    std::fs::rename(&aside, &log)?;
    let listed = eventually("commands to run again", || async {
        let answer = client.post("/v1/sessions/one/exec", &json!({ "cmd": "ls /workspace" })).await?;
        if answer.status == 507 { Ok(None) } else { answer.must(200).map(Some) }
    })
    .await?;
    ensure!(listed["stdout"] == "", "something ran that the log does not have: {listed}");
    let entries = door.server.verb(&["audit", "tail"], &["-n", "10"])?;
    ensure!(entries.contains("could not be written and are missing"), "{entries}");
    door.server.verb(&["audit", "verify"], &[])?;
    Ok(())
}

async fn a_log_is_sealed_with_a_key_that_verifying_needs(door: &mut Door) -> Result<()> {
    door.client.exec("one", "true").await?;
    let said = door.server.verb(&["audit", "verify"], &[])?;
    ensure!(said.contains("sealed with the key from number 1 on"), "{said}");
    let (key, aside) = (door.server.state().join("audit.key"), door.server.state().join("key.aside"));
    std::fs::rename(&key, &aside)?;
    let error = door.server.verb(&["audit", "verify"], &[]).err().context("a log was verified without its key")?;
    ensure!(format!("{error:#}").contains("the key file is missing"), "{error:#}");
    std::fs::rename(&aside, &key)?;
    door.server.verb(&["audit", "verify"], &[])?;
    Ok(())
}

async fn the_log_has_no_program_where_commands_are_hashed(door: &mut Door) -> Result<()> {
    door.client.create("one", &json!({})).await?;
    let start = json!({ "command": "/opt/secret-program", "args": ["--password=sesame"] });
    let answer = door.client.post("/v1/sessions/one/processes", &start).await?;
    ensure!(answer.status >= 400, "{answer:?}");
    let workdir = json!({ "cmd": "true", "workdir": "/opt/secret-place" });
    let answer = door.client.post("/v1/sessions/one/exec", &workdir).await?;
    ensure!(answer.status >= 400, "{answer:?}");
    let entries = door.server.verb(&["audit", "tail"], &["-n", "20"])?;
    ensure!(entries.contains("\"start_process\"") && entries.contains("\"refused\""), "{entries}");
    ensure!(!entries.contains("secret") && !entries.contains("sesame"), "{entries}");
    Ok(())
}
