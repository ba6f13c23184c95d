//! What is fixed in a sandbox that needs a grant, whatever the client asks.

use serde_json::{Map, Value, json};

use super::policy::Rules;
use super::{SESSION, denied};
use crate::fault::Fault;

/// The workspace's path in every sandbox.
const WORKSPACE: &str = "/workspace";
/// Most trees of the host besides the workspace.
const EXTRA_MOUNTS_MAX: usize = 256;

/// Refuses every session but the one that there is.
pub(crate) fn check_session_id(data: &Map<String, Value>) -> Result<(), Fault> {
    match data.get("session_id").and_then(Value::as_str) {
        Some(id) if id.trim() != SESSION => Err(denied("Managed sandbox session_id is runtime-owned")),
        _ => Ok(()),
    }
}

/// Makes what a client asks into what it gets, or refuses it. `workspace` is where its workspace is on the host; `skill` where
/// the skill that it names is.
pub(crate) fn rewrite(
    data: &mut Map<String, Value>,
    rules: &Rules,
    workspace: &str,
    skill: Option<&str>,
) -> Result<(), Fault> {
    check_paths(data, workspace)?;
    let mut mounts = extra_mounts(data)?;
    if let (Some(name), Some(package)) = (data.get("skill_name").and_then(Value::as_str), skill) {
        let target = format!("{WORKSPACE}/.skills/{}", name.trim());
        mounts.push(json!({ "host_path": package, "mount_path": target, "mode": "ro" }));
    }
    data.remove("image");
    let fixed = json!({
        "session_id": SESSION,
        "network": "off",
        "mount_path": WORKSPACE,
        "host_path": workspace,
        "host_path_mode": "rw",
        "extra_mounts": mounts,
        "persistent": true,
        "cpus": rules.cpus,
        "memory_mb": rules.memory_mb,
        "pids_limit": rules.pids_limit,
        "read_only_rootfs": rules.read_only_rootfs,
        "workspace_quota_mb": rules.workspace_quota_mb,
    });
    data.extend(fixed.as_object().cloned().unwrap_or_default());
    cap_timeout(data, rules.max_timeout_sec);
    Ok(())
}

fn check_paths(data: &Map<String, Value>, workspace: &str) -> Result<(), Fault> {
    let asked = |name: &str| data.get(name).filter(|value| !value.is_null());
    if asked("network").is_some_and(|network| network != "off") {
        return Err(denied("Managed sandbox network access is disabled"));
    }
    if asked("mount_path").is_some_and(|path| path.as_str().map(str::trim) != Some(WORKSPACE)) {
        return Err(denied("Managed sandbox mount_path is runtime-owned"));
    }
    if asked("workdir").and_then(Value::as_str).is_some_and(|path| !is_in_workspace(path.trim())) {
        return Err(denied("Managed sandbox workdir must stay under /workspace"));
    }
    if asked("host_path").is_some_and(|path| path.as_str().map(str::trim) != Some(workspace)) {
        return Err(denied("Managed sandbox host_path is runtime-owned"));
    }
    Ok(())
}

fn is_in_workspace(path: &str) -> bool {
    let below = path.strip_prefix(WORKSPACE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    path.is_empty() || (below && path.split('/').all(|part| part != ".."))
}

/// Trees besides the workspace: read-only ones. That they lie below an allowed root is checked when they are mounted.
fn extra_mounts(data: &Map<String, Value>) -> Result<Vec<Value>, Fault> {
    let mounts = match data.get("extra_mounts") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(mounts)) => mounts,
        Some(_) => return Err(denied("Managed sandbox extra_mounts must be a list")),
    };
    if mounts.len() > EXTRA_MOUNTS_MAX {
        return Err(denied(format!("Managed sandbox permits at most {EXTRA_MOUNTS_MAX} extra_mounts")));
    }
    if mounts.iter().any(|mount| mount.get("mode").is_none_or(|mode| mode != "ro")) {
        return Err(denied("Managed sandbox extra_mounts must be read-only"));
    }
    Ok(mounts.clone())
}

/// A value that is not a number is left for the parser of the request to refuse.
fn cap_timeout(data: &mut Map<String, Value>, max_timeout_sec: u64) {
    let number = match data.get("timeout_sec") {
        Some(Value::Number(number)) => number.as_f64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        _ => None,
    };
    #[expect(clippy::cast_precision_loss, reason = "deadlines are at most a day")]
    if number.is_some_and(|number: f64| number > max_timeout_sec as f64) {
        data.insert("timeout_sec".to_owned(), json!(max_timeout_sec));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "/srv/box/default/tenants/ws-a";

    fn rewritten(mut value: Value, skill: Option<&str>) -> Result<Value, String> {
        let data = value.as_object_mut().unwrap();
        rewrite(data, &Rules::default(), HOST, skill).map_err(|fault| fault.to_string())?;
        Ok(value)
    }

    #[test]
    fn what_is_asked_becomes_what_is_given() {
        let asked = json!({
            "cmd": "true", "session_id": "mine", "timeout_sec": 900, "memory_mb": 9999, "cpus": 8, "pids_limit": 1,
            "image": "other", "persistent": false, "host_path": null, "read_only_rootfs": false, "env": {"A": "1"},
            "skill_name": "tables", "workdir": "/workspace/sub",
        });
        insta::assert_json_snapshot!(rewritten(asked, Some("/srv/skills/tables")).unwrap());
    }

    #[test]
    fn what_the_runtime_owns_cannot_be_asked() {
        for (name, value, told) in [
            ("network", json!("on"), "network access is disabled"),
            ("mount_path", json!("/data"), "mount_path is runtime-owned"),
            ("workdir", json!("/tmp"), "workdir"),
            ("workdir", json!("/workspace/../etc"), "workdir"),
            ("workdir", json!("/workspaces"), "workdir"),
            ("host_path", json!("/srv/box/default/tenants/ws-b"), "host_path is runtime-owned"),
            ("extra_mounts", json!([{"host_path": "/a", "mount_path": "/b"}]), "read-only"),
            ("extra_mounts", json!([{"host_path": "/a", "mount_path": "/b", "mode": "rw"}]), "read-only"),
            ("extra_mounts", Value::Array(vec![json!({"mode": "ro"}); 257]), "at most 256"),
        ] {
            let fault = rewritten(json!({ name: value }), None).unwrap_err();
            assert!(fault.starts_with("BoxAdmissionError: ") && fault.contains(told), "{fault}");
        }
        assert!(rewritten(json!({"host_path": HOST, "mount_path": "/workspace", "network": "off"}), None).is_ok());
    }

    #[test]
    fn short_deadlines_stay_and_nonsense_is_left_to_be_refused() {
        for (asked, given) in
            [(json!(5), json!(5)), (json!("500"), json!(120)), (json!("x"), json!("x")), (json!(1e9), json!(120))]
        {
            assert_eq!(rewritten(json!({"timeout_sec": asked}), None).unwrap()["timeout_sec"], given);
        }
    }

    #[test]
    fn there_is_one_session() {
        let check = |id: Value| check_session_id(json!({"session_id": id}).as_object().unwrap());
        assert!(check(json!(" global ")).is_ok());
        let fault = check(json!("other")).unwrap_err().to_string();
        assert_eq!(fault, "BoxAdmissionError: Managed sandbox session_id is runtime-owned");
    }
}
