//! Registries that do what no real one would.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use box_core::{Image, ImageStore};
use box_images::{Digest, ImagesConfig};
use serde_json::json;

use crate::support::http::{Player, ReceivedRequest, answer};
use crate::support::picture::{Packing, Picture};
use crate::support::tar::Tar;
use crate::support::{TestStore, name, silent};

fn picture() -> Picture {
    Picture::new(&[Tar::new().file("bin/sh", b"x").bytes()], Packing::Gzip)
}

/// What an honest registry would answer.
fn honest(picture: &Picture, asked: &ReceivedRequest) -> Vec<u8> {
    let last = asked.path.rsplit('/').next().unwrap_or_default();
    if asked.path.contains("/manifests/") {
        return answer("200 OK", &[], &picture.manifest);
    }
    match picture.blobs.iter().find(|(digest, _)| digest.to_string() == last) {
        Some((_, bytes)) => answer("200 OK", &[], bytes),
        None => answer("404 Not Found", &[], b""),
    }
}

async fn pull(test_store: &TestStore, player: &Player) -> Result<(), String> {
    let image = name(&format!("{}/tool:1", player.address));
    test_store.images.pull(&image, silent()).await.map(drop).map_err(|error| format!("{error} {error:?}"))
}

/// A store with a password for a registry.
fn with_password(player: &Player) -> (TestStore, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let entry = json!({ "username": "me", "password": "opensesame" });
    fs::write(file.path(), json!({ "auths": { &player.address: entry } }).to_string()).unwrap();
    fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
    let config = ImagesConfig { auth_file: Some(file.path().to_owned()), ..ImagesConfig::default() };
    (TestStore::with(config), file)
}

const PASSWORD: &str = "Basic bWU6b3BlbnNlc2FtZQ==";

#[tokio::test]
async fn a_token_is_fetched_with_the_password_and_shown_instead_of_it() {
    let picture = picture();
    let player = Player::start(move |asked| {
        let host = asked.headers.iter().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        match asked.authorization() {
            Some(PASSWORD) if asked.path.starts_with("/token?service=cave&scope=repository%3Atool%3Apull") => {
                answer("200 OK", &[], br#"{"token": "xyzzy"}"#)
            }
            Some("Bearer xyzzy") => honest(&picture, asked),
            _ => {
                let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"cave\"");
                answer("401 Unauthorized", &[("WWW-Authenticate", &challenge)], b"")
            }
        }
    });
    let (test_store, _file) = with_password(&player);
    pull(&test_store, &player).await.unwrap();
    let tokens = player.asked().iter().filter(|asked| asked.path.starts_with("/token")).count();
    assert_eq!(tokens, 1, "one token will do for all");
}

#[tokio::test]
async fn blobs_elsewhere_are_fetched_without_our_password() {
    let picture = Arc::new(picture());
    let there = Arc::clone(&picture);
    let elsewhere = Player::start(move |asked| honest(&there, asked));
    let target = elsewhere.address.clone();
    let player = Player::start(move |asked| match asked.authorization() {
        None => answer("401 Unauthorized", &[("WWW-Authenticate", "Basic realm=\"cave\"")], b""),
        Some(_) if asked.path.contains("/blobs/") => {
            let location = format!("http://{target}{}?signature=abc", asked.path.replace("/v2", "/v3"));
            answer("307 Temporary Redirect", &[("Location", location.split('?').next().unwrap_or_default())], b"")
        }
        Some(_) => honest(&picture, asked),
    });
    let (test_store, _file) = with_password(&player);
    pull(&test_store, &player).await.unwrap();
    let asked = elsewhere.asked();
    assert!(asked.len() >= 2 && asked.iter().all(|asked| asked.authorization().is_none()), "{asked:?}");
}

#[tokio::test]
async fn where_nobody_should_be_led_nobody_goes() {
    let table = [
        "http://198.51.100.1/blob",
        "http://169.254.169.254/latest/meta-data",
        "ftp://127.0.0.1/x",
        "file:///etc/passwd",
        "//127.0.0.1/x",
        "",
        "/v2/again",
    ];
    for location in table {
        let player = Player::start(move |_| answer("307 Temporary Redirect", &[("Location", location)], b""));
        let test_store = TestStore::new();
        let error = pull(&test_store, &player).await.unwrap_err();
        let told = ["not encrypted", "none of the web", "without end"];
        assert!(told.iter().any(|told| error.contains(told)), "{location}: {error}");
        assert!(player.asked().len() <= 6);
        test_store.is_untouched();
    }
    let realm = "Bearer realm=\"http://198.51.100.1/token\"";
    let player = Player::start(move |_| answer("401 Unauthorized", &[("WWW-Authenticate", realm)], b""));
    let (test_store, _file) = with_password(&player);
    let error = pull(&test_store, &player).await.unwrap_err();
    assert!(error.contains("198.51.100.1") && error.contains("not encrypted"), "{error}");
}

#[tokio::test]
async fn a_redirect_or_a_token_server_is_at_a_public_address() {
    for place in ["169.254.169.254", "[::ffff:127.0.0.1]", "10.1.2.3", "168.63.129.16", "0.0.0.0"] {
        let redirect = format!("https://{place}:1/v2/blob");
        let player = Player::start(move |_| answer("307 Temporary Redirect", &[("Location", &redirect)], b""));
        let error = pull(&TestStore::new(), &player).await.unwrap_err();
        assert!(error.contains("is not allowed; expected a public address"), "{place}: {error}");
        let realm = format!("Bearer realm=\"https://{place}:1/token\"");
        let player = Player::start(move |_| answer("401 Unauthorized", &[("WWW-Authenticate", &realm)], b""));
        let error = pull(&TestStore::new(), &player).await.unwrap_err();
        assert!(error.contains("is not allowed; expected a public address"), "{place}: {error}");
    }
}

#[tokio::test]
async fn a_registry_that_only_a_pattern_admits_is_at_a_public_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    // Another spelling of this machine, which no list of names knows.
    let image = Image::Named(format!("2130706433:{port}/tool:1"));
    let ensure = async |named: Vec<String>| {
        let test_store = TestStore::with(ImagesConfig { named_registries: Some(named), ..ImagesConfig::default() });
        test_store.images.ensure(&image).await.unwrap_err().to_string()
    };
    let error = ensure(vec!["registry.example".to_owned()]).await;
    assert!(error.contains("expected a public address") && error.contains("allowed_images"), "{error}");
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "no connection was made");
    let named =
        tokio::spawn(async move { tokio::net::TcpListener::from_std(listener).unwrap().accept().await.map(drop) });
    let error = ensure(vec![format!("2130706433:{port}")]).await;
    assert!(error.contains("cannot be asked"), "{error}");
    named.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_a_registry_repeats_of_our_password_is_not_told() {
    for status in ["403 Forbidden", "404 Not Found", "500 Internal Server Error", "429 Too Many Requests"] {
        let player = Player::start(move |asked| match asked.authorization() {
            None => answer("401 Unauthorized", &[("WWW-Authenticate", "Basic realm=\"cave\"")], b""),
            Some(shown) => {
                let body = json!({ "errors": [{ "code": "DENIED", "message": shown }, { "code": shown }] }).to_string();
                answer(status, &[("X-Seen", shown)], body.as_bytes())
            }
        });
        let (test_store, _file) = with_password(&player);
        let error = pull(&test_store, &player).await.unwrap_err();
        assert!(error.contains("DENIED") && !error.contains("opensesame") && !error.contains("bWU6"), "{error}");
    }
}

#[tokio::test]
async fn answers_without_end_are_cut_off() {
    let picture = Arc::new(picture());
    for part in ["/manifests/", "/blobs/"] {
        let picture = Arc::clone(&picture);
        let player = Player::start(move |asked| {
            if asked.path.contains(part) {
                answer("200 OK", &[], &vec![b' '; 9 << 20])
            } else {
                honest(&picture, asked)
            }
        });
        let test_store = TestStore::new();
        let error = pull(&test_store, &player).await.unwrap_err();
        assert!(error.contains("sends more than"), "{error}");
        test_store.is_untouched();
    }
}

#[tokio::test]
async fn what_breaks_off_is_tried_again_and_then_told() {
    let picture = Arc::new(picture());
    let layer = picture.layers[0].to_string();
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    for good in [2, usize::MAX] {
        let (picture, layer, tries) = (Arc::clone(&picture), layer.clone(), Arc::clone(&tries));
        tries.store(0, std::sync::atomic::Ordering::SeqCst);
        let player = Player::start(move |asked| {
            let whole = honest(&picture, asked);
            let is_layer = asked.path.ends_with(&layer);
            let number = if is_layer { tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) } else { good };
            if is_layer && number < good { whole[..whole.len() - 10].to_vec() } else { whole }
        });
        let test_store = TestStore::new();
        let pulled = pull(&test_store, &player).await;
        if good == 2 {
            pulled.unwrap();
            continue;
        }
        assert!(pulled.unwrap_err().contains("broke off"));
        assert_eq!(player.asked().iter().filter(|asked| asked.path.contains("/blobs/")).count(), 4);
        test_store.is_untouched();
        assert_eq!(test_store.names("blobs"), [""; 0]);
    }
}

/// A registry that answers everything but the layer, of which it sends the beginning and then nothing.
fn stalling(picture: &Arc<Picture>) -> Player {
    let (picture, layer) = (Arc::clone(picture), picture.layers[0].to_string());
    Player::start(move |asked| {
        if !asked.path.ends_with(&layer) {
            return honest(&picture, asked);
        }
        std::thread::sleep(Duration::from_mins(10));
        Vec::new()
    })
}

#[tokio::test]
async fn whoever_waits_too_long_or_gives_up_leaves_nothing() {
    let picture = Arc::new(picture());
    let player = stalling(&picture);
    let test_store = TestStore::with(ImagesConfig { timeout: Duration::from_millis(300), ..ImagesConfig::default() });
    let error = pull(&test_store, &player).await.unwrap_err();
    assert!(error.contains("image_pull_timeout_sec"), "{error}");
    settled(&test_store).await;
    test_store.is_untouched();

    let test_store = TestStore::new();
    let image = name(&format!("{}/tool:1", player.address));
    let asked = async {
        while !player.asked().iter().any(|asked| asked.path.ends_with(&picture.layers[0].to_string())) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        pulled = test_store.images.pull(&image, silent()) => panic!("{pulled:?}"),
        () = asked => {}
    }
    settled(&test_store).await;
    test_store.is_untouched();
    assert_eq!(test_store.names("blobs"), [""; 0]);
    test_store.images.gc().await.unwrap();
}

/// Waits until background writers have noticed the canceled download.
async fn settled(test_store: &TestStore) {
    for _ in 0..3000 {
        if test_store.names("work").is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("something is left: {:?}", test_store.names("work"));
}

#[tokio::test]
async fn a_manifest_for_another_digest_is_refused() {
    let picture = picture();
    let player = Player::start(move |asked| honest(&picture, asked));
    let test_store = TestStore::new();
    let image = name(&format!("{}/tool@{}", player.address, Digest::of(b"another")));
    let error = test_store.images.pull(&image, silent()).await.unwrap_err().to_string();
    assert!(error.contains("its manifest is not what it was said to be"), "{error}");
    test_store.is_untouched();
}
