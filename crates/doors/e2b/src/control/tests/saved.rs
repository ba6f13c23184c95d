//! Snapshots, forks and templates through the routes, with boxes that do nothing: what begins with something saved, and who may.

use std::sync::Arc;

use box_core::store::{TemplateOrigin, TemplateRow};
use box_core::{Caller, Store, TenantId};
use serde_json::{Value, json};

use super::{Door, EXEC, id};
use crate::E2bConfig;
use crate::app::App;
use crate::testing::{Still, Visitor, app_with, service, snapshot_row};
use door_http::testing::{MemoryStore, tokens};

/// A door with a place for archives.
pub(super) async fn door(people: &[(&str, &str, &[box_core::Scope])]) -> (Door, App, tempfile::TempDir) {
    door_with(people, E2bConfig::default()).await
}

/// The same, with what else the operator says.
pub(super) async fn door_with(
    people: &[(&str, &str, &[box_core::Scope])],
    config: E2bConfig,
) -> (Door, App, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let (secrets, rows) = tokens(people);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with(&rows));
    let config = E2bConfig { snapshots: Some(directory.path().join("templates")), ..config };
    let app = app_with(service(Arc::new(Still::default()), Arc::clone(&store)).await, store, config);
    let mut keys: Vec<String> = secrets.iter().map(Door::spelled).collect();
    if keys.is_empty() {
        keys.push("e2b_0000000000000000000000000000000000000000".to_owned());
    }
    (Door { visitor: Visitor::new(app.clone()), keys }, app, directory)
}

fn snapshot(id: &str, tenant: &str) -> TemplateRow {
    let mut row = snapshot_row(id, id, &["default"]);
    row.key.tenant = tenant.parse().unwrap();
    row.name = Some(format!("named-{id}"));
    row.origin = TemplateOrigin::Snapshot("i1".to_owned());
    row.base.image = Some("host".to_owned());
    row.env.insert("KEPT".to_owned(), "then".to_owned());
    row
}

#[tokio::test]
async fn a_sandbox_begins_with_what_was_saved() {
    let (door, app, directory) = door(&[]).await;
    app.snapshots().publish(snapshot("a", "default")).await.unwrap();
    for name in ["a", "a:default", "named-a", "team/named-a:default"] {
        let asked = json!({ "templateID": name, "envVars": { "MORE": "1" } });
        let (status, made) = door.ask(0, "POST", "/v2/sandboxes", asked).await;
        assert_eq!((status, &made["templateID"]), (201, &json!("a")), "{name}: {made}");
        let session = app.service().peek_session(&Caller::local(), &id(&made).parse().unwrap()).unwrap();
        assert_eq!(session.config.snapshot, Some(directory.path().join("templates/a.tar")), "{name}");
        let env =
            |name: &str| session.config.env.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        assert_eq!((env("KEPT"), env("MORE")), (Some("then".to_owned()), Some("1".to_owned())), "{name}");
    }
    let (status, told) = door.ask(0, "POST", "/v2/sandboxes", json!({ "templateID": "a:v2" })).await;
    assert!(status == 404 && told["message"].as_str().unwrap().contains("default"), "{told}");
}

#[tokio::test]
async fn what_a_tenant_saved_is_nobody_elses() {
    let (door, app, _directory) = door(&[("left", "left", EXEC), ("right", "right", EXEC)]).await;
    app.snapshots().publish(snapshot("a", "left")).await.unwrap();
    assert_eq!(door.ask(1, "POST", "/v2/sandboxes", json!({ "templateID": "a" })).await.0, 404);
    assert_eq!(door.ask(1, "GET", "/snapshots", Value::Null).await.1, json!([]));
    assert_eq!(door.ask(1, "GET", "/templates/aliases/named-a", Value::Null).await.0, 404);
    assert_eq!(door.ask(1, "DELETE", "/templates/a%3Adefault", Value::Null).await.0, 404);
    assert_eq!(door.ask(0, "GET", "/templates/aliases/named-a", Value::Null).await.0, 200);
    let expected = json!([{ "snapshotID": "a:default", "names": ["named-a:default"] }]);
    assert_eq!(door.ask(0, "GET", "/snapshots", Value::Null).await.1, expected);
    assert_eq!(door.ask(0, "DELETE", "/templates/a%3Adefault", Value::Null).await.0, 204);
    assert_eq!(door.ask(0, "DELETE", "/templates/a%3Adefault", Value::Null).await.0, 404);
}

#[tokio::test]
async fn who_is_bound_to_a_profile_knows_no_snapshot_of_another() {
    let people = [("free", "left", EXEC), ("bound-offline_readonly", "left", EXEC)];
    let (door, app, _directory) = door(&people).await;
    let with_profile = |id: &str, profile: &str| {
        let mut row = snapshot(id, "left");
        row.base.profile = Some(profile.to_owned());
        row
    };
    app.snapshots().publish(with_profile("a", "e2b")).await.unwrap();
    app.snapshots().publish(with_profile("b", "offline_readonly")).await.unwrap();
    let listed = async |who| {
        let (_, page) = door.ask(who, "GET", "/snapshots", Value::Null).await;
        page.as_array().unwrap().iter().map(|row| row["snapshotID"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(1).await, ["b:default"]);
    for (method, path) in [
        ("GET", "/templates/aliases/named-a"),
        ("GET", "/templates/a"),
        ("GET", "/templates/a/tags"),
        ("DELETE", "/templates/a"),
        ("DELETE", "/templates/a%3Adefault"),
    ] {
        assert_eq!(door.ask(1, method, path, Value::Null).await.0, 404, "{method} {path}");
    }
    assert_eq!(door.ask(1, "POST", "/v2/sandboxes", json!({ "templateID": "a" })).await.0, 404);
    let tags = json!({ "target": "a", "tags": ["mine"] });
    assert_eq!(door.ask(1, "POST", "/templates/tags", tags).await.0, 404);
    let (status, asked) = door.ask(1, "POST", "/v3/templates", json!({ "name": "named-a" })).await;
    assert!(status == 202 && asked["templateID"] != "a", "a name that it cannot know is free to it: {asked}");
    assert_eq!(door.ask(1, "DELETE", "/templates/b", Value::Null).await.0, 204, "its own");
    assert_eq!(listed(0).await, ["a:default"]);
}

#[tokio::test]
async fn snapshots_are_listed_in_pages_by_their_sandbox_and_by_name() {
    let (door, app, _directory) = door(&[]).await;
    for name in ["a", "b", "c"] {
        app.snapshots().publish(snapshot(name, "default")).await.unwrap();
    }
    let (_, headers, page) = door.full(0, "GET", "/snapshots?limit=2&sandboxID=i1", Value::Null).await;
    assert_eq!((page.as_array().unwrap().len(), &page[0]["snapshotID"]), (2, &json!("c:default")));
    let next = headers["x-next-token"].to_str().unwrap();
    let (_, headers, page) = door.full(0, "GET", &format!("/snapshots?limit=2&nextToken={next}"), Value::Null).await;
    assert_eq!((&page[0]["snapshotID"], headers.get("x-next-token")), (&json!("a:default"), None));
    assert_eq!(door.ask(0, "GET", "/snapshots?sandboxID=i2", Value::Null).await.1, json!([]));
    let (_, page) = door.ask(0, "GET", "/snapshots?name=named-b", Value::Null).await;
    assert_eq!(page[0]["snapshotID"], json!("b:default"));
    assert_eq!(door.ask(0, "GET", "/snapshots?nextToken=x", Value::Null).await.0, 400);
}

#[tokio::test]
async fn what_cannot_be_saved_leaves_nothing() {
    let (door, app, directory) = door(&[]).await;
    let made = door.make(0, json!({})).await;
    let path = |verb: &str| format!("/sandboxes/{}/{verb}", id(&made));
    // These boxes have no agent.
    for (verb, asked) in [("snapshots", json!({})), ("fork", json!({ "count": 2 }))] {
        assert_eq!(door.ask(0, "POST", &path(verb), asked).await.0, 503, "{verb}");
        assert_eq!(directory.path().join("templates").read_dir().unwrap().count(), 0, "{verb}");
    }
    assert!(app.snapshots().of(&TenantId::default()).await.unwrap().is_empty());
    for (verb, asked, told) in [
        ("snapshots", json!({ "name": "Bad Name" }), "lowercase"),
        ("snapshots", json!({ "name": "base" }), "choose another"),
        ("fork", json!({ "count": 0 }), "from 1 to 20"),
        ("fork", json!({ "count": 21 }), "from 1 to 20"),
    ] {
        let (status, body) = door.ask(0, "POST", &path(verb), asked).await;
        assert!(status == 400 && body["message"].as_str().unwrap().contains(told), "{verb}: {body}");
    }
    assert_eq!(door.ask(0, "POST", &path("pause"), Value::Null).await.0, 204);
    for verb in ["snapshots", "fork"] {
        assert_eq!(door.ask(0, "POST", &path(verb), json!({})).await.0, 409, "{verb}");
        assert_eq!(door.ask(0, "POST", &format!("/sandboxes/i000/{verb}"), json!({})).await.0, 404, "{verb}");
    }
}
