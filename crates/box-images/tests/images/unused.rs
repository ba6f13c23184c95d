//! What nobody needs, and what somebody still stands on.

use std::fs;

use box_core::{Image, ImageStore};

use crate::support::picture::{Packing, Picture};
use crate::support::tar::Tar;
use crate::support::{Shelf, name};

async fn import(shelf: &Shelf, called: &str, word: &[u8]) {
    let place = tempfile::tempdir().unwrap();
    let base = Tar::new().file("bin/base", b"shared").bytes();
    let picture = Picture::new(&[base, Tar::empty().file("bin/word", word).bytes()], Packing::Gzip);
    picture.write_layout(place.path(), None);
    shelf.images.import(place.path(), Some(&name(called))).await.unwrap();
}

fn counts(shelf: &Shelf) -> (usize, usize, usize) {
    (shelf.names("manifests").len(), shelf.names("trees").len(), shelf.names("blobs").len())
}

#[tokio::test]
async fn removing_a_name_removes_what_only_it_needed() {
    let shelf = Shelf::new();
    import(&shelf, "a:1", b"a").await;
    import(&shelf, "a:2", b"a").await;
    import(&shelf, "b:1", b"b").await;
    assert_eq!(counts(&shelf), (2, 2, 3));
    shelf.images.remove(&name("a:1")).await.unwrap();
    assert_eq!(counts(&shelf), (2, 2, 3), "a:2 is the same image");
    shelf.images.remove(&name("a:2")).await.unwrap();
    assert_eq!(counts(&shelf), (1, 1, 2));
    let error = shelf.images.remove(&name("a:2")).await.unwrap_err().to_string();
    assert!(error.contains("it is not in the store"), "{error}");
    assert!(shelf.images.gc().await.unwrap() == 0 && shelf.images.list().await.unwrap().len() == 1);
}

#[tokio::test]
async fn a_tree_stays_while_a_box_stands_on_it() {
    let shelf = Shelf::new();
    import(&shelf, "a:1", b"a").await;
    let tree = shelf.images.resolve(&Image::Named("a:1".into()), "run-1.box").unwrap().unwrap();
    shelf.images.remove(&name("a:1")).await.unwrap();
    assert!(tree.path.join("bin/word").exists());
    assert!(shelf.images.resolve(&Image::Named("a:1".into()), "run-1.other").is_err());
    shelf.images.release_the_dead(|holder| holder == "run-1.box").unwrap();
    assert_eq!(shelf.images.gc().await.unwrap(), 0);
    shelf.images.release("run-1.box").unwrap();
    shelf.images.release("run-1.box").unwrap();
    assert!(shelf.images.gc().await.unwrap() > 0);
    assert!(!tree.path.exists());
    for bad in ["", "../x", "a/b"] {
        assert!(shelf.images.release(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn trees_of_tar_files_stay_as_long_as_the_file_is_what_it_was() {
    let shelf = Shelf::new();
    let path = shelf.directory.path().join("root.tar");
    fs::write(&path, Tar::new().file("bin/sh", b"x").bytes()).unwrap();
    let image = Image::Tar(path.clone());
    let tree = shelf.images.resolve(&image, "box").unwrap().unwrap();
    shelf.images.release("box").unwrap();
    shelf.images.gc().await.unwrap();
    assert!(tree.path.exists());
    fs::write(&path, Tar::new().file("bin/sh", b"y").bytes()).unwrap();
    shelf.images.gc().await.unwrap();
    assert!(!tree.path.exists() && shelf.names("known").is_empty());
    let again = shelf.images.resolve(&image, "box").unwrap().unwrap();
    assert_eq!(fs::read(again.path.join("bin/sh")).unwrap(), b"y");
}

#[tokio::test]
async fn a_list_of_names_that_cannot_be_read_says_what_to_do() {
    let shelf = Shelf::new();
    import(&shelf, "a:1", b"a").await;
    fs::write(shelf.root().join("references.json"), b"{").unwrap();
    let error = shelf.images.list().await.unwrap_err().to_string();
    assert!(error.contains("references.json") && error.contains("pull the images again"), "{error}");
    assert!(shelf.images.gc().await.is_err(), "what is not known is not removed");
    assert_eq!(counts(&shelf), (1, 1, 2));
}

#[tokio::test]
async fn a_tree_that_was_removed_by_hand_is_made_again() {
    let shelf = Shelf::new();
    import(&shelf, "a:1", b"a").await;
    fs::remove_dir_all(shelf.tree("a:1")).unwrap();
    assert!(shelf.images.find(&name("a:1")).unwrap().is_none());
    import(&shelf, "a:1", b"a").await;
    assert!(shelf.tree("a:1").join("bin/word").exists());
}
