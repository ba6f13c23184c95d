use futures_util::StreamExt;
use serde_json::{Value, json};

use super::*;
use crate::upstream::{Remote, Upstream};

/// A client of 2024-11-05, by hand.
struct Old<'a> {
    served: &'a Served,
    events: std::pin::Pin<Box<dyn futures_util::Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    buffer: String,
    endpoint: String,
}

impl<'a> Old<'a> {
    async fn open(served: &'a Served, path: &str) -> Self {
        let request = served.http.get(served.url(path)).bearer_auth("ada").header("accept", "text/event-stream");
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let mut old =
            Self { served, events: answer.bytes_stream().boxed(), buffer: String::new(), endpoint: String::new() };
        let (event, data) = old.next().await.unwrap();
        assert_eq!(event, "endpoint");
        old.endpoint = data;
        old
    }

    /// The next event: its kind and its data.
    async fn next(&mut self) -> Option<(String, String)> {
        loop {
            if let Some((event, rest)) = self.buffer.split_once("\n\n") {
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(name)).map(|text| text.trim().to_owned())
                };
                let told = field("event:").zip(field("data:"));
                self.buffer = rest.to_owned();
                if told.is_some() {
                    return told;
                }
                continue;
            }
            let bytes = self.events.next().await?.ok()?;
            self.buffer.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    async fn post(&self, subject: &str, message: Value) -> u16 {
        let request = self.served.http.post(self.served.url(&self.endpoint)).bearer_auth(subject);
        request
            .header("content-type", "application/json")
            .body(message.to_string())
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        assert_eq!(
            self.post("ada", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await,
            202
        );
        loop {
            let (event, data) = self.next().await.unwrap();
            let message: Value = serde_json::from_str(&data).unwrap();
            assert_eq!(event, "message");
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    }

    async fn begin(&mut self) -> Value {
        let params =
            json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
        let result = self.ask(1, "initialize", params).await;
        assert_eq!(self.post("ada", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await, 202);
        result
    }
}

#[tokio::test]
async fn a_client_of_2024_opens_the_same_address_and_is_told_where_to_post() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let mut old = Old::open(&served, "/mcp").await;
    assert!(old.endpoint.starts_with("/mcp?session_id="), "{}", old.endpoint);
    assert_eq!(old.begin().await["protocolVersion"], "2024-11-05");
    let result = old.ask(2, "tools/call", json!({"name": "one__fail"})).await;
    assert_eq!(result["content"][0]["text"], "it failed");
    assert_eq!(served.door.sessions(), 1);
    let mut own = Old::open(&served, "/mcp/box").await;
    own.begin().await;
    let result = own.ask(2, "tools/call", json!({"name": "session_info", "arguments": {}})).await;
    assert!(result["content"][0]["text"].as_str().unwrap().contains("\"subject\":\"ada\""), "{result}");
}

#[tokio::test]
async fn what_it_asked_at_its_address_holds_for_what_it_posts() {
    let served = Served::new().await;
    let mut own = Old::open(&served, "/mcp/box?session=mine&session_id=old").await;
    assert!(own.endpoint.starts_with("/mcp/box?session=mine&session_id="), "{}", own.endpoint);
    assert!(!own.endpoint.contains("session_id=old"), "{}", own.endpoint);
    own.begin().await;
    let result = own.ask(2, "tools/call", json!({"name": "session_info", "arguments": {}})).await;
    assert!(result["content"][0]["text"].as_str().unwrap().contains("\"mine\""), "{result}");
}

#[tokio::test]
async fn its_session_is_there_only_for_its_caller_and_ends_with_its_stream() {
    let served = Served::new().await;
    let mut old = Old::open(&served, "/mcp").await;
    old.begin().await;
    let ping = || json!({"jsonrpc": "2.0", "id": 5, "method": "ping"});
    assert_eq!(old.post("bob", ping()).await, 404);
    assert_eq!(old.post("ada", json!("nonsense")).await, 400);
    let endpoint = old.endpoint.replace("/mcp?", "/mcp/box?");
    let elsewhere =
        served.http.post(served.url(&endpoint)).bearer_auth("ada").body(ping().to_string()).send().await.unwrap();
    assert_eq!(elsewhere.status(), 404);
    drop(old);
    while served.door.sessions() > 0 {
        tokio::task::yield_now().await;
    }
    served.door.close().await;
    served.test_gateway.tasks.close();
    served.test_gateway.tasks.wait().await;
}

fn remote(served: &Served, path: &str) -> Remote {
    Remote::new(&served.url(path), [("Authorization".to_owned(), "Bearer ada".to_owned())]).unwrap()
}

#[tokio::test]
async fn an_old_server_elsewhere_is_an_upstream_like_any_other() {
    let served = Served::new().await;
    let (_, _one) = served.test_gateway.start("one", Everything::default()).await;
    let tasks = served.test_gateway.tasks.clone();
    let old = Upstream::over_legacy_sse("old".parse().unwrap(), &remote(&served, "/mcp"), &tasks).await.unwrap();
    assert_eq!(served.door.sessions(), 1);
    let names: Vec<_> = old.lists().tools.iter().map(|tool| tool.name.to_string()).collect();
    assert!(names.contains(&"one__fail".to_owned()), "{names:?}");
    assert!(old.answers(std::time::Duration::from_secs(30)).await);
    old.close();
    old.closed().await;
    while served.door.sessions() > 0 {
        tokio::task::yield_now().await;
    }
}

/// A server that knows only the scheme of 2024: it takes no message where its stream is.
async fn only_old(served: &Served) -> SocketAddr {
    let routes = served.door.router().layer(from_fn(name_the_caller));
    let app = routes.layer(from_fn(async |request: AxumRequest, next: Next| {
        let is_letter = request.uri().query().is_some_and(|query| query.contains("session_id="));
        if request.method() == http::Method::POST && !is_letter {
            return http::StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        next.run(request).await
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

#[tokio::test]
async fn a_server_that_refuses_streamable_http_is_asked_as_an_old_one() {
    let served = Served::new().await;
    let address = only_old(&served).await;
    let headers = [("Authorization".to_owned(), "Bearer ada".to_owned())];
    let remote = Remote::new(&format!("http://{address}/mcp"), headers).unwrap();
    let old = Upstream::over_http("old".parse().unwrap(), &remote, &served.test_gateway.tasks).await.unwrap();
    assert!(old.answers(std::time::Duration::from_secs(30)).await);
    let nobody = Remote::new(&format!("http://{address}/none"), []).unwrap();
    let refused = Upstream::over_http("none".parse().unwrap(), &nobody, &served.test_gateway.tasks).await.unwrap_err();
    assert!(!refused.to_string().contains("server-sent"), "what was wrong first is told: {refused}");
}
