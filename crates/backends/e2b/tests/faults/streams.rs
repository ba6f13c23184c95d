//! Streams that break on the way: what is left of the box, and what callers see.

use box_core::Backend;

use crate::double::Fault;
use crate::scene::Scene;

#[tokio::test]
async fn a_stream_that_breaks_is_no_box_that_is_gone() {
    for fault in [Fault::Cut(1), Fault::Cut(2), Fault::Half(2), Fault::Half(3), Fault::Huge(2)] {
        let scene = Scene::new().await;
        let handle = scene.make("one").await.unwrap();
        scene.double.fail("start", fault.clone());
        let error = scene.run(&handle).await.unwrap_err();
        assert_eq!(error.code(), "io", "{fault:?}: {error}");
        scene.run(&handle).await.unwrap_or_else(|error| panic!("{fault:?} harmed the box: {error}"));
    }
}

#[tokio::test]
async fn a_sandbox_that_ends_in_the_middle_of_a_command_is_gone() {
    let scene = Scene::new().await;
    let handle = scene.make("one").await.unwrap();
    scene.double.fail("start", Fault::Gone(2));
    assert_eq!(scene.run(&handle).await.unwrap_err().code(), "box_gone");
    assert_eq!(scene.run(&handle).await.unwrap_err().code(), "box_gone", "and stays so");
    scene.backend.destroy(&handle).await.unwrap();
}

#[tokio::test]
async fn input_that_does_not_arrive_ends_the_stream() {
    let scene = Scene::new().await;
    let handle = scene.make("one").await.unwrap();
    scene.double.fail("input", Fault::Status(500, None));
    assert!(scene.run(&handle).await.is_err());
    scene.run(&handle).await.unwrap();
}

#[tokio::test]
async fn what_runs_in_a_box_that_is_ended_is_told_that_it_is_gone() {
    let scene = Scene::new().await;
    let handle = scene.make("one").await.unwrap();
    let waiting = scene.backend.dial(&handle).await.unwrap();
    scene.backend.destroy(&handle).await.unwrap();
    assert_eq!(box_core::link::ping(waiting).await.unwrap_err().code(), "box_gone");
    assert_eq!(scene.backend.dial(&handle).await.unwrap_err().code(), "box_gone");
}
