//! Skills through the routes, on a store of their own.

use std::path::Path;
use std::sync::Arc;

use box_core::{Scope, Store};
use box_skills::SkillStores;
use serde_json::{Value, json};

use crate::skill_door::SkillsConfig;
use crate::testing::{config, door};
use door_http::testing::{MemoryStore, Visitors, service, tokens};
use door_http::{Gate, ServerState};

struct World {
    place: tempfile::TempDir,
    visitors: Visitors,
}

/// Who asks, by their place in the list of tokens.
const ALICE: usize = 0;
const BOB: usize = 1;
const ADMIN: usize = 2;
const NO_SKILLS: usize = 3;

impl World {
    async fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("checkouts")).unwrap();
        let (secrets, rows) = tokens(&[
            ("alice", "a", &[Scope::Skills]),
            ("bob", "b", &[Scope::Skills]),
            ("admin", "a", &[Scope::Skills, Scope::Admin]),
            ("none", "a", &[Scope::Exec]),
        ]);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with(&rows));
        let skills = SkillsConfig {
            stores: Some(SkillStores::open(&place.path().join("skills")).unwrap()),
            checkout_roots: vec![place.path().canonicalize().unwrap().join("checkouts")],
            ..SkillsConfig::default()
        };
        let state = ServerState::new(service(Arc::clone(&store)).await, store, Gate::default());
        let door = door(&state, config(skills));
        Self { place, visitors: Visitors::new(door, secrets) }
    }

    async fn send(&self, who: usize, method: &str, path: &str, kind: &str, body: Vec<u8>) -> (u16, Value) {
        let (status, answer) = self.visitors.send(who, method, path, kind, body).await;
        (status, serde_json::from_slice(&answer).unwrap_or_default())
    }

    async fn ask(&self, who: usize, method: &str, path: &str, body: Value) -> (u16, Value) {
        self.visitors.ask(who, method, path, body).await
    }

    /// A checkout with these files.
    fn checkout(&self, name: &str, files: &[(&str, &str)]) -> String {
        let checkout = self.place.path().canonicalize().unwrap().join("checkouts").join(name);
        for (path, text) in files {
            let path = checkout.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        checkout.to_str().unwrap().to_owned()
    }

    fn archive(&self, name: &str, files: &[(&str, &str)]) -> Vec<u8> {
        let checkout = self.checkout(name, files);
        let roots = [self.place.path().canonicalize().unwrap()];
        box_skills::archive_of(Path::new(&checkout), &roots).unwrap()
    }
}

fn code(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["error"]["code"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_skill_is_made_changed_and_removed() {
    let world = World::new().await;
    let new = json!({ "name": "notes", "description": "takes notes", "instructions": "write them down" });
    let (status, made) = world.ask(ALICE, "POST", "/v1/skills", new.clone()).await;
    assert_eq!((status, &made["name"], &made["python_project"]), (201, &json!("notes"), &json!(false)));
    assert!(made.get("package_root").is_none(), "places of the host are nobody's business: {made}");
    assert_eq!(code(&world.ask(ALICE, "POST", "/v1/skills", new).await), (409, "skill_exists"));
    let (status, changed) = world.ask(ALICE, "PATCH", "/v1/skills/notes", json!({ "description": "" })).await;
    assert_eq!((status, &changed["description"]), (200, &json!("")));
    let (_, shown) = world.ask(ALICE, "GET", "/v1/skills/notes", Value::Null).await;
    assert_eq!(shown["instructions"].as_str().unwrap().trim(), "write them down");
    assert_eq!(world.ask(ALICE, "GET", "/v1/skills", Value::Null).await.1.as_array().unwrap().len(), 1);
    let rename = world.ask(ALICE, "PATCH", "/v1/skills/notes", json!({ "name": "other" })).await;
    assert_eq!(code(&rename), (400, "validation_error"));
    assert_eq!(world.ask(ALICE, "DELETE", "/v1/skills/notes", Value::Null).await.0, 200);
    assert_eq!(code(&world.ask(ALICE, "GET", "/v1/skills/notes", Value::Null).await), (404, "skill_not_found"));
}

#[tokio::test]
async fn files_of_a_skill_are_listed_read_and_written() {
    let world = World::new().await;
    world.ask(ALICE, "POST", "/v1/skills", json!({ "name": "s" })).await;
    let path = "/v1/skills/s/file?path=scripts/run.py";
    let (status, written) = world.send(ALICE, "POST", path, "text/plain", b"print(1)".to_vec()).await;
    assert_eq!((status, written), (200, json!({ "path": "scripts/run.py", "bytes_written": 8 })));
    assert_eq!(world.ask(ALICE, "GET", path, Value::Null).await.1["content"], "print(1)");
    let (_, listed) = world.ask(ALICE, "GET", "/v1/skills/s/files", Value::Null).await;
    assert_eq!(listed["entries"].as_array().unwrap().len(), 2, "{listed}");
    for (path, expected) in [("../../x", 400), ("/etc/passwd", 400), ("none", 404), ("", 404)] {
        let path = format!("/v1/skills/s/file?path={path}");
        assert_eq!(world.ask(ALICE, "GET", &path, Value::Null).await.0, expected, "{path}");
    }
    assert_eq!(world.ask(ALICE, "GET", "/v1/skills/s/file", Value::Null).await.0, 400);
    let bytes = vec![0xff, 0xfe];
    assert_eq!(world.send(ALICE, "POST", "/v1/skills/s/file?path=x", "text/plain", bytes).await.0, 400);
}

#[tokio::test]
async fn what_was_previewed_is_what_is_installed() {
    let world = World::new().await;
    let files = [("a/SKILL.md", "---\nname: one\n---\n1"), ("b/SKILL.md", "---\nname: two\n---\n2")];
    let archive = world.archive("several", &files);
    let zip = "application/zip";
    let (status, seen) = world.send(ALICE, "POST", "/v1/skills/preview?filename=x.zip", zip, archive.clone()).await;
    assert_eq!((status, &seen["skills"][1]["source_path"]), (200, &json!("b")), "{seen}");
    let digest = seen["digest"].as_str().unwrap();
    let path = |more: &str| format!("/v1/skills/install?filename=x.zip&digest={digest}{more}");
    let other = world.archive("other", &files[..1]);
    assert_eq!(code(&world.send(ALICE, "POST", &path(""), zip, other).await), (409, "digest_differs"));
    assert_eq!(world.send(ALICE, "POST", &path(""), zip, archive.clone()).await.0, 400, "which one?");
    let (status, made) = world.send(ALICE, "POST", &path("&source_paths=a,b"), zip, archive.clone()).await;
    assert_eq!((status, made.as_array().unwrap().len()), (201, 2), "{made}");
    let taken = world.send(ALICE, "POST", &path("&source_path=a&target_suffix=y"), zip, archive).await;
    assert_eq!(code(&taken), (409, "skill_exists"));
    let json = world.send(ALICE, "POST", "/v1/skills/install", "application/json", b"{}".to_vec()).await;
    assert_eq!(code(&json), (415, "unsupported_media_type"));
    let (status, bad) = world.send(ALICE, "POST", "/v1/skills/install", zip, b"PK".to_vec()).await;
    assert_eq!((status, &bad["error"]["detail_code"]), (400, &json!("bad_archive")));
    let large = vec![0; box_skills::limits::ZIP_BYTES_MAX + 1];
    assert_eq!(code(&world.send(ALICE, "POST", "/v1/skills/install", zip, large).await), (413, "too_large"));
}

#[tokio::test]
async fn a_checkout_is_installed_by_administrators_only() {
    let world = World::new().await;
    let files = [("SKILL.md", "---\nname: cloned\n---\nhi"), (".git/config", "[core]")];
    let from = json!({ "directory": world.checkout("repo", &files) });
    assert_eq!(code(&world.ask(ALICE, "POST", "/v1/skills/fetch", from.clone()).await), (403, "forbidden"));
    let mut preview = from.clone();
    preview["preview"] = true.into();
    let (status, seen) = world.ask(ADMIN, "POST", "/v1/skills/fetch", preview).await;
    assert_eq!((status, &seen["skills"][0]["name"]), (200, &json!("cloned")));
    let (status, made) = world.ask(ADMIN, "POST", "/v1/skills/fetch", from).await;
    assert_eq!((status, &made[0]["name"]), (201, &json!("cloned")), "{made}");
    let (_, files) = world.ask(ALICE, "GET", "/v1/skills/cloned/files?include_hidden=true", Value::Null).await;
    assert_eq!(files["entries"].as_array().unwrap().len(), 1, "{files}");
    for directory in ["/etc", "relative", "/"] {
        let answer = world.ask(ADMIN, "POST", "/v1/skills/fetch", json!({ "directory": directory })).await;
        assert_eq!((answer.0, &answer.1["error"]["detail_code"]), (400, &json!("path_outside")), "{directory}");
    }
    let url = world.ask(ADMIN, "POST", "/v1/skills/fetch", json!({ "url": "https://example.com/x.zip" })).await;
    assert_eq!(code(&url), (403, "urls_not_allowed"));
    assert_eq!(world.ask(ADMIN, "POST", "/v1/skills/fetch", json!({})).await.0, 400);
}

#[tokio::test]
async fn skills_are_for_their_tenant_and_for_who_has_the_scope() {
    let world = World::new().await;
    world.ask(ALICE, "POST", "/v1/skills", json!({ "name": "mine" })).await;
    assert_eq!(world.ask(BOB, "GET", "/v1/skills", Value::Null).await.1, json!([]));
    assert_eq!(world.ask(BOB, "GET", "/v1/skills/mine", Value::Null).await.0, 404);
    assert_eq!(world.ask(BOB, "DELETE", "/v1/skills/mine", Value::Null).await.0, 404);
    assert_eq!(world.ask(BOB, "POST", "/v1/skills", json!({ "name": "mine" })).await.0, 201);
    assert_eq!(code(&world.ask(NO_SKILLS, "GET", "/v1/skills", Value::Null).await), (403, "forbidden"));
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_refused() {
    let world = World::new().await;
    for name in ["..", ".ssh", "a/b", "", "．．", "tenants"] {
        let answer = world.ask(ALICE, "POST", "/v1/skills", json!({ "name": name })).await;
        assert!(matches!(answer.0, 400 | 409), "{name}: {answer:?}");
    }
    let archive = world.archive("one", &[("SKILL.md", "hi")]);
    for query in ["target_suffix=x/../../tmp", "source_path=../..", "source_subdir=/etc", "source_subdir=a/../.."] {
        let path = format!("/v1/skills/install?{query}");
        assert_eq!(world.send(ALICE, "POST", &path, "application/zip", archive.clone()).await.0, 400, "{query}");
    }
    assert_eq!(world.ask(ALICE, "GET", "/v1/skills", Value::Null).await.1, json!([]));
}
