//! Images from a real registry on the loopback.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use box_core::{Error, Image, ImageStore, PullPolicy, PullStep};
use box_images::{Digest, ImagesConfig};
use serde_json::json;

use crate::support::picture::{INDEX, Packing, Picture};
use crate::support::registry::{BASIC, Registry};
use crate::support::tar::Tar;
use crate::support::{TestStore, name, silent};

fn picture(word: &[u8], packing: Packing) -> Picture {
    let base = Tar::new().file("bin/base", b"shared by all").bytes();
    Picture::new(&[base, Tar::empty().file("bin/word", word).bytes()], packing)
}

async fn pull(test_store: &TestStore, image: &str) -> box_core::Result<box_core::ImageInfo> {
    test_store.images.pull(&name(image), silent()).await
}

#[tokio::test]
async fn an_image_is_pulled_verified_and_found_again() {
    let Some(registry) = Registry::start() else { return };
    for (packing, tag) in [(Packing::Plain, "plain"), (Packing::Gzip, "gzip"), (Packing::Zstd, "zstd")] {
        let test_store = TestStore::new();
        let picture = picture(b"hello", packing);
        registry.push("org/tool", tag, &picture);
        let image = registry.name(&format!("org/tool:{tag}"));
        let steps: Arc<Mutex<Vec<PullStep>>> = Arc::default();
        let told = Arc::clone(&steps);
        let progress = Arc::new(move |step: &PullStep| told.lock().unwrap().push(step.clone()));
        let pulled = test_store.images.pull(&name(&image), progress).await.unwrap();
        assert_eq!((&pulled.name, &pulled.digest), (&image, &picture.digest().to_string()));
        assert_eq!(fs::read(test_store.tree(&image).join("bin/word")).unwrap(), b"hello");
        assert_eq!(test_store.images.list().await.unwrap(), [pulled]);
        assert_eq!(test_store.names("work"), [""; 0]);
        let steps = steps.lock().unwrap();
        for part in picture.layers.iter().map(|layer| &layer.digits()[..12]).chain(["unpacking"]) {
            let is_done = |step: &PullStep| step.part == part && step.total_bytes == Some(step.done_bytes);
            assert!(steps.iter().any(is_done), "{part}: {steps:?}");
        }
    }
}

#[tokio::test]
async fn a_tag_that_moves_is_followed_and_a_digest_is_not() {
    let Some(registry) = Registry::start() else { return };
    let (test_store, image) = (TestStore::new(), registry.name("tool:1"));
    let (first, second) = (picture(b"first", Packing::Gzip), picture(b"second", Packing::Gzip));
    registry.push("tool", "1", &first);
    pull(&test_store, &image).await.unwrap();
    registry.push("tool", "1", &second);
    pull(&test_store, &image).await.unwrap();
    assert_eq!(fs::read(test_store.tree(&image).join("bin/word")).unwrap(), b"second");
    assert_eq!(test_store.names("blobs").len(), 3, "the base is there once");
    let pinned = registry.name(&format!("tool@{}", first.digest()));
    pull(&test_store, &pinned).await.unwrap();
    assert_eq!(fs::read(test_store.tree(&pinned).join("bin/word")).unwrap(), b"first");
    let both = registry.name(&format!("tool:1@{}", first.digest()));
    assert_eq!(pull(&test_store, &both).await.unwrap().digest, first.digest().to_string(), "the digest wins");
}

#[tokio::test]
async fn lists_give_the_image_for_this_machine() {
    let Some(registry) = Registry::start() else { return };
    let test_store = TestStore::new();
    let (ours, theirs) = (picture(b"ours", Packing::Gzip), picture(b"theirs", Packing::Gzip));
    registry.push("tool", "ours", &ours);
    registry.push("tool", "theirs", &theirs);
    let list = |entries: &[serde_json::Value]| {
        json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries }).to_string()
    };
    let both = list(&[theirs.entry("arm64"), ours.entry("amd64")]);
    registry.push_manifest("tool", "both", INDEX, both.as_bytes());
    registry.push_manifest("tool", "none", INDEX, list(&[theirs.entry("arm64")]).as_bytes());
    assert_eq!(pull(&test_store, &registry.name("tool:both")).await.unwrap().digest, ours.digest().to_string());
    let pinned = registry.name(&format!("tool@{}", Digest::of(both.as_bytes())));
    assert_eq!(pull(&test_store, &pinned).await.unwrap().digest, ours.digest().to_string());
    let error = pull(&test_store, &registry.name("tool:none")).await.unwrap_err();
    assert!(error.to_string().contains("linux/arm64"), "{error}");
}

#[tokio::test]
async fn what_is_missing_is_told_as_that() {
    let Some(registry) = Registry::start() else { return };
    let test_store = TestStore::new();
    registry.push("tool", "1", &picture(b"x", Packing::Gzip));
    let unknown = registry.name(&format!("tool@{}", Digest::of(b"nothing")));
    for image in [registry.name("tool:2"), registry.name("nothing:1"), unknown] {
        let error = pull(&test_store, &image).await.unwrap_err();
        assert!(matches!(error, Error::BadImage { .. }) && error.to_string().contains("does not have it"), "{error}");
        test_store.is_untouched();
    }
    let unreachable = "127.0.0.1:1/tool:1";
    let error = pull(&test_store, unreachable).await.unwrap_err();
    assert!(error.code() == "unavailable" && error.to_string().contains("strongbox image import"), "{error}");
}

#[tokio::test]
async fn damaged_blobs_are_not_kept() {
    let Some(registry) = Registry::start() else { return };
    let picture = picture(&vec![7; 100_000], Packing::Plain);
    registry.push("tool", "1", &picture);
    let (image, layer) = (registry.name("tool:1"), picture.layers[1].clone());
    let whole = fs::read(registry.blob(&layer)).unwrap();
    let mut flipped = whole.clone();
    flipped[50_000] ^= 1;
    let longer = [&whole[..], b"more"].concat();
    let table = [(&flipped[..], "not what it was said to be"), (&whole[..5000], "broke off"), (&longer, "larger than")];
    for (bytes, says) in table {
        let test_store = TestStore::new();
        fs::write(registry.blob(&layer), bytes).unwrap();
        let error = pull(&test_store, &image).await.unwrap_err();
        assert!(error.to_string().contains(says), "{says}: {error}");
        assert_eq!(test_store.names("blobs"), [picture.layers[0].digits()], "only what is whole");
        test_store.is_untouched();
        fs::write(registry.blob(&layer), &whole).unwrap();
        pull(&test_store, &image).await.unwrap();
        assert_eq!(fs::read(test_store.tree(&image).join("bin/word")).unwrap(), vec![7; 100_000]);
    }
    let config = Digest::of(&picture.config);
    fs::write(registry.blob(&config), b"{}").unwrap();
    assert!(pull(&TestStore::new(), &image).await.unwrap_err().to_string().contains("its configuration is not what"));
}

#[tokio::test]
async fn passwords_open_closed_registries_and_are_told_to_nobody() {
    let Some(registry) = Registry::start_closed() else { return };
    registry.push("tool", "1", &picture(b"x", Packing::Gzip));
    let image = registry.name("tool:1");
    let file = tempfile::NamedTempFile::new().unwrap();
    let with = |user: &str, password: &str| {
        let entry = json!({ "username": user, "password": password });
        fs::write(file.path(), json!({ "auths": { &registry.address: entry } }).to_string()).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
        TestStore::with(ImagesConfig { auth_file: Some(file.path().to_owned()), ..ImagesConfig::default() })
    };
    let error = pull(&TestStore::new(), &image).await.unwrap_err();
    assert!(
        error.to_string().contains("access was denied") && error.to_string().contains("image_auth_file"),
        "{error}"
    );
    let error = pull(&with("alibaba", "closesesame"), &image).await.unwrap_err();
    assert!(error.to_string().contains("access was denied"), "{error}");
    assert!(!format!("{error} {error:?}").contains("closesesame") && !error.to_string().contains("YWxp"), "{error:?}");
    let test_store = with("alibaba", "opensesame");
    pull(&test_store, &image).await.unwrap();
    assert!(test_store.tree(&image).join("bin/word").exists());
    fs::write(file.path(), json!({ "auths": { &registry.address: { "auth": &BASIC[6..] } } }).to_string()).unwrap();
    pull(&TestStore::with(ImagesConfig { auth_file: Some(file.path().to_owned()), ..ImagesConfig::default() }), &image)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_policy_says_when_a_registry_is_asked() {
    let Some(registry) = Registry::start() else { return };
    let image = Image::Named(registry.name("tool:1"));
    registry.push("tool", "1", &picture(b"first", Packing::Gzip));
    let test_store = |pull| TestStore::with(ImagesConfig { pull, ..ImagesConfig::default() });
    let [always, missing, never] = [PullPolicy::Always, PullPolicy::Missing, PullPolicy::Never].map(test_store);
    let word = |test_store: &TestStore| fs::read(test_store.tree(&registry.name("tool:1")).join("bin/word")).unwrap();
    let error = never.images.ensure(&image).await.unwrap_err().to_string();
    assert!(error.contains(&format!("strongbox image pull {}", registry.name("tool:1"))), "{error}");
    let error = missing.images.resolve(&image, "holder").unwrap_err().to_string();
    assert!(error.contains("strongbox image pull"), "{error}");
    for test_store in [&always, &missing] {
        test_store.images.ensure(&image).await.unwrap();
        assert_eq!(word(test_store), b"first");
    }
    registry.push("tool", "1", &picture(b"second", Packing::Gzip));
    for test_store in [&always, &missing] {
        test_store.images.ensure(&image).await.unwrap();
    }
    assert_eq!((word(&always), word(&missing)), (b"second".to_vec(), b"first".to_vec()));
    drop(registry);
    missing.images.ensure(&image).await.unwrap();
    assert_eq!(always.images.ensure(&image).await.unwrap_err().code(), "unavailable");
}

#[tokio::test]
async fn many_at_once_fetch_an_image_once() {
    let Some(registry) = Registry::start() else { return };
    let test_store = TestStore::new();
    registry.push("tool", "1", &picture(b"x", Packing::Gzip));
    let image = Image::Named(registry.name("tool:1"));
    let all = (0..20).map(|_| test_store.images.ensure(&image));
    for one in futures_util::future::join_all(all).await {
        one.unwrap();
    }
    assert_eq!(
        (test_store.names("trees").len(), test_store.names("manifests").len(), test_store.names("work").len()),
        (1, 1, 0)
    );
}
