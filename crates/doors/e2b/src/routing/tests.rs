//! Requests that find their sandbox, and those that do not.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::any;
use box_core::store::SandboxRow;
use box_core::{Caller, Store};
use box_e2b_wire::signature::{Operation, Signed};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::sandbox_request::{OpenSandboxRequest, SandboxRequest};
use crate::testing::{Visitor, app, make, row, service, token};
use door_http::testing::MemoryStore;

/// What is answered to who gets as far as the programs of a box: there is none in which they could run.
const BEYOND: u16 = 503;

/// A server with a sandbox `one`, and one `two` that is as the test says.
async fn door(two: SandboxRow) -> (App, Visitor) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let app = app(service(Arc::default(), Arc::clone(&store)).await, store);
    make(&app, row("one")).await;
    make(&app, two).await;
    let visitor = Visitor::new(app.clone());
    (app, visitor)
}

async fn ask(visitor: &Visitor, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let (status, _, body) = visitor.send(method, path, headers, Value::Null).await;
    (status, body)
}

fn named<'a>(id: &'a str, port: &'a str) -> [(&'a str, &'a str); 2] {
    [("e2b-sandbox-id", id), ("e2b-sandbox-port", port)]
}

#[tokio::test]
async fn health_of_a_sandbox_is_asked_by_header_by_host_and_by_token() {
    let (_, visitor) = door(row("two")).await;
    assert_eq!(ask(&visitor, "GET", "/health", &named("one", "49983")).await.0, 204);
    assert_eq!(ask(&visitor, "GET", "/health", &named("one-6532622b", "49999")).await.0, 200);
    assert_eq!(ask(&visitor, "GET", "/health", &[("host", "49983-one.box.example")]).await.0, 204);
    assert_eq!(ask(&visitor, "GET", "/health", &[("x-access-token", &token("two"))]).await.0, 204);
    let (status, body) = ask(&visitor, "GET", "/health", &named("three", "49983")).await;
    let expected = json!({ "sandboxId": "three", "message": "The sandbox was not found", "code": 502 });
    assert_eq!((status, body), (502, expected));
    assert_eq!(ask(&visitor, "GET", "/health", &[("x-access-token", &token("three"))]).await.0, 502);
}

#[tokio::test]
async fn half_an_address_is_refused() {
    let (_, visitor) = door(row("two")).await;
    for half in [("e2b-sandbox-id", "one"), ("e2b-sandbox-port", "49983")] {
        let (status, body) = ask(&visitor, "GET", "/v1/status", &[half]).await;
        assert_eq!((status, &body["code"]), (400, &json!(400)), "{body}");
    }
    assert_eq!(ask(&visitor, "GET", "/health", &named("one", "x")).await.0, 400);
    assert_eq!(ask(&visitor, "GET", "/health", &named("../one", "49983")).await.0, 502);
}

#[tokio::test]
async fn what_is_meant_for_a_sandbox_never_reaches_the_server() {
    let (_, visitor) = door(row("two")).await;
    for path in ["/v1/status", "/init", "/freeze", "/v2/templates", "/"] {
        let (status, body) = ask(&visitor, "POST", path, &named("one", "49983")).await;
        assert_eq!((status, &body["path"], &body["code"]), (404, &json!(path), &json!(404)), "{path}");
    }
    assert_eq!(ask(&visitor, "GET", "/v1/status", &[]).await.0, 200, "and the server is still there");
    let old = [("x-api-key", "e2b_00"), ("e2b-sandbox-id", "one"), ("e2b-sandbox-port", "49983")];
    let (status, shown) = ask(&visitor, "GET", "/sandboxes/one", &old).await;
    assert_eq!(
        (status, &shown["sandboxID"]),
        (200, &json!("one")),
        "old clients name the sandbox when they connect to it"
    );
    let other = [("x-api-key", "e2b_00"), ("e2b-sandbox-id", "one"), ("e2b-sandbox-port", "3000")];
    assert_eq!(ask(&visitor, "GET", "/sandboxes/one", &other).await.0, BEYOND, "a port of a program may have any path");
}

#[tokio::test]
async fn ports_of_programs_need_the_traffic_token_where_there_is_one() {
    let (_, visitor) = door(SandboxRow { traffic_token: Some("pass".into()), ..row("two") }).await;
    assert_eq!(ask(&visitor, "GET", "/any/path", &named("one", "3000")).await.0, BEYOND);
    let host = ("host", "3000-two.box.example:8443");
    assert_eq!(ask(&visitor, "GET", "/", &[host]).await.0, 403);
    assert_eq!(ask(&visitor, "GET", "/", &[host, ("e2b-traffic-access-token", "past")]).await.0, 403);
    assert_eq!(ask(&visitor, "GET", "/", &[host, ("e2b-traffic-access-token", "pass")]).await.0, BEYOND);
    assert_eq!(ask(&visitor, "GET", "/health", &named("two", "49983")).await.0, 204, "its own port is exempt");
}

/// What handlers see.
async fn inner(app: &App, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    async fn closed(sandbox_request: SandboxRequest) -> String {
        json!([sandbox_request.session.as_str(), sandbox_request.caller.tenant.as_str(), sandbox_request.env["KEY"]])
            .to_string()
    }
    async fn open(OpenSandboxRequest(sandbox_request): OpenSandboxRequest) -> String {
        json!([sandbox_request.sandbox.as_str(), sandbox_request.port]).to_string()
    }
    async fn nowhere(State(_): State<App>) -> StatusCode {
        StatusCode::IM_A_TEAPOT
    }
    let inside = Router::new().route("/files", any(closed)).route("/envs", any(closed)).route("/contexts", any(open));
    let inside = inside.with_state(app.clone());
    let layer = axum::middleware::from_fn_with_state((app.clone(), inside), lead);
    let door = Router::new().fallback(nowhere).layer(layer).with_state(app.clone());
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = door.oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let bytes = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

#[tokio::test]
async fn the_inside_is_opened_by_its_own_token_only() {
    let (app, _) = door(row("two")).await;
    let (one, two) = (token("one"), token("two"));
    let expected = json!(["one", "default", "value"]);
    let [id, port] = named("one", "49983");
    assert_eq!(inner(&app, "GET", "/envs", &[id, port, ("x-access-token", &one)]).await, (200, expected.clone()));
    assert_eq!(inner(&app, "GET", "/envs", &[("x-access-token", &one)]).await, (200, expected));
    for bad in [two.as_str(), "", "x", &one[..63]] {
        let (status, body) = inner(&app, "GET", "/envs", &[id, port, ("x-access-token", bad)]).await;
        assert_eq!((status, &body["code"]), (401, &json!(401)), "{bad}");
    }
    assert_eq!(inner(&app, "GET", "/envs", &[id, port]).await.0, 401);
    assert_eq!(inner(&app, "GET", "/envs", &[]).await.0, 401);
    let open = inner(&app, "GET", "/contexts", &named("one", "49999")).await;
    assert_eq!(open, (200, json!(["one", 49999])), "contexts are asked for without a token");
    assert_eq!(inner(&app, "GET", "/elsewhere", &[]).await.0, 418);
}

#[tokio::test]
async fn files_are_opened_by_a_signature_with_or_without_the_name_of_the_sandbox() {
    let (app, _) = door(row("two")).await;
    let now = Timestamp::now().as_second();
    let signed = |operation, expires| {
        let signature = Signed { path: "/tmp/a b", operation, user: "root", expires }.sign(&token("two"));
        let signature = signature.replace('+', "%2B").replace('/', "%2F");
        let until = expires.map(|expires| format!("&signature_expiration={expires}")).unwrap_or_default();
        format!("/files?path=%2Ftmp%2Fa%20b&username=root&signature={signature}{until}")
    };
    let good = signed(Operation::Read, Some(now + 60));
    let expected = json!(["two", "default", "value"]);
    assert_eq!(inner(&app, "GET", &good, &[]).await, (200, expected.clone()));
    assert_eq!(inner(&app, "GET", &good, &named("two", "49983")).await, (200, expected.clone()));
    assert_eq!(inner(&app, "GET", &good, &named("one", "49983")).await.0, 401, "it is another's");
    assert_eq!(inner(&app, "POST", &good, &[]).await.0, 401, "it is for reading");
    assert_eq!(inner(&app, "POST", &signed(Operation::Write, None), &[]).await, (200, expected));
    let (status, body) = inner(&app, "GET", &signed(Operation::Read, Some(now - 60)), &[]).await;
    assert_eq!((status, &body["message"]), (401, &json!("signature is already expired")));
    let [id, port] = named("two", "49983");
    let with_token = [id, port, ("x-access-token", "x")];
    assert_eq!(inner(&app, "GET", &good, &with_token).await.0, 401, "a token in the header decides alone");
}

#[tokio::test]
async fn a_sandbox_that_is_stopped_goes_on_if_its_maker_said_so() {
    let (app, visitor) = door(SandboxRow { auto_resume: true, ends_at: Timestamp::UNIX_EPOCH, ..row("two") }).await;
    for name in ["one", "two"] {
        app.service().pause_session(&Caller::local(), &name.parse().unwrap()).await.unwrap();
        assert_eq!(ask(&visitor, "GET", "/health", &named(name, "49983")).await.0, 502, "asking does not wake it");
    }
    assert_eq!(inner(&app, "GET", "/envs", &[("x-access-token", &token("one"))]).await.0, 502);
    let [id, port] = named("two", "49983");
    assert_eq!(inner(&app, "GET", "/envs", &[id, port, ("x-access-token", "x")]).await.0, 401);
    assert_eq!(ask(&visitor, "GET", "/health", &[id, port]).await.0, 502, "nor does a stranger");
    assert_eq!(inner(&app, "GET", "/envs", &[("x-access-token", &token("two"))]).await.0, 200);
    assert_eq!(ask(&visitor, "GET", "/health", &[id, port]).await.0, 204);
    let again = app.e2b().directory().find(&"two".parse().unwrap()).await.unwrap().unwrap();
    assert!(again.ends_at > Timestamp::now(), "and has its time again");
}

#[tokio::test]
async fn a_sandbox_whose_session_is_gone_was_not_found() {
    let (app, visitor) = door(row("two")).await;
    app.service().delete_session(&Caller::local(), &"two".parse().unwrap()).await.unwrap();
    assert_eq!(ask(&visitor, "GET", "/health", &named("two", "49983")).await.0, 502);
    assert_eq!(inner(&app, "GET", "/envs", &[("x-access-token", &token("two"))]).await.0, 502);
}
