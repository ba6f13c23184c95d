//! Lifetimes and limits: what expires, what stays, and the answer when a limit is reached.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use box_tests::server::{plain_command, program};
use serde_json::{Value, json};

use crate::{Door, DoorCase, case, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    vec![
        case!(an_idle_session_expires_and_a_used_one_does_not),
        case!(there_is_room_for_so_many_sessions).configured("max_sessions = 2\n"),
        case!(there_is_room_for_so_many_processes).configured("max_managed_processes = 2\n"),
        case!(limits_change_while_the_server_runs).configured("max_sessions = 1\n"),
        case!(making_one_session_delays_no_other),
        case!(a_limit_that_run_is_told_is_held_or_refused),
    ]
}

/// The reaper looks at all sessions in one go: when it has taken the last that was made, it has seen all the others.
async fn an_idle_session_expires_and_a_used_one_does_not(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("persistent", &json!({ "ttl_sec": 1, "persistent": true })).await?;
    client.create("with-process", &json!({ "ttl_sec": 1 })).await?;
    client.post("/v1/sessions/with-process/processes", &json!({ "command": "cat" })).await?.must(201)?;
    client.create("with-exec", &json!({ "ttl_sec": 1 })).await?;
    client.start("with-exec", "sleep 1000").await?;
    client.create("patient", &json!({ "ttl_sec": 1 })).await?;
    client.patch("/v1/sessions/patient", &json!({ "ttl_sec": 3600 })).await?.must(200)?;
    let idle = client.create("idle", &json!({ "ttl_sec": 1 })).await?;
    ensure!(idle["expires_at"].is_string() && idle["ttl_sec"] == 1, "{idle}");
    eventually("the end of the idle session", || async {
        // Listing does not count as use.
        let gone = client.sessions().await?.iter().all(|session| session["session_id"] != "idle");
        Ok(gone.then_some(()))
    })
    .await?;
    for kept in ["persistent", "with-process", "with-exec"] {
        let session = client.get(&format!("/v1/sessions/{kept}")).await?.must(200)?;
        ensure!(session["expires_at"].is_null() && session["state"] == "running", "{kept}: {session}");
    }
    client.get("/v1/sessions/patient").await?.must(200)?;
    // What kept a session is gone: now it goes as well.
    client.delete("/v1/sessions/with-process/processes/default").await?.must(200)?;
    eventually("the end of the other session", || async {
        Ok((client.get("/v1/sessions/with-process").await?.status == 404).then_some(()))
    })
    .await
}

fn no_room(error: &Value, retry_after: &str, key: &str) -> Result<()> {
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(message.contains('2') && error["hint"].as_str().is_some_and(|hint| hint.contains(key)), "{error}");
    ensure!(retry_after.parse::<u32>().is_ok(), "no Retry-After");
    Ok(())
}

async fn there_is_room_for_so_many_sessions(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let all = futures_util::future::try_join_all(
        (0..8).map(|number| async move { client.post(&format!("/v1/sessions/s{number}"), &json!({})).await }),
    )
    .await?;
    ensure!(all.iter().filter(|answer| answer.status == 201).count() == 2, "{all:?}");
    for answer in all.into_iter().filter(|answer| answer.status != 201) {
        let retry_after = answer.header("retry-after").to_owned();
        no_room(&answer.refused(429, "capacity_exceeded")?, &retry_after, "max_sessions")?;
    }
    let one = client.sessions().await?[0]["session_id"].as_str().context("an id")?.to_owned();
    ensure!(client.exec(&one, "true").await?["exit_code"] == 0, "those that exist go on");
    client.post("/v1/sessions/more/exec", &json!({ "cmd": "true" })).await?.refused(429, "capacity_exceeded")?;
    client.delete(&format!("/v1/sessions/{one}")).await?.must(200)?;
    client.create("more", &json!({})).await?;
    Ok(())
}

async fn there_is_room_for_so_many_processes(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let start = |session: &str, id: &str| {
        let path = format!("/v1/sessions/{session}/processes");
        let body = json!({ "command": "cat", "process_id": id });
        async move { client.post(&path, &body).await }
    };
    start("one", "a").await?.must(201)?;
    start("two", "b").await?.must(201)?;
    let refused = start("one", "c").await?;
    let retry_after = refused.header("retry-after").to_owned();
    no_room(&refused.refused(429, "capacity_exceeded")?, &retry_after, "max_managed_processes")?;
    ensure!(client.exec("one", "true").await?["exit_code"] == 0, "commands need no room");
    client.delete("/v1/sessions/two/processes/b").await?.must(200)?;
    start("one", "c").await?.must(201)?;
    ensure!(client.get("/v1/status").await?.must(200)?["managed_processes"] == 2);
    Ok(())
}

async fn limits_change_while_the_server_runs(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    client.post("/v1/sessions/two", &json!({})).await?.refused(429, "capacity_exceeded")?;
    door.server.reload("max_sessions = 2\n")?;
    eventually("the new limit", || async {
        Ok((client.post("/v1/sessions/two", &json!({})).await?.status == 201).then_some(()))
    })
    .await?;
    door.server.reload("max_sessions = 'many'\n")?;
    eventually("the complaint", || async { Ok(door.server.log().contains("the old one stays").then_some(())) }).await?;
    ensure!(client.exec("one", "true").await?["exit_code"] == 0, "a bad file changes nothing");
    Ok(())
}

/// An image with so many names that unpacking it takes long.
fn wide_image(path: &std::path::Path) -> Result<()> {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for number in 0..40_000 {
        let mut header = [0_u8; 512];
        let name = format!("d/{number}");
        header[..name.len()].copy_from_slice(name.as_bytes());
        for (at, text) in [
            (100, "0000644\0"),
            (108, "0000000\0"),
            (116, "0000000\0"),
            (124, "00000000000\0"),
            (136, "00000000000\0"),
            (257, "ustar\x0000"),
        ] {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        header[156] = b'0';
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        file.write_all(&header)?;
    }
    file.write_all(&[0; 1024])?;
    Ok(file.flush()?)
}

/// Told by the order of events: the second is made, used and deleted while the first is still being made.
async fn making_one_session_delays_no_other(door: &mut Door) -> Result<()> {
    let client = door.client.clone();
    let image = door.server.mounts()?.join("wide.tar");
    wide_image(&image)?;
    door.server.reload(&format!("[images]\nwide = 'tar:{}'\nplain = 'host'\n", image.display()))?;
    eventually("the new names", || async {
        let answer = client.post("/v1/sessions/plain", &json!({ "image": "plain" })).await?;
        Ok((answer.status == 201).then_some(()))
    })
    .await?;
    client.delete("/v1/sessions/plain").await?.must(200)?;
    let body = json!({ "image": "wide" });
    let slow = tokio::spawn(client.request("POST", "/v1/sessions/slow").json(&body).send());
    let state = || async {
        let answer = client.get("/v1/sessions/slow").await?;
        Ok::<_, anyhow::Error>(answer.json["state"].as_str().map(str::to_owned))
    };
    eventually("the beginning", || async { Ok((state().await?.as_deref() == Some("creating")).then_some(())) }).await?;
    ensure!(client.exec("quick", "echo quick").await?["stdout"] == "quick\n");
    client.delete("/v1/sessions/quick").await?.must(200)?;
    let (unfinished, still) = (!slow.is_finished(), state().await?);
    ensure!(unfinished && still.as_deref() == Some("creating"), "the image was not wide enough to tell: {still:?}");
    // The image is not a usable system, so an error is fine; what matters here is that the request took its time.
    let answer = slow.await??;
    ensure!(answer.status == 201 || answer.json["error"]["field"] == "image", "{answer:?}");
    Ok(())
}

/// A typed limit is enforced, or refused before anything runs. An ordinary user without a cgroup is refused.
async fn a_limit_that_run_is_told_is_held_or_refused(door: &mut Door) -> Result<()> {
    let program = program()?;
    let run = |options: &[&str]| -> Result<(String, Value)> {
        let mut command = plain_command(&program);
        command.args(["run", "--json", "--state-dir"]).arg(door.server.state()).args(options);
        let output = command.args(["--", "echo", "ran"]).stdin(std::process::Stdio::null()).output()?;
        let told = String::from_utf8(output.stderr)?;
        let receipt = told.lines().last().with_context(|| format!("no receipt: {}", output.status))?;
        Ok((String::from_utf8(output.stdout)?, serde_json::from_str(receipt).with_context(|| told.clone())?))
    };
    let (_, plain) = run(&[])?;
    let guarantees = plain["guarantees"].as_array().with_context(|| plain.to_string())?;
    for (flag, dimension) in [("--memory=64", "memory"), ("--cpus=0.5", "cpu"), ("--pids=30", "pids")] {
        let told = guarantees.iter().find(|told| told["dimension"] == dimension).context(dimension)?;
        let (said, receipt) = run(&[flag])?;
        if told["level"] != "absent" {
            ensure!(said == "ran\n", "{flag}: {receipt}");
            continue;
        }
        let (error, name) = (&receipt["error"], flag.split_once('=').context("no value")?.0);
        ensure!(said.is_empty() && error["code"] == "limit_not_enforced", "{flag} is ignored: {said:?} {receipt}");
        ensure!(error["message"].as_str().is_some_and(|message| message.contains(name)), "{error}");
        ensure!(error["hint"].as_str().is_some_and(|hint| hint.contains("--allow-unenforced")), "{error}");
        let (said, receipt) = run(&[flag, "--allow-unenforced"])?;
        ensure!(said == "ran\n", "{flag}, allowed: {receipt}");
    }
    Ok(())
}
