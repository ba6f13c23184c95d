//! Boxes that are made, found again and ended.

use box_core::{Backend, Liveness};
use box_host::InstanceKind;
use box_wire::Exit;

use crate::double::Fault;
use crate::scene::{Scene, run};

#[tokio::test]
async fn a_box_is_made_used_and_ended_and_a_bad_exit_is_a_result() {
    let scene = Scene::new().await;
    let handle = scene.make("one").await.unwrap();
    let (outcome, said) = scene.run(&handle).await.unwrap();
    assert_eq!((outcome.exit, said.as_str()), (Exit::Code(3), "hello"));
    assert_eq!(scene.backend.stats(&handle).await.unwrap().memory_bytes, Some(4096));
    assert!(!handle.locator.contains("e2b_00"), "the key is written down nowhere");
    assert_eq!(scene.double.world.lock().unwrap().uploads, 1);
    scene.backend.destroy(&handle).await.unwrap();
    scene.backend.destroy(&handle).await.unwrap();
    assert_eq!(scene.double.sandboxes(), 0);
    assert_eq!(scene.run(&handle).await.unwrap_err().code(), "box_gone");
}

#[tokio::test]
async fn an_id_is_used_once_at_a_time() {
    let scene = Scene::new().await;
    scene.make("one").await.unwrap();
    assert_eq!(scene.make("one").await.unwrap_err().code(), "invalid");
    assert_eq!(scene.double.sandboxes(), 1, "the refusal harmed the first");
}

#[tokio::test]
async fn a_stream_that_is_dropped_is_hung_up_in_the_sandbox() {
    let scene = Scene::new().await;
    let handle = scene.make("one").await.unwrap();
    drop(scene.backend.dial(&handle).await.unwrap());
    for _ in 0..3000 {
        if !scene.double.world.lock().unwrap().killed.is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the stream was not hung up");
}

#[tokio::test]
async fn a_box_is_found_again_after_a_restart_and_lost_when_it_is_gone() {
    let scene = Scene::new().await;
    let instance = || InstanceKind::Persistent("server-1".to_owned());
    let first = scene.another(instance()).await;
    let handle = first.create(&"kept".parse().unwrap(), &box_core::Profile::default().spec()).await.unwrap();
    drop(first);
    let second = scene.another(instance()).await;
    assert_eq!(second.adopt(&handle).await.unwrap(), Liveness::Running);
    run(&second, &handle).await.unwrap();
    scene.double.world.lock().unwrap().sandboxes.clear();
    let third = scene.another(instance()).await;
    assert!(matches!(third.adopt(&handle).await.unwrap(), Liveness::Lost(reason) if !reason.is_empty()));
}

#[tokio::test]
async fn orphans_are_ours_alone_however_many_pages_there_are() {
    let scene = Scene::new().await;
    scene.double.world.lock().unwrap().page_size = Some(2);
    for id in ["a", "b", "c"] {
        scene.make(id).await.unwrap();
    }
    let other = scene.another(InstanceKind::Ephemeral).await;
    other.create(&"d".parse().unwrap(), &box_core::Profile::default().spec()).await.unwrap();
    let mut found: Vec<String> =
        scene.backend.list_orphans().await.unwrap().iter().map(|handle| handle.id.to_string()).collect();
    found.sort();
    assert_eq!(found, ["a", "b", "c"]);
    scene.backend.close().await;
    assert_eq!(scene.double.sandboxes(), 1, "an instance that ends takes only its own sandboxes with it");
}

#[tokio::test]
async fn a_box_is_paused_and_woken() {
    let scene = Scene::new().await;
    let handle = scene.make("one").await.unwrap();
    scene.backend.pause(&handle).await.unwrap();
    scene.backend.pause(&handle).await.unwrap();
    let again = scene.another(InstanceKind::Ephemeral).await;
    assert_eq!(again.adopt(&handle).await.unwrap(), Liveness::Running);
    assert_eq!(scene.double.world.lock().unwrap().paused.len(), 1, "adopting does not wake it");
    scene.backend.resume(&handle).await.unwrap();
    scene.run(&handle).await.unwrap();
}

#[tokio::test]
async fn a_box_that_somebody_else_stopped_is_woken_by_use() {
    let scene = Scene::new().await;
    let handle = scene.make("one").await.unwrap();
    let id = scene.double.world.lock().unwrap().sandboxes.keys().next().unwrap().clone();
    scene.double.world.lock().unwrap().paused.push(id);
    scene.run(&handle).await.unwrap();
    assert_eq!(scene.double.seen("POST /v2/sandboxes/ID/connect"), 1);
}

#[tokio::test]
async fn a_slow_provider_is_waited_for() {
    let scene = Scene::new().await;
    for kind in ["create2", "start", "files", "input"] {
        scene.double.fail(kind, Fault::Slow(std::time::Duration::from_millis(300)));
    }
    let handle = scene.make("one").await.unwrap();
    scene.run(&handle).await.unwrap();
}
