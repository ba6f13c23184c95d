//! The cases of the attack corpus that go through doors, each with its verdict.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use box_tests::corpus::CorpusCase;
use box_tests::http::Answer;
use box_tests::report::Table;
use box_tests::suite::skip;
use box_tests::{Case, Suite, TestServer, host};
use serde_json::{Value, json};

use crate::Door;

/// Categories whose cases of the kinds `api`, `ws` and `zip` concern what this door has.
const CATEGORIES: [&str; 7] = ["api-abuse", "websocket", "mount-policy", "timeouts", "resources", "backend-cli", "zip"];

/// Cases that another case of this suite tries, because more than one request belongs to them; and what it leaves out. They are
/// listed with their verdict and not counted: what counts is that other case.
const TRIED_BY: [(&str, &str, &str); 19] = [
    ("API-01", "auth/a_wrong_token_is_answered_like_none", "times are not compared"),
    ("API-04", "auth/another_tenants_sessions_do_not_exist", "skills, files and uploads, which are not there yet"),
    ("API-06", "auth/a_foreign_host_is_refused_before_the_token", ""),
    (
        "API-08",
        "bad_bytes/deep_and_wide_bodies_are_refused_without_much_memory",
        "bodies over the limit are another case",
    ),
    ("API-09", "bad_input/every_field_survives_every_type", ""),
    (
        "API-12",
        "capacity/there_is_room_for_so_many_sessions",
        "eight for two places, not 10,000; times are not measured",
    ),
    ("API-14", "bad_bytes/a_head_that_dribbles_is_cut_off", "bodies that dribble, pipelines, stalled handshakes"),
    ("BK-04", "sessions/a_deadline_kills_the_command_and_keeps_the_session", ""),
    ("WS-01", "auth/a_websocket_is_refused_before_its_upgrade", ""),
    ("WS-02", "bad_bytes/frames_that_are_too_large_end_the_conversation", "endless empty and one-byte pieces"),
    ("WS-03", "bad_bytes/frames_that_are_no_text_or_no_protocol_end_the_conversation", "characters split over pieces"),
    (
        "WS-04",
        "relay/a_caller_with_a_token_is_told_and_may_take_over",
        "clients without a token wait, as LangBot's protocol has it",
    ),
    ("WS-06", "restart/a_stream_goes_on_over_a_killed_server", "packets that are dropped"),
    ("ZIP-02", "skills/entries_that_are_no_files_are_refused", ""),
    (
        "ZIP-03",
        "skills/bombs_are_refused_before_they_hurt",
        "10 GiB of zeros and nested bombs; ratios are held by the tests of box-skills",
    ),
    (
        "ZIP-04",
        "skills/archives_that_can_be_read_in_two_ways_are_refused",
        "accents, descriptors and 64-bit fields, which the tests of box-skills hold",
    ),
    ("ZIP-05", "skills/parameters_that_are_paths_are_refused", ""),
    ("ZIP-07", "skills/hostile_front_matter_hurts_nobody", "times are not measured"),
    ("ZIP-09", "skills/nothing_of_a_skill_runs_on_the_host", ""),
];

/// Cases that cannot be asked of this door yet, or not within minutes.
const NOT_HERE: [(&str, &str); 4] = [
    ("API-18", "a load test with 64 times 300,000 files takes too long here"),
    ("BK-03", "concerns containers; the suite `security` asks it of engines"),
    ("BK-07", "concerns a backend; the suite `security` asks it of each"),
    ("BK-09", "concerns E2B, and it is not among the backends"),
];

/// Runs them, and writes what came of each into a table.
pub(crate) async fn run(suite: &mut Suite) -> Result<()> {
    let verdicts = Arc::new(Mutex::new(Vec::new()));
    let cases = box_tests::corpus::load()?.cases;
    let ours = |case: &CorpusCase| {
        matches!(case.kind.as_str(), "api" | "ws" | "zip") && CATEGORIES.contains(&case.category.as_str())
    };
    for case in cases.into_iter().filter(ours) {
        if let Some((_, name, left_out)) = TRIED_BY.iter().find(|(id, ..)| *id == case.id) {
            let detail = tried_by(name, left_out)?;
            let row = [case.id, case.title, "elsewhere".to_owned(), detail];
            verdicts.lock().unwrap_or_else(PoisonError::into_inner).push(row);
            continue;
        }
        let (name, verdicts) = (format!("corpus/{}", case.id), Arc::clone(&verdicts));
        suite.run(Case::new(name, move || judged(case, verdicts))).await;
    }
    let mut table = Table::new("doors-corpus", &["case", "title", "verdict", "detail"]);
    for row in verdicts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let row: &[String; 4] = row;
        table.row(row.iter().map(String::as_str));
    }
    table.write()
}

/// Says which case tries it, if there is one of that name.
fn tried_by(name: &str, left_out: &str) -> Result<String> {
    let mut known = crate::all()
        .into_iter()
        .flat_map(|(group, cases)| cases.into_iter().map(move |case| format!("{group}/{}", case.name)));
    ensure!(known.any(|known| known == name), "unknown case {name}");
    Ok(if left_out.is_empty() { format!("see {name}") } else { format!("see {name}; not tried: {left_out}") })
}

async fn judged(case: CorpusCase, verdicts: Arc<Mutex<Vec<[String; 4]>>>) -> Result<()> {
    let outcome = judge(&case).await;
    let (verdict, detail) = match &outcome {
        // The corpus wants a narrow grammar of ids; here any readable text is one, and never becomes the name of a file.
        Ok(detail) if case.id == "API-10" => ("deviates, harmlessly", detail.clone()),
        Ok(detail) => ("held", detail.clone()),
        Err(error) if error.is::<box_tests::Skip>() => ("skipped", error.to_string()),
        Err(error) => ("FAILED", format!("{error:#}")),
    };
    let row = [case.id, case.title, verdict.to_owned(), detail];
    verdicts.lock().unwrap_or_else(PoisonError::into_inner).push(row);
    outcome.map(drop)
}

async fn judge(case: &CorpusCase) -> Result<String> {
    if let Some((_, reason)) = NOT_HERE.iter().find(|(id, _)| *id == case.id) {
        return skip(*reason);
    }
    let server = TestServer::start().await?;
    let client = server.client()?;
    let mut door = Door { server, client };
    let detail = knock(case, &mut door).await?;
    ensure!(door.client.get("/healthz").await?.status == 200, "the server does not answer any more");
    door.server.finish().await?;
    Ok(detail)
}

async fn knock(case: &CorpusCase, door: &mut Door) -> Result<String> {
    let canary = canary(door)?;
    let before = host::tree(&canary)?;
    let detail = match case.id.as_str() {
        "MNT-05" => swapped_component(door).await?,
        "MNT-07" => many_mounts(door).await?,
        "RES-17" => each(case, door, huge(), "POST /v1/sessions/x/exec").await?,
        "API-07" => each(case, door, bodies(case)?, "raw").await?,
        "TMO-08" | "API-19" => each(case, door, variants(case, door)?, "POST /v1/sessions/x/exec").await?,
        _ => each(case, door, variants(case, door)?, "POST /v1/sessions").await?,
    };
    ensure!(host::tree(&canary)? == before, "something of the host was changed");
    Ok(detail)
}

/// A directory of the host that no box may come near, and ways to it that look allowed.
fn canary(door: &Door) -> Result<std::path::PathBuf> {
    let mounts = door.server.mounts()?;
    let canary = mounts.parent().context("a parent")?.join("canary");
    std::fs::create_dir(&canary)?;
    std::fs::write(canary.join("secret"), "untouched")?;
    std::fs::create_dir(mounts.join("a"))?;
    std::os::unix::fs::symlink("/etc", mounts.join("link-to-etc"))?;
    std::os::unix::fs::symlink(mounts.join("link-to-etc"), mounts.join("link-to-link-to-etc"))?;
    Ok(canary)
}

/// The bodies of a case: its variants, laid over what the call needs.
fn variants(case: &CorpusCase, door: &Door) -> Result<Vec<(String, Vec<u8>)>> {
    let listed = case.run["variants"].as_array().cloned();
    let listed = listed.unwrap_or_else(|| vec![case.run["body"].clone()]);
    let allowed = door.server.mounts()?.display().to_string();
    let mut bodies = Vec::new();
    for variant in listed {
        let variant = generated(&variant);
        let told = variant.to_string();
        let fields = variant.get("extra_field").unwrap_or(&variant);
        let mut body = if case.run["op"] == "exec" { json!({ "cmd": "true" }) } else { json!({}) };
        for (name, value) in fields.as_object().with_context(|| format!("{told} is not an object"))? {
            let name = if name == "mode" { "host_path_mode" } else { name };
            body[name] = value.clone();
        }
        let needs_source = body.get("mount_path").is_some() || body.get("host_path_mode").is_some();
        if needs_source && body.get("host_path").is_none() {
            body["host_path"] = format!("{allowed}/a").into();
        }
        let text = body.to_string().replace("{ALLOWED}", &allowed);
        bodies.push((told.chars().take(80).collect(), text.into_bytes()));
    }
    Ok(bodies)
}

/// Values that the corpus describes rather than writes down.
fn generated(variant: &Value) -> Value {
    let mut variant = variant.clone();
    for value in variant.as_object_mut().into_iter().flat_map(|fields| fields.values_mut()) {
        let Some(formula) = value.get("$gen").and_then(Value::as_str) else { continue };
        *value = match formula {
            "'/'+'x'*5000" => format!("/{}", "x".repeat(5000)).into(),
            _ => "a".repeat(300).into(),
        };
    }
    variant
}

fn bodies(case: &CorpusCase) -> Result<Vec<(String, Vec<u8>)>> {
    let listed = case.run["bodies"].as_array().context("no bodies")?;
    Ok(listed.iter().filter_map(Value::as_str).map(|text| (text.to_owned(), text.as_bytes().to_vec())).collect())
}

fn huge() -> Vec<(String, Vec<u8>)> {
    let many: serde_json::Map<String, Value> = (0..100_000).map(|number| (format!("V{number}"), "".into())).collect();
    let bodies = [
        ("2 MiB of command", json!({ "cmd": format!("echo {}", "a".repeat(2 << 20)) })),
        ("one argument of 131,073 bytes", json!({ "command": ["echo", "a".repeat(131_073)] })),
        ("100,000 variables", json!({ "cmd": "true", "env": many })),
        ("a variable of 4 MiB", json!({ "cmd": "true", "env": { "A": "a".repeat(4 << 20) } })),
        ("a name with =", json!({ "cmd": "true", "env": { "A=B": "x" } })),
        ("no name", json!({ "cmd": "true", "env": { "": "x" } })),
        ("a value with NUL", json!({ "cmd": "true", "env": { "X": "a\u{0}b" } })),
        ("200,000 arguments", json!({ "command": vec!["x"; 200_000] })),
    ];
    bodies.into_iter().map(|(told, body)| (told.to_owned(), body.to_string().into_bytes())).collect()
}

/// Sends every body, and holds what the corpus expects of each answer.
async fn each(case: &CorpusCase, door: &Door, bodies: Vec<(String, Vec<u8>)>, call: &str) -> Result<String> {
    let allowed: Vec<u64> = case
        .expect
        .get("status_in")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    let path = if call.ends_with("/sessions") { "/v1/sessions" } else { "/v1/sessions/x/exec" };
    let (mut taken, mut refused) = (0, 0);
    for (told, body) in bodies {
        let answer = door.client.post_raw(path, body).await.with_context(|| told.clone())?;
        // The corpus says 200 for everything that works.
        let status = if answer.status == 201 { 200 } else { u64::from(answer.status) };
        ensure!(status < 500, "{told}: {answer:?}");
        if !allowed.is_empty() && !allowed.contains(&status) && !is_harmless(case, &told, &answer) {
            bail!("{told}: {answer:?}");
        }
        if status == 200 {
            taken += 1;
            let session = answer.json["session_id"].as_str().context("an answer without a session")?;
            let escaped: String = session.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
            door.client.delete(&format!("/v1/sessions/{escaped}")).await?.must(200).with_context(|| told.clone())?;
        } else {
            ensure!(answer.json["error"]["message"].is_string(), "{told}: {answer:?}");
            refused += 1;
        }
        ensure!(door.client.sessions().await?.is_empty(), "{told} left a session");
    }
    let log = door.server.log();
    ensure!(!log.chars().any(|letter| letter.is_control() && letter != '\n'), "raw control characters in the log");
    ensure!(taken + refused > 0, "nothing was asked");
    Ok(format!("{refused} refused, {taken} taken"))
}

/// Where this door takes what the corpus would refuse, because nothing is asked by it: no path, no mount, nothing said.
fn is_harmless(case: &CorpusCase, told: &str, answer: &Answer) -> bool {
    let mounts_nothing = answer.json["host_path"].is_null() || answer.json["host_path_mode"] == "none";
    match case.id.as_str() {
        "MNT-03" => told == r#"{"host_path":""}"# && answer.status == 201 && mounts_nothing,
        "MNT-08" => matches!(told, r#"{"mode":"none"}"# | r#"{"mode":null}"#) && answer.status == 201,
        _ => false,
    }
}

/// A box that may write a shared directory makes a way out of a part of it, and another is to get that part.
async fn swapped_component(door: &Door) -> Result<String> {
    let shared = door.server.mounts()?.join("shared");
    std::fs::create_dir_all(&shared)?;
    door.client.create("a", &json!({ "host_path": shared })).await?;
    let swapped = door.client.exec("a", "ln -s /etc /workspace/sub && ls -l /workspace").await?;
    ensure!(swapped["exit_code"] == 0, "{swapped}");
    let error = door
        .client
        .post("/v1/sessions/b", &json!({ "host_path": shared.join("sub") }))
        .await?
        .refused(400, "validation_error")?;
    ensure!(error["detail_code"] == "mount_denied", "{error}");
    ensure!(door.client.sessions().await?.len() == 1);
    Ok(error["message"].as_str().unwrap_or_default().to_owned())
}

async fn many_mounts(door: &Door) -> Result<String> {
    let source = door.server.mounts()?.join("a");
    let mount = |target: &str, mode: &str| json!({ "host_path": source, "mount_path": target, "mode": mode });
    let table = [
        ("the same target twice", json!([mount("/mnt/x", "ro"), mount("/mnt/x", "rw")])),
        ("a parent after its child", json!([mount("/mnt/x/y", "ro"), mount("/mnt/x", "ro")])),
        ("a parent before its child", json!([mount("/mnt/x", "ro"), mount("/mnt/x/y", "rw")])),
        ("1,000 mounts", (0..1000).map(|number| mount(&format!("/mnt/{number}"), "ro")).collect::<Vec<_>>().into()),
    ];
    let mut told = Vec::new();
    for (what, mounts) in table {
        let answer = door.client.post("/v1/sessions/many", &json!({ "extra_mounts": mounts })).await?;
        ensure!(matches!(answer.status, 201 | 400 | 422), "{what}: {answer:?}");
        told.push(format!("{what}: {}", answer.status));
        if answer.status == 201 {
            door.client.delete("/v1/sessions/many").await?.must(200)?;
        }
        ensure!(what != "1,000 mounts" || answer.status == 400, "{answer:?}");
    }
    Ok(told.join(", "))
}
