//! Images from files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use box_core::{ImageStore, Progress};
use box_images::{Digest, ImageLimits, ImagesConfig};
use serde_json::json;

use crate::support::picture::{INDEX, Packing, Picture, bomb, pack, tar_of};
use crate::support::tar::Tar;
use crate::support::{TestStore, name, silent};

fn layers() -> [Vec<u8>; 2] {
    [Tar::new().file("bin/sh", b"one").bytes(), Tar::empty().file("bin/sh", b"two").bytes()]
}

async fn import(test_store: &TestStore, path: &Path, called: Option<&str>) -> Result<Vec<String>, String> {
    let called = called.map(name);
    let imported =
        test_store.images.import(path, called.as_ref(), silent()).await.map_err(|error| error.to_string())?;
    Ok(imported.into_iter().map(|image| image.name).collect())
}

fn write(test_store: &TestStore, bytes: &[u8]) -> std::path::PathBuf {
    let path = test_store.directory.path().join("archive.tar");
    fs::write(&path, bytes).unwrap();
    path
}

#[tokio::test]
async fn a_layout_is_taken_as_directory_and_as_tar() {
    for packing in [Packing::Plain, Packing::Gzip, Packing::Zstd] {
        let (test_store, place) = (TestStore::new(), tempfile::tempdir().unwrap());
        let picture = Picture::new(&layers(), packing);
        picture.write_layout(place.path(), Some("example.org/tool:1"));
        let full = "example.org/tool:1";
        assert_eq!(import(&test_store, place.path(), None).await.unwrap(), [full]);
        assert_eq!(fs::read(test_store.tree(full).join("bin/sh")).unwrap(), b"two");
        let found = test_store.images.find(&name(full)).unwrap().unwrap();
        assert_eq!((found.manifest, found.metadata.user.as_str()), (picture.digest(), "1000:1000"));
        assert_eq!((found.metadata.env, found.metadata.working_dir), (vec!["PATH=/bin".to_owned()], "/app".to_owned()));
        let tar = tar_of(place.path());
        for outer in [Packing::Plain, packing] {
            let again = TestStore::new();
            let path = write(&again, &pack(&tar, outer));
            assert_eq!(import(&again, &path, Some("other:2")).await.unwrap(), ["docker.io/library/other:2"]);
            assert_eq!(fs::read(again.tree("other:2").join("bin/sh")).unwrap(), b"two");
            assert_eq!(again.names("work"), [""; 0]);
        }
    }
}

#[tokio::test]
async fn what_docker_saves_is_taken() {
    let test_store = TestStore::new();
    let same = Tar::new().file("bin/sh", b"x").bytes();
    let picture = Picture::new(&[same.clone(), layers()[1].clone(), same], Packing::Plain);
    let path = write(&test_store, &picture.docker_archive("tool:3"));
    assert_eq!(import(&test_store, &path, None).await.unwrap(), ["docker.io/library/tool:3"]);
    assert_eq!(fs::read(test_store.tree("tool:3").join("bin/sh")).unwrap(), b"x");
    assert_eq!(test_store.names("blobs").len(), 2, "equal layers are kept once");
    let packed = TestStore::new();
    let path = write(&packed, &pack(&picture.docker_archive("tool:3"), Packing::Gzip));
    import(&packed, &path, None).await.unwrap();
    assert_eq!(packed.images.list().await.unwrap()[0].digest, test_store.images.list().await.unwrap()[0].digest);
}

#[tokio::test]
async fn what_is_no_tar_file_is_not_repeated_in_the_error() {
    let test_store = TestStore::new();
    let path = write(&test_store, &b"password=hunter2 and more of a text file\n".repeat(40));
    let error = import(&test_store, &path, Some("tiny")).await.unwrap_err();
    assert!(error.contains("docker save") && !error.contains("hunter2") && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn removing_an_image_that_is_not_there_says_how_to_list_them() {
    let test_store = TestStore::new();
    let error = test_store.images.remove(&"gone".parse().unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("image ls") && !error.contains("image pull"), "{error}");
}

#[tokio::test]
async fn a_plain_root_needs_a_name_and_a_shape() {
    let test_store = TestStore::new();
    let root = Tar::new().file("bin/sh", b"x").bytes();
    for packing in [Packing::Plain, Packing::Gzip] {
        let path = write(&test_store, &pack(&root, packing));
        assert!(import(&test_store, &path, None).await.unwrap_err().contains("--name"));
        assert_eq!(import(&test_store, &path, Some("tiny")).await.unwrap(), ["docker.io/library/tiny:latest"]);
        assert!(test_store.tree("tiny").join("bin/sh").exists());
    }
    let other = TestStore::new();
    let table = [
        (Tar::empty().file("readme", b"x").bytes(), "no bin, usr or sbin"),
        (b"not a tar file at all, but long enough to be looked at".repeat(40), "not a whole tar"),
        (Tar::empty().file("manifest.json", b"{}").bytes(), "manifest.json cannot be read"),
        (Tar::empty().file("manifest.json", br#"[{"Config":"../../etc/passwd","Layers":[]}]"#).bytes(), "it has no"),
        (Tar::empty().file("manifest.json", br#"[{"Config":"c","Layers":["/etc/passwd"]}]"#).bytes(), "it has no /etc"),
        (
            Tar::empty().file("oci-layout", b"{}").file("index.json", br#"{"manifests":[]}"#).bytes(),
            "no image for this",
        ),
    ];
    for (bytes, says) in table {
        let error = import(&other, &write(&other, &bytes), Some("x")).await.unwrap_err();
        assert!(error.contains(says), "{says}: {error}");
        other.is_untouched();
    }
    for nowhere in ["/nonexistent", "/dev/null"] {
        assert!(import(&other, Path::new(nowhere), Some("x")).await.is_err());
    }
    assert!(import(&other, other.directory.path(), Some("x")).await.unwrap_err().contains("neither an OCI layout"));
}

#[tokio::test]
async fn a_layout_for_several_machines_gives_the_one_for_this() {
    let (test_store, place) = (TestStore::new(), tempfile::tempdir().unwrap());
    let ours = Picture::new(&layers(), Packing::Gzip);
    let theirs = Picture::with_config(&layers(), Packing::Gzip, &json!({ "architecture": "arm64" }));
    theirs.write_layout(place.path(), None);
    ours.write_layout(place.path(), None);
    let list = json!({ "schemaVersion": 2, "manifests": [theirs.entry("arm64"), ours.entry("amd64")] }).to_string();
    let digest = Digest::of(list.as_bytes());
    fs::write(place.path().join("blobs/sha256").join(digest.digits()), &list).unwrap();
    let entry = json!({ "mediaType": INDEX, "digest": digest, "size": list.len() });
    fs::write(place.path().join("index.json"), json!({ "schemaVersion": 2, "manifests": [entry] }).to_string())
        .unwrap();
    import(&test_store, place.path(), Some("both:1")).await.unwrap();
    assert_eq!(test_store.images.find(&name("both:1")).unwrap().unwrap().manifest, ours.digest());
    for pinned in [digest.to_string(), ours.digest().to_string()] {
        assert!(test_store.images.find(&name(&format!("both@{pinned}"))).unwrap().is_some(), "{pinned}");
        assert!(test_store.images.find(&name(&format!("other@{pinned}"))).unwrap().is_none(), "of another repository");
    }
    let foreign = tempfile::tempdir().unwrap();
    theirs.write_layout(foreign.path(), None);
    let error = import(&test_store, foreign.path(), Some("x")).await.unwrap_err();
    assert!(error.contains("linux/arm64"), "{error}");
}

/// What happens to a file.
type Edit = fn(&mut Vec<u8>);

#[tokio::test]
async fn damaged_layouts_are_refused_and_leave_nothing() {
    let picture = Picture::new(&layers(), Packing::Gzip);
    let [config, layer] = [Digest::of(&picture.config), picture.layers[0].clone()];
    let damage = |path: &Path, edit: Edit| {
        let mut bytes = fs::read(path).unwrap();
        edit(&mut bytes);
        fs::write(path, bytes).unwrap();
    };
    let flip: Edit = |bytes| bytes[30] ^= 1;
    let table: [(&Digest, Edit, &str); 4] = [
        (&picture.digest(), flip, "damaged"),
        (&config, flip, "damaged"),
        (&layer, flip, "not what it was said to be"),
        (&layer, |bytes| bytes.truncate(20), "not as large"),
    ];
    for (digest, edit, says) in table {
        let (test_store, place) = (TestStore::new(), tempfile::tempdir().unwrap());
        picture.write_layout(place.path(), None);
        damage(&place.path().join("blobs/sha256").join(digest.digits()), edit);
        let error = import(&test_store, place.path(), Some("x")).await.unwrap_err();
        assert!(error.contains(says), "{says}: {error}");
        test_store.is_untouched();
    }
    let (test_store, place) = (TestStore::new(), tempfile::tempdir().unwrap());
    let lying = json!({ "rootfs": { "diff_ids": [Digest::of(b"1"), Digest::of(b"2")] } });
    Picture::with_config(&layers(), Packing::Gzip, &lying).write_layout(place.path(), None);
    let error = import(&test_store, place.path(), Some("x")).await.unwrap_err();
    assert!(error.contains("configuration of the image says"), "{error}");
    test_store.is_untouched();
}

#[tokio::test]
async fn links_in_a_layout_are_not_followed() {
    let (test_store, place) = (TestStore::new(), tempfile::tempdir().unwrap());
    let picture = Picture::new(&layers(), Packing::Gzip);
    picture.write_layout(place.path(), None);
    let blob = place.path().join("blobs/sha256").join(picture.layers[0].digits());
    fs::rename(&blob, place.path().join("aside")).unwrap();
    std::os::unix::fs::symlink(place.path().join("aside"), &blob).unwrap();
    assert!(import(&test_store, place.path(), Some("x")).await.unwrap_err().contains("lacks the layer"));
}

#[tokio::test]
async fn bombs_do_not_go_off() {
    let limits = ImageLimits { entries_max: 50, unpacked_bytes_max: 1 << 20 };
    let config = ImagesConfig { limits, ..ImagesConfig::default() };
    let many = (0..60).fold(Tar::new(), |tar, number| tar.file(&format!("f{number}"), b""));
    let padding = [Tar::new().bytes(), vec![0; 8 << 20]].concat();
    let halves = [bomb(600 << 10), bomb(600 << 10)];
    let table: [(&[Vec<u8>], &str); 4] = [
        (&[bomb(16 << 20)], "larger than"),
        (&[padding], "larger than"),
        (&[many.bytes()], "too many entries"),
        (&halves, "larger than"),
    ];
    for (layers, says) in table {
        for packing in [Packing::Gzip, Packing::Zstd] {
            let (test_store, place) = (TestStore::with(config.clone()), tempfile::tempdir().unwrap());
            Picture::new(layers, packing).write_layout(place.path(), None);
            let error = import(&test_store, place.path(), Some("x")).await.unwrap_err();
            assert!(error.contains(says), "{says}: {error}");
            test_store.is_untouched();
        }
    }
}

#[tokio::test]
async fn an_import_tells_how_far_it_has_come() {
    let test_store = TestStore::new();
    let picture = Picture::new(&layers(), Packing::Gzip);
    let path = write(&test_store, &pack(&picture.docker_archive("tool:3"), Packing::Gzip));
    let told = Arc::new(Mutex::new(BTreeMap::new()));
    let kept = Arc::clone(&told);
    let progress: Progress = Arc::new(move |step| {
        kept.lock().unwrap().insert(step.part.clone(), (step.done_bytes, step.total_bytes));
    });
    test_store.images.import(&path, None, progress).await.unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told.keys().collect::<Vec<_>>(), ["copying", "decompressing", "unpacking"]);
    assert!(told.values().all(|(done, total)| *done > 0 && *total == Some(*done)), "{told:?}");
    assert_eq!(told["decompressing"].0, fs::metadata(&path).unwrap().len());
}
