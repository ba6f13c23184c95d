//! Output: clipped in results, whole by range, streamed by cursor.

use anyhow::{Context, Result, ensure};
use box_tests::events::{Event, Events};
use box_tests::http::Client;
use serde_json::{Value, json};

use crate::{Door, DoorCase, case, cases, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    let mut cases = cases![
        a_result_is_clipped_to_exactly_its_limit,
        output_is_read_by_range,
        the_journal_tells_more_while_a_command_runs,
        events_tell_a_command_from_start_to_end,
        a_character_is_never_cut_between_two_events,
        going_on_from_any_cut_loses_and_repeats_nothing,
        one_idempotency_key_is_one_command,
        commands_are_listed_waited_for_and_cancelled,
        input_and_signals_reach_a_command,
        stdin_is_what_was_sent,
        a_caller_who_hangs_up_does_not_end_the_command,
    ];
    cases.push(case!(what_is_not_kept_any_more_is_counted).configured("journal_mb = 1\n"));
    cases
}

async fn a_result_is_clipped_to_exactly_its_limit(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let run = |line: &str, limit: u64| {
        let body = json!({ "cmd": line, "output_limit_chars": limit });
        async move { client.post("/v1/sessions/one/exec", &body).await?.must(200) }
    };
    // 1000 numbered words of 10 characters: any missing or repeated one is seen.
    let line = "i=0; while [ $i -lt 1000 ]; do printf '%09d ' $i; i=$((i+1)); done";
    let whole: String = (0..1000).map(|number| format!("{number:09} ")).collect::<Vec<_>>().concat();
    for limit in [100, 500, 4000, 9999] {
        let result = run(line, limit).await?;
        let text = result["stdout"].as_str().context("a text")?;
        ensure!(result["stdout_truncated"] == true && result["stdout_bytes"] == 10_000, "{result}");
        let length = usize::try_from(limit)?;
        ensure!(text.chars().count() == length, "{} characters instead of {limit}", text.chars().count());
        let (head, rest) = text.split_once("\n... [").context("no notice")?;
        let (omitted, tail) = rest.split_once(" characters truncated] ...\n").context("no notice")?;
        let room = head.len() + tail.len();
        ensure!(head.len() == room * 60 / 100, "{} of {room} characters are the beginning", head.len());
        ensure!(whole.starts_with(head) && whole.ends_with(tail), "{text}");
        ensure!(omitted.parse::<usize>()? == whole.len() - room, "{omitted} characters are said to be missing");
    }
    for limit in [10_000, 10_001] {
        let result = run(line, limit).await?;
        ensure!(result["stdout_truncated"] == false && result["stdout"] == whole.as_str());
    }
    // Characters count, not bytes.
    let result = run("i=0; while [ $i -lt 300 ]; do printf é >&2; i=$((i+1)); done", 300).await?;
    ensure!(result["stderr_truncated"] == false && result["stderr_bytes"] == 600, "{result}");
    let result = run("echo short; i=0; while [ $i -lt 300 ]; do printf E >&2; i=$((i+1)); done", 100).await?;
    ensure!(result["stdout_truncated"] == false && result["stdout"] == "short\n", "{result}");
    let errors = result["stderr"].as_str().context("a text")?;
    ensure!(result["stderr_truncated"] == true && errors.contains("characters truncated"), "{result}");
    ensure!(errors.chars().count() == 100, "{} characters of errors instead of 100", errors.chars().count());
    let default = client.exec("one", "head -c 100000 /dev/zero | tr '\\0' x").await?;
    ensure!(default["stdout"].as_str().is_some_and(|text| text.len() == 4000), "the default is 4000 characters");
    Ok(())
}

async fn output_is_read_by_range(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let body = json!({ "cmd": "i=0; while [ $i -lt 20000 ]; do printf '%09d\\n' $i; i=$((i+1)); done; echo oops >&2", "output_limit_chars": 10 });
    let result = client.post("/v1/sessions/one/exec", &body).await?;
    let exec = result.header("strongbox-exec-id").to_owned();
    ensure!(result.json["exec_id"] == exec.as_str());
    let whole: Vec<u8> = (0..20_000).flat_map(|number| format!("{number:09}\n").into_bytes()).collect();
    let path = format!("/v1/sessions/one/execs/{exec}/output");
    let all = client.get(&path).await?;
    ensure!(all.status == 200 && all.bytes == whole, "{} of {} bytes", all.bytes.len(), whole.len());
    ensure!(all.header("strongbox-total") == "200000" && all.header("strongbox-running") == "false");
    let table = [
        ("bytes=0-0", 0..1),
        ("bytes=10-19", 10..20),
        ("bytes=199990-", 199_990..200_000),
        ("bytes=-5", 199_995..200_000),
        ("bytes=199999-300000", 199_999..200_000),
    ];
    for (range, expected) in table {
        let part = client.request("GET", &path).header("range", range).send().await?;
        ensure!(part.status == 206 && part.bytes == whole[expected.clone()], "{range}: {part:?}");
        let told = format!("bytes {}-{}/200000", expected.start, expected.end - 1);
        ensure!(part.header("content-range") == told, "{range}: {}", part.header("content-range"));
    }
    for (query, expected) in [
        ("?from=150000&max=7", 150_000..150_007),
        ("?from=199999", 199_999..200_000),
        ("?from=200000", 0..0),
        ("?from=999999", 0..0),
    ] {
        let part = client.get(&format!("{path}{query}")).await?;
        ensure!(part.status == 200 && part.bytes == whole[expected], "{query}: {part:?}");
    }
    ensure!(client.get(&format!("{path}?stream=stderr")).await?.text() == "oops\n");
    // Piece by piece, as a slow caller would.
    let mut pieces = Vec::new();
    while pieces.len() < whole.len() {
        let piece = client.get(&format!("{path}?from={}&max=65536", pieces.len())).await?;
        ensure!(!piece.bytes.is_empty());
        pieces.extend(piece.bytes);
    }
    ensure!(pieces == whole);
    Ok(())
}

async fn the_journal_tells_more_while_a_command_runs(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let exec = client.start("one", "echo first; until [ -e /workspace/go ]; do sleep 0.01; done; echo second").await?;
    let path = format!("/v1/sessions/one/execs/{exec}/output");
    let first = eventually("the first line", || async {
        let answer = client.get(&path).await?;
        Ok((answer.text() == "first\n").then_some(answer))
    })
    .await?;
    ensure!(first.header("strongbox-running") == "true");
    let still = client.get(&format!("/v1/sessions/one/execs/{exec}/result?timeout_sec=0.05")).await?.must(202)?;
    ensure!(still["status"] == "running", "{still}");
    ensure!(client.get("/v1/sessions/one").await?.must(200)?["status"] == "running");
    client.exec("one", "touch /workspace/go").await?;
    client.get(&format!("/v1/sessions/one/execs/{exec}/result")).await?.must(200)?;
    let all = client.get(&path).await?;
    ensure!(all.text() == "first\nsecond\n" && all.header("strongbox-running") == "false", "{all:?}");
    Ok(())
}

/// What events say of both streams, and how they end.
struct Heard {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    end: Option<Value>,
}

fn hear(events: &[Event]) -> Result<Heard> {
    let mut heard = Heard { stdout: Vec::new(), stderr: Vec::new(), end: None };
    for event in events {
        match event.name.as_str() {
            "output" if event.data["stream"] == "stdout" => heard.stdout.extend(event.output()?),
            "output" => heard.stderr.extend(event.output()?),
            "ended" => heard.end = Some(event.data.clone()),
            "started" => {}
            other => anyhow::bail!("an event that was not expected: {other} {}", event.data),
        }
    }
    Ok(heard)
}

async fn events_tell_a_command_from_start_to_end(door: &mut Door) -> Result<()> {
    let body = json!({ "cmd": "echo out; echo err >&2; printf '\\377\\376'; exit 4" });
    let events = Events::open(door.client.request("POST", "/v1/sessions/one/exec").json(&body)).await?.rest().await?;
    ensure!(
        events.first().is_some_and(|event| event.name == "started" && event.data["exec_id"].is_string()),
        "{events:?}"
    );
    let heard = hear(&events)?;
    ensure!(heard.stdout == b"out\n\xff\xfe" && heard.stderr == b"err\n", "{events:?}");
    let end = heard.end.context("no end")?;
    ensure!(end["exit_code"] == 4 && end["status"] == "completed", "{end}");
    ensure!(events.last().is_some_and(|event| event.name == "ended" && event.id == "0.6.4"), "{events:?}");
    Ok(())
}

async fn a_character_is_never_cut_between_two_events(door: &mut Door) -> Result<()> {
    // Each byte of each character comes alone, with a pause that lets it be sent alone.
    let body = json!({ "cmd": "for i in 1 2 3; do for byte in '\\342' '\\202' '\\254'; do printf $byte; sleep 0.02; done; done" });
    let events = Events::open(door.client.request("POST", "/v1/sessions/one/exec").json(&body)).await?.rest().await?;
    let texts: String = events.iter().filter_map(|event| event.data["text"].as_str()).collect();
    ensure!(texts == "€€€", "{events:?}");
    Ok(())
}

/// A small generator of numbers, so that a failure can be repeated.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Hangs up after a random number of events and comes back behind the last one, again and again.
async fn follow_with_cuts(client: &Client, path: &str, dice: &mut Dice) -> Result<(Heard, usize)> {
    let (mut seen, mut last, mut cuts) = (Vec::new(), None::<String>, 0);
    loop {
        let request = client.request("GET", path);
        let request = match &last {
            Some(id) if dice.roll(2) == 0 => request.header("last-event-id", id),
            Some(id) => client.request("GET", &format!("{path}?cursor={id}")),
            None => request,
        };
        let mut events = Events::open(request).await?;
        for _ in 0..=dice.roll(4) {
            let Some(event) = events.next().await? else { anyhow::bail!("a stream without an end") };
            last = Some(event.id.clone());
            let ended = event.name == "ended";
            seen.push(event);
            if ended {
                return Ok((hear(&seen)?, cuts));
            }
        }
        cuts += 1;
    }
}

async fn going_on_from_any_cut_loses_and_repeats_nothing(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let line = "i=0; while [ $i -lt 3000 ]; do printf 'é%07d\\n' $i; printf '€%d\\n' $i >&2; i=$((i+1)); [ $((i%100)) = 0 ] && sleep 0.01; done; true";
    let out: String = (0..3000).map(|number| format!("é{number:07}\n")).collect::<Vec<_>>().concat();
    let err: String = (0..3000).map(|number| format!("€{number}\n")).collect::<Vec<_>>().concat();
    let mut cuts = 0;
    for seed in 1..=6 {
        let exec = client.start("one", line).await?;
        let path = format!("/v1/sessions/one/execs/{exec}/events");
        // The first half of the seeds follows while it runs, the other half what is kept of it.
        if seed > 3 {
            client.get(&format!("/v1/sessions/one/execs/{exec}/result")).await?.must(200)?;
        }
        let (heard, cut) = follow_with_cuts(client, &path, &mut Dice(seed)).await?;
        ensure!(heard.stdout == out.as_bytes(), "seed {seed}: {} of {} bytes", heard.stdout.len(), out.len());
        ensure!(heard.stderr == err.as_bytes(), "seed {seed}: {} of {} bytes", heard.stderr.len(), err.len());
        ensure!(heard.end.is_some_and(|end| end["exit_code"] == 0));
        cuts += cut;
    }
    ensure!(cuts >= 6, "only {cuts} cuts");
    // From any byte, not only from where events ended.
    let exec =
        client.get("/v1/sessions/one/execs").await?.must(200)?[0]["exec_id"].as_str().context("an id")?.to_owned();
    let mut dice = Dice(99);
    for _ in 0..20 {
        let (from_out, from_err) = (dice.roll(out.len() as u64), dice.roll(err.len() as u64));
        let path = format!("/v1/sessions/one/execs/{exec}/events?cursor=0.{from_out}.{from_err}");
        let heard = hear(&Events::open(client.request("GET", &path)).await?.rest().await?)?;
        ensure!(heard.stdout == out.as_bytes()[usize::try_from(from_out)?..], "from {from_out}");
        ensure!(heard.stderr == err.as_bytes()[usize::try_from(from_err)?..], "from {from_err}");
    }
    Ok(())
}

async fn what_is_not_kept_any_more_is_counted(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let body = json!({ "cmd": "head -c 5000000 /dev/zero | tr '\\0' x; echo the-end" });
    let result = client.post("/v1/sessions/one/exec", &body).await?.must(200)?;
    ensure!(result["stdout_bytes"] == 5_000_008, "{result}");
    let text = result["stdout"].as_str().unwrap_or_default();
    ensure!(text.len() == 4000 && text.ends_with("xxthe-end\n"), "the end is kept, whatever is not");
    let exec = result["exec_id"].as_str().context("an id")?;
    let events =
        Events::open(client.request("GET", &format!("/v1/sessions/one/execs/{exec}/events"))).await?.rest().await?;
    let mut position = 0;
    for event in &events {
        match event.name.as_str() {
            "output" => {
                ensure!(event.data["offset"] == position, "{}", event.data["offset"]);
                position += event.output()?.len() as u64;
            }
            "gap" => position += event.data["bytes"].as_u64().context("a number")?,
            _ => {}
        }
    }
    ensure!(position == 5_000_008, "kept and missing bytes are {position} together");
    ensure!(events.iter().any(|event| event.name == "gap"));
    let part = client.get(&format!("/v1/sessions/one/execs/{exec}/output?from=2500000&max=10")).await?;
    let gap: u64 = part.header("strongbox-gap").parse().unwrap_or(0);
    ensure!(part.status == 200 && (gap == 10 || part.bytes.len() == 10), "{part:?} {gap}");
    Ok(())
}

async fn one_idempotency_key_is_one_command(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let ask = |line: &str, key: &str| {
        let request = client.request("POST", "/v1/sessions/one/exec").header("idempotency-key", key);
        request.json(&json!({ "cmd": line })).send()
    };
    let line = "echo once >> /workspace/count; wc -l < /workspace/count";
    let all = futures_util::future::try_join_all((0..5).map(|_| ask(line, "k1"))).await?;
    let first = &all[0].json;
    ensure!(all.iter().all(|answer| answer.status == 200 && answer.json["exec_id"] == first["exec_id"]), "{all:?}");
    ensure!(all.iter().all(|answer| answer.json["stdout"] == "1\n"), "{all:?}");
    ensure!(ask(line, "k1").await?.must(200)?["exec_id"] == first["exec_id"], "also after its end");
    ask("echo another", "k1").await?.refused(409, "conflict")?;
    ensure!(ask(line, "k2").await?.must(200)?["stdout"] == "2\n", "another key is another command");
    Ok(())
}

async fn commands_are_listed_waited_for_and_cancelled(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.exec("one", "exit 7").await?;
    let running = client.start("one", "(sleep 1234 &); sleep 1234").await?;
    let listed = client.get("/v1/sessions/one/execs").await?.must(200)?;
    ensure!(listed[0]["exit_code"] == 7 && listed[1]["exec_id"] == running.as_str(), "{listed}");
    ensure!(client.get("/v1/sessions/one").await?.must(200)?["execs_running"] == 1);
    client.post_empty(&format!("/v1/sessions/one/execs/{running}/cancel")).await?.must(200)?;
    let result = client.get(&format!("/v1/sessions/one/execs/{running}/result")).await?.must(200)?;
    ensure!(result["signal"] == 9 && result["exit_code"].is_null() && result["status"] == "completed", "{result}");
    let left = client.exec("one", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '[s]leep 1234'").await?;
    ensure!(left["stdout"] == "0\n", "{left}");
    client.post_empty(&format!("/v1/sessions/one/execs/{running}/cancel")).await?.must(200)?;
    client.get("/v1/sessions/one/execs/e-not-there").await?.refused(404, "exec_not_found")?;
    let stats = client.get("/v1/sessions/one/stats").await?.must(200)?;
    ensure!(
        stats.get("cpu_us").is_some() && stats.get("memory_bytes").is_some() && stats.get("pids").is_some(),
        "{stats}"
    );
    Ok(())
}

async fn input_and_signals_reach_a_command(door: &mut Door) -> Result<()> {
    let client = &door.client;
    let body = json!({ "cmd": "trap 'echo got-usr1' USR1; echo ready; cat; echo end", "stdin_stream": true });
    let info = client.post("/v1/sessions/one/exec?wait=false", &body).await?.must(202)?;
    let base = format!("/v1/sessions/one/execs/{}", info["exec_id"].as_str().context("an id")?);
    let stdin =
        |bytes: &'static [u8], end: &str| client.request("POST", &format!("{base}/stdin{end}")).body(bytes).send();
    ensure!(stdin(b"one\n", "").await?.status == 204);
    ensure!(stdin(b"\x00\xfftwo\n", "").await?.status == 204);
    let said = |text: &'static [u8]| {
        let path = format!("{base}/output");
        async move {
            eventually("output", || async { Ok(client.get(&path).await?.bytes.ends_with(text).then_some(())) }).await
        }
    };
    said(b"ready\none\n\x00\xfftwo\n").await?;
    client.post(&format!("{base}/signal"), &json!({ "signal": "USR1" })).await?;
    ensure!(stdin(b"three\n", "?end=true").await?.status == 204);
    let result = client.get(&format!("{base}/result")).await?.must(200)?;
    ensure!(
        result["exit_code"] == 0
            && result["stdout"].as_str().is_some_and(|text| text.contains("got-usr1") && text.contains("three\n")),
        "{result}"
    );
    let late = stdin(b"late", "").await?;
    ensure!(late.status == 409, "{late:?}");
    let killed = client.start("one", "sleep 1000").await?;
    client.post(&format!("/v1/sessions/one/execs/{killed}/signal"), &json!({ "signal": 15 })).await?;
    ensure!(client.get(&format!("/v1/sessions/one/execs/{killed}/result")).await?.must(200)?["signal"] == 15);
    Ok(())
}

async fn stdin_is_what_was_sent(door: &mut Door) -> Result<()> {
    let text: String = (0..200_000).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat();
    let body = json!({ "cmd": "sha256sum; echo done", "stdin": text });
    let result = door.client.post("/v1/sessions/one/exec", &body).await?.must(200)?;
    let expected = std::process::Command::new("sha256sum").stdin(file_with(&text)?).output()?.stdout;
    let expected = String::from_utf8(expected)? + "done\n";
    ensure!(result["stdout"] == expected.as_str(), "{result}");
    let empty = door.client.post("/v1/sessions/one/exec", &json!({ "cmd": "cat; echo done" })).await?.must(200)?;
    ensure!(empty["stdout"] == "done\n", "without input there is an end");
    Ok(())
}

fn file_with(text: &str) -> Result<std::fs::File> {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

async fn a_caller_who_hangs_up_does_not_end_the_command(door: &mut Door) -> Result<()> {
    let client = &door.client;
    client.create("one", &json!({})).await?;
    let body = json!({ "cmd": "echo started; until [ -e /workspace/go ]; do sleep 0.01; done; echo finished" });
    let asked = tokio::spawn(client.request("POST", "/v1/sessions/one/exec").json(&body).send());
    let listed = || async { client.get("/v1/sessions/one/execs").await?.must(200) };
    let exec =
        eventually("the command", || async { Ok(listed().await?[0]["exec_id"].as_str().map(str::to_owned)) }).await?;
    asked.abort();
    let events = Events::open(client.request("GET", &format!("/v1/sessions/one/execs/{exec}/events"))).await?;
    drop(events);
    client.exec("one", "touch /workspace/go").await?;
    let result = client.get(&format!("/v1/sessions/one/execs/{exec}/result")).await?.must(200)?;
    ensure!(result["stdout"] == "started\nfinished\n", "{result}");
    Ok(())
}
