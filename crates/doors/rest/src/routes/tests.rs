//! Knocking at every route, without a socket.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use box_core::Store;
use box_core::token::TokenRow;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::{Doors, RestConfig, SkillsConfig, testing};
use door_http::Gate;
use door_http::gate::{Peer, Scheme};
use door_http::testing::{MemoryStore, service, token};

async fn door(tokens: &[TokenRow]) -> Router {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with(tokens));
    let gate = Gate::new(&[], &["https://page.example".to_owned()]).unwrap();
    let state = ServerState::new(service(Arc::clone(&store)).await, store, gate);
    testing::door(&state, testing::config(SkillsConfig::default()))
}

fn request(method: &str, path: &str) -> http::request::Builder {
    let local = "127.0.0.1:5410".parse().unwrap();
    let peer = Peer::Tcp { local, remote: "127.0.0.1:9".parse().unwrap() };
    Request::builder().method(method).uri(path).header(header::HOST, "localhost").extension(peer)
}

async fn answer(door: Router, request: Request<Body>) -> (Response<()>, Value) {
    let (parts, body) = door.oneshot(request).await.unwrap().into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    (Response::from_parts(parts, ()), serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
}

async fn ask(method: &str, path: &str, body: &str) -> (u16, Value) {
    let request = request(method, path).header(header::CONTENT_TYPE, "application/json");
    let (response, value) = answer(door(&[]).await, request.body(body.to_owned().into()).unwrap()).await;
    (response.status().as_u16(), value)
}

/// Every operation of the document: method, path with names filled in, whether it needs a token.
fn operations() -> Vec<(String, String, bool)> {
    let document: Value = serde_json::from_str(&document_text(Vec::new())).unwrap();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let filled = path
                .replace("{session_id}", "s")
                .replace("{exec_id}", "e")
                .replace("{process_id}", "p")
                .replace("{context_id}", "c")
                .replace("{skill_name}", "s")
                .replace("{name}", "s")
                .replace("{snapshot_id}", "s")
                .replace("{template}", "s")
                .replace("{tool}", "exec");
            all.push((method.to_uppercase(), filled, operation.get("security").is_some()));
        }
    }
    all
}

#[test]
fn every_operation_is_described_and_every_reference_leads_somewhere() {
    let document: Value = serde_json::from_str(&document_text(Vec::new())).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    let mut names = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name), "{name} names two operations");
            assert_eq!(
                operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"],
                "#/components/schemas/ErrorBody"
            );
        }
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document_text(Vec::new());
    for (at, _) in text.match_indices("#/components/schemas/") {
        let name = text[at + "#/components/schemas/".len()..].split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is not in the document");
    }
    assert!(operations().len() >= 40, "{}", operations().len());
}

/// What client generators rely on: bytes are a string of the format `binary`, and each array has an item type.
#[test]
fn bodies_of_bytes_are_binary_and_no_array_is_closed() {
    let document: Value = serde_json::from_str(&document_text(Vec::new())).unwrap();
    let (mut binary, mut arrays, mut nullable) = (0, 0, 0);
    let mut waiting = vec![(String::new(), &document)];
    while let Some((place, value)) = waiting.pop() {
        // An array that may be null has a list of types.
        let types = value["type"].as_array().map_or(std::slice::from_ref(&value["type"]), Vec::as_slice);
        if types.iter().any(|name| name == "array") {
            arrays += 1;
            nullable += usize::from(types.len() > 1);
            assert!(value["items"].is_object(), "{place}: an array without a type of its items: {value}");
        }
        // A property may also be called `content`; only a body has media types there.
        let is_binary = |kind: &str| {
            kind.contains('/') && !["text/", "application/json", "openmetrics"].iter().any(|text| kind.contains(text))
        };
        for (kind, content) in value["content"].as_object().into_iter().flatten().filter(|(kind, _)| is_binary(kind)) {
            binary += 1;
            let schema = &content["schema"];
            assert_eq!((&schema["type"], &schema["format"]), (&"string".into(), &"binary".into()), "{place}: {kind}");
        }
        let parts: Vec<(String, &Value)> = match value {
            Value::Object(object) => object.iter().map(|(name, part)| (name.clone(), part)).collect(),
            Value::Array(array) => array.iter().enumerate().map(|(at, part)| (at.to_string(), part)).collect(),
            _ => Vec::new(),
        };
        waiting.extend(parts.into_iter().map(|(name, part)| (format!("{place}/{name}"), part)));
    }
    assert!(binary >= 13, "{binary}");
    assert!(arrays > nullable && nullable > 0, "{arrays} arrays, {nullable} of them may be null");
}

#[tokio::test]
async fn without_a_good_token_every_guarded_route_gives_the_same_answer() {
    let mut seen = Vec::new();
    for (method, path, guarded) in operations() {
        for bad in [None, Some("Bearer x"), Some("Basic secret"), Some("Bearer ")] {
            let mut request = request(&method, &path);
            if let Some(bad) = bad {
                request = request.header(header::AUTHORIZATION, bad);
            }
            let (response, body) = answer(door(&[token("alice").1]).await, request.body(Body::empty()).unwrap()).await;
            assert_eq!(response.status() == StatusCode::UNAUTHORIZED, guarded, "{method} {path} {bad:?}");
            if guarded {
                assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer realm=\"strongbox\"");
                seen.push(body);
            }
        }
    }
    assert_eq!(seen[0]["error"]["code"], "unauthorized");
    assert!(seen.iter().all(|body| *body == seen[0]));
}

#[tokio::test]
async fn a_token_opens_what_its_scopes_say() {
    let (secret, row) = token("alice");
    let tokens = [row];
    let with = |path: &str| {
        request("GET", path).header(header::AUTHORIZATION, format!("Bearer {secret}")).body(Body::empty()).unwrap()
    };
    let (response, body) = answer(door(&tokens).await, with("/v1/health")).await;
    assert_eq!((response.status(), &body["available"]), (StatusCode::OK, &Value::Bool(false)));
    let (response, body) = answer(door(&tokens).await, with("/metrics")).await;
    assert_eq!((response.status(), &body["error"]["code"]), (StatusCode::FORBIDDEN, &"forbidden".into()));
    assert!(body["error"]["message"].as_str().unwrap().contains("admin"));
}

#[tokio::test]
async fn host_and_origin_come_before_everything() {
    for (method, path, _) in operations() {
        for (name, value) in
            [(header::HOST, "evil.example"), (header::ORIGIN, "https://evil.example"), (header::ORIGIN, "null")]
        {
            let mut request = request(&method, &path).body(Body::empty()).unwrap();
            request.headers_mut().insert(name.clone(), value.parse().unwrap());
            let (response, body) = answer(door(&[token("alice").1]).await, request).await;
            assert_eq!(response.status(), StatusCode::FORBIDDEN, "{method} {path} {name}");
            assert_eq!(body["error"]["code"], "forbidden");
        }
    }
}

#[tokio::test]
async fn a_page_that_was_allowed_is_answered_as_its_browser_needs_it() {
    let page = |method| request(method, "/v1/health").header(header::ORIGIN, "https://page.example");
    let asks = page("OPTIONS").header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST").body(Body::empty()).unwrap();
    let (response, _) = answer(door(&[token("alice").1]).await, asks).await;
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    assert_eq!(response.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://page.example");
    let (response, _) = answer(door(&[token("alice").1]).await, page("GET").body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "it still needs a token");
    assert_eq!(response.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://page.example");
}

#[tokio::test]
async fn a_path_or_method_that_we_do_not_have_is_told_in_the_same_shape() {
    let (status, body) = ask("GET", "/v2/nothing", "").await;
    assert_eq!((status, &body["error"]["code"]), (404, &"not_found".into()));
    let (response, body) = answer(door(&[]).await, request("PUT", "/v1/sessions/s").body(Body::empty()).unwrap()).await;
    assert_eq!((response.status().as_u16(), &body["error"]["code"]), (405, &"method_not_allowed".into()));
    assert!(response.headers()[header::ALLOW].to_str().unwrap().contains("DELETE"));
}

#[tokio::test]
async fn a_body_that_is_too_large_or_no_json_is_told_in_the_same_shape() {
    let large = " ".repeat(door_http::limits::BODY_BYTES_MAX + 1);
    for path in ["/v1/sessions/s", "/v1/sessions/s/exec", "/v1/sessions/s/execs/e/stdin"] {
        let (status, body) = ask("POST", path, &large).await;
        assert_eq!((status, &body["error"]["code"]), (413, &"too_large".into()), "{path}");
    }
    let form = request("POST", "/v1/sessions/s/exec").header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let (response, body) = answer(door(&[]).await, form.body("cmd=ls".into()).unwrap()).await;
    assert_eq!((response.status().as_u16(), &body["error"]["code"]), (415, &"unsupported_media_type".into()));
    let (status, body) = ask("POST", "/v1/sessions/s/exec", "{\"cmd\":").await;
    assert_eq!((status, &body["error"]["field"]), (400, &"cmd".into()));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_announces_too_much_is_refused_before_it_is_there() {
    let announced = request("POST", "/v1/sessions/s").header(header::CONTENT_LENGTH, "99999999999");
    let never = Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let (response, _) = answer(door(&[]).await, announced.body(never).unwrap()).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_too_slowly_is_given_up() {
    let never = Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let (response, body) = answer(door(&[]).await, request("POST", "/v1/sessions/s").body(never).unwrap()).await;
    assert_eq!((response.status(), &body["error"]["code"]), (StatusCode::REQUEST_TIMEOUT, &"too_slow".into()));
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_bounded_by_what_it_announces_and_not_by_the_bound_of_json() {
    let put = |length: u64, path: &str| {
        let never = Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
        let announced = request("PUT", path).header(header::CONTENT_LENGTH, length);
        announced.body(never).unwrap()
    };
    let path = "/v1/sessions/s/files?path=/a";
    let (response, body) = answer(door(&[]).await, put(crate::limits::FILE_BYTES_MAX + 1, path)).await;
    assert_eq!((response.status().as_u16(), &body["error"]["code"]), (413, &"too_large".into()));
    let (response, body) = answer(door(&[]).await, put(crate::limits::FILE_BYTES_MAX, path)).await;
    assert_eq!((response.status().as_u16(), &body["error"]["code"]), (404, &"session_not_found".into()));
}

#[tokio::test]
async fn names_in_a_path_are_checked() {
    for (path, status, field) in [
        ("/v1/sessions/%20", 400, Some("session_id")),
        ("/v1/sessions/a%00b", 400, Some("session_id")),
        ("/v1/sessions/a%E2%80%AEb", 400, Some("session_id")),
        ("/v1/sessions/%FF", 400, Some("path")),
        ("/v1/sessions/s/processes/a%0Ab", 400, Some("process_id")),
        ("/v1/sessions/s/execs/..%2F..%2Fetc", 404, None),
        ("/v1/sessions?limit=0", 400, Some("limit")),
        ("/v1/sessions?limits=1", 400, Some("limits")),
        ("/v1/sessions?state=asleep", 400, Some("state")),
        ("/v1/sessions?limit=1&limit=2", 400, Some("limit")),
        ("/v1/sessions/s/execs/e/output?stream=stdlog", 400, Some("stream")),
        ("/v1/sessions/s/execs/e/events?cursor=1", 400, Some("cursor")),
        ("/v1/sessions/s/files", 400, Some("path")),
        ("/v1/sessions/s/files?path=", 400, Some("path")),
        ("/v1/sessions/s/files?path=/a%00", 400, Some("path")),
        ("/v1/sessions/s/files?path=/a/../b", 400, Some("path")),
        ("/v1/sessions/s/files?path=/a&archive=zip", 400, Some("archive")),
        ("/v1/sessions/s/files?path=/a", 404, None),
        ("/v1/sessions/s/files/list?path=/&depth=0", 400, Some("depth")),
        ("/v1/sessions/s/files/list?path=/&limit=10001", 400, Some("limit")),
        ("/v1/sessions/s/files/stat?paths=/", 400, Some("paths")),
        ("/v1/sessions/s/files/watch?path=/&recursive=2", 400, Some("recursive")),
    ] {
        let (found, body) = ask("GET", path, "").await;
        assert_eq!(found, status, "{path} {body}");
        assert_eq!(body["error"]["field"].as_str(), field, "{path}");
    }
}

#[tokio::test]
async fn a_request_has_an_id_and_no_browser_takes_an_answer_for_a_page() {
    let (first, _) = answer(door(&[]).await, request("GET", "/healthz").body(Body::empty()).unwrap()).await;
    let (second, _) = answer(door(&[]).await, request("GET", "/nowhere").body(Body::empty()).unwrap()).await;
    assert_ne!(first.headers()["strongbox-request-id"], second.headers()["strongbox-request-id"]);
    for response in [first, second] {
        assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert!(response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().contains("default-src 'none'"));
    }
}

#[tokio::test]
async fn what_needs_no_token_is_there() {
    let plain = |path: &'static str| async move {
        let (response, body) =
            answer(door(&[token("alice").1]).await, request("GET", path).body(Body::empty()).unwrap()).await;
        (response.status().as_u16(), body)
    };
    let (status, body) = plain("/healthz").await;
    assert_eq!((status, &body["live"], &body["resources"]["sessions"]), (200, &true.into(), &0.into()));
    assert!(plain("/").await.1.as_str().unwrap().contains("/openapi.json"));
    assert!(plain("/openapi.json").await.1["paths"].is_object());
    let (status, body) = plain("/readyz").await;
    assert_eq!((status, &body["error"]["code"]), (503, &"backend_unavailable".into()), "no box can live in a test");
    assert_eq!(&body["ready"], &Value::Bool(false));
    assert_eq!(body["checks"]["backend_available"], false);
}

#[tokio::test]
async fn the_front_page_has_the_form_that_is_asked_for() {
    for (accept, kind) in [
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/html"),
        ("application/json", "application/json"),
        ("*/*", "text/plain"),
    ] {
        let asked = request("GET", "/").header(header::ACCEPT, accept).body(Body::empty()).unwrap();
        let (response, body) = answer(door(&[token("alice").1]).await, asked).await;
        let shown = response.headers()[header::CONTENT_TYPE].to_str().unwrap();
        assert!(shown.starts_with(kind), "{accept}: {shown}");
        let text = body.as_str().map_or_else(|| body.to_string(), ToOwned::to_owned);
        for word in [env!("CARGO_PKG_VERSION"), "/mcp/box", "docs/rest.md", "/openapi.json", "strongbox exec demo"] {
            assert!(text.contains(word), "{accept}: {word}: {text}");
        }
    }
}

#[tokio::test]
async fn the_front_page_names_the_address_that_was_used() {
    let shown = async |host: &str, peer: Peer, scheme: Scheme| {
        let asked = request("GET", "/").header(header::ACCEPT, "application/json").extension(peer).extension(scheme);
        let mut asked = asked.body(Body::empty()).unwrap();
        asked.headers_mut().insert(header::HOST, host.parse().unwrap());
        answer(door(&[]).await, asked).await.1["try"].to_string()
    };
    let tcp = Peer::Tcp { local: "192.0.2.1:8443".parse().unwrap(), remote: "192.0.2.9:1".parse().unwrap() };
    let far = shown("192.0.2.1:8443", tcp, Scheme::Https).await;
    for part in ["export STRONGBOX_URL=https://192.0.2.1:8443 STRONGBOX_TOKEN", "https://192.0.2.1:8443/openapi.json"] {
        assert!(far.contains(part), "{part}: {far}");
    }
    let near = shown("[::1]:7000", tcp, Scheme::Http).await;
    assert!(near.contains("curl -s http://[::1]:7000/openapi.json") && !near.contains("STRONGBOX_URL"), "{near}");
    let by_socket = shown("<script>", Peer::Unix, Scheme::Http).await;
    assert!(by_socket.contains("strongbox status") && !by_socket.contains("script"), "{by_socket}");
}

#[tokio::test]
async fn the_front_page_names_no_door_that_is_closed() {
    let state = door_http::testing::state(Arc::new(MemoryStore::default())).await;
    let doors = Doors { mcp: false, e2b: false };
    let door = testing::door(&state, RestConfig { doors, ..testing::config(SkillsConfig::default()) });
    let asked = request("GET", "/").header(header::ACCEPT, "application/json").body(Body::empty()).unwrap();
    let doors = answer(door, asked).await.1["doors"].clone();
    let names: Vec<_> = doors.as_array().unwrap().iter().map(|door| door["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["REST", "LangBot"]);
}

#[tokio::test]
async fn metrics_count_answers_by_route_and_not_by_path() {
    let door = door(&[]).await;
    for path in ["/v1/sessions/one", "/v1/sessions/two", "/v1/secret-path", "/v2/secret-path"] {
        answer(door.clone(), request("GET", path).body(Body::empty()).unwrap()).await;
    }
    let strange = Method::from_bytes(b"BREW").unwrap();
    answer(door.clone(), request(strange.as_str(), "/healthz").body(Body::empty()).unwrap()).await;
    let (_, text) = answer(door, request("GET", "/metrics").body(Body::empty()).unwrap()).await;
    let text = text.as_str().unwrap();
    let line = |start: &str| text.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>();
    let sessions: Vec<_> = line("strongbox_http_requests_total{method=\"GET\",route=\"/v1/sessions/{session_id}\"");
    assert!(sessions.len() == 1 && sessions[0].ends_with(" 2"), "{text}");
    assert!(line("strongbox_http_requests_total{method=\"other\"").len() == 1, "{text}");
    assert!(!text.contains("secret-path") && !text.contains("BREW"), "{text}");
    assert!(!line("strongbox_sessions 0").is_empty() && !line("strongbox_execs_started_total 0").is_empty(), "{text}");
    assert!(text.contains("strongbox_http_request_duration_seconds_bucket"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn a_panic_is_an_error_like_any_other_and_tells_nothing() {
    let state = door_http::testing::state(Arc::new(MemoryStore::default())).await;
    let panics = Router::new().route("/", get(|| async { panic!("secret words") as &'static str }));
    let panics = door_http::surround(&state, panics);
    let (response, body) = answer(panics, request("GET", "/").body(Body::empty()).unwrap()).await;
    assert_eq!((response.status().as_u16(), &body["error"]["code"]), (500, &"internal_error".into()));
    assert_eq!(body["error"]["request_id"], response.headers()["strongbox-request-id"].to_str().unwrap());
    assert!(!body.to_string().contains("secret words"));
}

#[tokio::test]
async fn what_speaks_websocket_says_so_to_others() {
    let (status, body) = ask("GET", "/v1/sessions/s/exec/ws", "").await;
    assert_eq!((status, &body["error"]["code"]), (426, &"upgrade_required".into()));
}

#[tokio::test]
async fn a_tool_that_does_not_exist_names_those_that_do() {
    let (status, body) = ask("POST", "/v1/tools/sudo", "{}").await;
    assert_eq!((status, &body["error"]["code"]), (404, &"tool_not_found".into()));
    assert!(body["error"]["message"].as_str().unwrap().contains("exec, run_code, read, write"), "{body}");
    for (tool, body, field) in [
        ("exec", "{}", "command"),
        ("exec", r#"{"parameters": []}"#, "parameters"),
        ("exec", r#"{"parameters": {"command": "x", "timeout_sec": "soon"}}"#, "timeout_sec"),
        ("read", r#"{"parameters": {"path": "a"}, "query": {"launcher_id": {}}}"#, "query.launcher_id"),
        ("read", r#"{"query": 7}"#, "query"),
    ] {
        let (status, told) = ask("POST", &format!("/v1/tools/{tool}"), body).await;
        assert_eq!((status, &told["error"]["field"]), (400, &field.into()), "{tool} {body}");
    }
}

#[tokio::test]
async fn one_of_its_scopes_opens_the_tools_and_each_asks_for_its_own() {
    for (scope, tool) in [(Scope::Exec, "read"), (Scope::Files, "exec")] {
        let (secret, mut row) = token("alice");
        row.scopes = [scope].into();
        let with = |method: &str, path: &str, body: &'static str| {
            let request = request(method, path).header(header::AUTHORIZATION, format!("Bearer {secret}"));
            request.body(Body::from(body)).unwrap()
        };
        let (response, body) = answer(door(&[row.clone()]).await, with("GET", "/v1/tools", "")).await;
        assert_eq!((response.status(), body["tools"].as_array().unwrap().len()), (StatusCode::OK, 8));
        let (response, _) = answer(door(&[row]).await, with("POST", &format!("/v1/tools/{tool}"), "{}")).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{tool}");
    }
    let (secret, mut row) = token("alice");
    row.scopes = [Scope::Skills].into();
    let asks = request("GET", "/v1/tools").header(header::AUTHORIZATION, format!("Bearer {secret}"));
    let (response, body) = answer(door(&[row]).await, asks.body(Body::empty()).unwrap()).await;
    assert_eq!((response.status(), &body["error"]["code"]), (StatusCode::FORBIDDEN, &"forbidden".into()));
}
