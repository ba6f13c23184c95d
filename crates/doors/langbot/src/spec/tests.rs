//! What clients of all versions send, and what they should not.

use super::*;
use crate::tenancy::InstanceId;
use serde_json::json;

fn read(sent: &Value) -> Result<BoxSpec, String> {
    BoxSpec::read(sent.as_object().unwrap(), UnknownFields::Ignored).map_err(|fault| fault.to_string())
}

/// A spec with one more field.
fn with(field: &str, value: Value) -> Value {
    let mut sent = json!({ "session_id": "s" });
    sent[field] = value;
    sent
}

#[test]
fn what_is_not_sent_has_the_defaults_of_the_original() {
    let spec = read(&json!({ "session_id": " s " })).unwrap();
    assert_eq!((spec.cmd.as_str(), spec.workdir.as_str(), spec.session_id.as_str()), ("", "/workspace", "s"));
    assert_eq!((spec.timeout_sec, spec.network, spec.image.as_str()), (30, Network::Off, IMAGE));
    assert_eq!((spec.host_path.clone(), spec.host_path_mode), (None, HostPathMode::Rw));
    assert_eq!((spec.persistent, spec.cpus, spec.memory_mb, spec.pids_limit), (false, 1.0, 512, 128));
    assert_eq!((spec.read_only_rootfs, spec.workspace_quota_mb, spec.mount_path.as_str()), (true, 0, "/workspace"));
}

#[test]
fn what_every_version_sends_is_taken() {
    let spec = read(&json!({
        "cmd": " echo ", "workdir": "/tmp", "timeout_sec": "30", "network": "on", "session_id": "s1", "env": { "A": "1" },
        "image": "alpine:latest", "host_path": null, "host_path_mode": "ro", "mount_path": "/workspace",
        "extra_mounts": [{ "host_path": "/srv/a", "mount_path": "/mnt/a", "mode": "none", "content_digest": null,
            "manifest_path": null, "unknown": 1 }],
        "skill_name": null, "persistent": 1, "cpus": 1, "memory_mb": 512.0, "pids_limit": true, "read_only_rootfs": "no",
        "workspace_quota_mb": 0, "a_field_of_the_future": [],
    }));
    let spec = spec.unwrap();
    assert_eq!((spec.cmd.as_str(), spec.timeout_sec, spec.network), ("echo", 30, Network::On));
    assert_eq!((spec.persistent, spec.memory_mb, spec.pids_limit, spec.read_only_rootfs), (true, 512, 1, false));
    assert_eq!(spec.extra_mounts[0].mode, HostPathMode::None);
    assert_eq!(spec.env, [("A".to_owned(), "1".to_owned())]);
}

#[test]
fn a_workdir_that_is_not_named_is_the_mount_path() {
    for nothing in [json!(null), json!(""), json!("  ")] {
        let mut sent = with("workdir", nothing);
        sent["mount_path"] = json!("/data/");
        assert_eq!(read(&sent).unwrap().workdir, "/data");
    }
    assert_eq!(read(&with("mount_path", json!("/data"))).unwrap().workdir, "/data");
    assert!(read(&with("workdir", json!(null))).is_err(), "nothing says where");
}

#[test]
fn what_breaks_a_rule_is_refused_by_its_name() {
    for (field, value) in [
        ("session_id", json!("  ")),
        ("session_id", json!(7)),
        ("cmd", json!(null)),
        ("cmd", json!("a\0b")),
        ("workdir", json!("tmp")),
        ("timeout_sec", json!(0)),
        ("timeout_sec", json!(1.5)),
        ("network", json!("maybe")),
        ("env", json!({ "A": 1 })),
        ("env", json!([])),
        ("image", json!("a\nb")),
        ("host_path", json!("relative")),
        ("host_path", json!("C:\\work")),
        ("host_path", json!("\\\\server\\share")),
        ("host_path_mode", json!("x")),
        ("mount_path", json!("workspace")),
        ("mount_path", json!("/a/../b")),
        ("extra_mounts", json!({})),
        ("extra_mounts", json!(["/a"])),
        ("extra_mounts", json!([{ "mount_path": "/a" }])),
        ("skill_name", json!("../x")),
        ("persistent", json!("perhaps")),
        ("cpus", json!(0)),
        ("memory_mb", json!(31)),
        ("pids_limit", json!(-1)),
        ("workspace_quota_mb", json!(-1)),
    ] {
        let told = read(&with(field, value.clone())).expect_err(field);
        let start = format!("BoxValidationError: 1 validation error for BoxSpec\n{field}");
        assert!(told.starts_with(&start), "{field}={value}: {told}");
    }
    assert!(read(&json!({})).unwrap_err().contains("\nsession_id\n  Field required [type=missing, "));
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let sent = json!({ "session_id": "", "timeout_sec": 0, "network": "x", "env": { "A": 1, "B": null } });
    insta::with_settings!({ prepend_module_to_snapshot => false, snapshot_path => "../../snapshots" }, {
        insta::assert_snapshot!("langbot_invalid_spec", read(&sent).unwrap_err());
    });
    let many: Vec<Value> = vec![json!(1); 5000];
    let told = read(&with("extra_mounts", many.into())).unwrap_err();
    assert!(
        told.starts_with("BoxValidationError: 5000 validation errors for BoxSpec\n") && told.len() < 5000,
        "{told}"
    );
}

#[test]
fn what_was_sent_is_repeated_only_where_it_does_no_harm() {
    let told = read(&with("network", json!("BoxAdmissionError: x"))).unwrap_err();
    assert!(!told.contains("BoxAdmissionError:"), "{told}");
    let told = read(&with("network", json!("x".repeat(100_000)))).unwrap_err();
    assert!(told.len() < 400, "{told}");
    let told = read(&with("env", json!({ "BoxAdmissionError: ": 1 }))).unwrap_err();
    assert!(!told.contains("BoxAdmissionError:"), "{told}");
    let told = read(&json!({ "session_id": "s", "extra_mounts": { "secret": "hidden" } })).unwrap_err();
    assert!(!told.contains("hidden"), "{told}");
}

#[test]
fn commands_work_in_the_workspace_of_the_host() {
    let mut sent = json!({ "session_id": "s", "host_path": "/srv/w", "workdir": "/tmp" });
    assert!(read(&sent).unwrap_err().contains("\nworkdir\n"));
    for good in ["/workspace", "/workspace/a"] {
        sent["workdir"] = json!(good);
        assert!(read(&sent).is_ok(), "{good}");
    }
    sent["workdir"] = json!("/workspaces");
    assert!(read(&sent).is_err());
    sent["host_path_mode"] = json!("none");
    assert!(read(&sent).is_ok(), "nothing is mounted");
}

#[test]
fn artifacts_are_mounted_by_their_digest_only() {
    let digest = "ab".repeat(32);
    let mount = |change: &dyn Fn(&mut Value)| {
        let mut mount = json!({ "host_path": "/srv/a", "mount_path": format!("{ARTIFACTS}/{digest}"), "mode": "ro",
            "content_digest": format!("sha256:{digest}"), "manifest_path": "/srv/m" });
        change(&mut mount);
        read(&with("extra_mounts", json!([mount])))
    };
    assert_eq!(mount(&|_| {}).unwrap().extra_mounts[0].mode, HostPathMode::Ro);
    for (field, value) in [
        ("mode", json!("rw")),
        ("content_digest", json!(null)),
        ("content_digest", json!("sha256:AB")),
        ("manifest_path", json!(null)),
        ("manifest_path", json!("m")),
        ("mount_path", json!(ARTIFACTS)),
        ("mount_path", json!(format!("{ARTIFACTS}/x"))),
    ] {
        assert!(mount(&|mount| mount[field] = value.clone()).is_err(), "{field}={value}");
    }
    let refused = mount(&|mount| mount["mode"] = json!("rw")).unwrap_err();
    let words = "Artifact paths require a read-only digest-addressed mount and manifest";
    assert!(refused.contains(words), "{refused}");
    assert!(mount(&|mount| mount["mount_path"] = json!("/opt/langbot-artifacts-not")).is_ok());
}

#[test]
fn a_session_is_asked_for_in_every_field() {
    let spec = read(&json!({ "session_id": "s", "mount_path": "/data" })).unwrap();
    let request = spec.session_request(vec!["/srv".into()]);
    assert_eq!(request.mount_path, Some("/data".parse().unwrap()), "it is shown and compared");
    assert_eq!((request.host_path.clone(), request.workspace_quota_mb), (Some(None), Some(0)));
    assert_eq!(request.rules.mount_roots, Some(vec!["/srv".into()]));
    let config = request.resolve(&box_core::session::SessionDefaults::default(), None).unwrap();
    assert_eq!((config.on_timeout, config.timeout_sec_max), (OnTimeout::Destroy, TIMEOUT_SEC_MAX));
    assert_eq!(read(&with("timeout_sec", json!(u64::MAX))).unwrap().timeout_ms(), TIMEOUT_SEC_MAX * 1000);
}

#[test]
fn processes_are_read_with_their_defaults() {
    let read = |sent: &Value| process_call(sent.as_object().unwrap()).map_err(|fault| fault.to_string());
    let call = read(&json!({ "command": " cat ", "memory_mb": "64", "unknown": 1 })).unwrap();
    assert_eq!(
        (call.command.as_str(), call.process_id.as_str(), call.cwd),
        ("cat", "default", "/workspace".parse().ok())
    );
    assert_eq!((call.launch, call.replace), (Launch::LoginShell, Replace::Replace));
    for (field, value) in [
        ("command", json!(" ")),
        ("process_id", json!("")),
        ("args", json!(["a", 1])),
        ("args", json!("a")),
        ("env", json!({ "A": null })),
        ("cwd", json!("tmp")),
        ("memory_mb", json!(-1)),
    ] {
        let mut sent = json!({ "command": "cat" });
        sent[field] = value;
        let told = read(&sent).expect_err(field);
        assert!(told.contains(&format!("error for BoxManagedProcessSpec\n{field}")), "{told}");
    }
}

#[test]
fn unknown_fields_are_refused_for_clients_that_never_send_a_skill_name() {
    let workspace = TenancyScope::workspace(&InstanceId::parse("one").unwrap(), "two", 1);
    let old = json!({ "session_id": "s", "skill_name": null, "cpu": 2, "b": [] });
    let new = json!({ "session_id": "s", "cpu": 2, "b": [] });
    let read = |place: &TenancyScope, sent: &Value| {
        let sent = sent.as_object().unwrap();
        BoxSpec::read(sent, UnknownFields::of(place, sent)).map_err(|fault| fault.to_string())
    };
    assert!(read(&workspace, &old).is_ok());
    assert!(read(&TenancyScope::Legacy, &new).is_ok());
    let text = read(&workspace, &new).unwrap_err();
    assert!(text.starts_with("BoxValidationError: 2 validation errors for BoxSpec\n"), "{text}");
    let told = "\ncpu\n  Extra inputs are not permitted [type=extra_forbidden, input_value=2, input_type=int]";
    assert!(text.contains(told), "{text}");
}
