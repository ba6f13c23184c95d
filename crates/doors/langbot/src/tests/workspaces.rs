//! For whom requests are, and which generation is the current one.

use super::*;

#[tokio::test]
async fn actions_of_a_workspace_need_its_context() {
    let scene = Scene::tenant().await;
    let missing = "PermissionError: Box tenant action requires a trusted Workspace context";
    assert_eq!(scene.host("box_status", json!({})).await, Err(missing.into()));
    let mut foreign = context(1);
    foreign["instance_uuid"] = json!("another");
    let mismatch = "PermissionError: Box action context does not match the trusted instance";
    for action in ["box_status", "__ping", "box_shutdown"] {
        let reply = scene.send(action, json!({}), Some(foreign.clone())).await.unwrap();
        assert_eq!(told(reply), Err(mismatch.into()), "{action}");
    }
    assert!(scene.ask(1, "__ping", json!({})).await.is_ok());
}

#[tokio::test]
async fn an_older_generation_is_refused() {
    let scene = Scene::tenant().await;
    scene.ask(2, "box_status", json!({})).await.unwrap();
    let stale = "PermissionError: Stale Box placement generation";
    assert_eq!(scene.ask(1, "box_status", json!({})).await, Err(stale.into()));
}

#[tokio::test]
async fn a_newer_generation_removes_what_older_ones_left_and_nothing_of_others() {
    let scene = Scene::tenant().await;
    let other = TenancyScope::workspace(&instance(), "other", 1);
    scene.session(&place(1), "old", true).await;
    scene.session(&other, "other", false).await;
    scene.session(&TenancyScope::Legacy, "g1-legacy", false).await;
    let status = scene.ask(2, "box_status", json!({})).await.unwrap();
    assert_eq!((&status["active_sessions"], &status["capacity"]["used"]), (&json!(0), &json!(0)));
    assert_eq!(scene.door.sessions_held().await.unwrap(), 2);
}

#[tokio::test]
async fn sessions_that_survived_a_restart_tell_the_generation() {
    let scene = Scene::tenant().await;
    scene.session(&place(12), "s", true).await;
    assert!(scene.ask(9, "box_status", json!({})).await.unwrap_err().contains("Stale"));
    assert_eq!(scene.ask(12, "box_status", json!({})).await.unwrap()["active_sessions"], 1);
}

#[tokio::test]
async fn a_request_of_a_generation_that_is_over_is_not_answered() {
    let scene = Scene::tenant().await;
    // Something that never ends keeps the request busy: clearing waits for the last request of the generation before.
    let TenancyScope::Workspace { namespace, .. } = place(1) else { unreachable!() };
    let oldest = scene.door.generation_guard().enter(&namespace, 1, None, 10).unwrap();
    let mut waiting = Box::pin(scene.send("box_status", json!({}), Some(context(2))));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    let mut newer = Box::pin(scene.send("box_status", json!({}), Some(context(3))));
    assert!(futures_util::poll!(&mut newer).is_pending());
    assert_eq!(waiting.await, None);
    drop(oldest);
    assert_eq!(newer.await.unwrap().code, 0);
}

#[tokio::test]
async fn only_so_many_workspaces_are_served() {
    let scene = Scene::tenant().await;
    scene.host("box_init", json!({ "limits": { "max_admission_records": 1 } })).await.unwrap();
    scene.ask(1, "box_status", json!({})).await.unwrap();
    let mut second = context(1);
    second["workspace_uuid"] = json!("second");
    let fault = told(scene.send("box_status", json!({}), Some(second)).await.unwrap()).unwrap_err();
    assert!(fault.starts_with("PermissionError: "), "{fault}");
}
