//! Builds through the routes, with boxes that do nothing: what is asked, sent and told around them.

use std::io::Write;
use std::time::Duration;

use axum::body::Body;
use box_core::store::TemplateState;
use box_core::{Caller, TenantId};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::saved::{door, door_with};
use super::{Door, EXEC};
use crate::E2bConfig;
use crate::app::App;
use crate::testing::snapshot_row;

/// Asks for a build; says the paths of it.
async fn requested(door: &Door, name: &str) -> (String, String) {
    let (status, told) = door.ask(0, "POST", "/v3/templates", json!({ "name": name, "cpuCount": 1 })).await;
    assert_eq!(status, 202, "{told}");
    let text = |field: &str| told[field].as_str().unwrap().to_owned();
    (text("templateID"), text("buildID"))
}

/// Waits for the end of a build.
async fn ended(door: &Door, template: &str, build: &str) -> Value {
    for _ in 0..3000 {
        let path = format!("/templates/{template}/builds/{build}/status?logsOffset=0");
        let (status, told) = door.ask(0, "GET", &path, Value::Null).await;
        assert_eq!(status, 200, "{told}");
        if !["waiting", "building"].contains(&told["status"].as_str().unwrap()) {
            return told;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the build does not end");
}

#[tokio::test]
async fn a_build_that_fails_says_at_which_step_and_leaves_no_box() {
    let (door, app, directory) = door(&[]).await;
    let (template, build) = requested(&door, "mine:v1").await;
    let path = format!("/v2/templates/{template}/builds/{build}");
    for (asked, told) in [
        (json!({ "steps": [] }), "fromImage or fromTemplate"),
        (json!({ "fromTemplate": "base", "steps": [{ "type": "EXPOSE" }] }), "steps[0]"),
        (json!({ "fromTemplate": "nonexistent" }), "not found"),
    ] {
        let (_, body) = door.ask(0, "POST", &path, asked).await;
        assert!(body["message"].as_str().unwrap().contains(told), "{body}");
    }
    let steps = json!([{ "type": "ENV", "args": ["SECRET", "sesame"] }, { "type": "RUN", "args": ["true"] }]);
    let asked = json!({ "fromTemplate": "base", "steps": steps, "force": false });
    assert_eq!(door.ask(0, "POST", &path, asked.clone()).await.0, 202);
    assert_eq!(door.ask(0, "POST", &path, asked).await.0, 400, "once");
    // These boxes have no agent.
    let told = ended(&door, &template, &build).await;
    assert_eq!((&told["status"], &told["reason"]["step"]), (&json!("error"), &json!("2")), "{told}");
    assert!(told["logs"].to_string().contains("[1/2] ENV SECRET") && !told.to_string().contains("sesame"), "{told}");
    let session = format!("build-{template}").parse().unwrap();
    assert!(!app.service().has_session(&Caller::local(), &session).unwrap(), "its box is gone");
    assert_eq!(directory.path().join("templates").read_dir().map_or(0, Iterator::count), 0);
    assert_eq!(door.ask(0, "POST", "/v2/sandboxes", json!({ "templateID": "mine:v1" })).await.0, 404);
}

#[tokio::test]
async fn files_are_sent_once_to_where_the_server_says() {
    let (door, app, directory) = door(&[]).await;
    let (template, build) = requested(&door, "mine").await;
    let path = format!("/templates/{template}/files/0a1b");
    let (status, told) = door.ask(0, "GET", &path, Value::Null).await;
    assert_eq!((status, &told["present"]), (201, &json!(false)), "{told}");
    let url = told["url"].as_str().unwrap();
    let path_of = url.strip_prefix("http://localhost").unwrap();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&[0; 1024]).unwrap();
    let archive = gzip.finish().unwrap();
    let wrong = path_of.replace(&path_of[path_of.len() - 8..], "00000000");
    assert_eq!(door.visitor.put(&wrong, Body::from(archive.clone())).await, 403, "nobody guesses");
    assert_eq!(door.visitor.put(path_of, Body::from(archive.clone())).await, 200);
    assert_eq!(door.visitor.put(path_of, Body::from(archive)).await, 403, "once");
    assert_eq!(door.ask(0, "GET", &path, Value::Null).await.1, json!({ "present": true }));
    let kept: Vec<_> = directory.path().join("templates").read_dir().unwrap().collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].as_ref().unwrap().metadata().unwrap().len(), 1024, "it is kept inflated");
    assert_eq!(door.ask(0, "GET", &format!("/templates/{template}/files/..%2Fx"), Value::Null).await.0, 400);
    let path = format!("/v2/templates/{template}/builds/{build}");
    assert_eq!(door.ask(0, "POST", &path, json!({ "fromImage": "e2bdev/base" })).await.0, 202);
    ended(&door, &template, &build).await;
    for _ in 0..3000 {
        if directory.path().join("templates").read_dir().unwrap().count() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(directory.path().join("templates").read_dir().unwrap().count(), 0, "until the build ends");
    assert!(app.e2b().builds().uploads().forget(&TenantId::default(), &template).is_empty());
}

#[tokio::test]
async fn uploads_that_come_together_do_not_pass_the_limit_of_their_tenant() {
    let config = E2bConfig { saved_mb_max: 2, ..E2bConfig::default() };
    let (door, app, directory) = door_with(&[], config).await;
    let (template, _) = requested(&door, "mine").await;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(&vec![0; 900 << 10]).unwrap();
    let archive = gzip.finish().unwrap();
    let mut paths = Vec::new();
    for number in 0..8 {
        let (_, told) = door.ask(0, "GET", &format!("/templates/{template}/files/0{number}"), Value::Null).await;
        paths.push(told["url"].as_str().unwrap().strip_prefix("http://localhost").unwrap().to_owned());
    }
    let uploads = paths.iter().map(|path| door.visitor.put(path, Body::from(archive.clone())));
    let mut statuses = futures_util::future::join_all(uploads).await;
    statuses.sort_unstable();
    assert_eq!(statuses[2..], [507; 6], "{statuses:?}");
    let files = directory.path().join("templates").read_dir().unwrap();
    let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 2 << 20, "{bytes}");
    let removed = app.e2b().builds().uploads().forget(&TenantId::default(), &template);
    assert_eq!(removed.len() as u64, bytes / (900 << 10));
    let (_, told) = door.ask(0, "GET", &format!("/templates/{template}/files/aa"), Value::Null).await;
    let path = told["url"].as_str().unwrap().strip_prefix("http://localhost").unwrap();
    assert_eq!(door.visitor.put(path, Body::from(archive)).await, 200, "what is forgotten makes room");
}

#[tokio::test]
async fn names_are_free_and_templates_keep_their_id() {
    let (door, _app, _directory) = door(&[("left", "left", EXEC), ("right", "right", EXEC)]).await;
    for (name, told) in [("base", "choose another"), ("Bad Name", "lowercase"), ("mine:a b", "tag")] {
        let (status, body) = door.ask(0, "POST", "/v3/templates", json!({ "name": name })).await;
        assert!(status == 400 && body["message"].as_str().unwrap().contains(told), "{body}");
    }
    let (first, build) = requested(&door, "mine").await;
    let (second, other) = requested(&door, "mine:v2").await;
    assert!(first == second && build != other, "two versions of one template");
    let (_, others) = door.ask(1, "POST", "/v3/templates", json!({ "name": "mine" })).await;
    assert_ne!(others["templateID"], json!(first), "tenants are apart");
    let path = format!("/templates/{first}/builds/{build}/status");
    assert_eq!(
        (door.ask(1, "GET", &path, Value::Null).await.0, door.ask(0, "GET", &path, Value::Null).await.0),
        (404, 200)
    );
    assert_eq!(door.ask(1, "GET", &format!("/templates/{first}/files/0a"), Value::Null).await.0, 404);
}

async fn tags(door: &Door) -> Vec<(String, String)> {
    let (status, list) = door.ask(0, "GET", "/templates/mine/tags", Value::Null).await;
    assert_eq!(status, 200, "{list}");
    let pair = |tag: &Value| (tag["tag"].as_str().unwrap().to_owned(), tag["buildID"].as_str().unwrap().to_owned());
    let mut pairs: Vec<_> = list.as_array().unwrap().iter().map(pair).collect();
    pairs.sort();
    pairs
}

async fn published(app: &App, id: &str, tag: &str) {
    app.snapshots().publish(snapshot_row(id, "a", &[tag])).await.unwrap();
}

#[tokio::test]
async fn tags_move_between_versions_and_templates_are_listed_with_them() {
    let (door, app, _directory) = door(&[]).await;
    published(&app, "a", "v1").await;
    published(&app, "b", "v2").await;
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(tag, build)| ((*tag).to_owned(), (*build).to_owned())).collect()
    };
    let asked = json!({ "target": "mine:v1", "tags": ["v2", "stable"] });
    assert_eq!(door.ask(0, "POST", "/templates/tags", asked).await.0, 201);
    assert_eq!(tags(&door).await, owned(&[("stable", "build-a"), ("v1", "build-a"), ("v2", "build-a")]));
    let (_, shown) = door.ask(0, "GET", "/templates/mine", Value::Null).await;
    assert_eq!((&shown["templateID"], shown["builds"].as_array().unwrap().len()), (&json!("a"), 1), "{shown}");
    let (_, listed) = door.ask(0, "GET", "/templates", Value::Null).await;
    assert!(listed.as_array().unwrap().iter().any(|template| template["aliases"] == json!(["mine"])), "{listed}");
    assert_eq!(door.ask(0, "DELETE", "/templates/tags", json!({ "name": "mine", "tags": ["v1"] })).await.0, 204);
    assert_eq!(tags(&door).await.len(), 2);
    assert_eq!(door.ask(0, "DELETE", "/templates/mine", Value::Null).await.0, 204);
    assert_eq!(door.ask(0, "GET", "/templates/mine/tags", Value::Null).await.0, 404);
}

#[tokio::test]
async fn builds_that_nobody_needs_make_room() {
    let (door, app, _directory) = door(&[]).await;
    for number in 0..20 {
        let mut row = snapshot_row(&format!("{}x", char::from(b'a' + number)), "f", &["default"]);
        row.state = TemplateState::Failed { message: "no".to_owned(), step: None };
        app.snapshots().put(row).await.unwrap();
    }
    let mut old = snapshot_row("z", "z", &["default"]);
    old.state = TemplateState::Waiting;
    app.snapshots().put(old).await.unwrap();
    requested(&door, "new").await;
    let left = app.snapshots().of(&TenantId::default()).await.unwrap();
    assert_eq!(left.len(), 17, "16 that failed, and the new one");
}

#[tokio::test]
async fn the_template_for_code_interpreters_is_the_tenants_own_once_it_is_built() {
    let (door, app, directory) = door(&[]).await;
    let alias = async || door.ask(0, "GET", "/templates/aliases/code-interpreter-v1", Value::Null).await.1;
    assert_eq!(alias().await["templateID"], "code-interpreter-v1", "the operator's, until there is one");
    requested(&door, "code-interpreter-v1").await;
    let (status, told) = door.ask(0, "POST", "/v3/templates", json!({ "name": "base" })).await;
    assert_eq!(status, 400, "others are the operator's alone: {told}");
    let row = snapshot_row("c", "c", &["default"]);
    let row = box_core::store::TemplateRow { name: Some("code-interpreter-v1".to_owned()), ..row };
    std::fs::create_dir_all(directory.path().join("templates")).unwrap();
    std::fs::write(directory.path().join("templates/c.tar"), "archive").unwrap();
    app.snapshots().publish(row).await.unwrap();
    assert_eq!(alias().await["public"], false);
    let (_, listed) = door.ask(0, "GET", "/templates", Value::Null).await;
    let named = |template: &&Value| template["aliases"].to_string().contains("code-interpreter-v1");
    let ids: Vec<_> = listed.as_array().unwrap().iter().filter(named).map(|one| &one["public"]).collect();
    assert!(!ids.is_empty() && ids.iter().all(|public| **public == json!(false)), "{listed}");
}

#[tokio::test]
async fn a_template_for_code_interpreters_that_the_operator_sets_up_is_nobody_elses() {
    let image = box_core::store::TemplateBase { image: Some("python".to_owned()), ..Default::default() };
    let templates = [("code-interpreter-v1".to_owned(), image)].into();
    let config = E2bConfig { templates, ..E2bConfig::default() };
    assert!(!config.is_starter("code-interpreter-v1") && E2bConfig::default().is_starter("code-interpreter-v1"));
    assert!(!E2bConfig::default().is_starter("base"));
}
