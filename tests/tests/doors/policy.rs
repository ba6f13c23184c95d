//! What callers are allowed: profiles, what they lock, tokens that are bound to one, and what may be mounted.

use anyhow::{Result, ensure};
use box_tests::server::ServerOptions;
use box_tests::{Case, TestServer};
use serde_json::{Value, json};

use crate::{Door, DoorCase, case, cases, eventually};

/// A profile that locks nearly everything.
const STRICT: &str = "\
[profiles.strict]
inherits = 'offline_readonly'
cpus = 0.5
memory_mb = 64
timeout_sec = 1
timeout_sec_max = 1
locked = ['cpus', 'memory_mb', 'extra_mounts', 'persistent', 'ttl_sec']
";

pub(crate) fn cases() -> Vec<DoorCase> {
    let mut cases = cases![
        denied_places_are_denied_to_every_mount_alike,
        a_denied_mount_does_not_tell_what_exists,
        mounts_show_the_same_in_whatever_order_they_are_asked,
        a_session_that_names_no_workspace_gets_the_default_one,
    ];
    cases.extend([
        case!(what_a_profile_locks_wins_over_the_caller).configured(STRICT),
        case!(a_deadline_is_cut_however_it_is_written).configured(STRICT),
        case!(a_token_that_is_bound_to_a_profile_gets_no_other).configured(STRICT),
        case!(profiles_are_changed_while_the_server_runs).configured(STRICT),
    ]);
    cases
}

/// Cases whose server does not start.
pub(crate) fn own_servers() -> Vec<Case> {
    vec![
        Case::new("policy/a_default_workspace_outside_of_the_roots_stops_the_start", outside_of_the_roots),
        Case::new("policy/a_profile_that_does_not_exist_stops_the_start", unknown_profiles),
    ]
}

async fn what_a_profile_locks_wins_over_the_caller(door: &mut Door) -> Result<()> {
    let work = door.server.mounts()?.join("work");
    std::fs::create_dir(&work)?;
    let mount = json!({ "host_path": work, "mount_path": "/mnt/more", "mode": "rw" });
    let greedy = json!({
        "profile": "strict", "network": "on", "host_path": work, "host_path_mode": "rw", "read_only_rootfs": false, "cpus": 4,
        "memory_mb": 4096, "pids_limit": 32, "extra_mounts": [mount], "persistent": true, "ttl_sec": 100_000,
    });
    let made = door.client.create("s", &greedy).await?;
    let expected = [
        ("network", json!("off")),
        ("host_path_mode", json!("ro")),
        ("read_only_rootfs", json!(true)),
        ("cpus", json!(0.5)),
        ("memory_mb", json!(64)),
        ("pids_limit", json!(32)),
        ("extra_mounts", json!([])),
        ("persistent", json!(false)),
        ("ttl_sec", json!(300)),
    ];
    for (field, value) in expected {
        ensure!(made[field] == value, "{field} is {}, not {value}", made[field]);
    }
    ensure!(made.get("locked").is_none(), "the profile tells what it locks, not the session: {made}");
    let tried =
        door.client.exec("s", "touch /workspace/x; touch /usr/x; ls /mnt/more; grep -c : /proc/net/dev").await?;
    ensure!(tried["stdout"] == "1\n", "only a loopback: {tried}");
    ensure!(std::fs::read_dir(&work)?.next().is_none(), "the workspace was written to");
    let again = door.client.post("/v1/sessions/s", &greedy).await?;
    ensure!(again.header("strongbox-created") == "existing", "a locked value does not conflict: {again:?}");
    door.client.patch("/v1/sessions/s", &json!({ "ttl_sec": 100_000 })).await?.refused(409, "conflict")?;
    Ok(())
}

async fn a_deadline_is_cut_however_it_is_written(door: &mut Door) -> Result<()> {
    for timeout_sec in [json!(999), json!("999"), json!(999.0)] {
        let body = json!({ "profile": "strict", "cmd": "sleep 1000", "timeout_sec": timeout_sec });
        let result = door.client.post("/v1/sessions/s/exec", &body).await?.must(200)?;
        ensure!(result["status"] == "timed_out", "{timeout_sec}: {result}");
    }
    Ok(())
}

async fn a_token_that_is_bound_to_a_profile_gets_no_other(door: &mut Door) -> Result<()> {
    door.client.create("wide", &json!({ "profile": "network_extended" })).await?;
    let bound = door.client.with_token(&door.server.token(&["--name", "guests", "--profile", "strict"])?);
    eventually("the token", || async { Ok((bound.get("/v1/status").await?.status == 200).then_some(())) }).await?;
    let made = bound.create("own", &json!({ "network": "on" })).await?;
    ensure!(made["profile"] == "strict" && made["network"] == "off", "{made}");
    bound.create("own", &json!({ "profile": "strict" })).await?;
    let other = bound.post("/v1/sessions/other", &json!({ "profile": "default" })).await?;
    let error = other.refused(400, "validation_error")?;
    ensure!(error["message"].as_str().is_some_and(|text| text.contains("bound")), "{error}");
    let tries = [
        bound.get("/v1/sessions/wide").await?,
        bound.post("/v1/sessions/wide", &json!({})).await?,
        bound.post("/v1/sessions/wide/exec", &json!({ "cmd": "true" })).await?,
        bound.post("/v1/sessions/wide/processes", &json!({ "command": "cat" })).await?,
        bound.delete("/v1/sessions/wide").await?,
    ];
    for tried in tries {
        tried.refused(409, "conflict")?;
    }
    let listed = bound.get("/v1/profiles").await?.must(200)?;
    ensure!(names(&listed) == ["strict"], "{listed}");
    let rows: Value = serde_json::from_str(&door.server.verb(&["token", "list"], &["--json"])?)?;
    ensure!(rows[0]["profile"] == "strict", "{rows}");
    let unknown = door.server.token(&["--name", "x", "--profile", "nonexistent"]).map_err(|error| error.to_string());
    ensure!(unknown.as_ref().is_err_and(|said| said.contains("network_basic, network_extended")), "{unknown:?}");
    Ok(())
}

async fn profiles_are_changed_while_the_server_runs(door: &mut Door) -> Result<()> {
    let built_in = ["default", "offline_readonly", "network_basic", "network_extended", "debug", "e2b"];
    let listed = door.client.get("/v1/profiles").await?.must(200)?;
    ensure!(names(&listed)[..6] == built_in && names(&listed)[6..] == ["strict"], "{listed}");
    ensure!(listed[1]["locked"] == json!(["network", "host_path_mode", "read_only_rootfs"]), "{listed}");
    ensure!(listed[0]["ptrace"] == false && listed[4]["ptrace"] == true, "{listed}");
    door.server.reload("default_profile = 'small'\n[profiles.small]\nmemory_mb = 48\n")?;
    eventually("the new profile", || async {
        let listed = door.client.get("/v1/profiles").await?.must(200)?;
        Ok((names(&listed)[6..] == ["small"]).then_some(()))
    })
    .await?;
    let made = door.client.create("s", &json!({})).await?;
    ensure!(made["profile"] == "small" && made["memory_mb"] == 48, "{made}");
    door.client.post("/v1/sessions/t", &json!({ "profile": "strict" })).await?.refused(400, "validation_error")?;
    door.server.reload("default_profile = 'nonexistent'\n")?;
    eventually("the refusal in the log", || async {
        Ok(door.server.log().contains("the old one stays").then_some(()))
    })
    .await?;
    ensure!(door.client.create("u", &json!({})).await?["profile"] == "small", "a bad one changes nothing");
    Ok(())
}

async fn a_session_that_names_no_workspace_gets_the_default_one(door: &mut Door) -> Result<()> {
    let workspace = door.server.mounts()?.join("shared/default");
    let root = door.server.mounts()?.join("shared");
    door.server.reload(&format!("host_root = '{}'\n", root.display()))?;
    door.server.restart().await?;
    door.client = door.server.client()?;
    ensure!(workspace.is_dir(), "it is made at the start");
    let made = door.client.create("s", &json!({})).await?;
    ensure!(made["host_path"] == json!(workspace) && made["host_path_mode"] == "rw", "{made}");
    let written = door.client.exec("s", "echo words > /workspace/note && pwd").await?;
    ensure!(written["stdout"] == "/workspace\n", "{written}");
    ensure!(std::fs::read_to_string(workspace.join("note"))? == "words\n");
    let alone = door.client.create("alone", &json!({ "host_path": null })).await?;
    ensure!(alone["host_path"].is_null(), "{alone}");
    let acme = door.client.with_token(&door.server.token(&["--name", "acme", "--tenant", "acme"])?);
    eventually("the token", || async { Ok((acme.get("/v1/status").await?.status == 200).then_some(())) }).await?;
    let theirs = acme.create("s", &json!({})).await?;
    ensure!(theirs["host_path"].is_null(), "tenants do not share a directory unasked: {theirs}");
    Ok(())
}

/// MNT-03 for `extra_mounts`: the corpus tries the workspace.
async fn denied_places_are_denied_to_every_mount_alike(door: &mut Door) -> Result<()> {
    let allowed = door.server.mounts()?;
    std::os::unix::fs::symlink("/etc", allowed.join("link"))?;
    std::fs::create_dir(allowed.join("good"))?;
    let spelled = |end: &str| format!("{}{end}", allowed.display());
    let mut tricks: Vec<String> = [
        "/",
        "/etc",
        "//etc",
        "/./etc",
        "/usr/../etc",
        "/etc/",
        "/proc/self/root/etc",
        "/proc/1/cwd",
        "/usr",
        "/tmp",
        "etc",
    ]
    .map(str::to_owned)
    .into();
    tricks.extend([spelled("/link"), spelled("/../../../../etc"), spelled("/missing"), spelled("/good\u{0}/etc")]);
    tricks.push(door.server.state().display().to_string());
    for trick in tricks {
        let mount = json!({ "host_path": trick, "mount_path": "/mnt/x", "mode": "ro" });
        for body in [json!({ "host_path": trick }), json!({ "extra_mounts": [mount] })] {
            let answer = door.client.post("/v1/sessions/s", &body).await?;
            ensure!(answer.status == 400, "{trick:?}: {answer:?}");
        }
    }
    ensure!(!allowed.join("missing").exists() && door.client.sessions().await?.is_empty());
    let mount = json!({ "host_path": allowed.join("good"), "mount_path": "/mnt/x", "mode": "ro" });
    door.client.create("s", &json!({ "extra_mounts": [mount] })).await?;
    Ok(())
}

async fn a_denied_mount_does_not_tell_what_exists(door: &mut Door) -> Result<()> {
    let (allowed, outside) = (door.server.mounts()?, tempfile::tempdir()?);
    std::fs::create_dir(outside.path().join("here"))?;
    std::fs::write(outside.path().join("file"), "")?;
    std::os::unix::fs::symlink(outside.path().join("here"), allowed.join("to-here"))?;
    std::os::unix::fs::symlink(outside.path().join("gone"), allowed.join("to-gone"))?;
    let below = |name: &str| outside.path().join(name).display().to_string();
    let link = |name: &str| allowed.join(name).display().to_string();
    for [one, other] in [
        [below("here"), below("gone")],
        [below("file"), below("gone/file")],
        [link("to-here"), link("to-gone")],
        ["/etc/passwd".to_owned(), "/etc/no-such-file".to_owned()],
        ["/usr/share".to_owned(), "/usr/no-such-directory".to_owned()],
    ] {
        let mut told = Vec::new();
        for path in [&one, &other] {
            let mount = json!({ "host_path": path, "mount_path": "/mnt/x", "mode": "ro" });
            for body in [json!({ "host_path": path }), json!({ "extra_mounts": [mount] })] {
                let error = door.client.post("/v1/sessions/s", &body).await?.refused(400, "validation_error")?;
                let text = error.to_string();
                ensure!(text.contains(path.as_str()), "{text}");
                told.push(text.replace(path.as_str(), "PATH"));
            }
        }
        ensure!(told[0] == told[2] && told[1] == told[3], "{one} and {other}: {told:?}");
    }
    Ok(())
}

/// MNT-07: which mount is named first makes no difference.
async fn mounts_show_the_same_in_whatever_order_they_are_asked(door: &mut Door) -> Result<()> {
    let (outer, inner) = (door.server.mounts()?.join("outer"), door.server.mounts()?.join("inner"));
    std::fs::create_dir_all(outer.join("y"))?;
    std::fs::create_dir(&inner)?;
    std::fs::write(outer.join("y/name"), "outer")?;
    std::fs::write(inner.join("name"), "inner")?;
    let parent = json!({ "host_path": outer, "mount_path": "/mnt/x", "mode": "ro" });
    let child = json!({ "host_path": inner, "mount_path": "/mnt/x/y", "mode": "rw" });
    for (session, mounts) in [("a", [&parent, &child]), ("b", [&child, &parent])] {
        door.client.create(session, &json!({ "extra_mounts": mounts })).await?;
        let line = format!("cat /mnt/x/y/name; touch /mnt/x/y/{session} && echo; touch /mnt/x/{session}");
        let seen = door.client.exec(session, &line).await?;
        ensure!(seen["stdout"] == "inner\n" && seen["exit_code"] == 1, "{session}: {seen}");
        ensure!(inner.join(session).exists() && !outer.join(session).exists());
    }
    Ok(())
}

async fn outside_of_the_roots() -> Result<()> {
    let said = TestServer::prepare(ServerOptions::configured("default_workspace = '/usr/elsewhere'\n"))?;
    let said = said.fails_to_start().await?;
    ensure!(said.contains("default_workspace is outside allowed_mount_roots: /usr/elsewhere"), "{said}");
    ensure!(!std::path::Path::new("/usr/elsewhere").exists());
    Ok(())
}

async fn unknown_profiles() -> Result<()> {
    for config in ["default_profile = 'nonexistent'\n", "[profiles.a]\ninherits = 'nonexistent'\n"] {
        let said = TestServer::prepare(ServerOptions::configured(config))?.fails_to_start().await?;
        ensure!(said.contains("offline_readonly") && said.contains("config.toml:"), "{said}");
    }
    let server = TestServer::prepare(ServerOptions::configured("[profiles.gone]\n"))?;
    server.token(&["--name", "t", "--profile", "gone"])?;
    // The signal does nothing: the server does not run yet.
    drop(server.reload(""));
    let said = server.fails_to_start().await?;
    ensure!(said.contains("bound to") && said.contains("network_basic") && said.contains("token revoke"), "{said}");
    Ok(())
}

fn names(profiles: &Value) -> Vec<&str> {
    profiles.as_array().into_iter().flatten().filter_map(|profile| profile["name"].as_str()).collect()
}
