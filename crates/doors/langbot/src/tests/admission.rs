//! Sandboxes that need a grant.

use jiff::{SignedDuration, Timestamp};

use super::*;

fn grant(revision: u64, generation: u64) -> Value {
    let expires_at = Timestamp::now() + SignedDuration::from_secs(200);
    json!({
        "instance_uuid": "an-instance", "workspace_uuid": "w", "execution_generation": generation,
        "entitlement_revision": revision, "expires_at": expires_at.to_string(), "max_sessions": 1,
        "max_managed_processes": 0,
    })
}

/// A door that needs grants and holds all that is promised.
async fn scene() -> Scene {
    let config =
        LangBotConfig { backend_name: Some("nsjail".into()), soft_storage_allowed: true, ..LangBotConfig::default() };
    let scene = Scene::with(Client::Tenant(instance()), config).await;
    scene.init(json!({ "admission": { "required": true } })).await.unwrap();
    scene
}

async fn install(scene: &Scene, grant: Value) -> std::result::Result<Value, String> {
    scene.host("box_upsert_sandbox_admission_grant", grant).await
}

#[tokio::test]
async fn grants_are_for_doors_that_need_them() {
    let scene = Scene::tenant().await;
    let fault = install(&scene, grant(1, 1)).await;
    assert_eq!(fault, Err("BoxAdmissionError: Sandbox admission is not enabled".into()));
}

#[tokio::test]
async fn a_grant_of_another_instance_is_refused() {
    let scene = scene().await;
    let mut foreign = grant(1, 1);
    foreign["instance_uuid"] = json!("another");
    let fault = install(&scene, foreign).await;
    assert_eq!(fault, Err("PermissionError: Sandbox admission grant does not match the trusted instance".into()));
}

#[tokio::test]
async fn without_a_grant_there_are_no_sandboxes_but_the_rest_works() {
    let scene = scene().await;
    for action in ["box_exec", "box_create_session", "box_get_sessions", "box_stop_managed_process"] {
        let fault = scene.ask(1, action, json!({ "session_id": "global", "cmd": "true" })).await;
        assert_eq!(fault, Err("BoxAdmissionError: Sandbox admission grant is missing".into()), "{action}");
    }
    let status = scene.ask(1, "box_status", json!({})).await.unwrap();
    assert_eq!(status["capacity"], json!({ "limit": 0, "used": 0, "remaining": 0 }));
    assert!(scene.ask(1, "box_list_skills", json!({})).await.is_ok());
}

#[tokio::test]
async fn a_grant_admits_one_session_and_no_processes() {
    let scene = scene().await;
    let receipt = install(&scene, grant(1, 1)).await.unwrap();
    assert_eq!((&receipt["installed"], &receipt["workspace_uuid"]), (&json!(true), &json!("w")));
    let mut data = json!({ "session_id": "mine", "cmd": "true" }).as_object().unwrap().clone();
    scene.door.admit("box_exec", &place(1), &mut data).await.unwrap();
    let workspace = scene.door.workspace_of(&place(1)).unwrap();
    assert_eq!((&data["session_id"], &data["host_path"]), (&json!("global"), &json!(workspace)));
    let owned = Err("BoxAdmissionError: Managed sandbox session_id is runtime-owned".to_owned());
    assert_eq!(scene.ask(1, "box_get_session", json!({ "session_id": "mine" })).await, owned);
    let no_processes = "BoxAdmissionError: Sandbox admission grant does not permit managed processes";
    let started = scene.ask(1, "box_start_managed_process", json!({ "session_id": "global", "spec": {} })).await;
    assert_eq!(started, Err(no_processes.into()));
    assert_eq!(scene.door.admit_relay(&place(1)).await.unwrap_err().to_string(), no_processes);
    let status = scene.ask(1, "box_status", json!({})).await.unwrap();
    assert_eq!(status["capacity"], json!({ "limit": 1, "used": 0, "remaining": 1 }));
    scene.session(&place(1), "leftover", false).await;
    let mut data = json!({ "session_id": "global", "cmd": "true" }).as_object().unwrap().clone();
    let full = scene.door.admit("box_exec", &place(1), &mut data).await.unwrap_err().to_string();
    assert_eq!(full, "BoxAdmissionError: Sandbox admission session limit reached");
}

#[tokio::test]
async fn a_skill_is_mounted_by_its_name() {
    let scene = scene().await;
    install(&scene, grant(1, 1)).await.unwrap();
    scene.ask(1, "box_create_skill", json!({ "skill": { "name": "tables", "instructions": "x" } })).await.unwrap();
    let mut data = json!({ "session_id": "s", "skill_name": "tables" }).as_object().unwrap().clone();
    scene.door.admit("box_exec", &place(1), &mut data).await.unwrap();
    let mount = &data["extra_mounts"][0];
    assert_eq!((&mount["mount_path"], &mount["mode"]), (&json!("/workspace/.skills/tables"), &json!("ro")));
    assert!(mount["host_path"].as_str().unwrap().ends_with("/tables"), "{mount}");
    data.insert("skill_name".into(), json!("missing"));
    assert_eq!(
        scene.door.admit("box_exec", &place(1), &mut data).await.unwrap_err().class,
        super::fault::Class::Validation
    );
}

#[tokio::test]
async fn another_grant_drops_what_was_made_with_the_one_before() {
    let scene = scene().await;
    install(&scene, grant(1, 1)).await.unwrap();
    scene.session(&place(1), "global", true).await;
    install(&scene, grant(1, 1)).await.unwrap();
    assert_eq!(scene.door.sessions_held().await.unwrap(), 1, "one that is prolonged keeps its sessions");
    install(&scene, grant(2, 1)).await.unwrap();
    assert_eq!(scene.door.sessions_held().await.unwrap(), 0);
    scene.session(&place(1), "global", true).await;
    install(&scene, grant(2, 3)).await.unwrap();
    assert_eq!(scene.door.sessions_held().await.unwrap(), 0);
    assert!(scene.ask(1, "box_status", json!({})).await.unwrap_err().contains("Stale"), "it moves the fence");
    let other = scene.ask(4, "box_get_sessions", json!({})).await.unwrap_err();
    assert!(other.ends_with("belongs to another execution generation"), "{other}");
    scene.ask(5, "box_status", json!({})).await.unwrap();
    let stale = install(&scene, grant(3, 4)).await.unwrap_err();
    assert!(stale.ends_with("execution generation is stale"), "{stale}");
}

#[tokio::test]
async fn a_revocation_drops_everything() {
    let scene = scene().await;
    install(&scene, grant(1, 1)).await.unwrap();
    scene.session(&place(1), "global", true).await;
    let revocation = json!({ "instance_uuid": "an-instance", "workspace_uuid": "w", "entitlement_revision": 1 });
    let receipt = scene.host("box_revoke_sandbox_admission_grant", revocation).await.unwrap();
    assert_eq!(receipt, json!({ "revoked": true, "workspace_uuid": "w", "entitlement_revision": 1 }));
    assert_eq!(scene.door.sessions_held().await.unwrap(), 0);
    assert!(install(&scene, grant(1, 1)).await.unwrap_err().contains("revoked"));
}

#[tokio::test]
async fn health_is_readiness() {
    let scene = scene().await;
    assert_eq!(scene.host("box_health", json!({})).await.unwrap()["ready"], true);
    let info = scene.host("box_get_backend_info", json!({})).await.unwrap();
    assert_eq!((&info["name"], &info["readiness"]["mode"]), (&json!("nsjail"), &json!("grant_enforced")));
}

#[tokio::test]
async fn what_is_not_held_is_not_promised() {
    let config = LangBotConfig { backend_name: Some("nsjail".into()), ..LangBotConfig::default() };
    let scene = Scene::with(Client::Tenant(instance()), config).await;
    scene.init(json!({ "admission": { "required": true } })).await.unwrap();
    let fault = scene.host("box_health", json!({})).await;
    assert_eq!(fault, Err("BoxReadinessError: managed sandbox isolation is not ready".into()));
    install(&scene, grant(1, 1)).await.unwrap();
    let fault = scene.ask(1, "box_exec", json!({ "session_id": "global", "cmd": "true" })).await.unwrap_err();
    assert!(fault.starts_with("BoxReadinessError: Managed sandbox isolation is not ready (failed checks: "), "{fault}");
    scene.host("box_init", json!({ "admission": {} })).await.unwrap();
    let info = scene.host("box_get_backend_info", json!({})).await.unwrap();
    assert_eq!(info["readiness"]["checks"]["configuration"], false, "it cannot be switched off");
}

#[tokio::test]
async fn clients_that_name_nothing_are_not_admitted() {
    let scene = scene().await;
    let legacy = Connection::new(Client::Legacy, 1 << 20);
    let request = Request { seq_id: 7, action: "box_get_sessions".into(), data: Map::new(), context: None };
    let fault = told(scene.door.answer(&legacy, request).await.unwrap()).unwrap_err();
    assert!(fault.starts_with("BoxAdmissionError: "), "{fault}");
}
