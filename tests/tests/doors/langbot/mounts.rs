//! Trees of the host.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::client::{Rpc, spec, with};
use crate::{Door, DoorCase, cases};

pub(super) fn cases() -> Vec<DoorCase> {
    cases![
        a_workspace_of_the_host_is_made_and_shared,
        a_quota_of_the_workspace_holds_with_the_error_that_clients_know,
        other_mounts_make_the_box_anew,
        artifacts_are_seen_and_not_changed,
        what_may_not_be_mounted_is_refused_by_its_path,
    ]
}

/// A client whose settings allow mounts below the directory of the test.
async fn allowed(door: &Door) -> Result<(Rpc, String)> {
    let mut rpc = Rpc::tenant(door, "workspace").await?;
    let root = door.server.mounts()?.display().to_string();
    rpc.ask("box_init", &json!({ "local": { "allowed_mount_roots": [root] } })).await?;
    Ok((rpc, root))
}

fn mounted(root: &str, cmd: &str) -> Value {
    with(spec("s", cmd), json!({ "host_path": format!("{root}/deep/work"), "workdir": "/workspace" }))
}

async fn a_workspace_of_the_host_is_made_and_shared(door: &mut Door) -> Result<()> {
    let (mut rpc, root) = allowed(door).await?;
    let result = rpc.ask("box_exec", &mounted(&root, "echo from the box > f; pwd")).await?;
    ensure!(result["stdout"] == "/workspace" && result["exit_code"] == 0, "{result}");
    let file = std::path::Path::new(&root).join("deep/work/f");
    ensure!(std::fs::read_to_string(&file)? == "from the box\n");
    let shown = rpc.ask("box_get_session", &json!({ "session_id": "s" })).await?;
    ensure!(shown["host_path"] == format!("{root}/deep/work"), "{shown}");
    let elsewhere = with(mounted(&root, "true"), json!({ "workdir": "/tmp" }));
    ensure!(rpc.refused("box_exec", &elsewhere).await?.contains("for BoxSpec\nworkdir\n"));
    let read_only = with(mounted(&root, "echo x > f"), json!({ "session_id": "ro", "host_path_mode": "ro" }));
    ensure!(rpc.ask("box_exec", &read_only).await?["exit_code"] != 0);
    let other_place = json!({ "session_id": "data", "mount_path": "/data", "workdir": null });
    let other = with(mounted(&root, "pwd; cat f"), other_place);
    ensure!(rpc.ask("box_exec", &other).await?["stdout"] == "/data\nfrom the box");
    Ok(())
}

async fn a_quota_of_the_workspace_holds_with_the_error_that_clients_know(door: &mut Door) -> Result<()> {
    let (mut rpc, root) = allowed(door).await?;
    let within = |cmd: &str| with(mounted(&root, cmd), json!({ "workspace_quota_mb": 1 }));
    ensure!(rpc.ask("box_exec", &within("echo little > f")).await?["exit_code"] == 0);
    let told = rpc.refused("box_exec", &within("head -c 3000000 /dev/zero > large; sleep 1000")).await?;
    ensure!(told.starts_with("BoxValidationError: workspace quota exceeded during execution: "), "{told}");
    let told = rpc.refused("box_exec", &within("true")).await?;
    ensure!(told.starts_with("BoxValidationError: workspace quota exceeded before execution: "), "{told}");
    std::fs::remove_file(std::path::Path::new(&root).join("deep/work/large"))?;
    ensure!(rpc.ask("box_exec", &within("cat f")).await?["stdout"] == "little");
    Ok(())
}

async fn other_mounts_make_the_box_anew(door: &mut Door) -> Result<()> {
    let (mut rpc, root) = allowed(door).await?;
    std::fs::create_dir(format!("{root}/skill"))?;
    std::fs::write(format!("{root}/skill/SKILL.md"), "a skill")?;
    rpc.ask("box_exec", &mounted(&root, "echo kept > f; touch /tmp/lost")).await?;
    let skill = json!({ "host_path": format!("{root}/skill"), "mount_path": "/workspace/.skills/skill", "mode": "ro" });
    let look = "cat f .skills/skill/SKILL.md; ls /tmp/lost 2>/dev/null; echo x > .skills/skill/y && echo written";
    let with_skill = with(mounted(&root, look), json!({ "extra_mounts": [skill] }));
    let result = rpc.ask("box_exec", &with_skill).await?;
    ensure!(result["stdout"] == "kept\na skill", "the workspace stays, the rest is new: {result}");
    let none = json!({ "host_path": "/etc", "mount_path": "/mnt/nothing", "mode": "none" });
    let without = with(mounted(&root, "ls /mnt/nothing || cat f"), json!({ "extra_mounts": [none] }));
    ensure!(rpc.ask("box_exec", &without).await?["stdout"] == "kept");
    Ok(())
}

async fn artifacts_are_seen_and_not_changed(door: &mut Door) -> Result<()> {
    let (mut rpc, root) = allowed(door).await?;
    std::fs::create_dir(format!("{root}/artifact"))?;
    std::fs::write(format!("{root}/artifact/f"), "held")?;
    let digest = "0f".repeat(32);
    let target = format!("/opt/langbot-artifacts/{digest}");
    let mount = json!({ "host_path": format!("{root}/artifact"), "mount_path": target, "mode": "ro",
        "content_digest": format!("sha256:{digest}"), "manifest_path": format!("{root}/manifest") });
    let look = format!("cat {target}/f; echo x > {target}/f || echo refused");
    let wanted = with(spec("s", &look), json!({ "extra_mounts": [mount] }));
    ensure!(rpc.ask("box_exec", &wanted).await?["stdout"] == "heldrefused");
    let plain = json!({ "host_path": format!("{root}/artifact"), "mount_path": target, "mode": "ro" });
    let refused = rpc.refused("box_exec", &with(spec("s", "true"), json!({ "extra_mounts": [plain] }))).await?;
    ensure!(refused.contains("for BoxSpec\nextra_mounts.0.mount_path\n"), "{refused}");
    Ok(())
}

async fn what_may_not_be_mounted_is_refused_by_its_path(door: &mut Door) -> Result<()> {
    let (mut rpc, root) = allowed(door).await?;
    std::os::unix::fs::symlink("/etc", format!("{root}/link"))?;
    for blocked in ["/etc".to_owned(), "/proc/self".to_owned(), "/".to_owned(), format!("{root}/link")] {
        let wanted = with(spec("s", "true"), json!({ "host_path": blocked, "workdir": "/workspace" }));
        let refused = rpc.refused("box_exec", &wanted).await?;
        ensure!(refused == format!("BoxValidationError: host_path {blocked} is blocked for security"), "{refused}");
        let mount = json!({ "host_path": blocked, "mount_path": "/mnt/x", "mode": "ro" });
        let refused = rpc.refused("box_exec", &with(spec("s", "true"), json!({ "extra_mounts": [mount] }))).await?;
        let says = format!("BoxValidationError: extra_mounts.host_path {blocked} is blocked for security");
        ensure!(refused == says, "{refused}");
    }
    let outside = with(spec("s", "true"), json!({ "host_path": "/opt", "workdir": "/workspace" }));
    let refused = rpc.refused("box_exec", &outside).await?;
    ensure!(
        refused.starts_with("BoxValidationError: host_path /opt cannot be mounted: ") && refused.contains(&root),
        "{refused}"
    );
    let missing = with(spec("s", "true"), json!({ "host_path": "/opt/not-made-by-us", "workdir": "/workspace" }));
    ensure!(rpc.refused("box_exec", &missing).await?.starts_with("BoxValidationError: host_path /opt/not-made-by-us "));
    ensure!(!std::path::Path::new("/opt/not-made-by-us").exists());
    ensure!(rpc.session_ids().await?.is_empty());
    Ok(())
}
