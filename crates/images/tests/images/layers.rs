//! What becomes of layers upon each other.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use box_core::ImageStore;
use tar::EntryType;

use crate::support::picture::{Packing, Picture};
use crate::support::tar::{Tar, header};
use crate::support::{TestStore, contents, name, silent};

/// Imports an image of these layers and gives its tree.
async fn stacked(test_store: &TestStore, layers: Vec<Tar>, packing: Packing) -> box_core::Result<PathBuf> {
    let layers: Vec<Vec<u8>> = layers.into_iter().map(Tar::bytes).collect();
    let place = tempfile::tempdir().unwrap();
    Picture::new(&layers, packing).write_layout(place.path(), None);
    test_store.images.import(place.path(), Some(&name("test")), silent()).await?;
    Ok(test_store.tree("test"))
}

fn paths(root: &std::path::Path) -> Vec<String> {
    contents(root).into_iter().map(|(path, _)| path).collect()
}

#[tokio::test]
async fn upper_layers_add_replace_and_take_away() {
    let lower = Tar::new()
        .file("bin/sh", b"old")
        .file("bin/gone", b"x")
        .file("etc/a/1", b"x")
        .file("etc/a/2", b"x")
        .file("etc/b/1", b"x")
        .file("was-file", b"x")
        .directory("was-directory/deep", 0o755)
        .symlink("was-link", "bin");
    let upper = Tar::empty()
        .file("bin/sh", b"new")
        .file("bin/.wh.gone", b"")
        .file("etc/a/.wh..wh..opq", b"")
        .file("etc/a/3", b"x")
        .file("etc/.wh.b", b"")
        .directory("was-file", 0o700)
        .file("was-directory", b"x")
        .file("was-link/inside", b"x");
    for packing in [Packing::Plain, Packing::Gzip, Packing::Zstd] {
        let test_store = TestStore::new();
        let again = |tar: &Tar| tar.0.get_ref().clone();
        let (lower, upper) = (again(&lower), again(&upper));
        let place = tempfile::tempdir().unwrap();
        Picture::new(&[lower, upper], packing).write_layout(place.path(), None);
        test_store.images.import(place.path(), Some(&name("test")), silent()).await.unwrap();
        let tree = test_store.tree("test");
        let expected =
            ["bin", "bin/sh", "etc", "etc/a", "etc/a/3", "was-directory", "was-file", "was-link", "was-link/inside"];
        assert_eq!(paths(&tree), expected, "{packing:?}");
        assert_eq!(fs::read(tree.join("bin/sh")).unwrap(), b"new");
        assert_eq!(fs::metadata(tree.join("was-file")).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(fs::symlink_metadata(tree.join("was-link")).unwrap().is_dir(), "a directory hides a link below it");
    }
}

#[tokio::test]
async fn what_is_taken_away_is_only_what_lower_layers_have() {
    let lower = Tar::new().file("d/lower", b"x").file("d/both/lower", b"x").file("f", b"lower");
    // Marks come after what they could be mistaken to mean.
    let upper = Tar::empty()
        .file("d/upper", b"x")
        .file("d/both/upper", b"x")
        .file("d/.wh..wh..opq", b"")
        .file("f", b"upper")
        .file(".wh.f", b"")
        .file("e/1", b"x")
        .file(".wh.e", b"");
    let test_store = TestStore::new();
    let tree = stacked(&test_store, vec![lower, upper], Packing::Gzip).await.unwrap();
    assert_eq!(paths(&tree), ["bin", "d", "d/both", "d/both/upper", "d/upper", "e", "e/1", "f"]);
    assert_eq!(fs::read(tree.join("f")).unwrap(), b"upper");
}

#[tokio::test]
async fn marks_without_anything_to_take_away_mean_nothing() {
    let first = Tar::new().file(".wh.bin", b"").file("bin/.wh..wh..opq", b"").file(".wh..wh..opq", b"");
    let second = Tar::empty()
        .file("nowhere/.wh.x", b"")
        .file(".wh..wh.plnk", b"x")
        .file(".wh..wh.aufs/x", b"x")
        .symlink("link", "/etc")
        .file(".wh.nothing", b"");
    let third = Tar::empty().file("link/.wh.passwd", b"").file("link/.wh..wh..opq", b"");
    let test_store = TestStore::new();
    let tree = stacked(&test_store, vec![first, second, third], Packing::Gzip).await.unwrap();
    assert_eq!(paths(&tree), ["bin", "link"]);
    assert!(std::path::Path::new("/etc/passwd").exists());
}

#[tokio::test]
async fn an_opaque_top_takes_everything_away() {
    let lower = Tar::new().file("a", b"x").file("etc/b", b"x");
    let upper = Tar::empty().file(".wh..wh..opq", b"").file("usr/c", b"x");
    let test_store = TestStore::new();
    assert_eq!(paths(&stacked(&test_store, vec![lower, upper], Packing::Gzip).await.unwrap()), ["usr", "usr/c"]);
}

#[tokio::test]
async fn owners_modes_and_links_follow_the_last_layer() {
    let mut roots = header(EntryType::Directory, "home", "", 0o711, 0);
    roots.set_uid(0);
    roots.set_gid(0);
    roots.set_cksum();
    let lower = Tar::new().directory("home", 0o755).file("home/f", b"one").hard_link("home/g", "home/f");
    let mut upper = Tar::empty();
    upper.0.append(&roots, &b""[..]).unwrap();
    let upper = upper
        .add(EntryType::Regular, "home/f", "", 0o6755, b"two")
        .hard_link("home/h", "home/g")
        .add(EntryType::Char, "home/null", "", 0o666, b"")
        .symlink("home/up", "../../../../outside/x");
    let test_store = TestStore::new();
    let tree = stacked(&test_store, vec![lower, upper], Packing::Gzip).await.unwrap();
    let read = |path: &str| fs::read(tree.join("home").join(path)).unwrap();
    assert_eq!((read("f"), read("g"), read("h")), (b"two".to_vec(), b"one".to_vec(), b"one".to_vec()));
    let found = fs::metadata(tree.join("home")).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o711);
    assert_eq!(fs::metadata(tree.join("home/f")).unwrap().permissions().mode() & 0o7777, 0o755, "no set-user-id");
    assert_eq!(fs::read_link(tree.join("home/up")).unwrap(), PathBuf::from("../../../../outside/x"));
    assert!(!tree.join("home/null").exists());
    if rustix::process::geteuid().is_root() {
        assert_eq!((found.uid(), fs::metadata(tree.join("home/f")).unwrap().uid()), (0, 1000));
    }
}

/// Layers that know of a place outside.
type Layers = fn(String) -> Vec<Tar>;

#[tokio::test]
async fn hostile_layers_are_refused_and_touch_nothing() {
    let outside = |test_store: &TestStore| test_store.directory.path().join("outside").display().to_string();
    let cases: [(&str, Layers); 10] = [
        ("upwards", |_| vec![Tar::new().file("../../../outside/x", b"x")]),
        ("absolute", |outside| vec![Tar::new().file(&format!("{outside}/x"), b"x")]),
        ("below", |outside| vec![Tar::new().symlink("way", &outside).file("way/in", b"x")]),
        ("below", |outside| vec![Tar::new(), Tar::empty().symlink("way", &outside).file("way/in", b"x")]),
        ("cannot be unpacked", |_| vec![Tar::new(), Tar::empty().symlink("e", "/etc").hard_link("p", "e/passwd")]),
        ("upwards", |_| vec![Tar::new(), Tar::empty().hard_link("p", "../../../etc/passwd")]),
        ("takes nothing away", |_| vec![Tar::new(), Tar::empty().file(".wh...", b"")]),
        ("takes nothing away", |_| vec![Tar::new(), Tar::empty().file("bin/.wh.", b"")]),
        ("upwards", |_| vec![Tar::new(), Tar::empty().file("../.wh.outside", b"")]),
        ("cannot be unpacked", |_| vec![Tar::new(), Tar::empty().directory("d", 0o755).file("d", b"")]),
    ];
    for (expected, layers) in cases {
        let test_store = TestStore::new();
        let error = stacked(&test_store, layers(outside(&test_store)), Packing::Gzip).await.unwrap_err();
        assert_eq!(error.code(), "bad_image", "{error}");
        assert!(error.to_string().contains(expected), "expected {expected}: {error}");
        test_store.is_untouched();
    }
}

#[tokio::test]
async fn a_link_of_a_lower_layer_leads_nowhere() {
    let test_store = TestStore::new();
    let outside = test_store.directory.path().join("outside").display().to_string();
    let layers = vec![Tar::new().symlink("way", &outside), Tar::empty().file("way/in", b"x")];
    let tree = stacked(&test_store, layers, Packing::Gzip).await.unwrap();
    assert_eq!(fs::read(tree.join("way/in")).unwrap(), b"x");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
}

mod properties {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// What a layer does, in an order that no builder would choose.
    #[derive(Debug, Clone)]
    enum Act {
        File(String),
        Directory(String),
        Gone(String),
        Opaque(String),
    }

    fn path() -> impl Strategy<Value = String> {
        proptest::collection::vec("[abc]", 1..4).prop_map(|parts| parts.join("/"))
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => path().prop_map(Act::File),
            2 => path().prop_map(Act::Directory),
            1 => path().prop_map(Act::Gone),
            1 => path().prop_map(Act::Opaque),
        ]
    }

    /// What is in a tree: whether each path is a directory, and which layer made a file.
    type Model = BTreeMap<String, Option<usize>>;

    fn is_below(path: &str, above: &str) -> bool {
        path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
    }

    fn parents(path: &str) -> Vec<String> {
        path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect()
    }

    /// The specification's words: first whatever is taken away from the layers below, then what the layer brings.
    fn apply(below: &Model, layer: &[Act], number: usize) -> Model {
        let mut model = below.clone();
        for act in layer {
            match act {
                Act::Gone(path) => model.retain(|known, _| known != path && !is_below(known, path)),
                // A file or a missing directory hides nothing.
                Act::Opaque(path) => model.retain(|known, _| !is_below(known, path)),
                Act::File(_) | Act::Directory(_) => {}
            }
        }
        for act in layer {
            let (Act::File(path) | Act::Directory(path)) = act else { continue };
            for parent in parents(path) {
                model.insert(parent, None);
            }
            if let Act::File(_) = act {
                model.retain(|known, _| !is_below(known, path));
                model.insert(path.clone(), Some(number));
            } else {
                model.insert(path.clone(), None);
            }
        }
        model
    }

    /// Leaves out what contradicts itself within one layer, which is an error and tested elsewhere.
    fn consistent(layer: Vec<Act>) -> Vec<Act> {
        let mut kept: Vec<Act> = Vec::new();
        for act in layer {
            let collides = |path: &str, is_file: bool| {
                kept.iter().any(|other| match other {
                    Act::File(known) => {
                        is_below(path, known) || (known == path && !is_file) || (is_file && is_below(known, path))
                    }
                    Act::Directory(known) => is_file && (known == path || is_below(known, path)),
                    Act::Gone(_) | Act::Opaque(_) => false,
                })
            };
            let bad = match &act {
                Act::File(path) => collides(path, true),
                Act::Directory(path) => collides(path, false),
                Act::Gone(_) | Act::Opaque(_) => false,
            };
            if !bad {
                kept.push(act);
            }
        }
        kept
    }

    fn tar(layer: &[Act], number: usize) -> Tar {
        layer.iter().fold(Tar::empty(), |tar, act| match act {
            Act::File(path) => tar.file(path, number.to_string().as_bytes()),
            Act::Directory(path) => tar.directory(path, 0o755),
            Act::Opaque(path) => tar.file(&format!("{path}/.wh..wh..opq"), b""),
            Act::Gone(path) => {
                let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
                tar.file(&format!("{parent}/.wh.{name}"), b"")
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn layers_make_what_the_specification_says(layers in proptest::collection::vec(proptest::collection::vec(act(), 0..12), 1..4)) {
            let layers: Vec<Vec<Act>> = layers.into_iter().map(consistent).collect();
            let expected = layers.iter().enumerate().fold(Model::new(), |below, (number, layer)| apply(&below, layer, number));
            let tars = layers.iter().enumerate().map(|(number, layer)| tar(layer, number)).collect();
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let test_store = TestStore::new();
            let tree = runtime.block_on(stacked(&test_store, tars, Packing::Plain)).unwrap();
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().parse().unwrap();
            let found: Model = contents(&tree).into_iter().map(|(path, bytes)| (path, bytes.map(text))).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
