//! The control plane through the routes, with boxes that do nothing.

mod builds;
mod saved;

use std::sync::Arc;

use box_core::session::LeaseEnd;
use box_core::{Caller, Scope, Service, ServiceConfig, Store};
use http::HeaderMap;
use serde_json::{Value, json};

use crate::testing::{Still, Visitor, app, service_with};
use door_http::testing::{MemoryStore, tokens};

/// A server, and people with keys of their own.
struct Door {
    visitor: Visitor,
    keys: Vec<String>,
}

impl Door {
    async fn new(people: &[(&str, &str, &[Scope])]) -> Self {
        Self::configured(people, ServiceConfig::default()).await.0
    }

    async fn configured(people: &[(&str, &str, &[Scope])], config: ServiceConfig) -> (Self, Service) {
        let (secrets, rows) = tokens(people);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::with(&rows));
        let service = service_with(Arc::new(Still::default()), Arc::clone(&store), config).await;
        let visitor = Visitor::new(app(service.clone(), store));
        (Self { visitor, keys: secrets.iter().map(Self::spelled).collect() }, service)
    }

    /// A secret as clients check it.
    fn spelled(secret: impl AsRef<str>) -> String {
        format!("e2b_{}", secret.as_ref().trim_start_matches("sbx_").replace('_', ""))
    }

    async fn open() -> Self {
        let mut door = Self::new(&[]).await;
        door.keys.push(KEY.to_owned());
        door
    }

    async fn full(&self, who: usize, method: &str, path: &str, body: Value) -> (u16, HeaderMap, Value) {
        self.visitor.send(method, path, &[("x-api-key", &self.keys[who])], body).await
    }

    async fn ask(&self, who: usize, method: &str, path: &str, body: Value) -> (u16, Value) {
        let (status, _, body) = self.full(who, method, path, body).await;
        (status, body)
    }

    /// Makes a sandbox with what is asked besides the template.
    async fn make(&self, who: usize, mut asked: Value) -> Value {
        asked["templateID"] = json!("base");
        let (status, made) = self.ask(who, "POST", "/v2/sandboxes", asked).await;
        assert_eq!(status, 201, "{made}");
        made
    }

    async fn ids(&self, who: usize, path: &str) -> Vec<String> {
        let (status, list) = self.ask(who, "GET", path, Value::Null).await;
        assert_eq!(status, 200, "{list}");
        let id = |sandbox: &Value| sandbox["sandboxID"].as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(id).collect()
    }
}

fn id(made: &Value) -> &str {
    made["sandboxID"].as_str().unwrap()
}

const EXEC: &[Scope] = &[Scope::Exec];

/// Any key will do where there are no tokens.
const KEY: &str = "e2b_0000000000000000000000000000000000000000";

#[tokio::test]
async fn a_sandbox_is_made_shown_and_killed() {
    let door = Door::open().await;
    for path in ["/sandboxes", "/v2/sandboxes"] {
        let asked = json!({
            "templateID": "base", "timeout": 60, "autoPause": true, "autoResume": { "enabled": true }, "secure": true,
            "allow_internet_access": false, "network": { "allowPublicTraffic": false, "denyOut": ["1.1.1.1/32"] },
            "metadata": { "a": "b c" }, "envVars": { "X": "1" }, "unknown": [1],
        });
        let (status, made) = door.ask(0, "POST", path, asked).await;
        assert_eq!(status, 201, "{made}");
        assert_eq!((id(&made).len(), &made["templateID"]), (20, &json!("base")));
        assert_eq!((&made["domain"], &made["envdVersion"]), (&json!("box.example"), &json!("0.6.13")));
        assert_eq!(made["trafficAccessToken"].as_str().unwrap().len(), 64);
        let address = format!("/sandboxes/{}", id(&made));
        let (status, shown) = door.ask(0, "GET", &format!("{address}-client"), Value::Null).await;
        assert_eq!((status, &shown["state"], &shown["metadata"]["a"]), (200, &json!("running"), &json!("b c")));
        for (field, kind) in [("cpuCount", 2), ("memoryMB", 1024)] {
            assert_eq!(shown[field], json!(kind), "{field}");
        }
        assert_eq!(shown["lifecycle"], json!({ "autoResume": true, "onTimeout": "pause" }));
        assert_eq!(shown["allowInternetAccess"], json!(false));
        let token = made["envdAccessToken"].as_str().unwrap();
        let (_, _, envs) = door.visitor.send("GET", "/envs", &[("x-access-token", token)], Value::Null).await;
        let expected =
            json!({ "X": "1", "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": id(&made), "E2B_TEMPLATE_ID": "base" });
        assert_eq!(envs, expected);
        let (_, _, metrics) = door.visitor.send("GET", "/metrics", &[("x-access-token", token)], Value::Null).await;
        assert_eq!((&metrics["cpu_count"], &metrics["mem_used_mib"]), (&json!(2), &json!(64)));
        assert_eq!(door.ask(0, "DELETE", &address, Value::Null).await.0, 204);
        for (method, path) in
            [("GET", address.clone()), ("DELETE", address.clone()), ("POST", format!("{address}/pause"))]
        {
            let (status, body) = door.ask(0, method, &path, Value::Null).await;
            assert_eq!(
                (status, &body["code"], body["message"].is_string()),
                (404, &json!(404), true),
                "{method} {path}"
            );
        }
    }
}

/// When the box of a sandbox ends itself if no server is there.
fn lease_end(service: &Service, made: &Value) -> LeaseEnd {
    service.peek_session(&Caller::local(), &id(made).parse().unwrap()).unwrap().config.lease_end
}

#[tokio::test]
async fn a_box_knows_the_end_of_its_sandbox() {
    let (mut door, service) = Door::configured(&[], ServiceConfig::default()).await;
    door.keys.push(KEY.to_owned());
    let made = door.make(0, json!({ "timeout": 60 })).await;
    let address = format!("/sandboxes/{}", id(&made));
    let end = async || {
        let (_, shown) = door.ask(0, "GET", &address, Value::Null).await;
        LeaseEnd::At(shown["endAt"].as_str().unwrap().parse().unwrap())
    };
    let first = lease_end(&service, &made);
    assert_eq!(first, end().await);
    let post = async |what: &str, body: Value| {
        let (status, told) = door.ask(0, "POST", &format!("{address}/{what}"), body).await;
        assert!((200..300).contains(&status), "{what}: {told}");
    };
    let mut last = first;
    for (what, seconds) in [("timeout", 120), ("refreshes", 600), ("connect", 900)] {
        post(what, json!({ "timeout": seconds, "duration": seconds })).await;
        let now = lease_end(&service, &made);
        assert!(now != last && now == end().await, "{what}: {now:?} after {last:?}");
        last = now;
    }
    post("pause", Value::Null).await;
    assert_eq!(lease_end(&service, &made), last, "a paused box waits, whatever its end");
    post("resume", json!({ "timeout": 60 })).await;
    assert_eq!(lease_end(&service, &made), end().await);
    let stopped_at_its_end = door.make(0, json!({ "timeout": 60, "autoPause": true })).await;
    assert_eq!(lease_end(&service, &stopped_at_its_end), LeaseEnd::Never, "what it holds is kept");
}

#[tokio::test]
async fn one_tenant_leaves_room_for_sandboxes_and_requests_of_another() {
    let config = || ServiceConfig { max_sessions: 4, ..ServiceConfig::default() };
    let (alone, _) = Door::configured(&[("one", "left", EXEC), ("two", "left", EXEC)], config()).await;
    for _ in 0..4 {
        alone.make(0, json!({})).await;
    }
    let (door, service) = Door::configured(&[("one", "left", EXEC), ("two", "right", EXEC)], config()).await;
    let asked = || json!({ "templateID": "base" });
    for who in [0, 1] {
        door.make(who, json!({})).await;
        door.make(who, json!({})).await;
        let (status, told) = door.ask(who, "POST", "/v2/sandboxes", asked()).await;
        assert_eq!(status, 429, "{told}");
    }
    let id = door.ids(0, "/sandboxes").await.remove(0);
    assert_eq!(door.ask(0, "DELETE", &format!("/sandboxes/{id}"), Value::Null).await.0, 204);
    let (status, told) = door.ask(1, "POST", "/v2/sandboxes", asked()).await;
    let message = told["message"].as_str().unwrap();
    assert!(status == 429 && message.contains("(2)") && message.contains("tenant_share_percent"), "{told}");
    let mut open_bodies = service.buffered(&"left".parse().unwrap());
    open_bodies.resize(128 << 20).unwrap();
    let (status, told) = door.ask(0, "POST", "/v2/sandboxes", asked()).await;
    assert!(status == 429 && told["message"].as_str().unwrap().contains("buffered"), "{told}");
    let path = format!("/sandboxes/{}/timeout", door.ids(1, "/sandboxes").await[0]);
    assert_eq!(door.ask(1, "POST", &path, json!({ "timeout": 60 })).await.0, 204, "others are served");
    drop(open_bodies);
    door.make(0, json!({})).await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_a_number_and_a_sentence() {
    let door = Door::open().await;
    let many: Value = (0..300).map(|number| (number.to_string(), json!(""))).collect::<serde_json::Map<_, _>>().into();
    let table = [
        (json!({}), 400),
        (json!({ "templateID": "base", "timeout": 0 }), 400),
        (json!({ "templateID": "base", "timeout": -5 }), 400),
        (json!({ "templateID": "base", "timeout": 100_000_000 }), 400),
        (json!({ "templateID": "base", "timeout": "soon" }), 400),
        (json!({ "templateID": "base", "metadata": many }), 400),
        (json!({ "templateID": "base", "envVars": { "A=B": "" } }), 400),
        (json!({ "templateID": "base", "autoPauseMemory": false, "autoResume": { "enabled": true } }), 400),
        (json!({ "templateID": "nonexistent" }), 404),
        (json!({ "templateID": "base", "network": { "denyOut": ["1.1.1.1"] } }), 501),
        (json!({ "templateID": "base", "mcp": { "time": {} } }), 501),
        (json!([]), 400),
    ];
    for (asked, expected) in table {
        let (status, body) = door.ask(0, "POST", "/v2/sandboxes", asked.clone()).await;
        assert_eq!((status, &body["code"]), (expected, &json!(expected)), "{asked}: {body}");
        assert!(body["message"].is_string(), "{body}");
    }
    assert_eq!(door.ids(0, "/v2/sandboxes").await, [""; 0], "nothing was made");
}

#[tokio::test]
async fn keys_are_tokens_and_tenants_never_see_each_other() {
    let door = Door::new(&[("ann", "acme", EXEC), ("bob", "other", EXEC), ("files", "acme", &[Scope::Files])]).await;
    let made = door.make(0, json!({})).await;
    let address = format!("/sandboxes/{}", id(&made));
    assert_eq!(door.ask(0, "GET", &address, Value::Null).await.0, 200);
    for (method, path) in [("GET", ""), ("DELETE", ""), ("POST", "/connect"), ("POST", "/pause"), ("GET", "/metrics")] {
        let body = if method == "POST" { json!({ "timeout": 5 }) } else { Value::Null };
        assert_eq!(door.ask(1, method, &format!("{address}{path}"), body).await.0, 404, "{method} {path}");
    }
    assert_eq!((door.ids(1, "/v2/sandboxes").await.len(), door.ids(0, "/sandboxes").await.len()), (0, 1));
    assert_eq!(door.ask(2, "GET", &address, Value::Null).await.0, 403, "another right");
    let bad = ["", "e2b_00", "x", &door.keys[0][..40]];
    for key in bad {
        let (status, _, body) = door.visitor.send("GET", &address, &[("x-api-key", key)], Value::Null).await;
        assert_eq!((status, &body["code"]), (401, &json!(401)), "{key}");
    }
    assert_eq!(door.visitor.send("GET", &address, &[], Value::Null).await.0, 401);
    let bearer = format!("Bearer {}", door.keys[0]);
    assert_eq!(door.visitor.send("GET", &address, &[("authorization", &bearer)], Value::Null).await.0, 200);
    assert_eq!(door.visitor.send("GET", "/v1/status", &[("authorization", &bearer)], Value::Null).await.0, 200);
}

#[tokio::test]
async fn a_sandbox_stops_and_goes_on() {
    let door = Door::open().await;
    let made = door.make(0, json!({ "timeout": 1000 })).await;
    let address = format!("/sandboxes/{}", id(&made));
    let post = async |path: &str, body: Value| door.ask(0, "POST", &format!("{address}{path}"), body).await;
    let end = async || {
        let (_, shown) = door.ask(0, "GET", &address, Value::Null).await;
        shown["endAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap()
    };
    let (status, again) = post("/connect", json!({ "timeout": 5 })).await;
    assert_eq!((status, &again["envdAccessToken"]), (200, &made["envdAccessToken"]));
    assert!(end().await > jiff::Timestamp::now() + jiff::SignedDuration::from_secs(900), "connecting never shortens");
    assert_eq!(post("/connect", Value::Null).await.0, 400, "the first version wants a timeout");
    assert_eq!(post("/resume", Value::Null).await.0, 409, "it runs");
    assert_eq!(post("/timeout", json!({ "timeout": 10 })).await.0, 204);
    assert!(end().await < jiff::Timestamp::now() + jiff::SignedDuration::from_secs(11), "a timeout may shorten");
    assert_eq!(post("/refreshes", json!({ "duration": 500 })).await.0, 204);
    let refreshed = end().await;
    assert_eq!(post("/refreshes", Value::Null).await.0, 204);
    assert_eq!(end().await, refreshed, "a refresh only extends");
    assert_eq!(post("/pause", Value::Null).await.0, 204);
    assert_eq!(post("/pause", json!({ "memory": true })).await.0, 409);
    assert!(end().await <= jiff::Timestamp::now(), "what is stopped ended when it was");
    assert_eq!(door.ids(0, "/sandboxes").await.len(), 0);
    assert_eq!(door.ids(0, "/v2/sandboxes?state=paused").await.len(), 1);
    assert_eq!(door.ids(0, "/v2/sandboxes?state=running").await.len(), 0);
    let (status, _) = door.ask(0, "POST", &format!("/v2{address}/connect"), json!({})).await;
    assert_eq!(status, 201, "it goes on");
    assert_eq!(post("/pause", Value::Null).await.0, 204);
    assert_eq!(post("/resume", json!({ "timeout": 30 })).await.0, 201);
    let (status, metrics) = door.ask(0, "GET", &format!("{address}/metrics"), Value::Null).await;
    assert_eq!((status, &metrics[0]["memTotal"]), (200, &json!(1024 << 20)));
    let fields =
        ["timestamp", "timestampUnix", "cpuCount", "cpuUsedPct", "memUsed", "memCache", "diskUsed", "diskTotal"];
    assert!(fields.iter().all(|field| !metrics[0][*field].is_null()), "{metrics}");
}

#[tokio::test]
async fn sandboxes_are_listed_in_pages_and_by_what_is_written_on_them() {
    let door = Door::open().await;
    let mut made = Vec::new();
    for number in 0..5 {
        let asked = json!({ "metadata": { "who": "a b&c=é", "odd": (number % 2).to_string() } });
        made.push(id(&door.make(0, asked).await).to_owned());
    }
    made.reverse();
    let (mut found, mut next): (Vec<String>, String) = (Vec::new(), String::new());
    loop {
        let path = format!("/v2/sandboxes?limit=2&nextToken={next}");
        let (status, headers, page) = door.full(0, "GET", &path, Value::Null).await;
        assert_eq!((status, headers["x-total-running"].to_str().unwrap()), (200, "5"));
        found.extend(page.as_array().unwrap().iter().map(|sandbox| id(sandbox).to_owned()));
        let Some(token) = headers.get("x-next-token") else { break };
        next = token.to_str().unwrap().to_owned();
    }
    assert_eq!(found, made, "newest first, each once");
    made.reverse();
    assert_eq!(door.ids(0, "/v2/sandboxes?order=asc").await, made);
    // As the SDKs write it: names and values escaped, then the whole, then once more as a query.
    let written = "who%253Da%252520b%252526c%25253D%2525C3%2525A9%2526odd%253D1";
    for path in ["/sandboxes", "/v2/sandboxes"] {
        assert_eq!(door.ids(0, &format!("{path}?metadata={written}")).await.len(), 2, "{path}");
    }
    assert_eq!(door.ids(0, "/v2/sandboxes?template=other").await.len(), 0);
    assert_eq!(door.ids(0, "/v2/sandboxes?startedAfter=2020-01-01T00:00:00Z&state=running,paused").await.len(), 5);
    for bad in ["limit=0", "limit=101", "order=up", "state=dead", "nextToken=x", "startedAfter=now", "metadata=%25zz"] {
        assert_eq!(door.ask(0, "GET", &format!("/v2/sandboxes?{bad}"), Value::Null).await.0, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_call_with_a_key_of_its_own_makes_one_sandbox() {
    let door = Door::open().await;
    let send = async |key: &str, template: &str| {
        let headers = [("x-api-key", door.keys[0].as_str()), ("idempotency-key", key)];
        let (status, _, body) =
            door.visitor.send("POST", "/v2/sandboxes", &headers, json!({ "templateID": template })).await;
        (status, body)
    };
    let (one, two) = tokio::join!(send("a-1", "base"), send("a-1", "base"));
    assert_eq!((one.0, two.0), (201, 201));
    assert_eq!(id(&one.1), id(&two.1));
    assert_ne!(id(&send("a-2", "base").await.1), id(&one.1));
    assert_eq!(send("a-1", "desktop").await.0, 422);
    let (longest, long) = ("a".repeat(255), "a".repeat(256));
    assert_eq!(send(&longest, "base").await.0, 201);
    for bad in ["", "A", "a b", &long] {
        assert_eq!(send(bad, "base").await.0, 400, "{bad:?}");
    }
    assert_eq!(door.ids(0, "/v2/sandboxes").await.len(), 3);
}

#[tokio::test]
async fn a_network_stays_as_it_was_made_and_nobody_is_told_otherwise() {
    let door = Door::open().await;
    for (closed, same, other) in [
        (true, json!({ "denyOut": ["0.0.0.0/0"] }), json!({})),
        (false, json!({}), json!({ "allow_internet_access": false })),
    ] {
        let made = door.make(0, json!({ "allow_internet_access": !closed })).await;
        let address = format!("/sandboxes/{}/network", id(&made));
        assert_eq!(door.ask(0, "PUT", &address, same).await.0, 204);
        assert_eq!(door.ask(0, "PUT", &address, other).await.0, 409);
        assert_eq!(door.ask(0, "PUT", &address, json!({ "rules": { "a.example": [] } })).await.0, 501);
    }
    assert_eq!(door.ask(0, "PUT", "/sandboxes/none/network", json!({})).await.0, 404);
}

#[tokio::test]
async fn a_log_says_what_happened() {
    let door = Door::open().await;
    let made = door.make(0, json!({})).await;
    let (status, log) = door.ask(0, "GET", &format!("/sandboxes/{}/logs", id(&made)), Value::Null).await;
    assert_eq!((status, &log["logs"][0]["line"]), (200, &json!("sandbox started")));
    assert_eq!(log["logEntries"][0]["level"], json!("info"));
    let (status, log) = door.ask(0, "GET", &format!("/v2/sandboxes/{}/logs?level=warn", id(&made)), Value::Null).await;
    assert_eq!((status, log), (200, json!({ "logs": [] })));
}

#[tokio::test]
async fn what_is_not_served_is_said() {
    let door = Door::open().await;
    for path in ["/secrets", "/secrets/a", "/templates/x/builds/y", "/nodes"] {
        let (status, body) = door.ask(0, "POST", path, json!({})).await;
        assert_eq!((status, &body["code"]), (501, &json!(501)), "{path}");
        assert!(body["message"].as_str().unwrap().contains("not served"), "{body}");
    }
}

#[tokio::test]
async fn templates_and_teams_can_be_looked_at() {
    let door = Door::open().await;
    let (_, templates) = door.ask(0, "GET", "/templates", Value::Null).await;
    let names: Vec<_> = templates.as_array().unwrap().iter().map(|template| template["templateID"].clone()).collect();
    assert_eq!(names, ["base", "code-interpreter-v1", "desktop"]);
    assert_eq!(door.ask(0, "GET", "/templates/aliases/base", Value::Null).await.0, 200);
    assert_eq!(door.ask(0, "GET", "/templates/aliases/other", Value::Null).await.0, 404);
    assert_eq!(door.ask(0, "GET", "/teams", Value::Null).await.1[0]["teamID"], json!("default"));
    assert_eq!(door.visitor.send("GET", "/health", &[], Value::Null).await.0, 200);
}

#[tokio::test]
async fn a_body_that_says_it_is_no_json_is_refused() {
    let door = Door::open().await;
    let key = door.keys[0].clone();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let headers = [("x-api-key", key.as_str()), ("content-type", kind)];
        let asked = json!({ "templateID": "base" });
        let (status, _, told) = door.visitor.send("POST", "/v2/sandboxes", &headers, asked).await;
        assert_eq!(status, 415, "{kind}: {told}");
    }
    assert!(door.ids(0, "/v2/sandboxes").await.is_empty());
}
