//! Settings, health, status, the shared volume, and the end.

use box_core::backend::{BackendSet, LazyBackend, Opener, Pick};

use super::*;

#[tokio::test]
async fn a_ping_and_what_is_not_known_need_no_context() {
    let scene = Scene::tenant().await;
    assert_eq!(scene.host("__ping", json!({})).await, Ok(json!({})));
    for unknown in ["box_nope", "__heartbeat", ""] {
        let text = format!("ValueError: Action {unknown} not found");
        assert_eq!(scene.host(unknown, json!({})).await, Err(text));
    }
}

#[tokio::test]
async fn settings_hold_as_a_whole_or_not_at_all() {
    let scene = Scene::tenant().await;
    let done = scene.init(json!({ "limits": { "max_sessions": 3 } })).await;
    assert_eq!(done, Ok(json!({ "initialized": true })));
    let bad = json!({ "limits": { "max_sessions": 5, "max_managed_processes": 9999 }, "backend": "docker" });
    let text = "ValueError: box.limits.max_managed_processes must be between 0 and 1024";
    assert_eq!(scene.host("box_init", bad).await, Err(text.into()));
    let status = scene.ask(1, "box_status", json!({})).await.unwrap();
    assert_eq!((&status["limits"]["max_sessions"], &status["backend"]["name"]), (&json!(3), &json!("native")));
}

#[tokio::test]
async fn the_status_is_as_clients_know_it() {
    let scene = Scene::tenant().await;
    scene.session(&place(1), "a", false).await;
    scene.session(&TenancyScope::workspace(&instance(), "other", 1), "b", false).await;
    insta::assert_json_snapshot!(scene.ask(1, "box_status", json!({})).await.unwrap());
}

#[tokio::test]
async fn what_is_left_is_bounded_by_what_everybody_holds() {
    let scene = Scene::tenant().await;
    scene.host("box_init", json!({ "limits": { "max_sessions": 2 } })).await.unwrap();
    scene.session(&TenancyScope::workspace(&instance(), "other", 1), "b", false).await;
    scene.session(&TenancyScope::Legacy, "c", false).await;
    let capacity = &scene.ask(1, "box_status", json!({})).await.unwrap()["capacity"];
    assert_eq!(*capacity, json!({ "limit": 2, "used": 0, "remaining": 0 }));
}

#[tokio::test]
async fn clients_that_name_nothing_have_a_status_too() {
    let scene = Scene::new(Client::Legacy).await;
    scene.session(&TenancyScope::Legacy, "a", false).await;
    let status = scene.host("box_status", json!({})).await.unwrap();
    assert_eq!((&status["active_sessions"], &status["session_ttl_sec"]), (&json!(1), &json!(300)));
}

#[tokio::test]
async fn another_backend_than_ours_is_none() {
    let scene = Scene::tenant().await;
    let info = json!({ "name": "native", "available": true });
    assert_eq!(scene.host("box_health", json!({})).await, Ok(info.clone()));
    assert_eq!(scene.host("box_get_backend_info", json!({})).await, Ok(info));
    scene.host("box_init", json!({ "backend": "docker" })).await.unwrap();
    let none = json!({ "name": null, "available": false });
    assert_eq!(scene.host("box_health", json!({})).await, Ok(none));
    for action in ["box_exec", "box_create_session"] {
        let fault = scene.ask(1, action, json!({ "session_id": "s", "cmd": "true" })).await.unwrap_err();
        assert!(fault.starts_with("BoxBackendUnavailableError: ") && fault.contains("docker"), "{fault}");
    }
}

#[tokio::test]
async fn a_backend_that_is_offered_and_not_there_is_told_with_its_reason_and_nothing_stands_in_for_it() {
    let native: Opener = Box::new(|| {
        Box::pin(async { Ok(Arc::new(Hollow(tempfile::tempdir().unwrap())) as Arc<dyn box_core::Backend>) })
    });
    let docker: Opener = Box::new(|| {
        let (what, reason, fix) = ("docker".to_owned(), "connection refused".to_owned(), "start it".to_owned());
        Box::pin(async { Err(box_core::Error::Unavailable { what, reason, fix }) })
    });
    let openers = vec![(BackendName::Native, native), (BackendName::Docker, docker)];
    let backends = BackendSet::new(openers, Pick::First(vec![BackendName::Native, BackendName::Docker]));
    let scene = Scene::on(Client::Tenant(instance()), LangBotConfig::default(), Arc::new(backends)).await;
    scene.init(json!({})).await.unwrap();
    let ours = json!({ "name": "native", "available": true });
    assert_eq!(scene.host("box_health", json!({})).await, Ok(ours));
    scene.host("box_init", json!({ "backend": "docker" })).await.unwrap();
    let none = json!({ "name": null, "available": false, "reason": "connection refused" });
    assert_eq!(scene.host("box_get_backend_info", json!({})).await, Ok(none));
    let fault = scene.ask(1, "box_create_session", json!({ "session_id": "s" })).await.unwrap_err();
    assert!(fault.starts_with("BoxBackendUnavailableError: the docker backend"), "{fault}");
    scene.host("box_init", json!({ "backend": "" })).await.unwrap();
    let made = scene.ask(1, "box_create_session", json!({ "session_id": "s" })).await.unwrap();
    assert_eq!(made["backend_name"], "native");
}

#[tokio::test]
async fn a_server_that_is_switched_off_has_a_status_and_no_sessions() {
    let backend = Arc::new(LazyBackend::disabled(BackendName::Native));
    let scene = Scene::on(Client::Tenant(instance()), LangBotConfig::default(), backend).await;
    scene.init(json!({})).await.unwrap();
    let off = json!({ "name": null, "available": false, "reason": "disabled by the configuration" });
    assert_eq!(scene.host("box_health", json!({})).await, Ok(off.clone()));
    let status = scene.ask(1, "box_status", json!({})).await.unwrap();
    assert_eq!((&status["backend"], &status["active_sessions"]), (&off, &json!(0)));
    for action in ["box_exec", "box_create_session", "box_get_sessions"] {
        let fault = scene.ask(1, action, json!({ "session_id": "s", "cmd": "true" })).await.unwrap_err();
        assert!(fault.starts_with("BoxBackendUnavailableError: ") && fault.contains("disabled"), "{action}: {fault}");
    }
}

#[tokio::test]
async fn the_backend_has_the_name_that_the_operator_gave_it() {
    let config = LangBotConfig { backend_name: Some("nsjail".into()), ..LangBotConfig::default() };
    let scene = Scene::with(Client::Tenant(instance()), config).await;
    scene.host("box_init", json!({ "backend": "nsjail" })).await.unwrap();
    let info = scene.host("box_get_backend_info", json!({})).await.unwrap();
    assert_eq!(info, json!({ "name": "nsjail", "available": true }));
}

#[tokio::test]
async fn a_shutdown_drops_what_its_family_holds_and_nothing_else() {
    let scene = Scene::tenant().await;
    let other = TenancyScope::workspace(&instance(), "other", 4);
    for place in [&place(1), &other] {
        scene.session(place, "kept", true).await;
    }
    scene.session(&TenancyScope::Legacy, "short", false).await;
    scene.session(&TenancyScope::Legacy, "kept", true).await;
    assert_eq!(scene.host("box_shutdown", json!({})).await, Ok(json!({})));
    assert_eq!(scene.door.sessions_held().await.unwrap(), 2);
    let legacy = Connection::new(Client::Legacy, 1 << 20);
    let request = Request { seq_id: 1, action: "box_shutdown".into(), data: Map::new(), context: None };
    assert_eq!(scene.door.answer(&legacy, request).await.unwrap().code, 0);
    let left = scene.door.sessions_of(&TenancyScope::Legacy).await.unwrap();
    assert_eq!(left.iter().map(|session| session.session_id.as_str()).collect::<Vec<_>>(), ["kept"]);
    assert!(scene.host("__ping", json!({})).await.is_ok());
}

#[tokio::test]
async fn a_marker_shows_that_the_volume_is_shared() {
    let scene = Scene::tenant().await;
    let name = format!(".langbot-box-volume-probe-{}", "0".repeat(32));
    let ask = async || scene.host("box_verify_shared_workspace", json!({ "marker_name": name })).await;
    assert_eq!(ask().await, Err("BoxReadinessError: Box shared Workspace is not configured".into()));
    scene.init(json!({})).await.unwrap();
    assert!(ask().await.unwrap_err().starts_with("BoxReadinessError: "));
    let path = scene.directory.path().join("default").join(&name);
    std::fs::write(&path, "hello").unwrap();
    let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    assert_eq!(ask().await, Ok(json!({ "marker_name": name, "sha256": sha256, "size": 5 })));
    for bytes in [vec![], vec![b'x'; 1025]] {
        std::fs::write(&path, bytes).unwrap();
        assert!(ask().await.unwrap_err().contains("1 to 1024 bytes"));
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::write(scene.directory.path().join("secret"), "hello").unwrap();
    std::os::unix::fs::symlink("../secret", &path).unwrap();
    assert!(ask().await.unwrap_err().starts_with("BoxReadinessError: "), "links are not followed");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(ask().await.unwrap_err().starts_with("BoxReadinessError: "));
}

#[tokio::test]
async fn a_marker_has_one_form_of_name() {
    let scene = Scene::tenant().await;
    let digits = "A".repeat(32);
    for bad in ["", "x", "../x", &format!(".langbot-box-volume-probe-{digits}"), ".langbot-box-volume-probe-0"] {
        let fault = scene.host("box_verify_shared_workspace", json!({ "marker_name": bad })).await;
        assert_eq!(fault, Err("BoxReadinessError: Invalid Box shared Workspace probe basename".into()));
    }
}

#[tokio::test]
async fn storage_is_told_for_the_host_and_for_sandboxes() {
    let scene = Scene::tenant().await;
    let nothing = json!({ "size_bytes": 0, "directories": [], "active_sessions": 0, "managed_processes": 0 });
    assert_eq!(scene.ask(1, "box_get_storage_analysis", json!({})).await, Ok(nothing));
    scene.init(json!({})).await.unwrap();
    let workspace = scene.door.workspace_of(&place(1)).unwrap();
    std::fs::create_dir_all(workspace.join("inbox")).unwrap();
    std::fs::write(workspace.join("inbox/letter"), "12345").unwrap();
    std::fs::write(workspace.join("file"), "123").unwrap();
    scene.session(&place(1), "s", false).await;
    let mut analysis = scene.ask(1, "box_get_storage_analysis", json!({})).await.unwrap();
    for entry in analysis["directories"].as_array_mut().unwrap() {
        let path = entry["path"].as_str().unwrap().replace(workspace.to_str().unwrap(), "[workspace]");
        entry["path"] = json!(path);
    }
    insta::assert_json_snapshot!(analysis);
}

#[tokio::test]
async fn nothing_can_be_cancelled_or_acknowledged() {
    let scene = Scene::tenant().await;
    assert_eq!(scene.ask(1, "__cancel_action", json!({ "seq_id": 3 })).await, Ok(json!({ "cancelled": false })));
    assert_eq!(
        scene.ask(1, "__stream_ack", json!({ "seq_id": 3, "index": 0 })).await,
        Ok(json!({ "accepted": false }))
    );
}
