//! Who may come in, and what is refused before anything runs. What runs is tested by the real clients.

use std::sync::Arc;

use box_core::store::SandboxRow;
use serde_json::{Value, json};

use crate::testing::{Still, Visitor, app, make, row, service, token};
use door_http::testing::MemoryStore;

const NAME: &str = "abcdefghijklmnopqrst";

async fn visitor(row: SandboxRow) -> Visitor {
    let store = Arc::new(MemoryStore::default());
    let app = app(service(Arc::new(Still::default()), store.clone()).await, store);
    make(&app, row).await;
    Visitor::new(app)
}

async fn status(visitor: &Visitor, method: &str, path: &str, more: &[(&str, &str)], body: Value) -> u16 {
    let mut headers = vec![("e2b-sandbox-id", NAME), ("e2b-sandbox-port", "49999")];
    headers.extend_from_slice(more);
    visitor.send(method, path, &headers, body).await.0
}

#[tokio::test]
async fn cells_need_the_token_and_contexts_do_not() {
    let visitor = visitor(row(NAME)).await;
    let body = || json!({ "code": "1", "context_id": "x" });
    let (good, bad) = (token(NAME), token("other"));
    assert_eq!(status(&visitor, "POST", "/execute", &[], body()).await, 401);
    assert_eq!(status(&visitor, "POST", "/execute", &[("x-access-token", &bad)], body()).await, 401);
    assert_eq!(status(&visitor, "POST", "/execute", &[("x-access-token", &good)], body()).await, 404);
    assert_eq!(status(&visitor, "GET", "/contexts", &[], Value::Null).await, 200);
    assert_eq!(status(&visitor, "GET", "/contexts", &[("x-access-token", &good)], Value::Null).await, 200);
    assert_eq!(status(&visitor, "GET", "/contexts", &[("x-access-token", &bad)], Value::Null).await, 401);
}

#[tokio::test]
async fn contexts_of_languages_are_listed_before_their_first_use() {
    let visitor = visitor(row(NAME)).await;
    let headers = [("e2b-sandbox-id", NAME), ("e2b-sandbox-port", "49999")];
    let (_, _, listed) = visitor.send("GET", "/contexts", &headers, Value::Null).await;
    let context =
        |language: &str| json!({ "id": format!("default-{language}"), "language": language, "cwd": "/home/user" });
    assert_eq!(listed, json!([context("python"), context("javascript")]));
    assert_eq!(status(&visitor, "DELETE", "/contexts/default-python", &[], Value::Null).await, 204);
    assert_eq!(status(&visitor, "DELETE", "/contexts/default-r", &[], Value::Null).await, 404);
}

#[tokio::test]
async fn contexts_of_a_sandbox_without_public_traffic_need_the_token_for_that() {
    let visitor = visitor(SandboxRow { traffic_token: Some("secret".to_owned()), ..row(NAME) }).await;
    assert_eq!(status(&visitor, "GET", "/contexts", &[], Value::Null).await, 403);
    assert_eq!(
        status(&visitor, "DELETE", "/contexts/x", &[("e2b-traffic-access-token", "no")], Value::Null).await,
        403
    );
    let shown = [("e2b-traffic-access-token", "secret")];
    assert_eq!(status(&visitor, "GET", "/contexts", &shown, Value::Null).await, 200);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_before_anything_runs() {
    let visitor = visitor(row(NAME)).await;
    let token = token(NAME);
    let long = "x".repeat(5000);
    for (body, expected) in [
        (json!({ "code": "1", "context_id": "a", "language": "python" }), 400),
        (json!({ "code": "1", "language": "r" }), 400),
        (json!({ "code": 1 }), 400),
        (json!({}), 400),
        (json!([]), 400),
        (json!({ "code": "1", "context_id": "missing" }), 404),
        (json!({ "code": "1", "context_id": "\n" }), 404),
        (json!({ "code": "1", "context_id": long }), 404),
        (json!({ "code": "1", "env_vars": { "A": 1 } }), 400),
    ] {
        let status = status(&visitor, "POST", "/execute", &[("x-access-token", &token)], body.clone()).await;
        assert_eq!(status, expected, "{body}");
    }
    for (method, path) in [("DELETE", "/contexts/missing"), ("POST", "/contexts/missing/restart")] {
        assert_eq!(status(&visitor, method, path, &[], Value::Null).await, 404, "{path}");
    }
    assert_eq!(status(&visitor, "POST", "/contexts", &[], json!({ "language": "cobol" })).await, 400);
    assert_eq!(status(&visitor, "POST", "/contexts", &[], json!({ "cwd": "/a/../b\0" })).await, 400);
}
