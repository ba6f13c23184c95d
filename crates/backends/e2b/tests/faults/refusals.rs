//! A provider that says no, is busy, or speaks an older version.

use box_core::{Backend, BoxSpec, Dimension, Floors, Image, Profile};

use crate::double::Fault;
use crate::scene::Scene;

#[tokio::test]
async fn a_busy_provider_is_asked_again_when_it_likes() {
    let scene = Scene::new().await;
    scene.double.fail("create2", Fault::Status(429, Some(1)));
    scene.double.fail("create2", Fault::Status(503, None));
    scene.double.fail("files", Fault::Status(503, None));
    scene.double.fail("start", Fault::Status(504, None));
    let before = std::time::Instant::now();
    let handle = scene.make("one").await.unwrap();
    assert!(before.elapsed().as_secs() >= 1, "it asked for a second");
    assert_eq!(scene.double.seen("POST /v2/sandboxes"), 3);
    assert_eq!(scene.double.sandboxes(), 1);
    scene.run(&handle).await.unwrap();
}

#[tokio::test]
async fn a_provider_that_asks_for_more_patience_than_there_is_is_told_of() {
    let scene = Scene::new().await;
    scene.double.fail("create2", Fault::Status(429, Some(3600)));
    let error = scene.make("one").await.unwrap_err();
    assert!(error.code() == "unavailable" && error.to_string().contains("429"), "{error}");
}

#[tokio::test]
async fn whatever_fails_while_a_box_is_made_leaves_nothing() {
    for (kind, fault) in [
        ("create2", Fault::Status(500, None)),
        ("create2", Fault::Nonsense),
        ("files", Fault::Status(500, None)),
        ("start", Fault::Status(500, None)),
        ("start", Fault::Cut(0)),
        ("start", Fault::Cut(1)),
        ("start", Fault::Half(1)),
        ("start", Fault::Huge(0)),
        ("start", Fault::Gone(1)),
        ("input", Fault::Status(500, None)),
    ] {
        let scene = Scene::new().await;
        scene.double.fail(kind, fault.clone());
        let error = scene.make("one").await.unwrap_err();
        assert_eq!(scene.double.sandboxes(), 0, "{kind} {fault:?}: {error}");
        scene.make("one").await.unwrap_or_else(|error| panic!("{kind} {fault:?}: the id is not free again: {error}"));
    }
}

#[tokio::test]
async fn a_provider_without_the_second_version_is_asked_in_the_first() {
    for status in [404, 405] {
        let scene = Scene::new().await;
        for kind in ["create2", "connect"] {
            scene.double.fail(kind, Fault::Status(status, None));
        }
        scene.make("one").await.unwrap();
        scene.make("two").await.unwrap();
        assert_eq!((scene.double.seen("POST /v2/sandboxes"), scene.double.seen("POST /sandboxes")), (1, 2));
    }
}

#[tokio::test]
async fn a_template_that_nobody_knows_is_a_bad_image() {
    let scene = Scene::new().await;
    scene.double.fail("create2", Fault::Status(404, None));
    scene.double.fail("create1", Fault::Status(404, None));
    let spec = BoxSpec { image: Image::Named("nowhere".into()), ..Profile::default().spec() };
    let error = scene.make_with("one", &spec).await.unwrap_err();
    assert!(error.code() == "bad_image" && error.to_string().contains("nowhere"), "{error}");
    let spec = BoxSpec { image: Image::Directory("/srv".into()), ..Profile::default().spec() };
    assert_eq!(scene.make_with("two", &spec).await.unwrap_err().code(), "bad_image");
}

#[tokio::test]
async fn a_key_that_is_refused_says_where_keys_are_set() {
    let scene = Scene::new().await;
    scene.double.fail("create2", Fault::Status(401, None));
    let error = scene.make("one").await.unwrap_err();
    assert!(error.to_string().contains("E2B_API_KEY"), "{error}");
    assert!(scene.backend.probe().await.available);
    scene.double.fail("list", Fault::Status(401, None));
    let found = scene.backend.probe().await;
    assert!(!found.available && found.absence().unwrap().1.contains("E2B_API_KEY"), "{found:?}");
}

#[tokio::test]
async fn a_floor_cannot_be_held_by_the_word_of_a_provider() {
    let scene = Scene::new().await;
    let spec = BoxSpec { floors: Floors(vec![Dimension::Memory]), ..Profile::default().spec() };
    assert_eq!(scene.make_with("one", &spec).await.unwrap_err().code(), "floor_not_held");
    assert_eq!(scene.double.sandboxes(), 0);
}

#[tokio::test]
async fn an_end_that_was_refused_can_be_tried_again() {
    let scene = Scene::new().await;
    let handle = scene.make("one").await.unwrap();
    scene.double.fail("delete", Fault::Status(500, None));
    assert_eq!(scene.backend.destroy(&handle).await.unwrap_err().code(), "unavailable");
    scene.backend.destroy(&handle).await.unwrap();
    assert_eq!(scene.double.sandboxes(), 0);
}
