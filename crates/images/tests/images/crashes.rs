//! Processes that are killed on the way, and processes that want the same at once. Each is this program once more.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use box_core::{Image, ImageStore};
use box_images::{Images, ImagesConfig, fault};

use crate::support::picture::{Packing, Picture};
use crate::support::registry::Registry;
use crate::support::tar::Tar;
use crate::support::{TestStore, name, silent};

/// Says what a process like this one is to do: a verb, the store, and the image or file.
const ORDER: &str = "STRONGBOX_TEST_IMAGES_ORDER";

/// Not a test, but what the other processes do.
#[tokio::test]
async fn carry_out_an_order() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let [verb, root, what] = order.split('|').collect::<Vec<_>>()[..] else { panic!("{order}") };
    let images = Images::open(Path::new(root), ImagesConfig::default()).unwrap();
    match verb {
        "pull" => drop(images.pull(&name(what), silent()).await.unwrap()),
        "import" => drop(images.import(Path::new(what), Some(&name("tool:1")), silent()).await.unwrap()),
        "remove" => images.remove(&name(what)).await.unwrap(),
        other => panic!("{other}"),
    }
}

fn start(verb: &str, test_store: &TestStore, what: &str, fault: Option<&str>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crashes::carry_out_an_order"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.env(ORDER, format!("{verb}|{}|{what}", test_store.root().display()));
    command.env_remove(fault::VARIABLE);
    if let Some(step) = fault {
        command.env(fault::VARIABLE, step);
    }
    command.spawn().unwrap()
}

fn picture() -> Picture {
    let layers = [Tar::new().file("bin/sh", &vec![5; 300_000]).bytes(), Tar::empty().file("bin/word", b"x").bytes()];
    Picture::new(&layers, Packing::Gzip)
}

/// Whatever step a process dies at: the next one finds an image or none, and after the next one everything is as it should be.
#[tokio::test]
async fn a_process_that_is_killed_at_any_step_leaves_nothing_that_is_half() {
    let place = tempfile::tempdir().unwrap();
    picture().write_layout(place.path(), None);
    let path = place.path().to_str().unwrap();
    for step in &fault::STEPS[..6] {
        let test_store = TestStore::new();
        let status = start("import", &test_store, path, Some(step)).wait().unwrap();
        assert!(!status.success(), "{step} was not reached");
        let images = Images::open(&test_store.root(), ImagesConfig::default()).unwrap();
        assert_eq!(test_store.names("work"), [""; 0], "{step}");
        let found = images.find(&name("tool:1")).unwrap();
        assert_eq!(found.is_some(), *step == "image_reference_written", "{step}");
        assert!(start("import", &test_store, path, None).wait().unwrap().success(), "{step}");
        let tree = test_store.tree("tool:1");
        assert_eq!(std::fs::read(tree.join("bin/sh")).unwrap().len(), 300_000);
        images.release("holder").unwrap();
        let before = (test_store.names("trees"), test_store.names("blobs"), test_store.names("manifests"));
        assert_eq!((before.0.len(), before.1.len(), before.2.len()), (1, 2, 1), "{step}");
        assert_eq!(images.gc().await.unwrap(), 0, "{step}");
    }
}

#[tokio::test]
async fn a_removal_that_is_killed_is_finished_by_the_next() {
    for step in &fault::STEPS[6..] {
        let (test_store, place) = (TestStore::new(), tempfile::tempdir().unwrap());
        picture().write_layout(place.path(), None);
        test_store.images.import(place.path(), Some(&name("tool:1")), silent()).await.unwrap();
        assert!(
            !start("remove", &test_store, "tool:1", Some(step)).wait().unwrap().success(),
            "{step} was not reached"
        );
        let images = Images::open(&test_store.root(), ImagesConfig::default()).unwrap();
        assert!(images.find(&name("tool:1")).unwrap().is_none(), "{step}");
        images.gc().await.unwrap();
        for directory in ["trees", "blobs", "manifests", "work"] {
            assert_eq!(test_store.names(directory), [""; 0], "{step}: {directory}");
        }
    }
}

#[tokio::test]
async fn what_was_downloaded_before_a_crash_is_not_downloaded_again() {
    let Some(registry) = Registry::start() else { return };
    let (test_store, picture) = (TestStore::new(), picture());
    registry.push("tool", "1", &picture);
    let image = registry.name("tool:1");
    assert!(!start("pull", &test_store, &image, Some("image_tree_unpacked")).wait().unwrap().success());
    for layer in &picture.layers {
        std::fs::remove_file(registry.blob(layer)).unwrap();
    }
    assert!(start("pull", &test_store, &image, None).wait().unwrap().success(), "the layers are here already");
    assert!(test_store.tree(&image).join("bin/word").exists());
}

#[test]
fn processes_that_pull_the_same_image_at_once_all_succeed() {
    let Some(registry) = Registry::start() else { return };
    let (test_store, picture) = (TestStore::new(), picture());
    registry.push("tool", "1", &picture);
    registry.push("other", "1", &picture);
    let images = [registry.name("tool:1"), registry.name("other:1")];
    let children: Vec<Child> = (0..6).map(|number| start("pull", &test_store, &images[number % 2], None)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(
        (test_store.names("trees").len(), test_store.names("blobs").len(), test_store.names("work").len()),
        (1, 2, 0)
    );
    for image in &images {
        assert!(test_store.tree(image).join("bin/word").exists());
    }
}

/// Images come and go while others ask for them: a tree that was given stays whole.
#[test]
fn what_is_held_survives_others_who_remove_it() {
    let (test_store, place) = (TestStore::new(), tempfile::tempdir().unwrap());
    picture().write_layout(place.path(), None);
    let path = place.path().to_str().unwrap();
    for round in 0..5 {
        assert!(start("import", &test_store, path, None).wait().unwrap().success());
        let mut removing = start("remove", &test_store, "tool:1", None);
        let holder = format!("run-1.box-{round}");
        if let Ok(Some(tree)) = test_store.images.resolve(&Image::Named("tool:1".into()), &holder) {
            assert!(removing.wait().unwrap().success());
            assert_eq!(std::fs::read(tree.path.join("bin/sh")).unwrap().len(), 300_000);
        } else {
            assert!(removing.wait().unwrap().success());
        }
        test_store.images.release(&holder).unwrap();
    }
}
