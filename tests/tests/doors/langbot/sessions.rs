//! Sessions.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::client::{Rpc, has_exactly, spec, with};
use crate::{Door, DoorCase, cases, eventually};

/// What a client of any version reads of a session.
const SESSION: [&str; 17] = [
    "session_id",
    "backend_name",
    "backend_session_id",
    "image",
    "network",
    "host_path",
    "host_path_mode",
    "mount_path",
    "persistent",
    "cpus",
    "memory_mb",
    "pids_limit",
    "read_only_rootfs",
    "workspace_quota_mb",
    "created_at",
    "last_used_at",
    "status",
];

pub(super) fn cases() -> Vec<DoorCase> {
    cases![
        a_session_is_made_once_and_shown_with_every_field,
        a_session_in_which_a_command_runs_says_so,
        what_differs_is_a_conflict_that_names_the_first_field,
        ids_that_look_alike_have_boxes_of_their_own,
        what_is_not_there_is_told_by_its_physical_id,
        a_box_that_died_is_replaced_and_nobody_is_told,
        there_is_room_for_as_much_as_the_settings_say,
        boxes_of_mcp_servers_are_not_langbots,
    ]
}

async fn a_session_is_made_once_and_shown_with_every_field(door: &mut Door) -> Result<()> {
    for mut rpc in Rpc::both(door).await? {
        let wanted = with(spec("s", ""), json!({ "mount_path": "/workspace", "persistent": true }));
        let made = rpc.ask("box_create_session", &wanted).await?;
        has_exactly(&made, &SESSION)?;
        ensure!(
            made["session_id"] == "s" && made["image"] == "alpine:latest",
            "the image is repeated verbatim: {made}"
        );
        ensure!(made["status"] == "idle" && made["network"] == "off" && made["cpus"] == 1.0, "{made}");
        for time in ["created_at", "last_used_at"] {
            let text = made[time].as_str().context("no time")?;
            let (_, fraction) = text.split_once('.').context("no fraction")?;
            ensure!(fraction.len() == 7 && fraction.ends_with('Z'), "{text}");
        }
        let again = rpc.ask("box_create_session", &wanted).await?;
        ensure!(again["backend_session_id"] == made["backend_session_id"], "{again}");
        let shown = rpc.ask("box_get_session", &json!({ "session_id": "s" })).await?;
        has_exactly(&shown, &SESSION)?;
        ensure!(rpc.session_ids().await? == ["s"]);
        ensure!(rpc.ask("box_delete_session", &json!({ "session_id": " s " })).await? == json!({ "deleted": " s " }));
        ensure!(rpc.session_ids().await?.is_empty());
    }
    Ok(())
}

async fn a_session_in_which_a_command_runs_says_so(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    rpc.ask("box_create_session", &spec("s", "")).await?;
    let waits = rpc.send("box_exec", &spec("s", "touch /tmp/runs; until [ -e /tmp/go ]; do sleep 0.05; done")).await?;
    // A process does not have to wait for its turn.
    let script = "until [ -e /tmp/runs ]; do sleep 0.05; done; echo seen >&2; exec sleep 1000";
    let process = json!({ "command": "sh", "args": ["-c", script], "cwd": "/tmp" });
    rpc.ask("box_start_managed_process", &json!({ "session_id": "s", "spec": process })).await?;
    let rpc = tokio::sync::Mutex::new(rpc);
    eventually("the word running", || async {
        let shown = rpc.lock().await.ask("box_get_session", &json!({ "session_id": "s" })).await?;
        let seen = shown["managed_process"]["stderr_preview"] == "seen";
        ensure!(!seen || shown["status"] == "running", "{shown}");
        Ok(seen.then_some(()))
    })
    .await?;
    let mut rpc = rpc.into_inner();
    let go = json!({ "command": "touch", "args": ["/tmp/go"], "cwd": "/tmp" });
    rpc.ask("box_start_managed_process", &json!({ "session_id": "s", "spec": go })).await?;
    ensure!(rpc.done(waits).await?["exit_code"] == 0);
    ensure!(rpc.ask("box_get_session", &json!({ "session_id": "s" })).await?["status"] == "idle");
    Ok(())
}

async fn what_differs_is_a_conflict_that_names_the_first_field(door: &mut Door) -> Result<()> {
    let [mut legacy, mut tenant] = Rpc::both(door).await?;
    legacy.ask("box_create_session", &spec("s", "")).await?;
    for (changes, names) in [
        (json!({ "network": "on", "memory_mb": 64 }), "network=off"),
        (json!({ "host_path_mode": "none" }), "host_path_mode=rw"),
        (json!({ "persistent": true }), "persistent=False"),
        (json!({ "cpus": 2 }), "cpus=1.0"),
        (json!({ "memory_mb": 64 }), "memory_mb=512"),
        (json!({ "pids_limit": 64 }), "pids_limit=128"),
        (json!({ "read_only_rootfs": false }), "read_only_rootfs=True"),
        (json!({ "workspace_quota_mb": 1 }), "workspace_quota_mb=0"),
    ] {
        for action in ["box_create_session", "box_exec"] {
            let refused = legacy.refused(action, &with(spec("s", "true"), changes.clone())).await?;
            ensure!(
                refused == format!("BoxSessionConflictError: Box session s already exists with {names}"),
                "{refused}"
            );
        }
    }
    let image = with(spec("s", "true"), json!({ "image": "debian:12", "workdir": "/", "env": {}, "timeout_sec": 9 }));
    legacy.ask("box_exec", &image).await?;
    tenant.ask("box_create_session", &spec("s", "")).await?;
    let refused = tenant.refused("box_exec", &with(spec("s", "true"), json!({ "memory_mb": 64 }))).await?;
    ensure!(
        refused.starts_with("BoxSessionConflictError: Box session ws-") && refused.contains("-g1-s already"),
        "{refused}"
    );
    Ok(())
}

async fn ids_that_look_alike_have_boxes_of_their_own(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    ensure!(rpc.exec("a:b", "echo mine > /tmp/f").await?["session_id"] == "a-b");
    ensure!(rpc.exec("a-b", "cat /tmp/f").await?["exit_code"] == 1);
    ensure!(rpc.exec("a:b", "cat /tmp/f").await?["stdout"] == "mine");
    ensure!(rpc.session_ids().await? == ["a-b", "a-b"]);
    let refused = rpc.refused("box_exec", &spec("::", "true")).await?;
    ensure!(refused == "BoxValidationError: Box session_id must contain a valid character", "{refused}");
    let mut legacy = Rpc::legacy(door).await?;
    ensure!(legacy.exec("a:b", "true").await?["session_id"] == "a:b", "older clients see their ids as they are");
    Ok(())
}

async fn what_is_not_there_is_told_by_its_physical_id(door: &mut Door) -> Result<()> {
    let [mut legacy, mut tenant] = Rpc::both(door).await?;
    let data = json!({ "session_id": "a:b", "spec": { "command": "cat" } });
    for action in [
        "box_get_session",
        "box_delete_session",
        "box_start_managed_process",
        "box_get_managed_process",
        "box_stop_managed_process",
    ] {
        ensure!(legacy.refused(action, &data).await? == "BoxSessionNotFoundError: session a:b not found", "{action}");
        let refused = tenant.refused(action, &data).await?;
        let told = refused.strip_prefix("BoxSessionNotFoundError: session ws-");
        ensure!(told.is_some_and(|rest| rest.ends_with("-g1-a-b not found")), "{action}: {refused}");
        ensure!(legacy.refused(action, &json!({})).await? == "KeyError: 'session_id'", "{action}");
    }
    ensure!(legacy.session_ids().await?.is_empty(), "nothing was made");
    Ok(())
}

async fn a_box_that_died_is_replaced_and_nobody_is_told(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::legacy(door).await?;
    let made = rpc.ask("box_create_session", &spec("s", "")).await?;
    kill(door, &made).await?;
    ensure!(rpc.exec("s", "echo again").await?["stdout"] == "again");
    let second = rpc.ask("box_get_session", &json!({ "session_id": "s" })).await?;
    ensure!(second["backend_session_id"] != made["backend_session_id"], "{second}");
    kill(door, &second).await?;
    let third = rpc.ask("box_create_session", &spec("s", "")).await?;
    ensure!(third["backend_session_id"] != second["backend_session_id"] && third["status"] == "idle", "{third}");
    Ok(())
}

async fn there_is_room_for_as_much_as_the_settings_say(door: &mut Door) -> Result<()> {
    let [mut legacy, mut tenant] = Rpc::both(door).await?;
    tenant.ask("box_init", &json!({ "limits": { "max_sessions": 2, "max_managed_processes": 1 } })).await?;
    legacy.ask("box_create_session", &spec("s", "")).await?;
    tenant.ask("box_create_session", &spec("s", "")).await?;
    for rpc in [&mut legacy, &mut tenant] {
        for action in ["box_create_session", "box_exec"] {
            let refused = rpc.refused(action, &spec("one more", "true")).await?;
            ensure!(refused == "BoxCapacityExceededError: Box session capacity reached (2)", "{refused}");
        }
        rpc.exec("s", "true").await?;
    }
    let start = |id: &str| json!({ "session_id": "s", "spec": { "command": "cat", "process_id": id } });
    legacy.ask("box_start_managed_process", &start("p")).await?;
    legacy.ask("box_start_managed_process", &start("p")).await?;
    let refused = tenant.refused("box_start_managed_process", &start("q")).await?;
    ensure!(refused == "BoxCapacityExceededError: Box managed process capacity reached (1)", "{refused}");
    legacy.ask("box_delete_session", &json!({ "session_id": "s" })).await?;
    tenant.ask("box_start_managed_process", &start("q")).await?;
    tenant.ask("box_create_session", &spec("one more", "")).await?;
    Ok(())
}

/// Ends a box from outside, and waits until it is gone.
async fn kill(door: &Door, session: &Value) -> Result<()> {
    let agent = crate::sessions::agent_of(door, session)?;
    box_tests::system::kill(agent)?;
    eventually("the end of the box", || async {
        let state = std::fs::read_to_string(format!("/proc/{agent}/stat")).unwrap_or_default();
        let lives = state.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'));
        Ok((!lives).then_some(()))
    })
    .await
}

/// These hold keys of servers. A client without workspaces names sessions as they are called.
async fn boxes_of_mcp_servers_are_not_langbots(door: &mut Door) -> Result<()> {
    let mut rpc = Rpc::legacy(door).await?;
    for id in ["mcp-shared", "mcp-shared-0a1b2c3d", "mcp-test-1"] {
        let named = json!({ "session_id": id });
        for (action, data) in [
            ("box_create_session", spec(id, "")),
            ("box_exec", spec(id, "cat /proc/*/environ")),
            ("box_get_session", named.clone()),
            ("box_delete_session", named),
            (
                "box_start_managed_process",
                json!({ "session_id": id, "spec": { "command": "cat", "args": [], "cwd": "/tmp" } }),
            ),
        ] {
            let told = rpc.refused(action, &data).await?;
            ensure!(told.contains("reserved"), "{action} {id}: {told}");
        }
    }
    ensure!(rpc.session_ids().await?.is_empty());
    Ok(())
}
