//! Volumes through the routes, with boxes that do nothing.

use std::path::PathBuf;
use std::sync::Arc;

use box_core::{Caller, Scope, ServiceConfig, Store, limits};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::E2bConfig;
use crate::app::App;
use crate::testing::{Still, Visitor, app_with, service, service_with};
use door_http::testing::{MemoryStore, tokens};

/// A server with a place for volumes, and two tenants.
struct Door {
    app: App,
    visitor: Visitor,
    keys: Vec<String>,
    store: Arc<MemoryStore>,
    place: TempDir,
}

impl Door {
    async fn open() -> Self {
        let exec = &[Scope::Exec][..];
        let people = [("one", "acme", exec), ("two", "other", exec), ("bound-offline_readonly", "acme", exec)];
        let (secrets, rows) = tokens(&people);
        let (store, place) = (Arc::new(MemoryStore::with(&rows)), tempfile::tempdir().unwrap());
        let spelled = |secret: &String| format!("e2b_{}", secret.trim_start_matches("sbx_").replace('_', ""));
        let keys = secrets.iter().map(spelled).collect();
        let app = Self::app(&store, &place).await;
        Self { visitor: Visitor::new(app.clone()), app, keys, store, place }
    }

    async fn app(store: &Arc<MemoryStore>, place: &TempDir) -> App {
        let store = Arc::clone(store) as Arc<dyn Store>;
        let volumes_dir = Some(place.path().join("volumes"));
        let config = ServiceConfig { volumes_dir, ..ServiceConfig::default() };
        let service = service_with(Arc::new(Still::default()), Arc::clone(&store), config).await;
        app_with(service, store, E2bConfig::default())
    }

    /// The same server after a restart.
    async fn again(self) -> Self {
        let app = Self::app(&self.store, &self.place).await;
        Self { visitor: Visitor::new(app.clone()), app, ..self }
    }

    async fn ask(&self, who: usize, method: &str, path: &str, body: Value) -> (u16, Value) {
        let (status, _, body) = self.visitor.send(method, path, &[("x-api-key", &self.keys[who])], body).await;
        (status, body)
    }

    async fn make(&self, who: usize, name: &str) -> Value {
        let (status, made) = self.ask(who, "POST", "/volumes", json!({ "name": name })).await;
        assert_eq!(status, 201, "{made}");
        made
    }

    async fn sandbox(&self, who: usize, mounts: Value) -> (u16, Value) {
        let asked = json!({ "templateID": "base", "volumeMounts": mounts });
        self.ask(who, "POST", "/v2/sandboxes", asked).await
    }

    fn directory(&self, volume: &Value) -> PathBuf {
        self.place.path().join("volumes").join(id(volume))
    }
}

fn id(volume: &Value) -> &str {
    volume["volumeID"].as_str().unwrap()
}

#[tokio::test]
async fn a_volume_is_made_listed_shown_and_removed() {
    let door = Door::open().await;
    let made = door.make(0, "my-Data_1").await;
    assert_eq!((id(&made).len(), made["token"].as_str().unwrap().len(), &made["name"]), (20, 64, &json!("my-Data_1")));
    assert!(door.directory(&made).is_dir());
    let listed = json!([{ "volumeID": id(&made), "name": "my-Data_1" }]);
    assert_eq!(door.ask(0, "GET", "/volumes", Value::Null).await, (200, listed));
    let address = format!("/volumes/{}", id(&made));
    let door = door.again().await;
    assert_eq!(door.ask(0, "GET", &address, Value::Null).await, (200, made.clone()));
    assert_eq!(door.ask(0, "DELETE", &address, Value::Null).await.0, 204);
    assert!(!door.directory(&made).exists());
    for method in ["GET", "DELETE"] {
        assert_eq!(door.ask(0, method, &address, Value::Null).await.0, 404, "{method}");
    }
    assert_eq!(door.again().await.ask(0, "GET", "/volumes", Value::Null).await, (200, json!([])));
}

#[tokio::test]
async fn tenants_have_volumes_of_their_own() {
    let door = Door::open().await;
    let (mine, theirs) = (door.make(0, "data").await, door.make(1, "data").await);
    let address = format!("/volumes/{}", id(&theirs));
    for method in ["GET", "DELETE"] {
        assert_eq!(door.ask(0, method, &address, Value::Null).await.0, 404, "{method}");
    }
    assert_eq!(door.ask(0, "GET", "/volumes", Value::Null).await.1.as_array().unwrap().len(), 1);
    door.make(1, "secret").await;
    assert_eq!(door.sandbox(0, json!([{ "name": "secret", "path": "/mnt/x" }])).await.0, 404);
    assert_eq!(door.sandbox(0, json!([{ "name": "data", "path": "/mnt/x" }])).await.0, 201);
    assert_eq!(door.ask(1, "DELETE", &address, Value::Null).await.0, 204, "that of the other is mounted, not this");
    assert!(door.directory(&mine).exists() && !door.directory(&theirs).exists());
}

#[tokio::test]
async fn a_profile_that_locks_mounts_holds_for_volumes() {
    let door = Door::open().await;
    door.make(0, "data").await;
    let mounts = json!([{ "name": "data", "path": "/mnt/data" }]);
    for (who, mode) in [(0, "rw"), (2, "ro")] {
        let (status, made) = door.sandbox(who, mounts.clone()).await;
        assert_eq!(status, 201, "{made}");
        let id = made["sandboxID"].as_str().unwrap().parse().unwrap();
        let caller = Caller { tenant: "acme".parse().unwrap(), ..Caller::local() };
        let session = door.app.service().get_session(&caller, &id).await.unwrap();
        let session = serde_json::to_value(session).unwrap();
        assert_eq!(session["volumes"][0]["mode"], json!(mode), "{session}");
    }
}

#[tokio::test]
async fn names_are_plain_and_taken_once() {
    let door = Door::open().await;
    door.make(0, "data").await;
    let (status, told) = door.ask(0, "POST", "/volumes", json!({ "name": "data" })).await;
    assert_eq!((status, told["message"].as_str().unwrap().contains("already")), (409, true), "{told}");
    let long = "x".repeat(limits::VOLUME_NAME_BYTES_MAX + 1);
    for bad in
        [json!({}), json!({ "name": "" }), json!({ "name": "a b" }), json!({ "name": "../x" }), json!({ "name": long })]
    {
        assert_eq!(door.ask(0, "POST", "/volumes", bad.clone()).await.0, 400, "{bad}");
    }
    for number in 1..limits::VOLUMES_MAX {
        door.make(0, &format!("v{number}")).await;
    }
    assert_eq!(door.ask(0, "POST", "/volumes", json!({ "name": "more" })).await.0, 400);
    door.make(1, "more").await;
}

#[tokio::test]
async fn a_volume_stays_while_a_sandbox_has_it() {
    let door = Door::open().await;
    let volume = door.make(0, "data").await;
    let mounts = json!([{ "name": "data", "path": "/mnt/data" }, { "name": "data", "path": "/home/user/data" }]);
    let (status, made) = door.sandbox(0, mounts.clone()).await;
    assert_eq!(status, 201, "{made}");
    let sandbox = format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap());
    assert_eq!(door.ask(0, "GET", &sandbox, Value::Null).await.1["volumeMounts"], mounts);
    assert_eq!(door.ask(0, "GET", "/v2/sandboxes", Value::Null).await.1[0]["volumeMounts"], mounts);
    let address = format!("/volumes/{}", id(&volume));
    let (status, told) = door.ask(0, "DELETE", &address, Value::Null).await;
    assert_eq!((status, told["message"].as_str().unwrap().contains("mounted")), (409, true), "{told}");
    assert_eq!(door.ask(0, "DELETE", &sandbox, Value::Null).await.0, 204);
    assert_eq!(door.ask(0, "DELETE", &address, Value::Null).await.0, 204);
}

#[tokio::test]
async fn a_sandbox_has_volumes_only_where_they_can_be() {
    let door = Door::open().await;
    let volume = door.make(0, "data").await;
    for (path, expected) in
        [("/etc/x", 400), ("/", 400), ("mnt", 400), ("/home/user", 400), ("/a b", 400), ("/mnt/a", 201)]
    {
        let (status, told) = door.sandbox(0, json!([{ "name": "data", "path": path }])).await;
        assert_eq!(status, expected, "{path}: {told}");
        let names_it = told["message"].as_str().is_some_and(|message| message.contains("volumeMounts"));
        assert!(expected == 201 || names_it, "{told}");
    }
    assert_eq!(door.sandbox(0, json!([{ "name": "none", "path": "/mnt/a" }])).await.0, 404);
    let many: Vec<Value> = (0..9).map(|number| json!({ "name": "data", "path": format!("/mnt/{number}") })).collect();
    assert_eq!(door.sandbox(0, json!(many)).await.0, 400);
    let (status, told) = door.ask(0, "DELETE", &format!("/volumes/{}", id(&volume)), Value::Null).await;
    assert_eq!(status, 409, "the last one has it: {told}");
}

#[tokio::test]
async fn only_its_token_opens_a_volume() {
    let door = Door::open().await;
    let (volume, other) = (door.make(0, "data").await, door.make(0, "other").await);
    let address = format!("/volumecontent/{}/path?path=/a", id(&volume));
    let own = format!("Bearer {}", volume["token"].as_str().unwrap());
    let foreign = format!("Bearer {}", other["token"].as_str().unwrap());
    let wrong: [&[(&str, &str)]; 4] = [
        &[],
        &[("authorization", &foreign)],
        &[("x-api-key", &door.keys[0])],
        &[("authorization", &own), ("authorization", &own)],
    ];
    for headers in wrong {
        assert_eq!(door.visitor.send("GET", &address, headers, Value::Null).await.0, 401, "{headers:?}");
    }
    let ask = async |path: &str| door.visitor.send("GET", path, &[("authorization", &own)], Value::Null).await.0;
    // There is nobody in these boxes who could look.
    assert_eq!(ask(&address).await, 503);
    assert_eq!(ask("/volumecontent/none/path?path=/a").await, 404);
    assert_eq!(ask(&format!("/volumecontent/{}/path", id(&volume))).await, 400);
    let (_, sandboxes) = door.ask(0, "GET", "/v2/sandboxes", Value::Null).await;
    assert_eq!(sandboxes, json!([]), "the box of a volume is no sandbox");
    assert_eq!(door.ask(0, "DELETE", &format!("/volumes/{}", id(&volume)), Value::Null).await.0, 204);
}

#[tokio::test]
async fn where_there_is_no_place_for_volumes_that_is_said() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let backend = Arc::new(Still::default());
    let app = app_with(service(backend, Arc::clone(&store)).await, store, E2bConfig::default());
    let visitor = Visitor::new(app);
    let key = [("x-api-key", "e2b_0000000000000000000000000000000000000000")];
    let (status, _, told) = visitor.send("GET", "/volumes", &key, Value::Null).await;
    assert_eq!((status, told["message"].as_str().unwrap().contains("not served")), (501, true), "{told}");
}
