//! Unused data is removed; data that a box uses stays.

use std::fs;

use box_core::{Image, ImageStore};

use crate::support::picture::{Packing, Picture};
use crate::support::tar::Tar;
use crate::support::{TestStore, name, silent};

async fn import(test_store: &TestStore, called: &str, word: &[u8]) {
    let place = tempfile::tempdir().unwrap();
    let base = Tar::new().file("bin/base", b"shared").bytes();
    let picture = Picture::new(&[base, Tar::empty().file("bin/word", word).bytes()], Packing::Gzip);
    picture.write_layout(place.path(), None);
    test_store.images.import(place.path(), Some(&name(called)), silent()).await.unwrap();
}

fn counts(test_store: &TestStore) -> (usize, usize, usize) {
    (test_store.names("manifests").len(), test_store.names("trees").len(), test_store.names("blobs").len())
}

#[tokio::test]
async fn removing_a_name_removes_what_only_it_needed() {
    let test_store = TestStore::new();
    import(&test_store, "a:1", b"a").await;
    import(&test_store, "a:2", b"a").await;
    import(&test_store, "b:1", b"b").await;
    assert_eq!(counts(&test_store), (2, 2, 3));
    test_store.images.remove(&name("a:1")).await.unwrap();
    assert_eq!(counts(&test_store), (2, 2, 3), "a:2 is the same image");
    test_store.images.remove(&name("a:2")).await.unwrap();
    assert_eq!(counts(&test_store), (1, 1, 2));
    let error = test_store.images.remove(&name("a:2")).await.unwrap_err().to_string();
    assert!(error.contains("it is not in the store"), "{error}");
    assert!(test_store.images.gc().await.unwrap() == 0 && test_store.images.list().await.unwrap().len() == 1);
}

#[tokio::test]
async fn a_tree_stays_while_a_box_stands_on_it() {
    let test_store = TestStore::new();
    import(&test_store, "a:1", b"a").await;
    let tree = test_store.images.resolve(&Image::Named("a:1".into()), "run-1.box").unwrap().unwrap();
    test_store.images.remove(&name("a:1")).await.unwrap();
    assert!(tree.path.join("bin/word").exists());
    assert!(test_store.images.resolve(&Image::Named("a:1".into()), "run-1.other").is_err());
    test_store.images.release_the_dead(|holder| holder == "run-1.box").unwrap();
    assert_eq!(test_store.images.gc().await.unwrap(), 0);
    test_store.images.release("run-1.box").unwrap();
    test_store.images.release("run-1.box").unwrap();
    assert!(test_store.images.gc().await.unwrap() > 0);
    assert!(!tree.path.exists());
    for bad in ["", "../x", "a/b"] {
        assert!(test_store.images.release(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn trees_of_tar_files_stay_as_long_as_the_file_is_what_it_was() {
    let test_store = TestStore::new();
    let path = test_store.directory.path().join("root.tar");
    fs::write(&path, Tar::new().file("bin/sh", b"x").bytes()).unwrap();
    let image = Image::Tar(path.clone());
    let tree = test_store.images.resolve(&image, "box").unwrap().unwrap();
    test_store.images.release("box").unwrap();
    test_store.images.gc().await.unwrap();
    assert!(tree.path.exists());
    fs::write(&path, Tar::new().file("bin/sh", b"y").bytes()).unwrap();
    test_store.images.gc().await.unwrap();
    assert!(!tree.path.exists() && test_store.names("known").is_empty());
    let again = test_store.images.resolve(&image, "box").unwrap().unwrap();
    assert_eq!(fs::read(again.path.join("bin/sh")).unwrap(), b"y");
}

#[tokio::test]
async fn a_list_of_names_that_cannot_be_read_says_what_to_do() {
    let test_store = TestStore::new();
    import(&test_store, "a:1", b"a").await;
    fs::write(test_store.root().join("references.json"), b"{").unwrap();
    let error = test_store.images.list().await.unwrap_err().to_string();
    assert!(error.contains("references.json") && error.contains("pull the images again"), "{error}");
    assert!(test_store.images.gc().await.is_err(), "without a readable list of names nothing is removed");
    assert_eq!(counts(&test_store), (1, 1, 2));
}

#[tokio::test]
async fn a_tree_that_was_removed_by_hand_is_made_again() {
    let test_store = TestStore::new();
    import(&test_store, "a:1", b"a").await;
    fs::remove_dir_all(test_store.tree("a:1")).unwrap();
    assert!(test_store.images.find(&name("a:1")).unwrap().is_none());
    import(&test_store, "a:1", b"a").await;
    assert!(test_store.tree("a:1").join("bin/word").exists());
}
