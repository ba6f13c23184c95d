//! Code in contexts that keep their names: results, errors, deadlines, limits and streams.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use box_tests::events::Events;
use box_tests::http::Client;
use serde_json::{Value, json};

use crate::{Door, DoorCase, case, cases, eventually};

pub(crate) fn cases() -> Vec<DoorCase> {
    let mut cases = cases![
        names_stay_between_two_calls,
        an_error_is_a_result_with_its_traceback,
        an_unknown_language_is_refused_with_those_that_there_are,
        a_missing_interpreter_names_what_to_install,
        a_passed_deadline_interrupts_the_code_and_keeps_the_names,
        code_that_waits_for_a_busy_context_has_a_deadline_too,
        a_result_has_no_more_text_than_its_limit,
        events_tell_code_as_it_runs,
        a_client_that_hangs_up_interrupts_its_code,
        contexts_are_made_listed_restarted_and_deleted,
        a_session_that_is_deleted_ends_its_code_with_an_error,
        a_tool_for_code_answers_for_a_model,
    ];
    cases.push(case!(an_idle_context_keeps_no_session).configured("session_ttl_sec = 2\n"));
    cases
}

const CODE: &str = "/v1/sessions/one/code";

async fn run(client: &Client, body: Value) -> Result<Value> {
    client.post(CODE, &body).await?.must(200)
}

async fn names_stay_between_two_calls(door: &mut Door) -> Result<()> {
    let first = run(&door.client, json!({ "code": "x = 6 * 7\nprint('out')\nx" })).await?;
    ensure!(first["status"] == "completed" && first["stdout"] == "out\n" && first["error"].is_null(), "{first}");
    ensure!(first["results"][0]["text"] == "42" && first["results"][0]["is_main_result"] == true, "{first}");
    ensure!(first["context_id"] == "default-python" && first["execution_count"] == 1, "{first}");
    let second = run(&door.client, json!({ "code": "x + 1" })).await?;
    ensure!(second["results"][0]["text"] == "43" && second["execution_count"] == 2, "{second}");
    let pwd =
        run(&door.client, json!({ "code": "pwd; echo $A; y=5", "language": "bash", "env": { "A": "b" } })).await?;
    ensure!(pwd["stdout"] == "/workspace\nb\n" && pwd["context_id"] == "default-bash", "{pwd}");
    let again = run(&door.client, json!({ "code": "echo $y$A", "context_id": "default-bash" })).await?;
    ensure!(again["stdout"] == "5\n", "{again}");
    Ok(())
}

async fn an_error_is_a_result_with_its_traceback(door: &mut Door) -> Result<()> {
    let failed = run(&door.client, json!({ "code": "kept = 1\ndef f(): return 1 / 0\nf()" })).await?;
    ensure!(failed["status"] == "failed" && failed["error"]["name"] == "ZeroDivisionError", "{failed}");
    let traceback = failed["error"]["traceback"].as_str().context("no traceback")?;
    ensure!(traceback.contains("line 3") && traceback.contains("in f"), "{traceback}");
    let died = run(&door.client, json!({ "code": "import os\nos._exit(3)" })).await?;
    ensure!(died["status"] == "failed" && died["error"]["name"] == "ContextDied", "{died}");
    let fresh = run(&door.client, json!({ "code": "'kept' in globals()" })).await?;
    ensure!(fresh["results"][0]["text"] == "False", "{fresh}");
    Ok(())
}

async fn an_unknown_language_is_refused_with_those_that_there_are(door: &mut Door) -> Result<()> {
    let refused = door.client.post(CODE, &json!({ "code": "1", "language": "cobol" })).await?;
    let error = refused.refused(400, "validation_error")?;
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(error["field"] == "language" && message.contains("cobol") && message.contains("python"), "{error}");
    for (body, field) in [
        (json!({ "code": "1", "language": "bash", "context_id": "default-bash" }), "context_id"),
        (json!({ "code": "1", "env": { "": "x" } }), "env"),
        (json!({ "language": "bash" }), "code"),
    ] {
        let error = door.client.post(CODE, &body).await?.refused(400, "validation_error")?;
        ensure!(error["field"] == field, "{error}");
    }
    ensure!(door.client.sessions().await?.is_empty(), "what is refused makes nothing");
    let missing = door.client.post(CODE, &json!({ "code": "1", "context_id": "none" })).await?;
    missing.refused(404, "code_context_not_found")?;
    Ok(())
}

async fn a_missing_interpreter_names_what_to_install(door: &mut Door) -> Result<()> {
    // A program that only has the name comes before the real one.
    let line = "mkdir -p bin; printf '#!/bin/sh\\nexit 127\\n' > bin/python3; chmod +x bin/python3";
    door.client.create("two", &json!({ "env": { "PATH": "/workspace/bin:/usr/bin:/bin" } })).await?;
    door.client.exec("two", line).await?;
    let refused = door.client.post("/v1/sessions/two/code", &json!({ "code": "1" })).await?;
    let error = refused.refused(422, "interpreter_missing")?;
    let message = error["message"].as_str().unwrap_or_default();
    ensure!(message.contains("python3 (3.8 or later)") && message.contains("install"), "{error}");
    Ok(())
}

async fn a_passed_deadline_interrupts_the_code_and_keeps_the_names(door: &mut Door) -> Result<()> {
    run(&door.client, json!({ "code": "kept = 1" })).await?;
    let code = "import time\nprint('begun', flush=True)\ntime.sleep(60)";
    let late = run(&door.client, json!({ "code": code, "timeout_sec": 1 })).await?;
    ensure!(late["status"] == "timed_out" && late["stdout"] == "begun\n", "{late}");
    let value = late["error"]["value"].as_str().unwrap_or_default();
    ensure!(late["error"]["name"] == "TimeoutError" && value.contains("keeps its names"), "{late}");
    ensure!(late["timeout_ms"] == 1000, "{late}");
    let next = run(&door.client, json!({ "code": "kept" })).await?;
    ensure!(next["results"][0]["text"] == "1", "{next}");
    let stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass";
    let late = run(&door.client, json!({ "code": stubborn, "timeout_sec": 1 })).await?;
    let value = late["error"]["value"].as_str().unwrap_or_default();
    ensure!(late["status"] == "timed_out" && value.contains("restarted"), "{late}");
    let next = run(&door.client, json!({ "code": "'kept' in globals()" })).await?;
    ensure!(next["results"][0]["text"] == "False" && next["stderr"].to_string().contains("restarted"), "{next}");
    Ok(())
}

async fn code_that_waits_for_a_busy_context_has_a_deadline_too(door: &mut Door) -> Result<()> {
    run(&door.client, json!({ "code": "import time" })).await?;
    let busy = run(&door.client, json!({ "code": "time.sleep(5)\n'woke'" }));
    let waiting = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        run(&door.client, json!({ "code": "1", "timeout_sec": 0.5 })).await
    };
    let (busy, waiting) = tokio::try_join!(busy, waiting)?;
    ensure!(busy["results"][0]["text"] == "woke", "{busy}");
    ensure!(waiting["status"] == "timed_out" && waiting["execution_count"].is_null(), "{waiting}");
    Ok(())
}

async fn a_result_has_no_more_text_than_its_limit(door: &mut Door) -> Result<()> {
    let code = "print('x' * 100000)\n'y' * 100000";
    let result = run(&door.client, json!({ "code": code, "output_limit_chars": 1000 })).await?;
    let length = |text: &Value| text.as_str().map_or(0, |text| text.chars().count());
    ensure!(result["stdout_truncated"] == true && length(&result["stdout"]) == 1000, "{result}");
    ensure!(length(&result["results"][0]["text"]) <= 1000, "{result}");
    let default = run(&door.client, json!({ "code": code })).await?;
    ensure!(length(&default["stdout"]) == 4000, "the default is that of commands");
    let many = "for i in range(300): display(i)";
    let result = run(&door.client, json!({ "code": many })).await?;
    let shown = result["results"].as_array().context("a list")?.len();
    ensure!(shown == 256 && result["results_dropped"] == 44, "{shown} {}", result["results_dropped"]);
    Ok(())
}

async fn events_tell_code_as_it_runs(door: &mut Door) -> Result<()> {
    let code = "import sys\nprint('one')\nprint('two', file=sys.stderr)\ndisplay(3)\n1 / 0";
    let events = Events::open(door.client.request("POST", CODE).json(&json!({ "code": code }))).await?.rest().await?;
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    ensure!(names.first() == Some(&"started") && names.last() == Some(&"ended"), "{names:?}");
    let of = |name: &str| events.iter().filter(|event| event.name == name).map(|event| &event.data).collect::<Vec<_>>();
    let printed = |stream: &str| {
        let all = of("output").into_iter().filter(|data| data["stream"] == stream);
        all.filter_map(|data| data["text"].as_str()).collect::<String>()
    };
    ensure!(printed("stdout") == "one\n" && printed("stderr") == "two\n", "{events:?}");
    ensure!(of("result")[0]["text"] == "3" && of("failed")[0]["name"] == "ZeroDivisionError", "{events:?}");
    let ended = of("ended")[0];
    ensure!(ended["status"] == "failed" && ended["stdout"] == "one\n", "{ended}");
    Ok(())
}

async fn a_client_that_hangs_up_interrupts_its_code(door: &mut Door) -> Result<()> {
    let code = "import time\nprint('begun', flush=True)\ntime.sleep(600)";
    let mut events =
        Events::open(door.client.request("POST", CODE).json(&json!({ "code": code, "timeout_sec": 100 }))).await?;
    while events.next().await?.context("the end")?.name != "output" {}
    drop(events);
    let next = run(&door.client, json!({ "code": "'free'" })).await?;
    ensure!(next["results"][0]["text"] == "free", "{next}");
    Ok(())
}

async fn contexts_are_made_listed_restarted_and_deleted(door: &mut Door) -> Result<()> {
    let contexts = format!("{CODE}/contexts");
    let made = door.client.post(&contexts, &json!({ "language": "bash", "cwd": "/tmp" })).await?.must(201)?;
    let id = made["context_id"].as_str().context("no id")?;
    ensure!(made["language"] == "bash" && made["cwd"] == "/tmp" && made["running"] == true, "{made}");
    let other = door.client.post(&contexts, &json!({})).await?.must(201)?;
    ensure!(other["language"] == "python", "{other}");
    let set = run(&door.client, json!({ "code": "x=1; pwd", "context_id": id })).await?;
    ensure!(set["stdout"] == "/tmp\n", "{set}");
    run(&door.client, json!({ "code": "1" })).await?;
    let listed = door.client.get(&contexts).await?.must(200)?;
    let ids: Vec<_> =
        listed.as_array().context("a list")?.iter().filter_map(|each| each["context_id"].as_str()).collect();
    ensure!(ids.len() == 3 && ids.contains(&id) && ids.contains(&"default-python"), "{listed}");
    let restarted = door.client.post_empty(&format!("{contexts}/{id}/restart")).await?.must(200)?;
    ensure!(restarted["context_id"] == id && restarted["started_at"] != made["started_at"], "{restarted}");
    let gone = run(&door.client, json!({ "code": "echo \"<$x>\"", "context_id": id })).await?;
    ensure!(gone["stdout"] == "<>\n", "{gone}");
    door.client.delete(&format!("{contexts}/{id}")).await?.must(204)?;
    door.client.delete(&format!("{contexts}/{id}")).await?.refused(404, "code_context_not_found")?;
    let body = json!({ "code": "1", "context_id": id });
    door.client.post(CODE, &body).await?.refused(404, "code_context_not_found")?;
    for _ in 0..30 {
        door.client.post(&contexts, &json!({ "language": "bash" })).await?.must(201)?;
    }
    let full = door.client.post(&contexts, &json!({ "language": "bash" })).await?;
    let error = full.refused(429, "capacity_exceeded")?;
    ensure!(error["message"].as_str().is_some_and(|text| text.contains("32")), "{error}");
    Ok(())
}

async fn a_session_that_is_deleted_ends_its_code_with_an_error(door: &mut Door) -> Result<()> {
    let body = json!({ "code": "print('begun', flush=True)\nwhile True: pass", "timeout_sec": 100 });
    let mut events = Events::open(door.client.request("POST", CODE).json(&body)).await?;
    while events.next().await?.context("the end")?.name != "output" {}
    door.client.delete("/v1/sessions/one").await?.must(200)?;
    let rest = events.rest().await?;
    let last = rest.last().context("no event")?;
    ensure!(last.name == "error" && !last.data["error"]["message"].is_null(), "{rest:?}");
    Ok(())
}

async fn a_tool_for_code_answers_for_a_model(door: &mut Door) -> Result<()> {
    let tool = async |parameters: Value| {
        let query = json!({ "query_id": 7, "launcher_type": "person", "launcher_id": "u" });
        let body = json!({ "parameters": parameters, "query": query });
        door.client.post("/v1/tools/run_code", &body).await?.must(200)
    };
    let first = tool(json!({ "code": "x = 41\nprint('out')\nx + 1" })).await?;
    ensure!(first["ok"] == true && first["text"] == "42" && first["stdout"] == "out\n", "{first}");
    let failed = tool(json!({ "code": "y" })).await?;
    ensure!(failed["ok"] == false && failed["error"]["code"] == "code_failed", "{failed}");
    ensure!(failed["error"]["traceback"].to_string().contains("NameError"), "{failed}");
    let image = tool(json!({ "code": "display({'image/png': b'png', 'text/plain': 'p'}, raw=True)" })).await?;
    ensure!(image.get("images").is_none() && image["displayed"] == json!(["p"]), "{image}");
    ensure!(image["notice"].to_string().contains("1 displayed image"), "{image}");
    let restarted = tool(json!({ "code": "'x' in globals()", "restart": true })).await?;
    ensure!(restarted["text"] == "False", "{restarted}");
    Ok(())
}

async fn an_idle_context_keeps_no_session(door: &mut Door) -> Result<()> {
    let result = run(&door.client, json!({ "code": "import time\ntime.sleep(4)\n'kept'" })).await?;
    ensure!(result["results"][0]["text"] == "kept", "code that runs keeps its session: {result}");
    let client = &door.client;
    eventually("the session expires", async || Ok(client.sessions().await?.is_empty().then_some(()))).await
}
